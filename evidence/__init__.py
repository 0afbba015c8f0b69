# SPDX-License-Identifier: Apache-2.0
"""What is known of sagecc, and how it was found; the product imports nothing of it.

Each module of speed/, behaviour/, rivals/, paper/ and leagues/ measures something and writes results/NAME.json, which a
template NAME.md.j2 beside it turns into text; training/ trains the policies that are compared.
"""
