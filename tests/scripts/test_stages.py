# SPDX-License-Identifier: Apache-2.0
"""What makes DVC run a stage: code that it can reach; for collecting, a scheme that is new or whose module changed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo

from sagecc.collector.kernel.identity import write_identities
from sagecc.common.errors import SageccError
from sagecc.leagues.study.catalogue import EXPERIMENTS
from sagecc.schemas.schemes import SCHEMES
from scripts import code
from tests.conftest import ROOT, copy_project

pytestmark = pytest.mark.heavy

STUDY = "leagues/study-results/dvc.yaml"
STUDIED = [each.name for each in EXPERIMENTS.values() if not each.traced]


class Project:
    """A copy of the project in which every stage counts as done; its data are stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        copy_project(folder)
        raw = [f"raw/set={name}/scheme={scheme}/part-000.parquet" for name in ("I", "II") for scheme in SCHEMES]
        outs = [
            f"datasets/{path}"
            for path in (*raw, "pool/a", "compiled.json", *(f"full/{path}" for path in raw), "full/pool/a")
        ]
        tables = ("breakdown.parquet", "league.json", "metrics.json", "robustness.parquet", "scores.parquet")
        pictures = ("example-I.png", "example-II.png", "plane.png", "standings.png")
        outs += [f"leagues/results/{name}" for name in (*tables, *pictures, "standings.csv", "raw/policies.json")]
        outs += ["leagues/report.html"]
        outs += [f"leagues/study-results/experiments/{name}/a" for name in STUDIED]
        outs += ["leagues/study-results/all/a", "models/sagecc-1/a"]
        rounds = [f"datasets/grown/round-{number}" for number in range(3)]
        outs += [
            f"{folder}/{name}" for folder in rounds for name in ("policy/a", "state.safetensors", "raw/a", "pool/a")
        ]
        outs += [f"leagues/analysis/{name}/a" for name in ("distance", "similarity", "tsne")]
        for out in ("build/sagecc-linux", "models/repro/metrics.json", "models/repro-labs/metrics.json", *outs):
            (folder / out).parent.mkdir(parents=True, exist_ok=True)
            (folder / out).write_text(out)
        write_identities(folder / "build" / "sagecc-linux")
        code.write(folder)
        self.dvc("commit", "--force")

    def dvc(self, *command: str) -> str:
        environment = {**os.environ, "DVC_SITE_CACHE_DIR": str(self.folder.parent / "site")}
        done = subprocess.run(
            [sys.executable, "-m", "dvc", *command], cwd=self.folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def changed(self, pipeline: str = "dvc.yaml") -> set[str]:
        """The stages of a pipeline that are not up to date themselves, once `code` has run (it always does)."""
        code.write(self.folder)
        return {name.rpartition(":")[2] for name in json.loads(self.dvc("status", "--json", pipeline))} - {"code"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("stages") / "project")


def test_adding_a_scheme_collects_that_scheme_only(project: Project) -> None:
    params = project.folder / "params.yaml"
    before = params.read_text()
    assert not project.changed()
    assert not project.changed("datasets/full/dvc.yaml")
    assert yaml.safe_load(before)["schemes"][-1] == "hybla"
    params.write_text(before.replace("hybla]", "hybla, mine]"))
    for file in ("schemas/schemes.py", "collector/kernel/identity.py", "collector/kernel/modules/tcp_mine.c"):
        with (project.folder / file).open("a") as text:
            text.write("MINE = 1\n")
    (project.folder / "build" / "kernel-identity" / "mine").write_text("linux-6.12 lab-1 tcp_mine.c=0123456789ab\n")
    assert project.changed() == {"kernel", "collect@I-mine", "collect@II-mine"}
    assert project.changed("datasets/full/dvc.yaml") == {"collect@I-mine", "collect@II-mine"}
    params.write_text(before)
    project.dvc("commit", "--force", "code")
    project.dvc("commit", "--force", "kernel")


def test_code_runs_the_stages_that_can_reach_it_and_comments_none(project: Project) -> None:
    file = project.folder / "learner" / "crr.py"
    before = file.read_text()
    file.write_text(f"# Said otherwise.\n{before}")
    assert not project.changed()
    file.write_text(f"{before}MINE = 1\n")
    assert project.changed() == {"train", "labs"}
    assert not project.changed("datasets/full/dvc.yaml")
    file.write_text(before)


@pytest.mark.parametrize("of_labs", ["learner/online/td3.py", "learner/online/configs/sagecc-10.yaml"])
def test_what_learns_in_labs_is_a_stage_of_its_own(project: Project, of_labs: str) -> None:
    file = project.folder / of_labs
    before = file.read_text()
    file.write_text(f"{before}MINE = 1\n" if of_labs.endswith("py") else f"{before}batch: 8\n")
    assert project.changed() == {"labs"}
    file.write_text(before)
    assert not project.changed()


def test_bytes_that_are_known_to_be_the_same_can_be_accepted(project: Project) -> None:
    file = project.folder / "collector" / "lab" / "boot.py"
    file.write_text(f"{file.read_text()}MINE = 1\n")
    collect = {f"collect@{name}-{scheme}" for name in ("I", "II") for scheme in SCHEMES}
    assert project.changed() == {"pool", "labs", "league", "distance", "similarity", "tsne", "report", *collect}
    assert project.changed("datasets/full/dvc.yaml") == {"pool", *collect}
    assert code.accept(project.folder, "collect") == 2 * len(collect)
    assert project.changed() == {"pool", "labs", "league", "distance", "similarity", "tsne", "report"}
    assert project.changed("datasets/full/dvc.yaml") == {"pool"}
    project.dvc("commit", "--force")
    with pytest.raises(SageccError, match=r"'colect'.*kernel, collect"):
        code.accept(project.folder, "colect")


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
        assert project.changed() == project.changed("datasets/full/dvc.yaml") == {"pool"}
    finally:
        params.write_text(before)


def test_a_changed_module_collects_its_scheme_only(project: Project) -> None:
    identity = project.folder / "build" / "kernel-identity" / "bbr2"
    before = identity.read_text()
    identity.write_text("linux-6.12 lab-1 tcp_bbr2.c=0123456789ab\n")
    binary = project.folder / "build" / "sagecc-linux"
    binary.write_text("another kernel")
    assert project.changed() == {"kernel", "collect@I-bbr2", "collect@II-bbr2"}
    assert project.changed("datasets/full/dvc.yaml") == {"collect@I-bbr2", "collect@II-bbr2"}
    identity.write_text(before)
    binary.write_text("build/sagecc-linux")


def test_the_default_run_leaves_the_full_pool_alone(project: Project) -> None:
    hybla = project.folder / "datasets" / "full" / "raw" / "set=I" / "scheme=hybla" / "part-000.parquet"
    hybla.unlink()
    assert running(project.dvc("repro", "--dry")) == ["code"]
    assert running(project.dvc("repro", "--dry", "datasets/full/dvc.yaml")) == ["code", "collect@I-hybla", "pool"]
    lock = yaml.safe_load((project.folder / "datasets/full/dvc.lock").read_text())
    assert len(lock["stages"]) == 2 * len(SCHEMES) + 1


def test_the_study_s_code_runs_the_study_alone(project: Project) -> None:
    file = project.folder / "leagues" / "study" / "measures.py"
    before = file.read_text()
    assert not project.changed(STUDY)
    file.write_text(f"{before}MINE = 1\n")
    assert not project.changed()
    assert project.changed(STUDY) == {"page", *(f"study@{name}" for name in STUDIED)}
    file.write_text(before)
    assert not project.changed(STUDY)
    file = project.folder / "leagues" / "study-results" / "experiments" / "fairness" / "a"
    file.unlink()
    assert running(project.dvc("repro", "--dry")) == ["code"]
    assert running(project.dvc("repro", "--dry", STUDY)) == ["code", "study@fairness", "page"]
    file.write_text("leagues/study-results/experiments/fairness/a")


def test_a_stage_s_command_has_the_study_s_options() -> None:
    commands = {stage.name: str(stage.cmd) for stage in Repo(str(ROOT)).index.stages if "study" in (stage.name or "")}
    assert commands.keys() == {f"study@{name}" for name in STUDIED}
    assert "study fairness --schemes cubic,bbr2,vegas --policy models/sagecc-1 --repeats 20 --runs" in str(
        commands["study@fairness"]
    )


def running(output: str) -> list[str]:
    """The stages that `dvc repro` says it runs."""
    return re.findall(r"Running stage '(?:[^':]+:)?([^':]+)'", output)
