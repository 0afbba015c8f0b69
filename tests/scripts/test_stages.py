# SPDX-License-Identifier: Apache-2.0
"""What makes DVC run a stage: a version of what is behind it; for collecting, a scheme that is new or its module."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

import pytest
import yaml
from dvc.dvcfile import Lockfile
from dvc.repo import Repo

from sagecc.collector.kernel.identity import write_identities
from sagecc.common import versions
from sagecc.leagues.study.catalogue import EXPERIMENTS
from scripts import lock_file, repro
from scripts.specification import specifications, write
from tests.conftest import PACKAGES, ROOT, copy_project

pytestmark = pytest.mark.heavy

MAIN, FULL, LABS, STUDY = "dvc.yaml", "datasets/full/dvc.yaml", "models/dvc.yaml", "leagues/study-results/dvc.yaml"
SCHEMES = ("cubic", "bbr2", "hybla")
STUDIED = [each.name for each in EXPERIMENTS.values() if not each.traced]


class Project:
    """A copy of the project with a few of its schemes; every stage counts as done, and its data are stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        copy_project(folder)
        for lock in repro.LOCKS:
            (folder / lock).unlink(missing_ok=True)
        params = folder / "params.yaml"
        few, count = re.subn(r"(?m)^schemes: .*$", f"schemes: [{', '.join(SCHEMES)}]", params.read_text())
        assert count == 1
        params.write_text(few)
        raw = [f"raw/set={name}/scheme={scheme}/part-000.parquet" for name in ("I", "II") for scheme in SCHEMES]
        kicks = [f"kicked/{path.replace('/part-000', '+kicks/part-000')}" for path in raw]
        outs = [
            f"datasets/{path}"
            for path in (
                *raw,
                "pool/a",
                "compiled.json",
                *(f"full/{path}" for path in raw),
                "full/pool/a",
                *kicks,
                *(f"kicked/raw/set={name}/scheme=wander/part-000.parquet" for name in ("I", "II")),
                *(f"kicked/raw/set={name}/scheme=wander/part-000.parquet" for name in ("together", "mates")),
                "kicked/pool/a",
            )
        ]
        tables = ("breakdown.parquet", "league.json", "metrics.json", "robustness.parquet", "scores.parquet")
        pictures = ("example-I.png", "example-II.png", "plane.png", "standings.png")
        outs += [f"leagues/results/{name}" for name in (*tables, *pictures, "standings.csv", "raw/policies.json")]
        outs += ["leagues/report.html"]
        outs += [f"leagues/study-results/experiments/{name}/a" for name in STUDIED]
        outs += ["leagues/study-results/all/a", "models/sagecc-12/a"]
        rounds = [f"datasets/grown/round-{number}" for number in range(3)]
        outs += [
            f"{folder}/{name}" for folder in rounds for name in ("policy/a", "state.safetensors", "raw/a", "pool/a")
        ]
        outs += [f"leagues/analysis/{name}/a" for name in ("distance", "similarity", "tsne")]
        for out in ("build/sagecc-linux", "models/repro/metrics.json", "models/repro-labs/metrics.json", *outs):
            (folder / out).parent.mkdir(parents=True, exist_ok=True)
            (folder / out).write_text(out)
        write_identities(folder / "build" / "sagecc-linux")
        self.specify()
        with self.repo() as repo:
            repo.commit(force=True)

    @contextmanager
    def repo(self) -> Iterator[Repo]:
        """Read the project as DVC does in its folder."""
        with chdir(self.folder), Repo() as repo:
            yield repo

    def specify(self, **configs: str) -> None:
        """Do what the stage `specification` does, with this project's configurations."""
        write(
            specifications(**{"pool": "offline", "labs": "sagecc-10", **configs}), self.folder / "build/specification"
        )

    def changed(self, pipeline: str = MAIN) -> set[str]:
        """The stages of a pipeline that are not up to date themselves."""
        with self.repo() as repo:
            found = repo.status(targets=[pipeline])
        return {name.rpartition(":")[2] for name in found} - {"specification"}  # it always runs

    def running(self, pipeline: str = MAIN) -> list[str]:
        """The stages of a pipeline that `dvc repro` would run."""
        with self.repo() as repo:
            return [stage.name for stage in repo.reproduce([pipeline], dry=True)]


def raised(text: str, *names: str) -> str:
    """Return common/versions.py with these versions raised."""
    for name in names:
        line, version = f"{name} = {{}}\n", getattr(versions, name)
        assert line.format(version) in text
        text = text.replace(line.format(version), line.format(version + 1))
    return text


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    folder = tmp_path_factory.mktemp("stages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DVC_SITE_CACHE_DIR", str(folder / "site"))
        yield Project(folder / "project")


def test_adding_a_scheme_collects_that_scheme_only(project: Project) -> None:
    params = project.folder / "params.yaml"
    before = params.read_text()
    assert not project.changed()
    assert not project.changed(FULL)
    assert yaml.safe_load(before)["schemes"][-1] == "hybla"
    params.write_text(before.replace("hybla]", "hybla, mine]"))
    module, identity = (
        project.folder / name for name in ("collector/kernel/modules/tcp_mine.c", "build/kernel-identity/mine")
    )
    module.write_text("int mine;\n")
    identity.write_text("linux-6.12 lab-1 tcp_mine.c=0123456789ab\n")
    assert project.changed() == {"kernel", "collect@mine", "kick@mine"}
    assert project.changed(FULL) == {"collect@I-mine", "collect@II-mine"}
    params.write_text(before)
    module.unlink()
    identity.unlink()
    assert not project.changed()


@pytest.mark.parametrize(("stage", "lost"), [("pool", False), ("pool", True), ("collect@hybla", True)])
def test_a_stage_writes_its_own_lines_of_a_lock_file_as_dvc_does(
    project: Project, stage: str, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = project.folder / MAIN.replace("yaml", "lock")
    before = lock.read_text()
    cut, count = re.subn(rf"(?m)^  {stage}:\n(?:    .*\n)+", "", before)
    assert count == 1
    written = []
    for dump in (lock_file.WHOLE, lock_file.dump_stages):
        monkeypatch.setattr(Lockfile, "dump_stages", dump)
        lock.write_text(cut if lost else before)
        with project.repo() as repo:
            repo.commit(stage, force=True)
        written.append(lock.read_text())
    assert written[0] == written[1]
    assert yaml.safe_load(written[1]) == yaml.safe_load(before)
    lock.write_text(before)


EXPLORING = {"explore", "widen@together", "widen@mates"}
STAGES: dict[str, set[str]] = {
    "RAW": {f"{how}@{scheme}" for how in ("collect", "kick") for scheme in SCHEMES} | EXPLORING,
    "POOL": {"pool", "kicked-pool"},
    "COMPILED": {"compile"},
    "LABS": set(),
    "CRR": {"train"},
    "BC": set(),
    "AWR": set(),
    "TD3_BC": {"train"},
    "CQL": set(),
    "JUDGING": set(),
    "TD3": set(),
    "DAGGER": set(),
    "POLICY": {"league"},
    "USER_SPACE": EXPLORING,
    "GROWTH": set(),
    "LEAGUE": {"league"},
    "DISTANCE": {"distance"},
    "SIMILARITY": {"similarity"},
    "TSNE": {"tsne"},
    "REPORT": {"report"},
    "STUDY": set(),
}
"""By version the stages of dvc.yaml that it stands for."""


def test_every_version_makes_its_stages_anew_and_no_others(project: Project) -> None:
    found: dict[str, set[str]] = {name: set() for name in STAGES}
    with project.repo() as repo:
        for stage in repo.index.stages:
            for dep in stage.deps if stage.path_in_repo == MAIN else []:
                for name in dep.params if dep.def_path == "common/versions.py" else []:
                    found[name].add(stage.name)
    assert found == STAGES
    assert STAGES.keys() == {name for name in vars(versions) if name.isupper()}


def test_a_raised_version_runs_what_it_stands_for(project: Project) -> None:
    file = project.folder / "common" / "versions.py"
    before = file.read_text()
    file.write_text(raised(before, "CRR", "REPORT"))
    assert project.changed() == {"train", "report"}
    assert not project.changed(FULL)
    file.write_text(before)
    assert not project.changed()


def test_code_that_raises_no_version_runs_nothing(project: Project) -> None:
    """Every module rewritten, with a line more; what the kernel is made of is no Python."""
    files = [path for name in PACKAGES for path in (project.folder / name).rglob("*.py")]
    texts = {path: path.read_text() for path in files}
    for path, text in texts.items():
        path.write_text(f"{ast.unparse(ast.parse(text))}\nMORE = 1\n")
    assert len(texts) > 100
    assert not project.changed()
    assert not project.changed(FULL)
    assert not project.changed(STUDY)
    for path, text in texts.items():
        path.write_text(text)


def test_a_configuration_runs_the_training_that_it_is_of(project: Project) -> None:
    project.specify(pool="bc")
    assert (project.changed(), project.changed(LABS)) == ({"train"}, set())
    project.specify(labs="labs-tiny")
    assert (project.changed(), project.changed(LABS)) == (set(), {"labs"})
    project.specify()
    assert not project.changed() | project.changed(LABS)


def test_what_is_trained_is_told_by_values_not_by_names(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("# The same.\nbase: small\nnetwork: {width: 64}\n")
    assert specifications(str(mine), "sagecc-10") == specifications("small", "sagecc-10")


@pytest.mark.parametrize(
    "file", ["collector/guest/init.c", "collector/kernel/config", "collector/kernel/modules/lab.c"]
)
def test_the_kernel_hangs_on_what_it_is_made_of(project: Project, file: str) -> None:
    path = project.folder / file
    before = path.read_text()
    path.write_text(f"{before}\n")
    assert project.changed() == {"kernel"}
    path.write_text(before)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  windows: all", "  windows: medium"),
        ("alignment: after", "alignment: public"),
        ("effective_windows: false", "effective_windows: true"),
    ],
)
def test_other_windows_or_rewards_derive_the_pool_and_collect_nothing(project: Project, old: str, new: str) -> None:
    params = project.folder / "params.yaml"
    before = params.read_text()
    assert before.count(old) == 1
    params.write_text(before.replace(old, new))
    try:
        assert project.changed(FULL) == {"pool"}
        assert project.changed() == {"pool", "kicked-pool"}
    finally:
        params.write_text(before)


def test_a_changed_module_collects_its_scheme_only(project: Project) -> None:
    identity = project.folder / "build" / "kernel-identity" / "bbr2"
    before = identity.read_text()
    identity.write_text("linux-6.12 lab-1 tcp_bbr2.c=0123456789ab\n")
    binary = project.folder / "build" / "sagecc-linux"
    binary.write_text("another kernel")
    assert project.changed() == {"kernel", "collect@bbr2", "kick@bbr2"}
    assert project.changed(FULL) == {"collect@I-bbr2", "collect@II-bbr2"}
    identity.write_text(before)
    binary.write_text("build/sagecc-linux")


def test_the_default_run_leaves_the_full_pool_alone(project: Project) -> None:
    hybla = project.folder / "datasets" / "full" / "raw" / "set=I" / "scheme=hybla" / "part-000.parquet"
    hybla.unlink()
    assert project.running() == ["specification"]
    assert project.running(FULL) == ["collect@I-hybla", "pool"]
    lock = yaml.safe_load((project.folder / "datasets/full/dvc.lock").read_text())
    assert len(lock["stages"]) == 2 * len(SCHEMES) + 1


def test_the_study_s_version_runs_the_study_alone(project: Project) -> None:
    file = project.folder / "common" / "versions.py"
    before = file.read_text()
    assert not project.changed(STUDY)
    file.write_text(raised(before, "STUDY"))
    assert not project.changed()
    assert project.changed(STUDY) == {"page", *(f"study@{name}" for name in STUDIED)}
    file.write_text(before)
    assert not project.changed(STUDY)
    file = project.folder / "leagues" / "study-results" / "experiments" / "fairness" / "a"
    file.unlink()
    assert project.running() == ["specification"]
    assert project.running(STUDY) == ["study@fairness", "page"]
    file.write_text("leagues/study-results/experiments/fairness/a")


def test_a_stage_s_command_has_the_study_s_options() -> None:
    commands = {stage.name: str(stage.cmd) for stage in Repo(str(ROOT)).index.stages if "study" in (stage.name or "")}
    assert commands.keys() == {f"study@{name}" for name in STUDIED}
    assert "study fairness --schemes cubic,bbr2,vegas --policy models/sagecc-12 --repeats 20 --runs" in str(
        commands["study@fairness"]
    )


def test_a_readme_in_a_model_s_folder_is_no_part_of_what_a_stage_depends_on() -> None:
    repository = Repo(ROOT)
    assert repository.dvcignore.is_ignored_file(str(ROOT / "models/sagecc-10/README.md"))
    assert not repository.dvcignore.is_ignored_file(str(ROOT / "models/sagecc-10/card.json"))
