# SPDX-License-Identifier: Apache-2.0
"""Collecting: the kernel, the guest, one episode in the lab, runs over a grid, and real-time backends beside them."""
