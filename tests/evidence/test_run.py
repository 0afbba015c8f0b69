# SPDX-License-Identifier: Apache-2.0
"""The harness with stand-ins for training, the lab and the kernel; leagues are real, on synthetic trajectories."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner

import evidence.training.run as harness
from evidence.training import ARTEFACTS, CARRIED, LOGS, METER, meter
from evidence.training.growing import grown_policy
from evidence.training.runs import Grow, KeepBest, Plan, Run
from evidence.training.table import RESULTS, keep_result, read_results
from sagecc.common.errors import SageccError
from sagecc.common.locks import locked
from sagecc.leagues.candidate import MEAN_RATE
from sagecc.leagues.league import PlayOptions
from sagecc.learner import runs as learner_runs
from sagecc.learner.continuation import CHECKPOINT
from sagecc.learner.evaluation import Evaluation
from sagecc.learner.experience import Experience
from sagecc.learner.online.beginning import policy_identity
from sagecc.learner.online.labs import OnlineTask
from sagecc.learner.specification import RunSpecification, load
from sagecc.policy.artefact import Control
from sagecc.schemas.environment import Environment
from sagecc.schemas.partitions import partition
from tests.helpers.judging import without_a_lab
from tests.helpers.league_episodes import rows, set_one, set_two, smoke, write
from tests.helpers.messages import facts
from tests.helpers.policies import save_policy

pytestmark = pytest.mark.heavy

ENVIRONMENTS = (set_one(12), set_one(24, step=2), set_two(12))
SCHEMES = {"vegas": "", "reno": ""}
RATES = {scheme: ([5.0, 5.0], [40.0, 40.0]) for scheme in SCHEMES} | {"vegas": ([7.0, 7.0], [12.0, 12.0])}
RATES["cubic"] = [20.0, 20.0], [40.0, 40.0]


class Machinery:
    """Notes what was trained, collected and played; a policy sends 8 Mbps at 11 ms."""

    def __init__(self) -> None:
        self.trained: list[tuple[int, int]] = []
        self.collected: list[Path] = []
        self.played = 0
        self.error: Exception | None = None
        self.scores: Mapping[int, Mapping[str, float]] = {}

    def train(
        self, config: Any, experience: Any, out: Path, logs: Path, seed: int, evaluation: Evaluation | None
    ) -> SimpleNamespace:
        self.trained.append((config.steps, seed))
        if self.error:
            raise self.error
        out.mkdir(parents=True, exist_ok=True)
        (out / "card.json").write_text(f"{config.steps} {seed}")
        steps = (evaluation.every, config.steps) if evaluation else ()
        self.scores = {step: evaluation.score(out, step) for step in steps} if evaluation else {}
        step = evaluation.best(self.scores) if evaluation else config.steps
        learner_runs.write_tables(out, [{"step": 1.0}], self.scores)
        return SimpleNamespace(parameters=1234, metrics={"critic_loss": 0.5}, step=step, scores=self.scores)

    def collect(self, environments: Sequence[Environment], schemes: Sequence[str], raw: Path, *_: object) -> None:
        self.collected += [raw] if raw not in self.collected else []
        todo = [(e, s) for e in environments for s in schemes if not (raw / partition(e.set, s)).exists()]
        write(raw, {(e, s): rows(e, s, *RATES[s]) for e, s in todo})

    def lab_runner(self, kernel: Path, jobs: int, options: PlayOptions | None = None) -> Any:
        def run(environments: Sequence[Environment], policies: Sequence[str], out: Path) -> None:
            self.played += 1
            todo = [(e, p) for e in environments for p in policies if not (out / partition(e.set, p)).exists()]
            write(out, {(e, p): rows(e, p, [8, 8], [11, 11]) for e, p in todo})

        return run


@pytest.fixture
def machinery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machinery:
    monkeypatch.chdir(tmp_path)
    found = Machinery()
    pool: SimpleNamespace = SimpleNamespace(identity="pool", rows=1000, starts=[0, 10], select=lambda data: pool)
    for name, value in {
        "train": found.train,
        "lab_runner": found.lab_runner,
        "compile_pool": lambda path, cache: pool,
        "PoolExperience": lambda *of: None,
        "kernel_identity": lambda kernel, schemes: "linux",
        "networks_of": lambda name: smoke(*ENVIRONMENTS),
        "SCHEMES": SCHEMES,
    }.items():
        monkeypatch.setattr(harness, name, value)
    without_a_lab(monkeypatch, ENVIRONMENTS, SCHEMES, found.lab_runner, found.collect)
    return found


def plan(*names: str, steps: int = 5) -> Plan:
    config = load("tiny", steps=steps)
    runs = {name: Run(name, "tiny", {"steps": steps}, config, seed, Path("pool")) for seed, name in enumerate(names)}
    return Plan(runs, {"smoke": Path("raw")}, pool=Path("pool"))


def run_all(of: Plan, *names: str) -> list[str]:
    return harness.run_all(of, names, Path("kernel"), 1)


def result(name: str) -> dict[str, Any]:
    return read_results(RESULTS)[name]


def test_a_result_by_hand(machinery: Machinery) -> None:
    assert run_all(plan("one")) == []
    found = result("one")
    assert found["changes"] == {"steps": 5}
    assert found["pool"] == {"path": "pool", "identity": "pool", "rows": 1000, "episodes": 2}
    assert found["parameters"] == 1234
    assert found["machine"]["cpu"]
    sets = found["leagues"]["smoke"]
    # Set I: 64 / (11 + 10) = 3.05 beats vegas's 49 / 22 = 2.2. Set II, share 6: at best 1 Mbps off (5 and 7), so
    # 0.9 * 5 to 1.1 * 7 = 7.7 wins: 8 does not, everybody else does.
    assert sets["I"]["policy"] == {"rank": 1, "winning_rate": 1.0, "low": 1.0, "high": 1.0}
    assert sets["I"]["best_heuristic"]["winning_rate"] == 0
    assert (sets["I"]["schemes"], sets["I"]["environments"]) == (3, 2)
    assert sets["II"]["policy"]["rank"] == 3
    assert sets["II"]["best_heuristic"]["winning_rate"] == sets["II"]["reno"]["winning_rate"] == 1
    assert len(found["policy_sha256"]) == 64
    assert machinery.collected == [Path("raw")]


def test_a_run_with_a_growing_pool_is_judged_by_its_last_round_s_policy(
    machinery: Machinery, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train_grown(run: Run, folder: Path, cache: Path, kernel: Path, jobs: int) -> SimpleNamespace:
        return machinery.train(run.config, None, grown_policy(run, folder), Path(), run.seed, None)

    monkeypatch.setattr(harness, "train_grown", train_grown)
    of = plan("one")
    grown = replace(of.runs["one"], grow=Grow("smoke", 2, 3))
    assert run_all(replace(of, runs={"one": grown})) == []
    assert result("one")["grow"] == {"profile": "smoke", "rounds": 2, "steps": 3}
    assert (ARTEFACTS / "one/rounds/round-2/policy/card.json").exists()
    assert not (ARTEFACTS / "one/policy").exists()
    assert result("one")["leagues"]["smoke"]["I"]["policy"]["rank"] == 1


def no_labs(*, labs: int) -> NoReturn:
    raise AssertionError(f"{labs} labs were made")


def test_a_run_in_labs_is_trained_by_its_task_and_judged_alike(
    machinery: Machinery, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = []

    def train(
        config: RunSpecification, learned: Experience, out: Path, logs: Path, seed: int, evaluation: Evaluation | None
    ) -> SimpleNamespace:
        trained.append((config.steps, learned.identity(), seed))
        return machinery.train(config, learned, out, logs, seed, evaluation)

    task = OnlineTask("labs", (), 0, ("pool", "1.0"), Control(limits=(-1.0, 1.0)), no_labs)
    monkeypatch.setattr(harness, "online_task", lambda config, kernel: task)
    monkeypatch.setattr(harness, "train", train)
    config = load("orca", steps=40)
    run_all(Plan({"labs": Run("labs", "orca", {}, config, 3, None, actors=2)}, {"smoke": Path("raw")}))
    assert trained == [(40, ["labs", 2], 3)]
    found = result("labs")
    assert found["pool"] is None
    assert found["actors"] == 2
    assert found["leagues"]["smoke"]["I"]["policy"]["rank"] == 1


def test_a_run_goes_on_from_the_policy_of_another_and_is_left_out_without_it(
    machinery: Machinery, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task = OnlineTask("labs", (), 0, ("pool", "1.0"), Control(limits=(-1.0, 1.0)), no_labs)
    given = []

    def experience(*of: Any, **more: Any) -> None:
        given.append(more)

    monkeypatch.setattr(harness, "online_task", lambda config, kernel: task)
    monkeypatch.setattr(harness, "LabExperience", experience)
    run = Run("on", "onward", {}, load("onward"), 0, Path("pool"), start="first")
    of = Plan({"on": run}, {"smoke": Path("raw")}, pool=Path("pool"))
    run_all(of)
    policy = ARTEFACTS / "first" / "policy"
    assert f"on: there is no {policy}; left out" in capsys.readouterr().err
    assert not given
    with pytest.raises(SageccError, match=f"no policy at {policy}"):
        run_all(of, "on")
    save_policy(policy)
    run_all(of, "on")
    assert given[0]["policy"].path == policy
    assert given[0]["pool"] == (Path("pool"), harness.POOL_CACHE)
    found = result("on")
    assert found["from"] == {"run": "first", "identity": policy_identity(given[0]["policy"])}
    assert found["pool"]["identity"] == "pool"
    run_all(of, "on")
    assert len(given) == 1  # done
    save_policy(policy, seed=1)
    run_all(of, "on")
    assert len(given) == 2  # from another policy


def test_harm_is_by_cubics_measure(machinery: Machinery) -> None:
    """In a league without Cubic there is none to be seen; where a policy is held against it, nobody lost anything."""
    assert run_all(replace(plan("one"), harm={"lossy": Path("cubics")})) == []
    harm = result("one")["harm"]
    assert harm.keys() == {"smoke", "lossy"}
    assert harm["smoke"]["networks"] == 0
    assert harm["lossy"]["networks"] == len(ENVIRONMENTS)
    assert (harm["lossy"]["floods"], harm["lossy"]["loss_worst"]) == ([], 0)


def test_the_best_policy_of_a_league_is_kept_where_a_run_asks_for_it(machinery: Machinery) -> None:
    """All of its policies win all of Set I and nothing of Set II, so the last one is the best."""
    one = plan("one").runs["one"]
    run_all(replace(plan(), runs={"one": replace(one, keep_best=KeepBest("smoke", 2))}))
    found = result("one")
    assert found["keep_best"] == {"league": "smoke", "every": 2}
    assert found["kept_step"] == 5
    assert "curve" not in found
    assert {step: scores[MEAN_RATE] for step, scores in machinery.scores.items()} == {2: 0.5, 5: 0.5}


def test_a_run_may_play_another_league_on_the_way_for_its_curve(machinery: Machinery) -> None:
    one = plan("one").runs["one"]
    run_all(replace(plan(), runs={"one": replace(one, keep_best=KeepBest("smoke", 2, "smoke"))}))
    found = result("one")
    assert found["keep_best"] == {"league": "smoke", "every": 2, "curve": "smoke"}
    assert found["curve"]["league"] == "smoke"
    early, last = found["curve"]["points"]
    assert (early["step"], last["step"]) == (2, 5)
    assert 0 <= early["cpu_h"] <= last["cpu_h"] < 1
    assert early["rates"] == {"I": {"policy": 1, "vegas": 0, "reno": 0}, "II": {"policy": 0, "vegas": 1, "reno": 1}}


def test_where_none_is_chosen_a_run_is_left_out_whose_own_pool_is_not_there(
    machinery: Machinery, capsys: pytest.CaptureFixture[str]
) -> None:
    of = plan("one", "two")
    far = replace(of.runs["one"], pool=Path("full/pool"))
    run_all(replace(of, runs={**of.runs, "one": far}))
    assert machinery.trained == [(5, 1)]
    assert "one: there is no full/pool; left out" in capsys.readouterr().err
    run_all(replace(of, runs={"one": far}), "one")  # its pool is looked for, here by a stand-in
    assert machinery.trained[1:] == [(5, 0)]


def test_what_is_done_is_not_done_again_and_what_changed_is(machinery: Machinery) -> None:
    run_all(plan("one", "two"))
    assert machinery.trained == [(5, 0), (5, 1)]
    run_all(plan("one", "two"))
    assert machinery.trained == [(5, 0), (5, 1)]
    run_all(plan("one", "two", steps=6), "two")
    assert machinery.trained[2:] == [(6, 1)]
    assert list(read_results(RESULTS)) == ["one", "two"]
    RESULTS.unlink()
    run_all(plan("one"))
    assert machinery.trained[3:] == [(5, 0)]


def test_a_run_killed_while_it_plays_leaves_no_result_and_goes_on(
    machinery: Machinery, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(harness, "standing", killed)
        with pytest.raises(KeyboardInterrupt):
            run_all(plan("one"))
    assert not read_results(RESULTS)
    run_all(plan("one"))
    assert result("one")["leagues"]["smoke"]["I"]["policy"]["rank"] == 1


def test_a_failed_training_is_a_result_the_others_go_on_and_it_is_tried_again(machinery: Machinery) -> None:
    machinery.error = SageccError("training diverged at step 3")
    assert run_all(plan("one", "two")) == ["one", "two"]
    assert result("one")["failure"] == "training diverged at step 3"
    assert machinery.played == 0
    machinery.error = None
    assert run_all(plan("one", "two")) == []
    assert "failure" not in result("one")


def test_a_run_that_another_process_is_at_is_left_to_it(
    machinery: Machinery, capsys: pytest.CaptureFixture[str]
) -> None:
    (ARTEFACTS / "one").mkdir(parents=True)
    with locked(ARTEFACTS / "one/.lock"):
        run_all(plan("one", "two"))
    assert machinery.trained == [(5, 1)]
    assert "one: another process is at it" in capsys.readouterr().err


def test_a_training_that_git_keeps_goes_on_where_there_is_none(
    machinery: Machinery, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = CARRIED / "one" / LOGS
    kept.mkdir(parents=True)
    (kept / CHECKPOINT).write_text("weights")
    (CARRIED / "one" / METER).write_text(json.dumps({"owner": "another run", "cpu_s": 1, "wall_s": 1}))
    run_all(plan("one", "two"))
    assert (ARTEFACTS / "one" / LOGS / CHECKPOINT).read_text() == "weights"
    assert "one: training on from evidence/training/checkpoints/one\n" in capsys.readouterr().err
    assert not (ARTEFACTS / "two" / LOGS).exists()


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ('{"fingerp', r"runs\.jsonl:2: not JSON .*take the line of an earlier commit"),
        ('{"version": 0, "name": "a"}', r"runs\.jsonl:2: no result of version 1; remove the line"),
        ("[]", r"runs\.jsonl:2: no result"),
    ],
)
def test_a_damaged_line_is_told_and_no_other_is_lost(machinery: Machinery, line: str, error: str) -> None:
    run_all(plan("one"))
    damaged = f"{RESULTS.read_text()}{line}\n"
    RESULTS.write_text(damaged)
    with pytest.raises(SageccError, match=error):
        run_all(plan("two"))
    assert RESULTS.read_text() == damaged


def test_processes_keep_their_results_side_by_side(machinery: Machinery) -> None:
    names = [f"run-{number}" for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: keep_result(RESULTS, {"version": 1, "name": name}), names))
    assert list(read_results(RESULTS)) == names


def test_the_command_says_what_is_wrong_in_one_line(machinery: Machinery) -> None:
    done = CliRunner().invoke(harness.command, ["--only", "one"])
    assert done.exit_code == 2
    assert re.fullmatch(facts("training: evidence/training/runs.yaml: …no such file…\n"), done.output)


def test_the_command_fails_where_a_training_did(machinery: Machinery) -> None:
    harness.RUNS.parent.mkdir(parents=True)
    harness.RUNS.write_text("{base: tiny, pool: p, leagues: {smoke: raw}, runs: {one: {}}}")
    machinery.error = SageccError("training diverged")
    done = CliRunner().invoke(harness.command, [])
    assert done.exit_code == 2
    assert done.output.endswith("training: training failed in one\n")


def test_a_meter_adds_up_over_processes(tmp_path: Path) -> None:
    path = tmp_path / "meter.json"
    path.write_text(json.dumps({"owner": "run", "cpu_s": 100.0, "wall_s": 200.0}))
    with meter.Meter(path, "run") as counting:
        for _ in range(100):
            os.urandom(10_000)
    assert 100 < counting.cpu_s < 200
    assert counting.wall_s > 200
    assert json.loads(path.read_text()) == {"owner": "run", "cpu_s": counting.cpu_s, "wall_s": counting.wall_s}
    with meter.Meter(path, "another") as other:
        pass
    assert other.cpu_s < 100


def test_a_meter_keeps_what_a_killed_process_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "METER_EVERY_S", 0.01)
    path = tmp_path / "meter.json"
    with meter.Meter(path, "run"):
        while not path.exists():
            pass
        assert json.loads(path.read_text())["wall_s"] > 0


def test_a_meter_leaves_out_what_is_spent_while_it_is_paused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spent_s = iter([10.0, 13.0, 113.0, 114.0])
    monkeypatch.setattr(meter, "_spent_s", lambda: next(spent_s))
    with meter.Meter(tmp_path / "meter.json", "run") as counting, counting.paused():
        assert counting.cpu_s == 3
    assert counting.cpu_s == 4


def test_a_meter_counts_what_its_process_started_and_still_runs() -> None:
    before = meter._spent_s()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            deadline = time.monotonic() + 60
            while meter._spent_s() - before < 0.2 and time.monotonic() < deadline:
                time.sleep(0.05)
            assert meter._spent_s() - before >= 0.2
        finally:
            process.kill()


def test_policies_are_trained_once_without_being_judged(machinery: Machinery) -> None:
    assert harness.policies_of(plan("one", "two"), (), Path("kernel")) == {}
    found = harness.policies_of(plan("one", "two"), ("two",), Path("kernel"))
    assert found == {"two": ARTEFACTS / "two/policy"}
    assert machinery.trained == [(5, 1)]
    assert machinery.played == 0
    assert not read_results(RESULTS)
    with locked(ARTEFACTS / "two/.lock"), pytest.raises(SageccError, match="two: another process is at it"):
        harness.policies_of(plan("one", "two"), ("two",), Path("kernel"))
