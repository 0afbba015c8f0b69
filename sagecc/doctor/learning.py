# SPDX-License-Identifier: Apache-2.0
"""Pool and learner: room for data, memory, cores, the packages that train a policy and those that run one."""

from __future__ import annotations

import os
import re
import tempfile
from importlib.util import find_spec
from pathlib import Path

from sagecc.common import limits
from sagecc.common.limits import usable_cores
from sagecc.common.optional import how_to_install, is_installed
from sagecc.doctor import extras
from sagecc.doctor.extras import FOUND, check_extra, run_python, version
from sagecc.doctor.finding import Check, Finding, fails, unneeded, works

GB, MB = 10**9, 10**6

SMALL_GB, FULL_GB = 9, 30
"""Disk space of a profile's raw trajectories and pools, twice for DVC's cache, and compiled for training."""

EPISODE_MB = 256
"""The most memory of an episode: its guest and the process that reads it (evidence/results/memory.json)."""

TRIAL_BYTES = 1 << 20

BASE = ("numpy", "pyarrow", "numba", "polars", "duckdb", "pydantic", "matplotlib")
"""What pool, SQL, league and report import; some of it needs a processor with AVX2."""

WITH_CUDA = "pip install 'tensorflow[and-cuda]', the version that is here (docs/guide/cluster.md)"

DEVICES = Path("/dev")
DRIVER = """
import ctypes, sys
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError:
    sys.exit("no libcuda.so.1")
if status := cuda.cuInit(0):
    sys.exit(f"its driver finds none (cuInit: {status})")
count, name = ctypes.c_int(), ctypes.create_string_buffer(256)
cuda.cuDeviceGetCount(ctypes.byref(count))
for number in range(count.value):
    cuda.cuDeviceGetName(name, len(name), number)
    print(name.value.decode())
"""
"""Lists the driver's GPUs, in a moment and without taking memory of a GPU."""

GPUS = """
from sagecc.common.tensorflow_runtime import tf
for gpu in tf.config.list_physical_devices("GPU"):
    print(tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name))
"""


def checks(datasets: Path, thorough: bool) -> tuple[Check, ...]:
    """Return the group's checks.

    Args:
        datasets: folder of data, which need not exist.
        thorough: import packages that are only looked for otherwise.
    """
    return (
        Check("disk", lambda: disk(datasets)),
        Check("memory", memory),
        Check("cores", cores),
        Check("packages", lambda: packages(thorough)),
        Check("TensorFlow", lambda: check_extra(extras.TRAIN, thorough)),
        Check("GPU", lambda: gpu(thorough)),
        Check("analysis", lambda: check_extra(extras.ANALYSIS, thorough)),
        Check("LiteRT", lambda: check_extra(extras.LITERT, thorough)),
        Check("ONNX", lambda: check_extra(extras.ONNX, thorough)),
    )


def disk(datasets: Path) -> Finding:
    """Check that data can be written here, and that there is room for it."""
    path = datasets.absolute()
    folder = next(p for p in (path, *path.parents) if os.path.isdir(p))  # noqa: PTH112 - pathlib's may raise
    elsewhere = "go to a folder with more room, or name one with --out"
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(TRIAL_BYTES))
    except OSError as error:
        return fails(f"nothing can be written into {folder}: {error.strerror}", elsewhere)
    file_system = os.statvfs(folder)
    free_gb = file_system.f_bavail * file_system.f_frsize / GB
    room = f"{path}: {free_gb:,.1f} GB free"
    if free_gb < SMALL_GB:
        return fails(f"{room}, the profile small takes up to {SMALL_GB}", elsewhere)
    if free_gb < FULL_GB:
        return works(f"{room}, enough for the profile small; full takes up to {FULL_GB}")
    return works(f"{room}, enough for the profile full ({FULL_GB})")


def memory() -> Finding:
    """Measure the memory that may be used, in episodes at a time."""
    available, limit = limits.available_memory_bytes(), limits.memory_limit_bytes()
    usable = min((value for value in (available, limit) if value is not None), default=None)
    if usable is None:
        return fails("neither /proc/meminfo nor a control group says how much there is")
    episodes = usable // (EPISODE_MB * MB)
    limit_name = ", a control group's limit" if usable == limit else ""
    text = f"{usable / GB:,.1f} GB{limit_name}: an episode takes up to {EPISODE_MB} MB, so {episodes:,} at a time"
    if not episodes:
        return fails(text, "free some, or give this container more")
    return works(text, f"give 'collect' and 'league' --jobs {episodes}" if episodes < usable_cores() else "")


def cores() -> Finding:
    """Count the cores, and those that may be used."""
    total, usable = os.cpu_count() or 1, usable_cores()
    if usable == total:
        return works(f"{total}, all of which may be used")
    return works(
        f"{usable} of {total} may be used, by affinity and control groups",
        f"give --jobs {usable} to commands that have it: by themselves they start {total}",
    )


def packages(thorough: bool) -> Finding:
    """Check that the packages of pool and league are installed and, if `thorough`, that they can be imported."""
    missing = [module for module in BASE if not is_installed(module)]
    if missing:
        return fails(f"{', '.join(missing)} missing", "install sagecc again")
    errors = {module: error for module in BASE if thorough and (error := run_python(f"import {module}")[1])}
    if errors:
        return fails("; ".join(f"{module}: {error}" for module, error in errors.items()), "install sagecc again")
    return works(f"{', '.join(BASE[:5])} and the rest{'' if thorough else FOUND}")


def gpu(thorough: bool) -> Finding:
    """Check that there is an NVIDIA GPU, by its driver, and that TensorFlow can use it."""
    names, problem = run_python(DRIVER)
    devices = sorted(path.name for path in DEVICES.glob("nvidia[0-9]*"))
    if problem and not devices:
        return unneeded(f"no /dev/nvidia*, and {problem}: training takes the processor's cores")
    if problem:
        return fails(f"{', '.join(devices)}, but {problem}", "install NVIDIA's driver, or let this container use it")
    build = _tensorflow_build()
    if build is None:
        return unneeded(f"{names}; only training would use it", how_to_install(extras.TRAIN.name))
    if not build.get("cuda"):
        return fails(f"{names}, but this TensorFlow is built without CUDA", WITH_CUDA)
    if thorough:
        gpus, error = run_python(GPUS)
        text = f"TensorFlow sees {gpus or 'none'}"
        return works(text) if gpus else fails(f"{names}: {error or text}", WITH_CUDA)
    cudnn, package = f"libcudnn.so.{build['cudnn']}", f"nvidia-cudnn-cu{build['cuda'].split('.')[0]}"
    if not version(package) and run_python(f"import ctypes; ctypes.CDLL('{cudnn}')")[1]:
        return fails(f"{names}, but CUDA's libraries are missing ({cudnn})", WITH_CUDA)
    return works(f"{names}, CUDA's libraries, a TensorFlow built for them{FOUND}")


def _tensorflow_build() -> dict[str, str] | None:
    """Return the CUDA and cuDNN versions of TensorFlow's build information; None where it is not installed."""
    spec = find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        return None
    build_info = Path(spec.submodule_search_locations[0], "python/platform/build_info.py").read_text()
    return dict(re.findall(r"'(cuda|cudnn)_version', '([^']+)'", build_info))
