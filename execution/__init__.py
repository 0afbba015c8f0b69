# SPDX-License-Identifier: Apache-2.0
"""The policy runtime: a learned policy in charge of the windows of flows."""
