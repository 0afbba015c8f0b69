# SPDX-License-Identifier: Apache-2.0
"""The wheel: the same bytes from one commit, whole, and asking for what it needs. `make wheel-test` uses one."""

from __future__ import annotations

import ast
import lzma
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from importlib.metadata import packages_distributions, version
from io import BytesIO
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sagecc.collector.kernel.build import Kernel
from sagecc.common.errors import SageccError
from sagecc.common.shipped import SHIPPED
from scripts import kernel_source, try_wheel, wheel
from tests.conftest import PACKAGES, ROOT, copy_project

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What stands in for the kernel's files: how they come about has tests of its own."""
    folder = tmp_path_factory.mktemp("kernel")
    names = ("sagecc-linux", "sagecc-linux.json", "kernel-identity/cubic", "source/linux-source-6.12.tar.xz")
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)
    (folder / "sagecc-linux").chmod(0o700)
    return {name: folder / name for name in names}


@pytest.fixture(scope="module")
def built(kernel: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Path]]:
    """Wheel and source distribution of the same files, from two folders, by two users of other habits."""
    found = []
    for name, umask in (("here", 0o022), ("another/place", 0o077)):
        root = tmp_path_factory.mktemp("checkout") / name
        before = os.umask(umask)
        try:
            root.mkdir(parents=True)
            copy_project(root)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SOURCE_DATE_EPOCH", "1700000000")
                found.append(wheel.build(root, kernel, root / "dist"))
        finally:
            os.umask(before)
    return found


def test_two_wheels_of_one_commit_are_the_same_bytes(built: list[tuple[Path, Path]]) -> None:
    (wheel_a, sdist_a), (wheel_b, sdist_b) = built
    assert wheel_a.name == wheel_b.name
    assert wheel_a.read_bytes() == wheel_b.read_bytes()
    assert sdist_a.read_bytes() == sdist_b.read_bytes()


def test_a_source_distribution_makes_the_same_wheel(built: list[tuple[Path, Path]], tmp_path: Path) -> None:
    made, sdist = built[0]
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path)  # ours; Debian 12's Python has no filter yet
    (tree,) = tmp_path.iterdir()
    command = [sys.executable, "-c", wheel.BACKEND.format("build_wheel"), str(tmp_path)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True, env={**os.environ, wheel.EPOCH: "1700000000"})
    assert (tmp_path / made.name).read_bytes() == made.read_bytes()


def test_a_wheel_has_what_an_installation_needs_and_nothing_else(built: list[tuple[Path, Path]]) -> None:
    made = built[0][0]
    assert made.name.endswith("-py3-none-manylinux_2_17_x86_64.whl")
    with zipfile.ZipFile(made) as archive:
        files = {info.filename: info for info in archive.infolist()}
        about = archive.read(next(name for name in files if name.endswith("/METADATA"))).decode()
    listed = subprocess.run(["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=True)
    ours = [
        name
        for name in listed.stdout.splitlines()
        if not (ROOT / name).is_symlink() and Path(name).name not in (".gitignore", "dvc.yaml", "dvc.lock")
    ]
    wanted = {name if name.startswith("sagecc/") else f"sagecc/{name}" for name in ours}
    shipped = {name for name in files if name.startswith(f"{wheel.SHIPPED}/")}
    assert {name for name in files if name.startswith("sagecc/")} == wanted | shipped
    assert {name.split("/")[2] for name in shipped} == {
        *("sagecc-linux", "sagecc-linux.json", "kernel-identity", "policies", "source")
    }
    assert {f"{wheel.SHIPPED}/policies/{name}/card.json" for name in SHIPPED} <= shipped
    assert {name.partition("/")[0] for name in files} == {"sagecc", made.name.split("-py3")[0] + ".dist-info"}
    assert files[f"{wheel.SHIPPED}/sagecc-linux"].external_attr >> 16 & 0o777 == 0o755
    assert files["sagecc/cli.py"].external_attr >> 16 & 0o777 == 0o644
    assert "License-Expression: Apache-2.0 AND GPL-2.0-only AND LGPL-2.1-or-later\n" in about
    for name in ("LICENSE", *(f"LICENSES/{path.name}" for path in (ROOT / "LICENSES").iterdir())):
        assert f"License-File: {name}\n" in about


def test_what_is_packed_of_linux_is_what_was_read(tmp_path: Path) -> None:
    """And always the same bytes, whatever the order and the owners in Debian's archive."""
    tree = tmp_path / "tree"
    (tree / "net").mkdir(parents=True)
    (tree / "net" / ".read.o.cmd").write_text(
        "savedcmd_net/read.o := gcc -c net/read.c\n\n"
        f"deps := \\\n  include/linux/../net/read.h \\\n  {tree}/lib/far.h\n"
    )
    kept = {"net/read.c", "include/net/read.h", "lib/far.h", "net/Kconfig", "scripts/dtc/dtc.c", "COPYING"}
    packed = []
    for number, order in enumerate((1, -1)):
        archive, output = tmp_path / f"all-{number}.tar.xz", tmp_path / f"part-{number}.tar.xz"
        with tarfile.open(archive, "w:xz") as everything:
            for name in sorted(kept | {"net/unread.c", "Documentation/net.rst", "drivers/net.c"})[::order]:
                member = tarfile.TarInfo(f"linux-source-6.12/{name}")
                member.size, member.uid, member.uname = len(name), number, f"user{number}"
                everything.addfile(member, BytesIO(name.encode()))
        kernel_source.pack(archive, tree, output)
        packed.append(output.read_bytes())
    assert packed[0] == packed[1]
    with tarfile.open(fileobj=BytesIO(lzma.decompress(packed[0]))) as part:
        assert part.getnames() == sorted(f"linux-source-6.12/{name}" for name in kept)


def test_no_wheel_to_pass_on_lacks_the_source_of_the_c_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Debian has had a newer one since: the wheel that is only tried goes without, and says so."""
    built = Kernel(tmp_path / "sagecc-linux", "0" * 64, "6.12.1", "0.0-no-such-version")
    (tmp_path / "kernel-identity").mkdir()
    (tmp_path / "kernel" / "linux-0123456789ab").mkdir(parents=True)
    monkeypatch.setattr(wheel, "ensure_kernel", lambda *_: built)
    monkeypatch.setattr(wheel, "_linux", lambda *_: tmp_path / "linux.tar.xz")
    with pytest.raises(SageccError, match=r"apt has no glibc-source=0\.0-no-such-version"):
        wheel.kernel_files(tmp_path)
    assert f"source/{wheel.LIBC}.deb" not in wheel.kernel_files(tmp_path, for_test=True)
    assert "must not be passed on" in capsys.readouterr().err


# ---- what it asks for ----


def asked(*extras: str) -> dict[str, Requirement]:
    """Return what setup.cfg asks for with these extras, by name."""
    lines = map(Requirement, try_wheel.requirements(ROOT / "setup.cfg", extras))
    return {canonicalize_name(line.name): line for line in lines}


def test_development_has_all_that_is_asked_for_and_nothing_else() -> None:
    wanted = re.findall(r"^([a-zA-Z0-9-]+)", (ROOT / "requirements/requirements.in").read_text(), re.MULTILINE)
    building = {"wheel"}
    assert {canonicalize_name(name) for name in wanted} - building == asked("dev").keys()


def test_the_locked_versions_are_within_the_bounds() -> None:
    outside = {
        name: version(name)
        for name, requirement in asked("dev").items()
        if not requirement.specifier.contains(version(name), prereleases=True)
    }
    assert not outside


def test_every_bound_is_one() -> None:
    """`scripts.try_wheel --versions lowest` installs them: what has none would be tried with anything."""
    free = {"types-pyyaml", "types-tqdm", "backports-strenum"}
    assert {name for name, requirement in asked("dev").items() if ">=" not in str(requirement.specifier)} == free


def imports(file: Path) -> Iterator[tuple[str, str]]:
    """Yield (module, extra) of each import in a file: the extra that requires_extra or import_library names, or ""."""
    tree = ast.parse(file.read_text())
    guarded: dict[int, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.With):
            for item in node.items:
                call = item.context_expr
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "requires_extra":
                    told = call.args[0].value if isinstance(call.args[0], ast.Constant) else ""
                    guarded |= {id(inner): str(told) for inner in ast.walk(node)}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "import_library":
            words = [str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)]
            if len(words) == 2:
                yield words[0].partition(".")[0], words[1]
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in names:
            yield name.partition(".")[0], guarded.get(id(node), "")


@pytest.mark.parametrize("package", PACKAGES)
def test_an_import_is_of_the_base_or_names_its_extra(package: str) -> None:
    distributions = packages_distributions()
    wrong = []
    for file in sorted((ROOT / package).rglob("*.py")):
        for module, extra in imports(file):
            if module in sys.stdlib_module_names or module == "sagecc":
                continue
            names = {canonicalize_name(name) for name in distributions.get(module, [module])}
            brought = asked(extra) if extra else asked()
            if not names & brought.keys() and not (module == "llvmlite" and "numba" in brought):
                wrong.append(f"{file.relative_to(ROOT)}: {module} ({extra or 'no extra'})")
    assert not wrong


def test_the_command_line_starts_without_the_numeric_libraries() -> None:
    script = "import sys; from sagecc.cli import cli; cli(['--help'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    distributions = packages_distributions()
    ours = {name for module in loaded for name in distributions.get(module, [])}
    assert {canonicalize_name(name) for name in ours} & asked("dev").keys() <= {"click", "setuptools"}
