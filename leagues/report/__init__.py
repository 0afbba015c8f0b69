# SPDX-License-Identifier: Apache-2.0
"""A league on one HTML page that opens without a network."""
