# SPDX-License-Identifier: Apache-2.0
"""Build the virtual-time kernel: Linux 6.12 in user mode with our modules and the guest's init, as one file."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from sagecc.collector.kernel.identity import forget_identities, own_kernel, read_stamp, stamp, write_identities
from sagecc.collector.kernel.machine import check_kernel, check_machine
from sagecc.common import shipped
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file, write_atomically
from sagecc.common.locks import in_turn
from sagecc.common.marks import Mark
from sagecc.schemas.wire import c_header

PACKAGE = "linux-source-6.12"
TOOLS = {
    "gcc": "gcc",
    "make": "make",
    "flex": "flex",
    "bison": "bison",
    "bc": "bc",
    "xz": "xz-utils",
    "patch": "patch",
    "tar": "tar",
}
DOWNLOAD_TOOLS = {"dpkg-deb": "dpkg", "apt-get": "apt"}
"""Package by tool that is needed to get the source from apt, where it is not shipped with sagecc."""

HERE = Path(__file__).parent
GUEST = HERE.parent / "guest"
PROFILE = HERE / "profile.tar.xz"
"""How often the kernel's parts run in a lab, in gcc's counts (`make kernel-profile`), so that what is hot is fast."""
COUNTED = ("-fprofile-use", "-fprofile-correction", "-Wno-missing-profile", "-Wno-coverage-mismatch")
"""What is newer than its counts, or has none, is built without; signals may have cut a count short."""
IN_WHEEL = "sagecc/shipped/sagecc-linux"
"""The kernel's place in a wheel; its stamp is beside it."""
INIT = "drivers/sagecc/init"
INITRAMFS = "drivers/sagecc/initramfs.list"
"""Paths relative to the source tree: UML embeds its configuration, which may not name a folder of this machine."""
STEPS = 1225
"""Approximate number of lines that the build prints, for the progress bar."""

ABSENT_TOOLS = ("RUSTC=false", "BINDGEN=false", "PAHOLE=false")
"""Make variables that hide tools: Kconfig records their versions, which UML would embed."""

REPRODUCIBLE = {
    "KBUILD_BUILD_TIMESTAMP": "2024-11-17 00:00:00 UTC",
    "KBUILD_BUILD_USER": "sagecc",
    "KBUILD_BUILD_HOST": "sagecc",
    "KBUILD_BUILD_VERSION": "1",
    "SOURCE_DATE_EPOCH": "1731801600",
    "LC_ALL": "C",
}


_BUILT = r"linux-[0-9a-f]{12}|(source|linux)(\.partial)?"
"""Names of the folders that a build makes."""

_LOG = "build.log"
"""What the tools said; it stands in the build's folder before all else."""

_BUILD_MARK = Mark("a kernel's build", rf"{_BUILT}|build\.log", lambda folder: _is_log(folder / _LOG))


@dataclass(frozen=True)
class Kernel:
    """A built kernel."""

    path: Path
    """The kernel's file."""

    sha256: str
    """SHA-256 of the file, in hex."""

    source: str
    """Debian version of its source."""

    libc: str
    """Debian version of the C library that is linked into the guest's init."""


def ensure_kernel(output: Path, build_dir: Path, jobs: int) -> Kernel:
    """Return the kernel at `output`, built only if it is missing, changed or out of date.

    The identities of its schemes are written beside it (collector.kernel.identity).

    Args:
        output: path of the kernel.
        build_dir: folder for the build.
        jobs: number of parallel jobs of make.

    Raises:
        SageccError: a tool is missing, the source is not available, or the build fails.
    """
    kernel = _up_to_date(output) or _build(output, build_dir, jobs)
    write_identities(output)
    return kernel


def shipped_kernel() -> Kernel:
    """Return the kernel that is shipped with an installation.

    Raises:
        SageccError: the file is missing, or is not the one that was shipped.
    """
    check_kernel(own_kernel())
    return _stamped(shipped.KERNEL, read_stamp(shipped.KERNEL))


def kernel_of_wheel(wheel: Path, output: Path) -> Kernel:
    """Put the kernel out of a wheel of this source at `output`: the bytes that a build here would give.

    Args:
        wheel: the wheel's file.
        output: path of the kernel.

    Raises:
        SageccError: the file is no wheel of sagecc, is damaged, or has the kernel of another source.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            content = archive.read(IN_WHEEL)
            facts = json.loads(archive.read(str(stamp(Path(IN_WHEEL)))))
            sha256 = _stamped(output, facts).sha256
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise SageccError(f"{wheel}: no wheel of sagecc with a kernel, or damaged ({error})") from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise SageccError(f"{wheel}: its kernel is damaged (its SHA-256 is another)")
    if facts.get("identity") != _identity():
        raise SageccError(f"{wheel}: its kernel is of another source; build this one: sagecc kernel")
    kernel = _put(output, lambda file: file.write_bytes(content), facts)
    write_identities(output)
    return kernel


def _up_to_date(output: Path) -> Kernel | None:
    facts = read_stamp(output)
    return _stamped(output, facts) if facts.get("identity") == _identity() else None


def _stamped(path: Path, known: Mapping[str, str]) -> Kernel:
    return Kernel(path, known["sha256"], known["source"], known["libc"])


def _build(output: Path, build_dir: Path, jobs: int) -> Kernel:
    _check_tools()
    _BUILD_MARK.check(build_dir)
    build_dir.mkdir(parents=True, exist_ok=True)
    with in_turn(build_dir, f"another process builds a kernel in {build_dir}: waiting for it"):
        return _up_to_date(output) or _build_alone(output, build_dir, jobs)


def _build_alone(output: Path, build_dir: Path, jobs: int) -> Kernel:
    identity = _identity()
    (build_dir / _LOG).touch()
    archive, version = source_archive(build_dir)
    tree = _tree(build_dir, archive, version)
    _add_our_files(tree, build_dir)
    _configure(tree, build_dir)
    _make(tree, build_dir, jobs)
    facts = {"identity": identity, "source": version, "libc": _version("libc6-dev", build_dir)}
    return _put(output, lambda file: _run(["strip", "-o", str(file), str(tree / "linux")], build_dir), facts)


def _put(output: Path, write: Callable[[Path], object], facts: Mapping[str, str]) -> Kernel:
    """Write a kernel and its stamp, which says the facts and the file's SHA-256."""
    output.parent.mkdir(parents=True, exist_ok=True)
    forget_identities(output)
    with write_atomically(output) as file:
        write(file)
        file.chmod(0o755)
    facts = {**facts, "sha256": sha256_file(output)}
    with write_atomically(stamp(output)) as file:
        file.write_text(json.dumps(facts, indent=1))
    return _stamped(output, facts)


def _inputs() -> Iterator[tuple[str, bytes]]:
    """Yield name and content of all our files that determine the kernel's bytes."""
    files = [HERE / "config", HERE / "build.py", PROFILE, *sorted(HERE.glob("patches/*.patch"))]
    files += [*sorted(HERE.glob("modules/*")), *sorted(GUEST.glob("*"))]
    for file in files:
        if file.is_file():
            yield file.name, file.read_bytes()
    yield "wire.h", c_header().encode()


def _identity() -> str:
    digest = hashlib.sha256()
    for name, content in _inputs():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _check_tools() -> None:
    check_machine()
    if missing := missing_packages():
        raise SageccError(f"building the kernel needs: apt-get install {' '.join(missing)}")


def missing_packages() -> list[str]:
    """Return the Debian packages that a build of the kernel needs and that are missing here."""
    tools = TOOLS if shipped.SOURCE.exists() else {**TOOLS, **DOWNLOAD_TOOLS}
    return sorted(package for tool, package in tools.items() if shutil.which(tool) is None)


def _run(command: list[str], build_dir: Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Run one tool and return its output, which the log keeps; a failure is a SageccError that names the log."""
    process = subprocess.run(
        command, cwd=cwd, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    log = build_dir / _LOG
    with log.open("a") as file:
        file.write(f"$ {' '.join(command)}\n{process.stdout}{process.stderr}")
    if process.returncode:
        last = (process.stderr.strip() or process.stdout.strip() or "no output").splitlines()[-1]
        raise SageccError(f"kernel: {command[0]} failed: {last} (all of it: {log})")
    return process.stdout


def _version(package: str, build_dir: Path) -> str:
    """Return the version of an installed Debian package, or `unknown` without dpkg."""
    if shutil.which("dpkg-query") is None:
        return "unknown"
    return _run(["dpkg-query", "-W", "-f", "${Version}", package], build_dir)


def source_archive(build_dir: Path) -> tuple[Path, str]:
    """Return the source archive and its Debian version: the shipped one, the installed one, or a download from apt.

    Raises:
        SageccError: apt does not have the package, or the download is damaged.
    """
    if shipped.SOURCE.exists():
        return shipped.SOURCE, shipped_kernel().source
    debian_archive = Path(f"/usr/src/{PACKAGE}.tar.xz")
    if debian_archive.exists():
        return debian_archive, _version(PACKAGE, build_dir)
    packages = sorted(build_dir.glob(f"{PACKAGE}_*.deb"))
    if not packages:
        try:
            _run(["apt-get", "download", PACKAGE], build_dir, cwd=build_dir)
        except SageccError as error:
            raise SageccError(f"apt has no {PACKAGE}: run 'apt-get update' as root first ({error})") from None
        packages = sorted(build_dir.glob(f"{PACKAGE}_*.deb"))
    package = packages[-1]
    archive = build_dir / "source" / "usr" / "src" / f"{PACKAGE}.tar.xz"
    if not archive.exists():
        partial = build_dir / "source.partial"
        _remove(partial)
        try:
            _run(["dpkg-deb", "-x", str(package), str(partial)], build_dir)
        except SageccError as error:
            package.unlink()
            raise SageccError(f"{error}; the download was damaged and is removed: start again") from None
        _remove(build_dir / "source")
        partial.rename(build_dir / "source")
    return archive, _run(["dpkg-deb", "-f", str(package), "Version"], build_dir).strip()


def _is_log(path: Path) -> bool:
    return path.is_file() and path.read_bytes()[:2] in (b"", b"$ ")


def _remove(folder: Path) -> None:
    """Remove a folder that a build made."""
    if re.fullmatch(_BUILT, folder.name):
        shutil.rmtree(folder, ignore_errors=True)


def _tree(build_dir: Path, archive: Path, version: str) -> Path:
    """Return the patched source tree with its profile, unpacked once per source version, set of patches and profile."""
    patches = sorted(HERE.glob("patches/*.patch"))
    added = b"".join(p.read_bytes() for p in (*patches, PROFILE))
    digest = hashlib.sha256(version.encode() + added).hexdigest()[:12]
    tree = build_dir / f"linux-{digest}"
    if not tree.exists():
        partial = build_dir / "linux.partial"
        _remove(partial)
        partial.mkdir()
        for old_tree in build_dir.glob("linux-????????????"):
            _remove(old_tree)
        _run(["tar", "xf", str(archive), "--strip-components=1", "-C", str(partial)], build_dir)
        for file in patches:
            _run(["patch", "-p1", "--fuzz=0", "-i", str(file.resolve())], build_dir, cwd=partial)
        _run(["tar", "xf", str(PROFILE.resolve()), "-C", str(partial)], build_dir)
        partial.rename(tree)
    return tree


def _write_if_changed(path: Path, content: bytes) -> None:
    """Write a file unless it has this content already, so that make rebuilds only what changed."""
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _add_our_files(tree: Path, build_dir: Path) -> None:
    """Put our modules and the guest's init into the source tree."""
    target = tree / "drivers" / "sagecc"
    for file in HERE.glob("modules/*"):
        if file.is_file():
            _write_if_changed(target / file.name, file.read_bytes())
    _write_if_changed(target / "wire.h", c_header().encode())
    flags = ["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-static", f"-ffile-prefix-map={GUEST}=guest"]
    init = build_dir / "init"
    _run(["gcc", *flags, f"-I{target}", "-o", str(init), str(GUEST / "init.c")], build_dir)
    _run(["strip", str(init)], build_dir)
    _write_if_changed(tree / INIT, init.read_bytes())
    _write_if_changed(
        tree / INITRAMFS, ((GUEST / "initramfs.list").read_text() + f"file /init {INIT} 755 0 0\n").encode()
    )


def _configure(tree: Path, build_dir: Path) -> None:
    config = (HERE / "config").read_text() + f'CONFIG_INITRAMFS_SOURCE="{INITRAMFS}"\n# {" ".join(ABSENT_TOOLS)}\n'
    configuration = build_dir / "config"
    if (tree / ".config").exists() and configuration.exists() and configuration.read_text() == config:
        return
    configuration.unlink(missing_ok=True)
    _run(["make", "ARCH=um", *ABSENT_TOOLS, "tinyconfig"], build_dir, cwd=tree, env=REPRODUCIBLE)
    with (tree / ".config").open("a") as file:
        file.write(config)
    _run(["make", "ARCH=um", *ABSENT_TOOLS, "olddefconfig"], build_dir, cwd=tree, env=REPRODUCIBLE)
    effective = set((tree / ".config").read_text().splitlines())
    options = re.findall(r"^(CONFIG_\w+)=y$", config, flags=re.MULTILINE)
    missing = [option for option in options if f"{option}=y" not in effective]
    if missing:
        raise SageccError(f"kernel: these options did not take: {' '.join(missing)} (collector/kernel/config)")
    configuration.write_text(config)


def _make(tree: Path, build_dir: Path, jobs: int) -> None:
    flags = " ".join((f"-ffile-prefix-map={tree.resolve()}=linux", *COUNTED))
    command = ["make", "ARCH=um", *ABSENT_TOOLS, f"-j{jobs}", f"KCFLAGS={flags}", "linux"]
    log = build_dir / _LOG
    with log.open("a") as file, tqdm(total=STEPS, desc="kernel", unit="file", leave=False, disable=None) as bar:
        process = subprocess.Popen(
            command,
            cwd=tree,
            env={**os.environ, **REPRODUCIBLE},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            bar.update()
    if process.wait():
        errors = [line for line in log.read_text().splitlines() if "error" in line.lower()]
        raise SageccError(f"kernel: make failed: {(errors or ['see the log'])[-1]} (all of it: {log})")
