# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from sagecc.collector.run.grid import profile_environments, set_one, set_two
from sagecc.collector.run.set_file import GridPart, NetworkPart, SetPart, json_schema, load_set
from sagecc.commands.environments import command as environments_command
from sagecc.common import shipped
from sagecc.common.errors import SageccError
from sagecc.schemas.environment import CrossFlow, Environment, Flow
from sagecc.schemas.environment_file import EnvironmentPart
from sagecc.schemas.environment_set import EnvironmentSet
from tests.conftest import ROOT
from tests.helpers.messages import facts

pytestmark = pytest.mark.heavy

EXAMPLES = ROOT / "schemas" / "sets"
FIELDS = (ROOT / "docs/reference/formats.md").read_text().partition("## Set files")[2].partition("\n## ")[0]
TO_LEARN_IN = {"training": 1243, "training-wide": 1666, "training-company": 80, "together": 84, "mates": 69}
TRACES = ROOT.parent / "shared" / "traces"
GRID = "name: mine\ngrids:\n  - {bandwidth_mbps: [24], rtt_ms: [20], queue_bdp: [1], duration_s: 10"
ONE = "{links: [{rate_mbps: 12, queue_bdp: 1}], rtt_ms: 20, duration_s: 10"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mine.yaml"


def load(file: Path, text: str) -> EnvironmentSet:
    file.write_text(text)
    return load_set(str(file))


def only(networks: EnvironmentSet) -> Environment:
    (environment,) = networks.environments
    return environment


def test_listed_networks_of_files_and_in_place(file: Path) -> None:
    (file.parent / "network.yaml").write_text(f"{ONE}, cross: [{{scheme: cubic}}]}}")
    networks = load(
        file,
        f"""
        name: mine
        environments:
          - {{file: network.yaml, tags: {{kind: shared}}}}
          - {ONE}, set: elsewhere}}
          - {{file: codel.yaml}}
        """,
    )
    assert (networks.name, networks.own_name, networks.title) == ("mine", "mine", "set mine")
    assert networks.option == f"--environments {file}"
    shared, _, codel = networks.environments
    assert {environment.set for environment in networks.environments} == {"mine"}
    assert (shared.cross, shared.bandwidth_mbps, codel.bottleneck.discipline) == ((CrossFlow("cubic"),), 12, "codel")
    assert networks.tags == {shared.id: {"kind": "shared"}}


def test_each_network_is_scored_by_its_own_rule(file: Path) -> None:
    """Alone by power, beside competitors by the fair share, unless a network says otherwise."""
    beside = "cross: [{scheme: cubic}]"
    networks = load(
        file, f"name: mine\nenvironments:\n - {ONE}}}\n - {ONE}, {beside}}}\n - {ONE}, {beside}, reward: power}}\n"
    )
    assert [environment.reward for environment in networks.environments] == ["power", "friendliness", "power"]
    crossed = load(file, GRID + ", cross: [[], [{scheme: cubic}]]}")
    assert [environment.reward for environment in crossed.environments] == ["power", "friendliness"]


def test_ranges_are_crossed(file: Path) -> None:
    networks = load(
        file,
        """
        name: mine
        grids:
          - bandwidth_mbps: [12, 24]
            rtt_ms: [20, 40]
            queue_bdp: [1, 4]
            discipline: [tail-drop, codel]
            loss: [0, 0.01]
            cross: [[], [{scheme: cubic, count: 3}, {scheme: bbr}]]
            duration_s: 30
            tags: {place: here}
        """,
    )
    assert len({environment.id for environment in networks.environments}) == 64 == len(networks.environments)
    first, last = networks.environments[0], networks.environments[-1]
    assert networks.tags[first.id] == {"discipline": "tail-drop", "loss": "0", "beside": "none", "place": "here"}
    assert networks.tags[last.id] == {
        "discipline": "codel",
        "loss": "0.01",
        "beside": "3 cubic + bbr",
        "place": "here",
    }
    assert (last.bandwidth_mbps, last.min_rtt_ms, last.queue_bdp, last.bottleneck.loss) == (24, 40, 4, 0.01)
    assert last.windows_s == ((0, 30),)
    assert last.flow_count == 5


@pytest.mark.parametrize(
    ("text", "of_profile"),
    [
        (
            "bandwidth_mbps: [24], step: [4], rtt_ms: [40], queue_bdp: [16], duration_s: 34,"
            "windows_s: [[10, 13], [13, 20], [20, 27], [27, 34]]",
            set_one(24, 4, 40, 16),
        ),
        (
            "bandwidth_mbps: [48], rtt_ms: [20], queue_bdp: [4], duration_s: 125, start_s: 5,"
            "cross: [[{scheme: cubic}]], windows_s: [[5, 35], [35, 65], [65, 95], [95, 125]]",
            set_two(48, 20, 4),
        ),
    ],
    ids=["set-one", "set-two"],
)
def test_the_paper_s_networks_can_be_asked_for(file: Path, text: str, of_profile: Environment) -> None:
    mine = only(load(file, f"name: mine\ngrids: [{{{text}}}]"))
    assert mine.to_json() == of_profile.to_json().replace(f'"set": "{of_profile.set}"', '"set": "mine"')


def test_lines_of_sagecc_environments_are_networks_of_a_set(file: Path) -> None:
    few = profile_environments("smoke")
    lines = [json.dumps({"id": each.id, **json.loads(each.to_json())}) for each in few]
    networks = load(file, f"name: mine\nenvironments: [{', '.join(lines)}]")
    assert [each.links for each in networks.environments] == [each.links for each in few]
    assert [each.reward for each in networks.environments] == [each.reward for each in few]


def test_starts_and_jitter(file: Path) -> None:
    environment = only(load(file, GRID + ", start_s: 2, jitter_ms: [1.5]}"))
    assert environment.flow == Flow(2)
    assert environment.windows_s == ((2, 10),)
    assert environment.return_links[0].jitter_ms == 1.5


def test_traces_of_a_folder(file: Path, tmp_path: Path) -> None:
    text = 'name: mine\ngrids:\n  - {trace: ["*.down"], rtt_ms: [20, 40], queue_packets: [100], duration_s: 10}'
    folder = tmp_path / "traces"
    folder.mkdir()
    for name in ("b.down", "a.down", "other.up"):
        (folder / name).write_text("1\n2\n")
    file.write_text(text)
    networks = load_set(f"{file}:{folder}")
    assert [networks.tags[each.id]["trace"] for each in networks.environments] == [
        "a.down",
        "a.down",
        "b.down",
        "b.down",
    ]
    assert networks.option == f"--environments {file}:{folder}"
    with pytest.raises(SageccError, match=r"grids\[0\]: trace: \*\.down are files in a folder of yours; name it"):
        load_set(str(file))
    with pytest.raises(SageccError, match=f"there is no folder {tmp_path}/nowhere"):
        load_set(f"{file}:{tmp_path}/nowhere")
    (folder / "a.down").write_text("1\nx\n")
    with pytest.raises(SageccError, match=r"a\.down, line 2: expected a time in ms such as 12, found 'x'"):
        load_set(f"{file}:{folder}")


def test_what_lies_among_traces_and_is_none_is_skipped(file: Path, tmp_path: Path) -> None:
    """A README or a Makefile; but a trace that is damaged is an error, by its suffix or by its first line."""
    file.write_text("name: mine\ngrids:\n  - {trace: ['*'], rtt_ms: [20], queue_packets: [100], duration_s: 10}")
    folder = tmp_path / "traces"
    (folder / "old").mkdir(parents=True)
    contents = {"a.down": "1\n2\n", "trace-7-bus": "3.5\n", "README.md": "# 3 traces\n", "Makefile": "all:\n\t:\n"}
    for name, text in (contents | {".DS_Store": "\0\0\0\x01Bud1", "empty": "", "rates.txt": "0.0 1.5\n"}).items():
        (folder / name).write_text(text)
    networks = load_set(f"{file}:{folder}")
    assert [re.split("-12mbps|-20ms", each.id)[0] for each in networks.environments] == ["mine-a", "mine-trace-7-bus"]
    others = [".DS_Store", "Makefile", "README.md", "empty", "rates.txt"]
    assert [path.name for path in networks.skipped] == others
    done = CliRunner().invoke(environments_command, ["--environments", f"{file}:{folder}"], catch_exceptions=False)
    assert done.stderr == f"skipped, no traces: {', '.join(others)}\n"
    for name, text, message in (("b.up", "# no time\n", "line 1"), ("c", "1\nx\n", "line 2"), ("d.down", "", "empty")):
        (folder / name).write_text(text)
        with pytest.raises(SageccError, match=rf"traces/{re.escape(name)}.*{message}"):
            load_set(f"{file}:{folder}")
        (folder / name).unlink()
    for name in ("a.down", "trace-7-bus"):
        (folder / name).unlink()
    with pytest.raises(SageccError, match=r"no trace in .*traces; of \.DS_Store, Makefile, README\.md none is one"):
        load_set(f"{file}:{folder}")


def test_a_trace_whose_name_is_a_pattern_goes_by_its_name(file: Path, tmp_path: Path) -> None:
    grid = "name: mine\ngrids:\n  - {trace: ['%s'], rtt_ms: [20], queue_packets: [100], duration_s: 10}"
    for name in ("a[1].down", "a1.down"):
        (tmp_path / name).write_text("1\n2\n")
    file.write_text(grid % "a[1].down")
    (environment,) = load_set(f"{file}:{tmp_path}").environments
    assert environment.id.startswith("mine-a[1]-")
    for pattern in ("a**b", "/*.down"):
        file.write_text(grid % pattern)
        with pytest.raises(SageccError, match=re.escape(f"grids[0]: trace: {pattern} is no pattern")):
            load_set(f"{file}:{tmp_path}")


@pytest.mark.parametrize("name", [path.stem for path in sorted(EXAMPLES.glob("*.yaml"))])
def test_shipped_sets(name: str) -> None:
    assert name in shipped.environment_sets()
    if name == "cellular" and not TRACES.is_dir():
        pytest.skip("the traces are not here")
    networks = load_set(f"cellular:{TRACES}" if name == "cellular" else name)
    assert networks.name == name
    if name in TO_LEARN_IN:  # not to be played through
        assert len(networks.environments) == TO_LEARN_IN[name]
        return
    assert 12 <= len(networks.environments) <= 30
    text = (EXAMPLES / f"{name}.yaml").read_text()
    assert f"{len(networks.environments)} networks" in text or f"are {len(networks.environments)})" in text


def test_what_the_shipped_sets_say() -> None:
    """Each has the network of its figure, as the paper gives it."""
    aqm = {
        (e.bandwidth_mbps, e.min_rtt_ms, e.queue_bytes, e.bottleneck.discipline) for e in load_set("aqm").environments
    }
    assert {(48, 20, 240_000, name) for name in ("head-drop", "tail-drop", "pie", "bode", "codel")} < aqm
    friendly = {
        (e.bandwidth_mbps, e.min_rtt_ms, e.queue_bdp, len(e.cross)) for e in load_set("friendliness").environments
    }
    assert {(48, 40, 1, 3), (48, 40, 1, 7)} < friendly
    satellite = load_set("satellite").environments
    assert (42, 800, 1, 0.0074, 100) in {
        (e.bandwidth_mbps, e.min_rtt_ms, e.queue_bdp, e.bottleneck.loss, e.duration_s) for e in satellite
    }
    assert {e.reward for e in load_set("friendliness").environments} == {"friendliness"}
    assert {e.reward for e in satellite} == {"power"}


def test_the_schema_file_is_up_to_date() -> None:
    written = (EXAMPLES / "schema.json").read_text()
    assert written == json_schema(), "python -m sagecc.collector.run.set_file > schemas/sets/schema.json"


def test_the_documentation_has_every_field_and_no_other() -> None:
    documented = set(re.findall(r"^\| `(\w+)` \|", FIELDS, flags=re.MULTILINE))
    own = NetworkPart.model_fields.keys() - EnvironmentPart.model_fields.keys()
    assert documented == SetPart.model_fields.keys() | GridPart.model_fields.keys() | own | {"file"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: mine", "the set is empty: list networks under environments, or ranges under grids"),
        ("name: I\nenvironments: []", "name: I is one of the paper's sets; choose another"),
        ("environments: []", "name is missing"),
        ("name: my set", "name: must be made of letters, digits, - and _, not 'my set'"),
        ("name: mine\nnetworks: []", "networks: there is no such field; use name, environments, grids"),
        (f"name: mine\nenvironments: [{ONE}, speed: 3}}]", "environments[0].speed: there is no such field"),
        (
            f"name: mine\nenvironments: [{ONE}}}, {ONE}, reward: power}}]",
            "environments[1]: is the same network as",
        ),
        (
            GRID + "}\n  - {bandwidth_mbps: [12, 24], rtt_ms: [20], queue_bdp: [1], duration_s: 10}",
            "grids[1] (bandwidth",
        ),
        (
            f"name: mine\nenvironments: [{ONE}, windows_s: [[0, 5], [4, 9]]}}]",
            "windows_s: [0.0, 5.0] and [4.0, 9.0] over",
        ),
        (f"name: mine\nenvironments: [{ONE}, windows_s: []}}]", "windows_s: there is none, so that nothing would be"),
        (
            f"name: mine\nenvironments: [{ONE}, cross: [{{scheme: qubic}}]}}]",
            "cross[0]: unknown scheme 'qubic'; did you mean cubic?",
        ),
        (GRID + ", cross: [[{scheme: qubic}]]}", "grids[0]: cross[0]: unknown scheme 'qubic'"),
        (GRID + ", loss: []}", "grids[0]: loss: must have one value or more"),
        (GRID + ", loss: [2]}", "grids[0]: links[0]: the loss probability must be at least 0 and at most 1"),
        (GRID + ", discipline: [fifo]}", "grids[0].discipline[0]: must be one of"),
        (
            GRID + ", queue_packets: [10]}",
            "grids[0]: give one of queue_bdp, queue_bytes, queue_packets, with its values",
        ),
        (GRID + ", tags: {a: 1}}", "grids[0].tags.a: must be text, not 1"),
        ("name: mine\ngrids: [{rtt_ms: [20], queue_bdp: [1], duration_s: 3}]", "give one of bandwidth_mbps, trace"),
        ("name: mine\nenvironments: [{file: nowhere.yaml}]", "nowhere.yaml; the path is relative to this file"),
        ("name: mine\nenvironments: [{file: mine.yaml}]", "mine.yaml: links is missing"),
        (
            "name: mine\ngrids: [{trace: [lost.down], rtt_ms: [20], queue_packets: [9], duration_s: 3}]",
            "lost.down: No such file or directory; the path is relative to this file",
        ),
        (
            "name: mine\ngrids: [{trace: [lost.down], step: [2], rtt_ms: [20], queue_packets: [9], duration_s: 3}]",
            "grids[0]: step: a trace has no base rate to step from; remove it",
        ),
        (
            f"name: mine\ngrids: [{{bandwidth_mbps: {list(range(1, 200))}, rtt_ms: {list(range(1, 200))},"
            " queue_bdp: [1], duration_s: 3}]",
            "makes 39,601 networks; a set has 20,000 at most",
        ),
        (
            "name: mine\ngrids:\n"
            + f"  - {{bandwidth_mbps: {[*range(1, 100)]}, rtt_ms: {[*range(1, 101)]}, queue_bdp: [1], duration_s: 3}}\n"
            * 30,
            "makes 297,000 networks; a set has 20,000 at most",
        ),
        (f"name: {'a' * 129}", "name: must have 128 characters at most, not 'aaa"),
        (f'name: mine\nenvironments: [{ONE}, tags: {{a: "\\e[2J"}}}}]', r"tags.a: …printable…not '\x1b[2J'"),
        (f"name: mine\nenvironments: [{ONE}, tags: {{a: {'b' * 129}}}}}]", "tags.a: …128…not 'bbb"),
        (
            f'name: mine\nenvironments: [{ONE}, cross: [{{scheme: "policy:\\a"}}]}}]',
            r"cross[0]: 'policy:\x07': …printable",
        ),
    ],
)
def test_errors_name_file_and_place_in_one_line(file: Path, text: str, message: str) -> None:
    with pytest.raises(SageccError, match=facts(message)) as raised:
        load(file, text)
    assert str(raised.value).startswith(f"{file}") or "nowhere" in message
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("pattern", ["../*", "a/../*", "**/*", "a**", "/*"])
def test_patterns_of_traces_stay_in_their_folder(file: Path, tmp_path: Path, pattern: str) -> None:
    file.write_text(f"name: mine\ngrids: [{{trace: ['{pattern}'], rtt_ms: [20], queue_packets: [9], duration_s: 3}}]")
    with pytest.raises(SageccError, match=r"grids\[0\]: trace: .* is no pattern of files in"):
        load_set(f"{file}:{tmp_path}")


def test_networks_of_a_grid_share_a_trace(file: Path) -> None:
    """Each would else hold the times of its own: gigabytes."""
    (file.parent / "a.down").write_text("1\n2\n")
    networks = load(file, "name: mine\ngrids: [{trace: [a.down], rtt_ms: [20, 40], queue_packets: [9], duration_s: 3}]")
    one, other = (environment.bottleneck.trace for environment in networks.environments)
    assert one is other
    (file.parent / "a.down").write_text("1\n2\n3\n")
    assert load_set(str(file)).environments[0].bottleneck.trace != one


@pytest.mark.parametrize("name", [b"\xff.down", b"\x1b[2J.down", b"a.\x07"])
def test_a_trace_whose_files_name_is_no_text(file: Path, name: bytes) -> None:
    Path(os.fsdecode(os.fsencode(file.parent) + b"/" + name)).write_text("1\n")
    Path(file.parent, "b.down").write_text("1\n2\n")
    file.write_text("name: mine\ngrids: [{trace: ['*.*[!l]'], rtt_ms: [20], queue_packets: [9], duration_s: 3}]")
    with pytest.raises(SageccError, match="128 printable characters"):
        load_set(f"{file}:{file.parent}")


def test_what_is_no_set_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SageccError, match="--environments small: this is a profile; use --profile small"):
        load_set("small")
    with pytest.raises(SageccError, match=r"there is no such file.* aqm, cellular, friendliness"):
        load_set("else")
    with pytest.raises(SageccError, match=r"there is no such file.*; did you mean aqm\?"):
        load_set("aqn")


def test_the_guide_s_example(tmp_path: Path) -> None:
    guide = (ROOT / "docs/guide/collect.md").read_text()
    (text,) = re.findall(r"```yaml\n(name: mine\n.*?)```", guide, re.DOTALL)
    (tmp_path / "mine.yaml").write_text(text)
    networks = load_set(str(tmp_path / "mine.yaml"))
    assert len(networks.environments) == 1 + 2 * 2 * 1 * 2
    assert {tags["kind"] for tags in networks.tags.values()} == {"chain", "dumbbell"}
    assert {tags.get("beside") for tags in networks.tags.values()} == {None, "none", "3 cubic"}
    assert {e.reward for e in networks.environments} == {"power", "friendliness"}
    for name in shipped.environment_sets():
        assert f"`{name}`" in guide


def test_what_is_learned_in_is_not_what_is_judged() -> None:
    """Jitter and random loss are judged by `jittery` and `lossy`, and `heldout` shares no network with any grid."""
    sets = [load_set(name).environments for name in ("jittery", "lossy", "aqm")]
    judged = {replace(e, set="any") for each in (*sets, profile_environments("heldout")) for e in each}
    for name in TO_LEARN_IN:
        learned = load_set(name).environments
        assert not judged & {replace(e, set="any") for e in learned}
        assert not {0.5, 2, 5, 10} & {link.jitter_ms for e in learned for link in e.return_links}
        assert not {0.0001, 0.001, 0.01, 0.03} & {e.bottleneck.loss for e in learned}
