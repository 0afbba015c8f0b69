# SPDX-License-Identifier: Apache-2.0
"""A pool that grows: rounds of training on it and playing into it."""
