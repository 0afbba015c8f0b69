# SPDX-License-Identifier: Apache-2.0
"""What every package needs and none is about networks: files, processes, errors, manifests, identities of code."""
