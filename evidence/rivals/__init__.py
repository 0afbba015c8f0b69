# SPDX-License-Identifier: Apache-2.0
"""The rivals that are rebuilt here, each held against figures of its own publication, in the same networks."""
