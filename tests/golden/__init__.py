# SPDX-License-Identifier: Apache-2.0
"""Golden runs: what each part of common.versions comes to in seconds, pinned in golden.json."""
