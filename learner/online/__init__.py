# SPDX-License-Identifier: Apache-2.0
"""Online learners: a policy that learns from what it does itself, in labs that run while it learns."""
