# SPDX-License-Identifier: Apache-2.0
"""A policy that works without TensorFlow: its artefact, its networks' forward passes, runtimes, formats, imports."""
