# SPDX-License-Identifier: Apache-2.0
"""The evaluation study of learned congestion control (Mazilu, Giacomoni and Parisis), run in the lab."""
