# SPDX-License-Identifier: Apache-2.0
"""`make wheel`: dist/sagecc-*.whl and its source distribution, with the lab's kernel, the same bytes from one commit.

Both are made of one tree: the packages' tracked files, and in `sagecc/shipped` what common.shipped looks for: the
kernel, the shipped policy, environments and sets of them, and the source of what in the kernel is under the GPL or
LGPL, so that who passes the wheel on passes that on too.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from sagecc.collector.kernel.build import IN_WHEEL, PACKAGE, Kernel, ensure_kernel, source_archive
from sagecc.collector.kernel.identity import identity_folder, stamp
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file, write_atomically
from sagecc.common.shipped import SHIPPED as POLICIES
from scripts import kernel_source
from scripts.base_requirements import setup_cfg

ROOT = Path(__file__).resolve().parents[1]
SHIPPED, _, KERNEL = IN_WHEEL.rpartition("/")
"""Where common.shipped looks, in a wheel; and the kernel's name there."""

PLACES = {
    "sagecc": "sagecc",
    **{f"models/{name}": f"{SHIPPED}/policies/{name}" for name in POLICIES},
    **{name: name for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "LICENSES")},
}
"""What is taken of a checkout, and where it lies in the tree that both are made of; so are the links in sagecc/."""

LIBC = "glibc-source"
"""Debian's package of the C library's source, parts of which are linked into the kernel and its init."""

EPOCH = "SOURCE_DATE_EPOCH"
BACKEND = "import sys; from setuptools import build_meta; print(build_meta.{}(sys.argv[1]))"


def main() -> None:
    """Build both, and say what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument(
        "--for-test",
        action="store_true",
        help="Go on where apt no longer has the source of the C library in the kernel: not to be passed on.",
    )
    options = parser.parse_args()
    try:
        files = kernel_files(ROOT / "build", options.for_test)
        for file in build(ROOT, files, options.out.resolve()):
            print(f"{file}  {file.stat().st_size / 1e6:.1f} MB  sha256 {sha256_file(file)}")
    except SageccError as error:
        print(f"make wheel: {error}", file=sys.stderr)
        sys.exit(2)


def kernel_files(folder: Path, for_test: bool = False) -> dict[str, Path]:
    """Return what a wheel has of the kernel that was built in `folder`: paths inside `shipped`, and the files here.

    Raises SageccError where the kernel cannot be built, or the source of its C library cannot be had (for_test: then
    it is left out).
    """
    build_dir, keep = folder / "kernel", folder / "wheel"
    if not list(build_dir.glob("linux-????????????")):  # only a built tree tells what was read
        stamp(folder / KERNEL).unlink(missing_ok=True)
    kernel = ensure_kernel(folder / KERNEL, build_dir, os.cpu_count() or 1)
    keep.mkdir(exist_ok=True)
    identities = {f"kernel-identity/{path.name}": path for path in identity_folder(kernel.path).iterdir()}
    files = {
        kernel.path.name: kernel.path,
        stamp(kernel.path).name: stamp(kernel.path),
        **identities,
        f"source/{PACKAGE}.tar.xz": _linux(kernel, build_dir, keep),
    }
    try:
        files[f"source/{LIBC}.deb"] = _libc(kernel, keep)
    except SageccError as error:
        if not for_test:
            raise
        print(f"make wheel: {error}; without it, what is built now must not be passed on", file=sys.stderr)
    return files


def build(root: Path, kernel: Mapping[str, Path], out: Path) -> tuple[Path, Path]:
    """Build the wheel and the source distribution of the checkout at `root` into `out`; return their paths.

    kernel: what kernel_files gives. Raises SageccError where setuptools fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        about = setup_cfg(root)["metadata"]
        name = f"{about['name']}-{about['version']}"
        tree, when = Path(folder) / name, _epoch(root)
        files = _files(root) | {f"{SHIPPED}/{place}": file for place, file in kernel.items()}
        for place, file in files.items():
            _copy(file, tree / place, when)
        described = _setuptools("prepare_metadata_for_build_wheel", tree, Path(folder), when)
        _copy(Path(folder) / described / "METADATA", tree / "PKG-INFO", when)
        out.mkdir(parents=True, exist_ok=True)
        with write_atomically(out / f"{name}.tar.gz") as temporary:
            _write_sdist(tree, sorted((*files, "PKG-INFO")), temporary)
        wheel = _setuptools("build_wheel", tree, Path(folder), when)
        with write_atomically(out / wheel) as temporary:
            shutil.copyfile(Path(folder) / wheel, temporary)
    return out / wheel, out / f"{name}.tar.gz"


def _files(root: Path) -> dict[str, Path]:
    """Return the tracked files that a distribution has: paths in its tree, and the files here."""
    places = PLACES | {link.name: f"sagecc/{link.name}" for link in (root / "sagecc").iterdir() if link.is_symlink()}
    names = subprocess.run(["git", "ls-files", "-z", *places], cwd=root, capture_output=True, text=True, check=True)
    files = {}
    for name in filter(None, names.stdout.split("\0")):
        if not (root / name).is_symlink():
            source = max((place for place in places if Path(name).is_relative_to(place)), key=len)
            files[(Path(places[source]) / Path(name).relative_to(source)).as_posix()] = root / name
    return files


def _epoch(root: Path) -> int:
    """Return the time that every file gets (s): SOURCE_DATE_EPOCH, or the last commit's."""
    epoch = os.environ.get(EPOCH)
    if epoch is None:
        process = subprocess.run(
            ["git", "log", "-1", "--format=%ct"], cwd=root, capture_output=True, text=True, check=True
        )
        epoch = process.stdout
    return int(epoch)


def _copy(source: Path, target: Path, when: int) -> None:
    """Copy a file's bytes; of its metadata only whether it can be executed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755 if os.access(source, os.X_OK) else 0o644)
    os.utime(target, (when, when))


def _setuptools(step: str, tree: Path, out: Path, when: int) -> str:
    """Run a step of setuptools in `tree`; return the name of what it made in `out`."""
    process = subprocess.run(
        [sys.executable, "-c", BACKEND.format(step), str(out)],
        cwd=tree,
        env={**os.environ, EPOCH: str(when)},
        umask=0o022,
        capture_output=True,
        text=True,
    )
    if process.returncode:
        raise SageccError(f"setuptools failed: {(process.stderr.strip() or 'no output').splitlines()[-1]}")
    return process.stdout.splitlines()[-1]


def _write_sdist(tree: Path, files: list[str], output: Path) -> None:
    with (
        output.open("wb") as raw,
        gzip.GzipFile("", "wb", mtime=0, fileobj=raw) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for file in files:
            archive.add(tree / file, f"{tree.name}/{file}", filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _linux(kernel: Kernel, build_dir: Path, kept: Path) -> Path:
    """Return the part of Linux that the kernel was built from; packed once for each kernel and way of packing."""
    packer = sha256_file(Path(kernel_source.__file__))
    output = kept / f"{PACKAGE}-{kernel.sha256[:12]}-{packer[:12]}.tar.xz"
    if not output.exists():
        (tree,) = build_dir.glob("linux-????????????")
        kernel_source.pack(source_archive(build_dir)[0], tree, output)
    return output


def _libc(kernel: Kernel, kept: Path) -> Path:
    """Return Debian's source of the C library that is in the kernel: its very version, downloaded once."""
    output, wanted = kept / f"{LIBC}_{kernel.libc}.deb", f"{LIBC}={kernel.libc}"
    if not output.exists():
        with (
            tempfile.TemporaryDirectory(dir=kept) as folder,
            suppress(FileNotFoundError, subprocess.CalledProcessError),
        ):
            subprocess.run(["apt-get", "download", wanted], cwd=folder, capture_output=True, check=True)
            next(Path(folder).glob("*.deb")).rename(output)
    if not output.exists():
        raise SageccError(
            f"apt has no {wanted}, the source of the C library in the kernel: as root run 'apt-get update' and upgrade"
            " libc6-dev, then build the kernel anew"
        )
    return output


if __name__ == "__main__":
    main()
