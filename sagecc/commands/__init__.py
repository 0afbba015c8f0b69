# SPDX-License-Identifier: Apache-2.0
"""One file per command; each exposes one click command named `command`."""
