# SPDX-License-Identifier: Apache-2.0
"""The lab that boots and runs episodes, the grid, and the pool's derivation."""
