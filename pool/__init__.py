# SPDX-License-Identifier: Apache-2.0
"""The pool: features, rewards, derivation, checks, SQL views, exports."""
