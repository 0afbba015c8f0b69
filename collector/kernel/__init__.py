# SPDX-License-Identifier: Apache-2.0
"""The virtual-time kernel: configuration, patches, modules and build."""
