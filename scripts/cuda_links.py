# SPDX-License-Identifier: Apache-2.0
"""Links by which TensorFlow's wheel, built for CUDA 12, finds the libraries of CUDA 13.

    python -m scripts.cuda_links FOLDER          makes them; prints the LD_LIBRARY_PATH to use

TensorFlow asks the loader for each library by its CUDA 12 name and looks its functions up by name. Those that it uses
are in CUDA 13 too, but for the runtime's: `libcudart.so.12` must be real, of the package nvidia-cuda-runtime-cu12.
"""

from __future__ import annotations

import argparse
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from sagecc.cli import errors_in_one_line
from sagecc.common.errors import SageccError

LIBRARIES = {
    "libcublas.so.12": "libcublas.so.13",
    "libcublasLt.so.12": "libcublasLt.so.13",
    "libcudnn.so.9": "libcudnn.so.9",
    "libcufft.so.11": "libcufft.so.12",
    "libcupti.so.12": "libcupti.so.13",
    "libcusolver.so.11": "libcusolver.so.12",
    "libcusparse.so.12": "libcusparse.so.12",
    "libnccl.so.2": "libnccl.so.2",
}
"""What TensorFlow 2.21 asks for, and what is linked in its place."""
RUNTIME = "libcudart.so.12"
PLACES = (
    Path(sysconfig.get_path("purelib")) / "nvidia",
    Path("/usr/local/cuda/lib64"),
    Path("/usr/lib/x86_64-linux-gnu"),
)


def main() -> None:
    """Make the links."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--within", type=Path, nargs="+", default=PLACES, help="folders to look for libraries in")
    options = parser.parse_args()
    folders = link(options.folder, options.within)
    print("export LD_LIBRARY_PATH=" + ":".join(map(str, (options.folder.resolve(), *folders))))


def link(folder: Path, within: Iterable[Path]) -> list[Path]:
    """Make the links in a folder; return the folders of what they point to.

    Raises:
        SageccError: A library is nowhere.
    """
    found: dict[str, Path] = {}
    for place in within:
        for path in sorted(place.rglob("lib*.so.*")):
            found.setdefault(path.name, path)
    wanted = {RUNTIME: RUNTIME, **LIBRARIES}
    if missing := [name for name in wanted.values() if name not in found]:
        raise SageccError(
            f"{', '.join(missing)}: in none of {', '.join(map(str, within))}; install CUDA 13 and cuDNN 9 for it, and "
            "'pip install nvidia-cuda-runtime-cu12'"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, of in wanted.items():
        path = folder / name
        if path.is_symlink():
            path.unlink()
        if path.exists():
            raise SageccError(f"{path} is a file, not a link of this program: choose another folder")
        path.symlink_to(found[of].resolve())
    return sorted({found[of].resolve().parent for of in wanted.values()})


if __name__ == "__main__":
    with errors_in_one_line("scripts.cuda_links"):
        main()
