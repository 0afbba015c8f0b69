# SPDX-License-Identifier: Apache-2.0
"""What makes a stage out of date: a line of code that it can reach, and nothing else."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sagecc.common.code import ASIDE, Code, Module
from scripts.code import BESIDE, GROWING, LABS, listings, stages
from tests.conftest import PACKAGES, ROOT

pytestmark = pytest.mark.heavy

PIPELINES = ("dvc.yaml", "datasets/full/dvc.yaml")
POLICY_AT_WORK = {"league", "distance", "similarity", "tsne", "report"}
LAB = {"collect", *POLICY_AT_WORK}
EVERY = {"kernel", "pool", "compile", "train", *LAB}
BESIDE_THE_CHAIN = {"study", *LABS, *GROWING}


def without_outputs(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name in {"__pycache__", "results", "analysis"}}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A copy of the packages, and each stage's file there."""
    root = tmp_path_factory.mktemp("code")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, root / name, symlinks=True, ignore=without_outputs)
    shutil.copy2(ROOT / "dvc.yaml", root)
    return root, listings(root)


@pytest.fixture
def copy(pristine: tuple[Path, dict[str, str]]) -> Iterator[Path]:
    """The copy, put right again afterwards."""
    texts = {path: path.read_bytes() for name in PACKAGES for path in (pristine[0] / name).rglob("*") if path.is_file()}
    yield pristine[0]
    for path, text in texts.items():
        if path.read_bytes() != text:
            path.write_bytes(text)


def changed(root: Path, before: dict[str, str]) -> set[str]:
    """The stages whose files differ; what learns in labs and a growing pool have tests of their own."""
    after = listings(root)
    assert after.keys() == before.keys()
    return {stage for stage, text in after.items() if text != before[stage]} - BESIDE_THE_CHAIN


def retold(text: str) -> str:
    """The same module in another layout, without comments, with other docstrings and help."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            node.value.value = f"Otherwise: {node.value.value}"
        elif isinstance(node, ast.keyword) and node.arg == "help":
            node.value = ast.Constant("Said otherwise.")
    kept = [line for line in text.splitlines() if line.startswith(ASIDE)]
    return "\n".join([*kept, "# Another comment.", "", ast.unparse(tree), ""])


def test_comments_docstrings_layout_and_help_change_no_stage(copy: Path, pristine: tuple[Path, dict[str, str]]) -> None:
    files = [path for name in PACKAGES for path in (copy / name).rglob("*.py")]
    for path in files:
        text = path.read_text()
        path.write_text(retold(text))
    for path in (copy / "learner" / "configs").iterdir():
        path.write_text(f"# Another comment.\n{path.read_text()}")
    assert len(files) > 100
    assert not changed(copy, pristine[1])


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("learner/crr.py", {"train"}),
        ("learner/train.py", {"train"}),
        ("learner/config.py", {"train"}),
        ("learner/compiled.py", {"compile", "train", "distance", "similarity", "tsne"}),
        ("policy/residual.py", {"train", *POLICY_AT_WORK}),
        ("execution/schemes/orca/checkpoint.py", set()),
        ("leagues/report/page.py", {"report"}),
        ("leagues/report/files.py", {"report"}),
        ("leagues/plots.py", {"distance", "similarity", "tsne", "report"}),
        ("leagues/league.py", POLICY_AT_WORK),
        ("leagues/neighbours.py", {"distance"}),
        ("leagues/hidden.py", {"tsne"}),
        ("leagues/candidate.py", set()),
        ("execution/flow/window.py", POLICY_AT_WORK),
        ("execution/stock/kernel_scheme.py", set()),
        ("execution/environments/lab.py", set()),
        ("collector/lab/boot.py", {"pool", *LAB}),
        ("collector/run/grid.py", LAB - {"report"}),
        ("pool/features.py", {"pool", *POLICY_AT_WORK}),
        ("pool/reward.py", {"pool"}),
        ("pool/checks.py", set()),
        ("collector/run/engines.py", set()),
        ("schemas/schemes.py", {"kernel"}),
        ("collector/kernel/build.py", {"kernel"}),
        ("schemas/wire.py", {"kernel", "pool", *LAB}),
        ("schemas/environment.py", {"pool", *LAB}),
        ("schemas/pool.py", {"pool", "compile", "train", *POLICY_AT_WORK}),
        ("common/errors.py", EVERY),
        ("sagecc/commands/tsne.py", {"tsne"}),
        ("sagecc/analysis.py", {"distance", "similarity", "tsne"}),
        ("sagecc/__init__.py", EVERY),
    ],
)
def test_stages_hang_on_the_modules_that_they_can_reach(
    pristine: tuple[Path, dict[str, str]], file: str, expected: set[str]
) -> None:
    assert (pristine[0] / file).exists()
    name = ".".join(Path(file).with_suffix("").parts).removesuffix(".__init__")
    line = f"  {name if name.startswith('sagecc') else f'sagecc.{name}'}\n"
    assert {stage for stage, text in pristine[1].items() if line in text} - BESIDE_THE_CHAIN == expected


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("growth/places.py", set(GROWING)),
        ("growth/settings.py", {"grow-train", "grow-play"}),
        ("execution/lab/giving_up.py", {"grow-play"}),
        ("growth/playing.py", {"grow-play"}),
        ("learner/crr.py", {"grow-train"}),
        ("learner/selection.py", {"grow-train", "grow-play"}),
        ("execution/lab/controllers.py", {"grow-play"}),
        ("execution/agent/exploration.py", {"grow-play"}),
        ("collector/run/grid.py", {"grow-play"}),
        ("pool/features.py", {"grow-play", "grow-pool"}),
        ("pool/joining.py", {"grow-pool"}),
        ("leagues/league.py", set()),
    ],
)
def test_a_round_s_stages_hang_on_what_they_do(
    pristine: tuple[Path, dict[str, str]], file: str, expected: set[str]
) -> None:
    line = f"  sagecc.{file.removesuffix('.py').replace('/', '.')}\n"
    assert {stage for stage in GROWING if line in pristine[1][stage]} == expected


@pytest.mark.parametrize(
    ("file", "reached"),
    [
        ("learner/online/td3.py", True),
        ("learner/online/config.py", True),
        ("execution/environments/rollouts.py", True),
        ("execution/flow/window.py", True),
        ("collector/run/set_file.py", True),
        ("collector/lab/boot.py", True),
        ("policy/task.py", True),
        ("pool/features.py", True),
        ("learner/train.py", True),  # what a run's folder has
        ("leagues/league.py", False),
        ("growth/playing.py", False),
        ("collector/run/engines.py", False),
    ],
)
def test_what_learns_in_labs_hangs_on_the_labs_and_on_its_learner(
    pristine: tuple[Path, dict[str, str]], file: str, reached: bool
) -> None:
    assert (pristine[0] / file).exists()
    line = f"  sagecc.{'.'.join(Path(file).with_suffix('').parts)}\n"
    assert (line in pristine[1]["labs"]) == reached


@pytest.mark.parametrize(
    ("file", "added", "expected"),
    [
        ("learner/crr.py", "_MORE = 1", {"train"}),
        ("leagues/report/page.py", "_MORE = 1", {"report"}),
        ("execution/flow/window.py", "_MORE = 1", POLICY_AT_WORK),
        ("schemas/environment.py", "_MORE = 1", {"pool", *LAB}),
        ("collector/run/engines.py", "_MORE = 1", set()),
        ("leagues/report/report.css", "/* more */", {"report"}),
        ("leagues/report/report.js", "// more", {"report"}),
        ("learner/configs/small.yaml", "xla: true", {"train"}),
        ("collector/kernel/modules/lab.c", "/* more */", {"kernel"}),
        ("collector/kernel/config", "CONFIG_MORE=y", {"kernel"}),
        ("collector/guest/init.c", "/* more */", {"kernel"}),
        ("execution/stock/bpf/sagecc_pure.bpf.c", "/* more */", set()),
        ("pool/views.sql", "-- more", set()),
    ],
)
def test_a_changed_line_changes_exactly_the_stages_that_can_reach_it(
    copy: Path, pristine: tuple[Path, dict[str, str]], file: str, added: str, expected: set[str]
) -> None:
    with (copy / file).open("a") as text:
        text.write(f"{added}\n")
    assert changed(copy, pristine[1]) == expected


def test_a_new_import_in_a_function_is_followed(copy: Path, pristine: tuple[Path, dict[str, str]]) -> None:
    (copy / "schemas" / "fresh.py").write_text("X = 1\n")
    with (copy / "pool" / "reward.py").open("a") as text:
        text.write("\n\ndef later() -> int:\n    from sagecc.schemas import fresh\n\n    return fresh.X\n")
    found = listings(copy)
    assert {stage for stage, text in found.items() if "sagecc.schemas.fresh\n" in text} == {"pool", "labs", "grow-pool"}
    (copy / "schemas" / "fresh.py").write_text("X = 2\n")
    assert changed(copy, found) == {"pool"}
    (copy / "schemas" / "fresh.py").write_text(f"{ASIDE}it is a test's.\nX = 2\n")
    assert "sagecc.schemas.fresh\n" not in listings(copy)["pool"]
    (copy / "schemas" / "fresh.py").unlink()


def test_an_installed_package_has_the_same_identity(pristine: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    """There the packages lie in sagecc/ themselves, and there are no links."""
    shutil.copytree(pristine[0] / "sagecc", tmp_path / "sagecc")
    assert not (tmp_path / "sagecc" / "learner").is_symlink()
    module = "sagecc.learner.train"
    assert Code(tmp_path / "sagecc").identity(module) == Code(pristine[0] / "sagecc").identity(module)


def test_an_unknown_module_has_no_identity() -> None:
    with pytest.raises(KeyError, match=r"sagecc\.nowhere"):
        Code().identity("sagecc.nowhere")


def pipeline(name: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / name).read_text())["stages"]
    return found


@pytest.mark.parametrize("name", PIPELINES)
def test_a_stage_hangs_on_its_own_file_and_on_no_source(name: str) -> None:
    for stage, of in pipeline(name).items():
        if stage == "code":
            continue
        assert [dep for dep in of["deps"] if dep.startswith("build/code")] == [f"build/code/{stage}"]
        tracked = subprocess.run(["git", "ls-files", "--", *of["deps"]], cwd=ROOT, capture_output=True, text=True)
        assert (tracked.returncode, tracked.stdout) == (0, "")


@pytest.mark.parametrize("name", PIPELINES)
def test_stages_call_their_commands(name: str) -> None:
    """Without options that reach what stands aside."""
    for stage, of in pipeline(name).items():
        if stage == "code":
            continue
        assert of["cmd"].split()[:2] == ["sagecc", "train" if stage in LABS else stage]
        assert stages(ROOT)[stage] == LABS.get(stage, f"sagecc.commands.{stage}")
        assert not re.search("--(evaluate|preset)| (check|export)", of["cmd"])
        assert stage != "league" or of["cmd"].endswith("--no-report")


def test_what_stands_aside_is_imported_by_what_a_stage_reaches() -> None:
    code = Code()
    reached = {name for command in stages(ROOT).values() for name in code.digests(command)}
    files = {
        ".".join(("sagecc", *file.relative_to(ROOT).with_suffix("").parts)).replace("sagecc.sagecc", "sagecc"): file
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        if file.name != "__init__.py"
    }
    modules = {name: Module.read(file) for name, file in files.items()}
    aside = {name for name, module in modules.items() if module.aside}
    imported = {other for name in reached & modules.keys() for other in modules[name].imports}
    behind = {other for name in aside for other in modules[name].imports}
    assert aside == aside & (imported | behind)
    assert aside & reached == set(LABS.values())
    of_commands = [names for stage, names in BESIDE.items() if stage not in {*LABS, *GROWING}]
    assert {name for names in of_commands for name in names if name.startswith("sagecc.")} <= aside
