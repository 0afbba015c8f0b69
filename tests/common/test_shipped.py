# SPDX-License-Identifier: Apache-2.0
"""What comes with sagecc is found from anywhere, whatever lies in the working directory."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from sagecc.cli import cli, main
from sagecc.collector.kernel import build
from sagecc.collector.kernel.identity import own_kernel, read_stamp, stamp, write_identities
from sagecc.collector.run.set_file import load_set
from sagecc.common import shipped
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file
from sagecc.common.optional import import_library, requires_extra
from sagecc.execution.environments.networks import networks
from sagecc.policy.artefact import PolicyArtefact
from sagecc.schemas.environment_file import load_environment
from tests.conftest import ROOT
from tests.helpers.policies import save_still_policy


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation's folder `shipped`, with a kernel in it; the working directory is another, empty one."""
    folder = tmp_path / "site-packages" / "sagecc" / "shipped"
    folder.mkdir(parents=True)
    (folder / "sagecc-linux").write_bytes(b"a kernel")
    known = {"sha256": sha256_file(folder / "sagecc-linux"), "source": "6.12.1", "libc": "2"}
    (folder / "sagecc-linux.json").write_text(json.dumps({**known, "identity": ""}))
    monkeypatch.setattr(shipped, "FOLDER", folder)
    monkeypatch.setattr(shipped, "INSTALLED", True)
    monkeypatch.setattr(shipped, "KERNEL", folder / "sagecc-linux")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return folder


def exit_of(arguments: list[str]) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def lay(kernel: Path, of: Path) -> None:
    """Lay a file in place of a kernel, with all that a copy of another kernel's folder has."""
    kernel.parent.mkdir(exist_ok=True)
    kernel.write_bytes(b"a stranger's")
    if of != kernel:
        shutil.copy2(stamp(of), stamp(kernel))
    write_identities(kernel)


def test_a_kernel_of_the_working_directory_is_not_run(installed: Path) -> None:
    lay(Path("build/sagecc-linux"), of=installed / "sagecc-linux")
    assert own_kernel() == installed / "sagecc-linux"


def test_nor_is_one_of_a_checkout_that_is_not_the_programs_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("dvc.yaml", "setup.cfg", "params.yaml"):
        shutil.copy2(ROOT / name, tmp_path)
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "sagecc-linux").write_bytes(b"a stranger's")
    monkeypatch.chdir(tmp_path)
    assert shipped.KERNEL == ROOT / "build" / "sagecc-linux"


def test_in_a_checkout_only_what_was_built_there_is_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kernel = tmp_path / "build" / "sagecc-linux"
    monkeypatch.setattr(shipped, "KERNEL", kernel)
    assert own_kernel() == kernel  # there is none yet: what needs one says so
    kernel.parent.mkdir()
    kernel.write_bytes(b"built")
    with pytest.raises(
        SageccError, match=r"is not the kernel that 'sagecc kernel' built \(its SHA-256 is not in .*json\): run"
    ):
        own_kernel()
    stamp(kernel).write_text(json.dumps({"sha256": sha256_file(kernel)}))
    assert own_kernel() == kernel
    lay(kernel, of=kernel)
    with pytest.raises(SageccError, match="is not the kernel that 'sagecc kernel' built"):
        own_kernel()


@pytest.mark.parametrize("text", ["", "[]", "null", '{"sha256": null}', "\0"])
def test_what_is_no_stamp_vouches_for_nothing(tmp_path: Path, text: str) -> None:
    kernel = tmp_path / "sagecc-linux"
    kernel.write_bytes(b"built")
    stamp(kernel).write_text(text)
    assert read_stamp(kernel) == {}


def test_an_installation_verifies_its_kernel(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_of(["kernel"]) == 0
    said = capsys.readouterr().out
    assert str(installed / "sagecc-linux") in said
    assert "sagecc kernel --output build/sagecc-linux" in said
    assert not Path("build").exists()
    lay(Path("build/sagecc-linux"), of=installed / "sagecc-linux")
    assert exit_of(["kernel"]) == 0
    assert str(installed / "sagecc-linux") in capsys.readouterr().out


def test_a_damaged_kernel_is_told(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (installed / "sagecc-linux").write_bytes(b"a kerne1")
    assert exit_of(["kernel"]) == 2
    assert "is not the kernel that came with sagecc" in capsys.readouterr().err


def test_an_installation_builds_from_the_source_that_came_along(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = installed / "source" / "linux-source-6.12.tar.xz"
    source.parent.mkdir()
    source.touch()
    monkeypatch.setattr(shipped, "SOURCE", source)
    monkeypatch.setenv("PATH", "")  # neither apt nor dpkg
    assert build.source_archive(tmp_path) == (source, "6.12.1")
    with pytest.raises(SageccError, match="building the kernel needs: apt-get install") as missing:
        build.ensure_kernel(tmp_path / "linux", tmp_path / "build", 1)
    assert not {"apt", "dpkg"} & set(str(missing.value).split())


def test_the_shipped_policy_is_found_by_its_name_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shipped.policy("sagecc-1") == ROOT / "models" / "sagecc-1"
    assert PolicyArtefact.load("sagecc-1").path == ROOT / "models" / "sagecc-1"
    for other in ("models/sagecc-1", "nowhere", str(tmp_path / "sagecc-1")):
        assert shipped.policy(other) == Path(other)


def test_a_folder_of_that_name_does_not_stand_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sagecc-1").mkdir()
    both = r"sagecc-1 comes with sagecc and lies here too: write \./sagecc-1 for the one here, or .*models/sagecc-1"
    for named in ("sagecc-1", "sagecc-1/"):
        with pytest.raises(SageccError, match=both):
            PolicyArtefact.load(named)
    for own in ("./sagecc-1", Path("sagecc-1"), Path("./sagecc-1")):
        assert shipped.policy(own) == Path("sagecc-1")
    for other in ("", ".", ".."):
        assert shipped.policy(other) == Path(other)
    monkeypatch.chdir(ROOT / "models")  # where it is the same
    assert shipped.policy("sagecc-1").samefile("sagecc-1")


def test_a_command_takes_the_one_here_where_it_is_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_still_policy(Path("sagecc-1"))
    for policy, chosen in (("./sagecc-1", "sagecc-1"), (str(ROOT / "models/sagecc-1"), str(ROOT / "models/sagecc-1"))):
        done = CliRunner().invoke(cli, ["bound", policy, "--out", f"out-{len(policy)}"])
        assert done.output.endswith(f"the network of {chosen}\n")
    refused = CliRunner().invoke(cli, ["bound", "sagecc-1", "--out", "out"])
    assert "write ./sagecc-1" in str(refused.exception) and not Path("out").exists()


def test_an_example_is_found_by_its_name_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = ROOT / "schemas" / "environments" / "cellular.yaml"
    assert load_environment("cellular.yaml") == load_environment(example)  # its trace lies beside it
    assert networks("cellular.yaml") == (load_environment(example),)
    Path("cellular.yaml").write_text("links: [{rate_mbps: 1, queue_packets: 9}]\nrtt_ms: 10\nduration_s: 1\n")
    own = load_environment(Path("cellular.yaml"))
    assert own != load_environment(example)
    assert load_environment("./cellular.yaml") == own and networks("./cellular.yaml") == (own,)
    Path("set.yaml").write_text("name: mine\nenvironments: [{file: cellular.yaml}]\n")
    for read in (load_environment, networks):
        with pytest.raises(SageccError, match=r"write \./cellular\.yaml for the one here"):
            read("cellular.yaml")
    with pytest.raises(SageccError, match=r"write \./cellular\.yaml for the one here"):
        load_set("set.yaml")
    Path("set.yaml").write_text("name: mine\nenvironments: [{file: ./cellular.yaml}]\n")
    assert [network.links for network in load_set("set.yaml").environments] == [own.links]


def test_so_is_a_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("aqm").mkdir()  # a folder is no set
    example = load_set("aqm").environments
    assert load_set(str(ROOT / "schemas/sets/aqm.yaml")).environments == example == load_set("aqm.yaml").environments
    Path("aqm").rmdir()
    own = "name: mine\ngrids: [{bandwidth_mbps: [1], queue_packets: [9], rtt_ms: [9], duration_s: 1}]\n"
    for file in (Path("aqm"), Path("aqm.yaml")):
        file.write_text(own)
        for name in ("aqm", file.name):
            with pytest.raises(SageccError, match=rf"{name}\S* comes with sagecc and lies here too: write \./{name}"):
                load_set(name)
        assert load_set(f"./{file.name}").name == "mine" == load_set(str(file.absolute())).name
        file.unlink()
    Path("other").write_text(own)
    assert load_set("other").name == "mine"


def test_a_missing_library_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SageccError, match=r"No module named 'no_such_library'.*pip install 'sagecc\[train\]'"):
        import_library("no_such_library", "train")
    with pytest.raises(SageccError, match=r"pip install 'sagecc\[analysis\]'"), requires_extra("analysis"):
        import no_such_library  # type: ignore[import-not-found]  # noqa: F401
    (tmp_path / "a_folder_of_that_name").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(SageccError, match="No module named 'a_folder_of_that_name'"):
        import_library("a_folder_of_that_name", "huggingface")
