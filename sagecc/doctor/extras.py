# SPDX-License-Identifier: Apache-2.0
"""The extras of `sagecc` (setup.cfg): their packages, found without importing them, since TensorFlow takes seconds."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata

from sagecc.common.optional import how_to_install, is_installed
from sagecc.doctor.finding import Finding, fails, unneeded, works

FOUND = " (found; --all imports)"
TIMEOUT_S = 180


@dataclass(frozen=True)
class Extra:
    """An extra of `sagecc`."""

    name: str
    users: str
    """What needs it."""
    packages: tuple[tuple[str, str], ...]
    """Each package's module and name, the main one first."""
    probe: str
    """Modules whose import shows that all of it can be imported."""


TRAIN = Extra(
    "train",
    "training",
    (
        ("tensorflow", "tensorflow"),
        ("tensorflow_probability", "tensorflow-probability"),
        ("tf_keras", "tf-keras"),
        ("sonnet", "dm-sonnet"),
        ("acme", "dm-acme"),
        ("tree", "dm-tree"),
        ("trfl", "trfl"),
    ),
    "sagecc.common.tensorflow_runtime, tensorflow_probability, tree, trfl",
)
ANALYSIS = Extra(
    "analysis",
    "distance and tsne",
    (("faiss", "faiss-cpu"), ("sklearn", "scikit-learn"), ("threadpoolctl", "threadpoolctl")),
    "faiss, sklearn, threadpoolctl",
)
LITERT = Extra("litert", "--runtime litert", (("ai_edge_litert", "ai-edge-litert"),), "ai_edge_litert.interpreter")
ONNX = Extra("onnx", "--runtime onnx", (("onnxruntime", "onnxruntime"),), "sagecc.common.onnx_runtime")
RAY = Extra("ray", "--engine ray, on many machines", (("ray", "ray"),), "ray")


def check_extra(extra: Extra, thorough: bool) -> Finding:
    """Check that an extra is installed and, if `thorough`, that it can be imported."""
    missing = [package for module, package in extra.packages if not is_installed(module)]
    if missing:
        return unneeded(f"not installed: {', '.join(missing)} (only for {extra.users})", how_to_install(extra.name))
    if thorough and (error := run_python(f"import {extra.probe}")[1]):
        return fails(error, f"{how_to_install(extra.name)}, into an environment of its own")
    main, *others = (package for _, package in extra.packages)
    rest = " and the rest" if others else ""
    return works(f"{main} {version(main)}{rest}, for {extra.users}{'' if thorough else FOUND}")


def version(package: str) -> str:
    """Return an installed package's version, "" where none is installed under that name."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def run_python(code: str) -> tuple[str, str]:
    """Run Python code in another process.

    Returns:
        What it prints, in one line; and what went wrong, "" where nothing did.
    """
    try:
        process = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return "", f"nothing came of it in {TIMEOUT_S} s"
    if process.returncode < 0:
        too_old = ", as on a processor that is too old for it" if process.returncode == -signal.SIGILL else ""
        return "", f"killed by {signal.Signals(-process.returncode).name}{too_old}"
    output = ", ".join(process.stdout.split("\n")[:-1])
    error = (process.stderr.strip().splitlines() or [f"status {process.returncode}"])[-1]
    return output, error if process.returncode else ""
