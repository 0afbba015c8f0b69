# SPDX-License-Identifier: Apache-2.0
"""Training: windows of the pool, networks, losses, the loop, its configurations."""
