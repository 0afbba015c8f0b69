# SPDX-License-Identifier: Apache-2.0
"""What every package needs and that knows nothing of networks: files, processes, errors, manifests, code identities."""
