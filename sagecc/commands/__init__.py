# SPDX-License-Identifier: Apache-2.0
"""One file a command; each exposes one click command named `command`."""
