# SPDX-License-Identifier: Apache-2.0
"""Every contract in one place: environments, wire format, raw and pool columns, views."""
