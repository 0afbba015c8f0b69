# SPDX-License-Identifier: Apache-2.0
"""What schemes, policies and the lab do in single networks."""
