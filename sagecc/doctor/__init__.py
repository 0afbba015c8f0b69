# SPDX-License-Identifier: Apache-2.0
"""What works on this machine: `sagecc doctor`'s checks, a module for each group, and the page that shows them."""
