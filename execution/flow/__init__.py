# SPDX-License-Identifier: Apache-2.0
"""A flow as its sender sees it: what its counters say of an interval, what is observed of that, and its window."""
