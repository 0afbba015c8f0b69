# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest

from sagecc.collector.kernel import build
from sagecc.collector.kernel.build import ensure_kernel
from sagecc.collector.kernel.identity import identity_folder
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file


def test_missing_tools_are_listed_as_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SageccError, match=r"apt-get install .*bison.*flex.*xz-utils"):
        ensure_kernel(tmp_path / "linux", tmp_path / "build", 1)


def test_no_source_to_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "PACKAGE", "linux-source-0.0")
    with pytest.raises(SageccError, match=r"linux-source-0\.0.*'apt-get update'"):
        ensure_kernel(tmp_path / "linux", tmp_path / "build", 1)


def test_a_damaged_download_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "PACKAGE", "linux-source-0.0")
    package = tmp_path / "linux-source-0.0_1_all.deb"
    package.write_bytes(b"!<arch>\ntruncated")
    with pytest.raises(SageccError, match=r"damaged.*removed"):
        ensure_kernel(tmp_path / "linux", tmp_path, 1)
    assert not package.exists()


def test_a_built_kernel_is_only_verified(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = kernel.stat().st_mtime_ns
    monkeypatch.setenv("PATH", "/nowhere")  # no tool can be called
    verified = ensure_kernel(kernel, kernel.parent / "kernel", 1)
    assert verified.sha256 == sha256_file(kernel)
    assert kernel.stat().st_mtime_ns == before


def wheel_of(path: Path, content: bytes, **facts: str) -> Path:
    """Write a wheel with a kernel of this source, or with other facts about it."""
    found = {
        "sha256": hashlib.sha256(content).hexdigest(),
        "identity": build._identity(),
        "source": "6.12",
        "libc": "2.36",
    }
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(build.IN_WHEEL, content)
        archive.writestr(f"{build.IN_WHEEL}.json", json.dumps(found | facts))
    return path


def test_a_wheel_s_kernel_is_taken_as_if_it_were_built_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, output = b"\x7fELF kernel", tmp_path / "build" / "linux"
    taken = build.kernel_of_wheel(wheel_of(tmp_path / "a.whl", content), output)
    assert output.read_bytes() == content and output.stat().st_mode & 0o111
    assert identity_folder(output).is_dir()
    monkeypatch.setenv("PATH", "/nowhere")  # no tool can be called
    assert ensure_kernel(output, tmp_path / "kernel", 1) == taken


@pytest.mark.parametrize(
    ("facts", "error"),
    [
        ({"identity": "0" * 64}, "another source; build this one: sagecc kernel"),
        ({"sha256": "0" * 64}, "its kernel is damaged"),
        (None, "no wheel of sagecc with a kernel"),
    ],
)
def test_another_wheel_s_kernel_is_not_taken(facts: dict[str, str] | None, error: str, tmp_path: Path) -> None:
    wheel, output = tmp_path / "a.whl", tmp_path / "linux"
    if facts is None:
        wheel.write_bytes(b"PK no archive")
    else:
        wheel_of(wheel, b"kernel", **facts)
    with pytest.raises(SageccError, match=error):
        build.kernel_of_wheel(wheel, output)
    assert not output.exists()


def test_every_module_and_the_hot_parts_have_counts() -> None:
    """gcc says nothing where a file has none: the kernel would only be slower."""
    with tarfile.open(build.PROFILE) as archive:
        names = set(archive.getnames())
    modules = {f"drivers/sagecc/{file.stem}.gcda" for file in (build.HERE / "modules").glob("*.c")}
    hot = {"net/ipv4/tcp_input", "net/ipv4/tcp_output", "net/core/skbuff", "kernel/time/hrtimer", "mm/slub"}
    assert names >= modules | {f"{name}.gcda" for name in hot}
    assert not [name for name in names if not name.endswith(".gcda") or name.startswith("/") or ".." in name]


@pytest.mark.slow
def test_the_build_is_reproducible_from_another_folder(kernel: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "another" / "folder" / "of-another-length"
    elsewhere.mkdir(parents=True)
    for package in (kernel.parent / "kernel").glob("*.deb"):
        shutil.copy2(package, elsewhere)
    again = ensure_kernel(elsewhere / "linux", elsewhere, 2)
    assert again.sha256 == sha256_file(kernel)


def test_the_kernel_asks_for_no_library_of_the_host(kernel: Path) -> None:
    """Else a wheel with it would run only beside a C library as new as the one it was built with."""
    header = kernel.read_bytes()[:4096]
    offset, size, count = (
        int.from_bytes(header[at : at + width], "little") for at, width in ((32, 8), (54, 2), (56, 2))
    )
    kinds = {int.from_bytes(header[at : at + 4], "little") for at in range(offset, offset + size * count, size)}
    loaded, dynamic, interpreter = 1, 2, 3
    assert loaded in kinds and not kinds & {dynamic, interpreter}
