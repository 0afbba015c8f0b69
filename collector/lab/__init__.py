# SPDX-License-Identifier: Apache-2.0
"""One episode in the lab: its specification, the guest that runs it, its results."""
