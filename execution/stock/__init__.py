# SPDX-License-Identifier: Apache-2.0
"""A policy in charge of the sockets of this machine's own kernel."""
