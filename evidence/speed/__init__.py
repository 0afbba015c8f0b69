# SPDX-License-Identifier: Apache-2.0
"""What things cost: time, memory, space."""
