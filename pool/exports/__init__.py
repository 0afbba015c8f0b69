# SPDX-License-Identifier: Apache-2.0
"""The pool in the forms of other ecosystems: Minari, RLDS (TensorFlow Datasets), Hugging Face datasets.

`episodes` reads the pool one episode at a time; `to_minari`, `to_rlds` and `to_huggingface` each write one form with
that ecosystem's own library, which is an extra; `folder` makes the result appear whole or not at all.
"""
