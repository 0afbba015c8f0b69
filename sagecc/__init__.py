# SPDX-License-Identifier: Apache-2.0
"""The command `sagecc`: what a person or a DVC stage calls."""
