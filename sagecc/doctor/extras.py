# SPDX-License-Identifier: Apache-2.0
"""The extras of `sagecc` (setup.cfg): what each brings, found without importing it, since TensorFlow takes seconds."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata

from sagecc.common.optional import how_to_install, is_installed
from sagecc.doctor.finding import Finding, fails, unneeded, works

FOUND = " (found; --all imports)"
ASKING_S = 180


@dataclass(frozen=True)
class Extra:
    """An extra: its name, who needs it, and of each package its module and its name, the chief one first.

    probe: what shows that all of it can be imported.
    """

    name: str
    users: str
    packages: tuple[tuple[str, str], ...]
    probe: str


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
ONNX = Extra("onnx", "--runtime onnx", (("onnxruntime", "onnxruntime"),), "onnxruntime")
RAY = Extra("ray", "--engine ray, on many machines", (("ray", "ray"),), "ray")


def look_at(extra: Extra, everything: bool) -> Finding:
    """Is an extra installed? everything: and can it be imported?"""
    missing = [package for module, package in extra.packages if not is_installed(module)]
    if missing:
        return unneeded(f"not installed: {', '.join(missing)} (only for {extra.users})", how_to_install(extra.name))
    if everything and (error := asked(f"import {extra.probe}")[1]):
        return fails(error, f"{how_to_install(extra.name)}, into an environment of its own")
    chief, *others = (package for _, package in extra.packages)
    rest = " and the rest" if others else ""
    return works(f"{chief} {version(chief)}{rest}, for {extra.users}{'' if everything else FOUND}")


def version(package: str) -> str:
    """Return an installed package's version, "" where none is installed under that name."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def asked(code: str) -> tuple[str, str]:
    """Run Python code in another process; return what it prints, in one line, and what went wrong, or ""."""
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=ASKING_S)
    except subprocess.TimeoutExpired:
        return "", f"nothing came of it in {ASKING_S} s"
    if done.returncode < 0:
        too_old = ", as on a processor that is too old for it" if done.returncode == -signal.SIGILL else ""
        return "", f"killed by {signal.Signals(-done.returncode).name}{too_old}"
    said = ", ".join(done.stdout.split("\n")[:-1])
    return said, (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1] if done.returncode else ""
