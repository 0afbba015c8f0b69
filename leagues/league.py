# SPDX-License-Identifier: Apache-2.0
"""A league: schemes over environments, from trajectories to tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import get_args

import polars as pl

from sagecc.collector.kernel.identity import join_identities
from sagecc.collector.lab.spec import Drive, driven_flows
from sagecc.collector.lab.under_way import lateness
from sagecc.collector.run.collect import EpisodesFailedError, collect
from sagecc.collector.run.engines import Results
from sagecc.collector.run.store import PARTITION_MARK, SPOOL, SPOOL_MARK, read_failed
from sagecc.collector.run.task import Task
from sagecc.common.document import DocumentError, read_document
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file, write_atomically
from sagecc.common.manifest import digest
from sagecc.common.marks import Mark, carries
from sagecc.execution.agent.exploration import Exploration
from sagecc.execution.lab.controllers import Playing, policy_controller, policy_drives
from sagecc.execution.lab.giving_up import GivenUpError, GiveUp
from sagecc.execution.lab.lockstep import BATCH, lockstep
from sagecc.execution.schemes.registry import driver_sha256
from sagecc.leagues.harm import harm
from sagecc.leagues.repeats import ALL, over_repeats
from sagecc.leagues.scores import StoredEpisode, find_episodes, score
from sagecc.leagues.standings import (
    BOOTSTRAP_DRAWS,
    CONFIDENCE,
    FriendlyMargin,
    breakdown,
    lost_windows,
    mark_winners,
    missing,
    overall,
    robustness,
    sets,
    standings,
    tag_breakdown,
    with_repeats,
)
from sagecc.schemas.environment import Environment, episode_id
from sagecc.schemas.environment_set import EnvironmentSet
from sagecc.schemas.partitions import PARTITIONS, partition
from sagecc.schemas.schemes import POLICY_PREFIX, is_driven

LEAGUE_VERSION = "1.4"
"""Of league.json and the tables beside it. Since 1.2 it has their hashes, and its own; since 1.4 what schemes take."""

VERSION_KEY = b"sagecc.league_version"

POLICIES_FILE = "policies.json"

GIVEN_UP_FILE = "given-up.json"
"""Beside policies' trajectories: by episode, why it was given up and what decides that it is."""

_TABLES = ("scores", "breakdown", "robustness", "tags", "repeats")


def _is_league(out: Path) -> bool:
    """Tell whether a folder's league.json is one, whatever its version and whether all else is whole."""
    try:
        content = read_document(out / "league.json")
    except (FileNotFoundError, DocumentError):
        return carries(out, VERSION_KEY)
    return isinstance(content, dict) and {"version", "rules", "standings"} <= content.keys()


LEAGUE_MARK = Mark(
    "a league's",
    rf"({'|'.join(_TABLES)})\.parquet|league\.json|metrics\.json|standings\.csv|report\.html",
    _is_league,
)

RunPolicies = Callable[[Sequence[Environment], Sequence[str], Path], None]
"""Runs policies in environments and writes their trajectories into a folder (`lab_runner`)."""


class EpisodesGivenUpError(EpisodesFailedError):
    """Some episodes were given up, and others may have failed.

    Args:
        failures: the reason by episode id, of both.
        given_up: ids of those that were given up.
    """

    def __init__(self, failures: Mapping[str, str], given_up: Set[str]) -> None:
        super().__init__(failures)
        self.given_up = given_up


@dataclass(frozen=True)
class Rules:
    """How a league is scored (leagues.scores.score, leagues.standings.mark_winners)."""

    alpha: float = 2.0
    """Weight of throughput in S_p = r^alpha / d."""
    margin: float = 0.1
    """By how much a winner's score may be worse than the best."""
    friendly_margin: FriendlyMargin = "rate"
    """What the margin is applied to where the score is friendliness."""

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 10:
            raise SageccError(f"league: alpha must be above 0 and at most 10, not {self.alpha:g}")
        if not 0 <= self.margin < 1:
            raise SageccError(f"league: the margin must be at least 0 and below 1, not {self.margin:g}")
        if self.friendly_margin not in get_args(FriendlyMargin):
            raise SageccError(
                f"league: friendly_margin must be one of {', '.join(get_args(FriendlyMargin))}, not"
                f" '{self.friendly_margin}'"
            )


@dataclass(frozen=True)
class PlayOptions:
    """How policies play in the lab."""

    latency_ms: float = 0.0
    """From a sample to when its action takes effect, 0 to 1000: that of a slow host."""
    sample: bool = False
    """Draw actions from a policy's mixture, by each episode's own seed, instead of taking the mixture's mean."""
    give_up: GiveUp | None = None
    """When a policy's episode is given up and counts as lost; None plays all to their end."""

    def __post_init__(self) -> None:
        Drive(latency_us=self.latency_us)  # raises where the latency is out of range

    @property
    def latency_us(self) -> int:
        """The latency in whole microseconds, as the lab takes it."""
        return round(self.latency_ms * 1000)

    def identify(self, sha256: str) -> str:
        """Return what decides a policy's trajectories beside networks and kernel: its files' hash and these options."""
        latency = f" {lateness(self.latency_us)}" if self.latency_us else ""
        given_up = f" given up at {self.give_up}" if self.give_up else ""
        return f"{sha256}{latency}{' sampled' if self.sample else ''}{given_up}"

    def terms(self) -> dict[str, object]:
        """Return what league.json says of these options."""
        give_up = {"give_up": asdict(self.give_up)} if self.give_up else {}
        return {"decision_latency_ms": self.latency_ms, "sample": self.sample, **give_up}


@dataclass(frozen=True)
class League:
    """A league that has been played."""

    networks: EnvironmentSet
    """Where the schemes played."""
    rules: Rules
    schemes: tuple[str, ...]
    episodes: Mapping[tuple[str, str], StoredEpisode]
    """By (environment id, scheme)."""
    wins: pl.DataFrame
    """The table of leagues.standings.mark_winners."""
    standings: pl.DataFrame
    """One row per set and scheme (leagues.standings.standings)."""
    ranking: pl.DataFrame
    """Over all sets (leagues.standings.overall)."""
    robustness: pl.DataFrame
    """The standings by other rules (leagues.standings.robustness)."""
    repeats: pl.DataFrame | None
    """Means, deviations and intervals over repeats (leagues.repeats.over_repeats); None without."""
    missing: Mapping[str, list[str]]
    """Ids of environments without an episode, by scheme."""
    failures: Mapping[tuple[str, str], str]
    """Why an episode failed, by (environment id, scheme)."""
    kernel: str
    """The kernel's identity (collector.kernel.identity)."""
    policies: Mapping[str, str]
    """SHA-256 of each policy's files, of those that compete in the networks too."""
    options: PlayOptions = PlayOptions()
    """How the policies played."""

    @property
    def environments(self) -> tuple[Environment, ...]:
        """The networks."""
        return self.networks.environments


def play(
    networks: EnvironmentSet,
    schemes: Sequence[str],
    raw: Path,
    out: Path,
    run_policies: RunPolicies,
    *,
    rules: Rules = Rules(),
    seed: int = 0,
    allow_missing: bool = False,
    options: PlayOptions = PlayOptions(),
) -> League:
    """Play a league. A policy whose episode fails loses there and is listed.

    Args:
        networks: where the schemes play.
        schemes: heuristics, policies (`policy:PATH`) and schemes in user space, which play as policies do.
        raw: folder of the heuristics' trajectories.
        out: folder of the league; policies' trajectories are kept in out/raw.
        run_policies: runs policies whose trajectories are not kept yet (`lab_runner`).
        rules: how to score.
        seed: of the episodes to score.
        allow_missing: let a heuristic without an episode lose there, instead of raising.
        options: how `run_policies` lets the policies play.

    Raises:
        SageccError: an episode of a heuristic is missing, schemes ran on different kernels, or a tested flow is finite.
        EpisodesFailedError: all episodes of a policy failed.
    """
    if finite := next((each for each in networks.environments if each.flow.size_bytes is not None), None):
        raise SageccError(
            f"league: in network {finite.id} the tested flow is a finite transfer, which no league scores:"
            " take 'size_bytes' from it, or compare its completion times with 'sagecc compare'"
        )
    material = gather(
        networks,
        schemes,
        raw,
        out,
        run_policies,
        seed=seed,
        allow_missing=allow_missing,
        options=options,
    )
    scores = with_repeats(score(networks.environments, schemes, material.episodes, rules.alpha), networks.repeats)
    wins = mark_winners(scores, rules.margin, rules.friendly_margin)
    table = standings(wins)
    return League(
        networks=networks,
        rules=rules,
        schemes=tuple(schemes),
        episodes=material.episodes,
        wins=wins,
        standings=table,
        ranking=overall(table),
        robustness=robustness(scores, rules.friendly_margin, (rules.alpha, rules.margin)),
        repeats=over_repeats(wins, material.episodes, networks) if networks.repeats else None,
        missing=missing(wins),
        failures=material.failures,
        kernel=material.kernel,
        policies=material.policies,
        options=options,
    )


@dataclass(frozen=True)
class Gathered:
    """All episodes of a league."""

    episodes: Mapping[tuple[str, str], StoredEpisode]
    """By (environment id, scheme)."""
    failures: Mapping[tuple[str, str], str]
    """Why an episode failed, by (environment id, scheme)."""
    kernel: str
    """The identity of the kernel of all of them."""
    policies: Mapping[str, str]
    """SHA-256 of each policy's files."""


def gather(
    networks: EnvironmentSet,
    schemes: Sequence[str],
    raw: Path,
    out: Path,
    run_policies: RunPolicies,
    *,
    seed: int = 0,
    allow_missing: bool = False,
    options: PlayOptions = PlayOptions(),
) -> Gathered:
    """Find the heuristics' episodes in `raw`, and run those of policies that out/raw does not hold yet; see `play`.

    Beside a policy, heuristics' episodes are run and kept as policies' are.
    """
    environments, seeds = networks.environments, networks.seeds(seed)
    if not environments or not schemes:
        raise SageccError("league: needs at least one environment and one scheme")
    heuristics = [s for s in schemes if not is_driven(s)]
    policies = {s: driver_sha256(s) for s in schemes if is_driven(s)}
    rivals = {name: driver_sha256(name) for name in sorted(set().union(*map(_rivals, environments)))}
    plain = [environment for environment in environments if not _rivals(environment)]
    episodes = find_episodes([raw], plain, heuristics, seed, seeds)
    reasons = read_failed(raw)
    ids = {(e.id, s): episode_id(e.id, s, seeds.get(e.id, seed)) for e in plain for s in heuristics}
    failures = {who: reasons[name] for who, name in ids.items() if who not in episodes and name in reasons}
    if not allow_missing:
        _check_complete(episodes, replace(networks, environments=tuple(plain)), heuristics, raw, failures)
    # Beside a policy a heuristic needs the lab with an inference, as policies do.
    contested = [environment for environment in environments if _rivals(environment)]
    groups = [(networks.environments, list(policies)), (contested, heuristics if contested else [])]
    players = [name for _, names in groups for name in names]
    if players:
        _check_own_raw(out / "raw", raw)
        rival_digests = "".join(f" beside {sha256}" for sha256 in rivals.values())
        own = out / "raw"
        identities = {name: options.identify(policies.get(name, name)) + rival_digests for name in players}
        forget_changed_policies(own, identities)
        for group, names in groups:
            if names:
                failures |= _run_policies(run_policies, replace(networks, environments=tuple(group)), names, own, seed)
        own_episodes = find_episodes([own], environments, players, seed, seeds)
        episodes |= {key: episode for key, episode in own_episodes.items() if key not in failures}
    return Gathered(episodes, failures, _one_kernel(episodes.values()), policies | rivals)


def _rivals(environment: Environment) -> set[str]:
    """Return those among a network's competitors that the host drives."""
    return {cross.scheme for cross in environment.cross if is_driven(cross.scheme)}


def _run_policies(
    run: RunPolicies, networks: EnvironmentSet, policies: Sequence[str], out: Path, seed: int
) -> dict[tuple[str, str], str]:
    """Run the policies; return why episodes failed.

    Raises:
        EpisodesFailedError: all of a policy's failed, and not all of them because they were given up.
    """
    environments, seeds = networks.environments, networks.seeds(seed)
    episodes = {
        (environment.id, policy): episode_id(environment.id, policy, seeds.get(environment.id, seed))
        for environment in environments
        for policy in policies
    }
    try:
        run(environments, policies, out)
    except EpisodesFailedError as error:
        failures = {who: error.failures[name] for who, name in episodes.items() if name in error.failures}
        given_up = error.given_up if isinstance(error, EpisodesGivenUpError) else set()
        for policy in policies:
            of_policy = {episodes[environment.id, policy] for environment in environments}
            if of_policy <= error.failures.keys() and not of_policy <= given_up:
                raise
        return failures
    return {}


def lab_runner(
    kernel: Path,
    jobs: int,
    seed: int = 0,
    batch: int = BATCH,
    options: PlayOptions = PlayOptions(),
    seeds: Mapping[str, int] = MappingProxyType({}),
    progress: bool = True,
) -> RunPolicies:
    """Return what runs policies for `play` in the lab.

    Args:
        kernel: the lab's kernel.
        jobs: the most processes.
        seed: of the episodes.
        batch: guests that share an inference per process (execution.lab.lockstep).
        options: those of `play`.
        seeds: of repeats (EnvironmentSet.seeds).
        progress: tell on stderr how far it is.
    """

    def run(environments: Sequence[Environment], policies: Sequence[str], out: Path) -> None:
        # Every policy is read here: a damaged one is one error now, not one per episode.
        competitors = {cross.scheme for environment in environments for cross in environment.cross}
        drives = policy_drives((*policies, *sorted(competitors)), options.latency_us)
        engine = lockstep(jobs, batch, Playing(Exploration() if options.sample else None, give_up=options.give_up))
        given_up: set[str] = set()

        def noting(kernel: Path, tasks: Sequence[Task]) -> Results:
            notes = _GivenUp(out / GIVEN_UP_FILE, options)
            reasons = {task.id: reason for task in tasks if (reason := notes.reason(task)) is not None}
            given_up.update(reasons)
            yield from ((task, GivenUpError(reasons[task.id])) for task in tasks if task.id in reasons)
            if not (others := [task for task in tasks if task.id not in reasons]):
                return
            with closing(engine(kernel, others)) as results:
                for task, result in results:
                    if isinstance(result, GivenUpError):
                        given_up.add(task.id)
                        notes.add(task, str(result))
                    yield task, result

        try:
            collect(
                environments,
                policies,
                out,
                kernel,
                noting,
                seed=seed,
                controllers=policy_controller,
                prune=True,
                drives=drives,
                seeds=seeds,
                progress=progress,
            )
        except EpisodesFailedError as error:
            raise EpisodesGivenUpError(error.failures, given_up) if given_up else error from None

    return run


class _GivenUp:
    """The episodes that were given up; they leave no trajectory, and are not played again."""

    def __init__(self, path: Path, options: PlayOptions) -> None:
        self._path, self._terms = path, options.terms()
        try:
            document = read_document(path)
        except (FileNotFoundError, DocumentError):
            document = {}  # they are played again
        self._known: dict[str, dict[str, str]] = document if _are_notes(document) else {}

    def reason(self, task: Task) -> str | None:
        """Return why the same episode was given up, None where that is not known."""
        note = self._known.get(task.id, {})
        return note.get("reason") if note.get("decided_by") == self._deciding(task) else None

    def add(self, task: Task, reason: str) -> None:
        """Note an episode, on the disk too."""
        self._known[task.id] = {"decided_by": self._deciding(task), "reason": reason}
        _write_text(self._path, _json(self._known))

    def _deciding(self, task: Task) -> str:
        """Return a hash of all that decides an episode."""
        policies = {name: task.drives[name].sha256 for name in driven_flows(task.environment, task.scheme).values()}
        return digest({"spec": task.spec_sha256, "kernel": task.identity, "policies": policies, "terms": self._terms})


def _are_notes(known: object) -> bool:
    return isinstance(known, dict) and all(isinstance(note, dict) for note in known.values())


def forget_changed_policies(raw: Path, policies: Mapping[str, str]) -> None:
    """Remove trajectories of other policies, and of these where what decides them has changed.

    Args:
        raw: folder of policies' trajectories; what decided them is kept there.
        policies: by scheme, what decides its trajectories now (PlayOptions.identify).
    """
    path, digests = raw / POLICIES_FILE, _played_before(raw)
    keep = {Path(partition("", scheme)).name for scheme, sha256 in policies.items() if digests.get(scheme) == sha256}
    own = {Path(partition("", scheme)).name for scheme in digests}
    for folder in (*raw.glob(PARTITIONS), *(raw / SPOOL).glob(PARTITIONS)):
        if folder.name not in own:
            raise SageccError(f"{folder} was played by no league: name another folder with --out, or move it away")
    for folder in (*raw.glob(PARTITIONS), *(raw / SPOOL).glob(PARTITIONS)):
        if folder.name not in keep:
            (SPOOL_MARK if SPOOL in folder.parts else PARTITION_MARK).remove(folder)
    raw.mkdir(parents=True, exist_ok=True)
    _write_text(path, _json(dict(policies)))


def _check_own_raw(own: Path, raw: Path) -> None:
    """Raise SageccError where a league would take the heuristics' trajectories for what its policies played."""
    if own.resolve() == raw.resolve():
        raise SageccError(f"{own} is where this league keeps what its policies play: name another folder with --out")


def _played_before(raw: Path) -> dict[str, str]:
    """Return what decided the trajectories that leagues have played into a folder, by scheme; none where it is new."""
    path = raw / POLICIES_FILE
    try:
        digests = read_document(path)
    except FileNotFoundError:
        return {}
    except DocumentError:
        digests = None
    if not isinstance(digests, dict):
        raise SageccError(f"{path} is damaged: move {raw} away, the policies play again")
    return digests


def save(league: League, out: Path) -> None:
    """Write a league's tables into a folder: the same bytes for the same trajectories.

    Raises:
        SageccError: the folder holds files of these names that are no league's.
    """
    with LEAGUE_MARK.filling(out):
        _save(league, out)


def _save(league: League, out: Path) -> None:
    tables = {
        "scores": league.wins.sort("set", "environment_id", "window", "scheme"),
        "breakdown": breakdown(league.wins, league.environments),
        "robustness": league.robustness,
        "tags": tag_breakdown(league.wins, league.networks.tags),
        "repeats": league.repeats,
    }
    hashes = {}
    for name, table in ((f"{name}.parquet", table) for name, table in tables.items()):
        if table is None:
            (out / name).unlink(missing_ok=True)  # another league's
        else:
            _write_table(out / name, table)
            hashes[name] = sha256_file(out / name)
    content = json.loads(_json({**summary(league), "files": hashes}))
    _write_text(out / "league.json", _json(content | {"sha256": digest(content)}))
    _write_text(out / "metrics.json", _json(_metrics(league)))
    columns = ["set", "rank", "scheme", "winning_rate", "low", "high"]
    _write_text(out / "standings.csv", league.standings.select(columns).write_csv(float_precision=4))


def summary(league: League) -> dict[str, object]:
    """Return what league.json says of a league; there it has hashes too."""
    names, plans = sets(league.standings), league.networks.planned
    content: dict[str, object] = {
        "version": LEAGUE_VERSION,
        "profile": league.networks.name,
        "rules": {
            "alpha": league.rules.alpha,
            "margin": league.rules.margin,
            "friendly_margin": league.rules.friendly_margin,
            "confidence": CONFIDENCE,
            "bootstrap_draws": BOOTSTRAP_DRAWS,
        },
        "kernel": league.kernel,
        "policies": dict(league.policies),
        "terms": league.options.terms(),
        "environments": {s: sum(e.set == s for e in plans) for s in names},
        "windows": {s: sum(len(e.windows_s) for e in plans if e.set == s) for s in names},
        "episodes": len(league.episodes),
        "missing": dict(league.missing),
        "lost": _lost_windows(league),
        "ranking": league.ranking.to_dicts(),
        "standings": league.standings.to_dicts(),
        "robustness": league.robustness.to_dicts(),
        "harm": harm(league.episodes, league.wins).to_dicts(),
    }
    if league.networks.tags:
        content["tags"] = {e.id: dict(league.networks.tags[e.id]) for e in plans if e.id in league.networks.tags}
    if league.repeats is not None:
        content["repeats"] = league.repeats.filter(pl.col("class") == ALL).drop("class", "value").to_dicts()
    return content


def _lost_windows(league: League) -> list[dict[str, object]]:
    """Return the rows of leagues.standings.lost_windows, each with the reason where an episode failed."""
    reasons = league.failures
    rows = lost_windows(league.wins).to_dicts()
    return [row | {"reason": reasons.get((row["environment_id"], row["scheme"]), "")} for row in rows]


def _metrics(league: League) -> dict[str, object]:
    """Return metrics.json's content, for `dvc metrics`: the policies' rates and ranks, the best heuristic's rate."""
    metrics: dict[str, object] = {}
    for scheme in league.policies.keys() & set(league.schemes):
        standings_rows = league.standings.filter(pl.col("scheme") == scheme)
        metrics[scheme.removeprefix(POLICY_PREFIX)] = {
            f"set_{row['set']}": {"winning_rate": round(row["winning_rate"], 4), "rank": row["rank"]}
            for row in standings_rows.to_dicts()
        }
    heuristics = league.standings.filter(~pl.col("scheme").str.starts_with(POLICY_PREFIX))
    best = heuristics.group_by("set").agg(pl.col("winning_rate").max()).sort("set")
    metrics["best_heuristic"] = {f"set_{s}": {"winning_rate": round(rate, 4)} for s, rate in best.iter_rows()}
    return metrics


def _check_complete(
    episodes: Mapping[tuple[str, str], StoredEpisode],
    networks: EnvironmentSet,
    schemes: Sequence[str],
    raw: Path,
    failures: Mapping[tuple[str, str], str],
) -> None:
    """Raise SageccError, saying what to collect, where an episode is missing; `failures` says why some are."""
    absent = [(e.id, s) for s in schemes for e in networks.environments if (e.id, s) not in episodes]
    if absent:
        environment, scheme = first = absent[0]
        reason = f" (it failed: {failures[first]})" if first in failures else ""
        count = len(networks.environments) * len(schemes)
        names = ",".join(dict.fromkeys(s for _, s in absent))
        raise SageccError(
            f"{raw}: {len(absent)} of {count} episodes are missing, such as {scheme} in "
            f"{environment}{reason}; run 'sagecc collect {networks.option} --schemes {names} --out {raw}', or let a "
            "league count them as lost with --allow-missing"
        )


def _one_kernel(episodes: Iterable[StoredEpisode]) -> str:
    """Return the identity of the kernel that all episodes ran on; raises SageccError where there are several."""
    kernels: dict[str, StoredEpisode] = {}
    for episode in episodes:
        kernels.setdefault(episode.kernel, episode)
    try:
        return join_identities(kernels)
    except SageccError:
        ran = ", ".join(
            f"{kernels[kernel].scheme} on {kernel or 'an unknown one'} in {kernels[kernel].folder}"
            for kernel in sorted(kernels)
        )
        raise SageccError(
            f"league: the schemes ran on different kernels ({ran}); run 'sagecc collect' with one kernel"
        ) from None


def _write_table(path: Path, table: pl.DataFrame) -> None:
    with write_atomically(path) as temporary:
        table.write_parquet(temporary, compression="zstd", metadata={VERSION_KEY.decode(): LEAGUE_VERSION})


def _write_text(path: Path, text: str) -> None:
    with write_atomically(path) as temporary:
        temporary.write_text(text)


def _json(value: object) -> str:
    return json.dumps(value, indent=2, sort_keys=True) + "\n"
