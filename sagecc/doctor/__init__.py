# SPDX-License-Identifier: Apache-2.0
"""What works on this machine: the checks of `sagecc doctor`, one module per group, and the page that shows them."""
