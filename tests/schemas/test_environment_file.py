# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagecc.common.errors import SageccError
from sagecc.schemas.environment import (
    CrossFlow,
    DelayStep,
    Discipline,
    Environment,
    Flow,
    Link,
    Policer,
    RateStep,
    Trace,
    dumbbell,
)
from sagecc.schemas.environment_file import EnvironmentPart, json_schema, load_environment
from tests.conftest import ROOT
from tests.helpers.messages import facts
from tests.helpers.strategies import environments

FIELDS = (ROOT / "docs/reference/formats.md").read_text().partition("## Environment files")[2].partition("\n## ")[0]
GUIDE = ROOT / "docs/guide/collect.md"
EXAMPLES = ROOT / "schemas" / "environments"
FILES = sorted(EXAMPLES.glob("*.yaml"))
DUMBBELL = "links: [{rate_mbps: 48, queue_bdp: 1}]\nrtt_ms: 40\nduration_s: 30\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "network.yaml"


def load(file: Path, text: str) -> Environment:
    file.write_text(text)
    return load_environment(file)


def test_a_dumbbell(file: Path) -> None:
    link = Link((RateStep(0, 48),), 20, 240_000)
    assert load(file, DUMBBELL) == dumbbell("custom", link, 20, 30, ((0, 30),))


def test_every_short_form(file: Path) -> None:
    (file.parent / "train.down").write_text("1\n3\n4\n")
    environment = load(
        file,
        """
        links:
          - {rate_mbps: 12, delay_ms: 5, queue_bdp: 0.5, delays: [{t_s: 2, delay_ms: 7}]}
          - {trace: train.down, delay_ms: 10, queue_packets: 100, discipline: bode, target_ms: 8}
        duration_s: 20
        flow: {start_s: 1, stop_s: 19, extra_rtt_ms: 10}
        cross:
          - {scheme: cubic, count: 2, links: [0, 0]}
          - {scheme: bbr, start_s: 5, stop_s: 6}
          - {scheme: vegas, flow: {start_s: 3}}
        """,
    )
    # the tested flow's minimum RTT: 5 + 10 there, the same back, and 10 of its own
    first = Link((RateStep(0, 12),), 5, int(12 * 40 * 125 / 2), delays=(DelayStep(2, 7),))
    trace = Trace("train", (1, 3, 4))
    second = Link(trace=trace, delay_ms=10, queue_packets=100, discipline="bode", target_ms=8)
    assert environment == Environment(
        set="custom",
        links=(first, second),
        return_links=(Link(delay_ms=5), Link(delay_ms=10)),
        duration_s=20,
        windows_s=((1, 19),),
        cross=(
            CrossFlow("cubic", Flow(links=(0, 0))),
            CrossFlow("cubic", Flow(links=(0, 0))),
            CrossFlow("bbr", Flow(5, 6)),
            CrossFlow("vegas", Flow(3)),
        ),
        flow=Flow(1, 19, 10),
    )


def test_rtt_beside_a_way_back_that_does_more(file: Path) -> None:
    environment = load(file, DUMBBELL + "return_links: [{jitter_ms: 1, rate_mbps: 2}]")
    assert environment.return_links == (Link((RateStep(0, 2),), 20, jitter_ms=1),)
    assert environment.queue_bytes == 240_000


def test_the_queue_counts_with_the_tested_flows_own_path(file: Path) -> None:
    """Its RTT is that of the second link alone: 20 ms; 10 Mbps for 20 ms are 25,000 bytes."""
    links = "links: [{rate_mbps: 10, delay_ms: 50}, {rate_mbps: 10, delay_ms: 10, queue_bdp: 2}]\n"
    environment = load(file, links + "duration_s: 5\nflow: {links: [1, 1]}")
    assert environment.links[1].queue_bytes == 50_000


def test_numbers_of_yaml(file: Path) -> None:
    """PyYAML alone takes 1e-3 for text."""
    environment = load(file, DUMBBELL.replace("queue_bdp: 1", "queue_bdp: 1e0, loss: 1e-3"))
    assert environment.links[0].loss == 0.001
    assert environment.queue_bytes == 240_000


@settings(max_examples=40)
@given(environments(), st.sampled_from((".yaml", ".json")), st.booleans())
def test_what_to_json_writes_is_an_environment_file(environment: Environment, suffix: str, identified: bool) -> None:
    fields = json.loads(environment.to_json())
    if identified:
        fields["id"] = environment.id
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"any{suffix}"
        path.write_text(json.dumps(fields))
        again = load_environment(path)
    assert again == environment
    assert again.id == environment.id


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_examples(path: Path) -> None:
    environment = load_environment(path)
    assert Environment.from_json(environment.to_json()) == environment
    assert path.name in GUIDE.read_text(), "docs/guide/collect.md does not name it"


def test_what_the_examples_say() -> None:
    """Figures that their comments give."""
    rtts = load_environment(EXAMPLES / "different-rtts.yaml")
    assert rtts.queue_bytes == 240_000
    assert [rtts.min_rtt_ms + cross.flow.extra_rtt_ms for cross in rtts.cross] == [60, 120]
    assert (rtts.cross[0].flow.start_s, rtts.cross[0].flow.stop_s) == (10, 30)
    parking = load_environment(EXAMPLES / "parking-lot.yaml")
    assert [parking.path(cross.flow) for cross in parking.cross] == [range(1), range(1, 2), range(2, 3)]
    assert load_environment(EXAMPLES / "fifty-flows.yaml").flow_count == 50
    disciplines = {load_environment(path).bottleneck.discipline for path in FILES}
    assert disciplines == set(get_args(Discipline))
    ecn = load_environment(EXAMPLES / "ecn.yaml")
    assert [flow.ecn for flow in ecn.all_flows] == [True, False]
    assert load_environment(EXAMPLES / "dctcp.yaml").bottleneck.mark_packets == 20
    assert load_environment(EXAMPLES / "policer.yaml").bottleneck.policer == Policer(10, 60_000)
    transfers = load_environment(EXAMPLES / "transfers.yaml")
    assert [flow.size_bytes for flow in transfers.all_flows] == [None, *[100_000] * 5]
    assert load_environment(EXAMPLES / "thousand-flows.yaml").flow_count == 1000
    satellite = load_environment(EXAMPLES / "satellite.yaml").bottleneck
    changes_s = [[step.t_s for step in steps] for steps in (satellite.rates[1:], satellite.delays)]
    assert changes_s == [[15, 30], [15, 30]]
    assert load_environment(EXAMPLES / "cellular.yaml").bottleneck.trace is not None


def test_the_schema_file_is_up_to_date() -> None:
    written = (EXAMPLES / "schema.json").read_text()
    assert written == json_schema(), "python -m sagecc.schemas.environment_file > schemas/environments/schema.json"


def test_the_documentation_has_every_field_and_no_other() -> None:
    fields: set[str] = set()
    definitions = json.loads(json_schema())
    for part in (definitions, *definitions["$defs"].values()):
        assert all("description" in field for field in part["properties"].values())
        fields |= set(part["properties"])
    documented = set(re.findall(r"^\| `([a-z_]+)` \|", FIELDS, re.MULTILINE))
    assert documented == fields


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "mapping…nothing"),
        ("- 1", "mapping…1"),
        ("a: b: c", "network.yaml, line 1: no YAML"),
        ("set: a\nset: b", "network.yaml, line 2: no YAML…'set'…twice"),
        ("? [1]\n: 2", "line 1: no YAML"),
        ("[" * 3000, "line 1: no YAML: …levels deep"),
        ("links: []\nduration_s: 3", "1 to 8 links"),
        ("duration_s: 3", "links…missing"),
        (DUMBBELL + "bandwidth: 3", "bandwidth…no such field…links, return_links, rtt_ms, duration_s"),
        (DUMBBELL + "flow: {strat_s: 1}", "flow.strat_s: …no such field…start_s?"),
        (DUMBBELL + "flow: {links: [0]}", "flow.links: …2…1"),
        (DUMBBELL + "flow: 3", "flow: …mapping…3"),
        (DUMBBELL + "cross: [cubic]", "cross[0]: …mapping…'cubic'"),
        (DUMBBELL + "cross: [{scheme: cubic, count: 0}]", "cross[0].count: …1…0"),
        (DUMBBELL + "cross: [{scheme: cubic, count: 1024}]", "cross: …1024…1025"),
        (DUMBBELL + "cross: [{count: 2}]", "cross[0]: …scheme…missing"),
        (DUMBBELL + "cross: [{scheme: bbr}, {scheme: bbr, start_s: 31}]", "cross[1]: …start…stop"),
        (DUMBBELL + "cross: [{scheme: bbr, start_s: 1, flow: {}}]", "cross[0]: …start_s…flow"),
        (DUMBBELL + "windows_s: [[1, 2, 3]]", "windows_s[0]: …2…3"),
        (DUMBBELL + "windows_s: [[0, 31]]", "windows…episode"),
        (DUMBBELL + "set: a/b", "set: …'a/b'"),
        (DUMBBELL + "reward: joy", "reward: …'power'…'friendliness'…'joy'"),
        (DUMBBELL + "id: other", "id: …other…custom-48mbps-40ms-1bdp-"),
        (DUMBBELL + "return_links: []", "return_links: …1…0"),
        (DUMBBELL + "return_links: [{delay_ms: 1}]", "return_links[0].delay_ms: …rtt_ms"),
        (DUMBBELL.replace("48", "fast"), "links[0].rate_mbps: …number…'fast'"),
        (DUMBBELL.replace("48", "yes"), "links[0].rate_mbps: …number…'yes'"),
        (DUMBBELL.replace("48", ".nan"), "links[0].rate_mbps: …finite…nan"),
        (DUMBBELL.replace("48", "-1"), "links[0]: bandwidth…0.001…10000 Mbps"),
        (
            DUMBBELL.replace("48", "48, rates: [{t_s: 0, rate_mbps: 1}]"),
            "links[0]: …rate_mbps…rates",
        ),
        (DUMBBELL.replace("48", "48, rates: [{rate_mbps: 1}]"), "links[0].rates[0]: …t_s…missing"),
        (DUMBBELL.replace("48", "48, rats: 1"), "links[0].rats: …no such field…rates?"),
        (DUMBBELL.replace("48", "48, delay_ms: 1"), "links[0].delay_ms: …rtt_ms"),
        (DUMBBELL.replace("48", "48, queue_bytes: 3000"), "links[0]: …queue_bdp…queue_bytes"),
        (DUMBBELL.replace("48", "48, queue_packets: 1.5"), "links[0].queue_packets: …whole…1.5"),
        (DUMBBELL.replace("48", "48, discipline: red"), "links[0].discipline: …'tail-drop', 'head-drop'"),
        (DUMBBELL.replace("48", "48, jitter_reorders: 1"), "links[0].jitter_reorders: …true…false…1"),
        (DUMBBELL.replace("48", "48, trace: {name: a}"), "links[0].trace: …opportunities_ms…missing"),
        (DUMBBELL.replace("48", "48, trace: 3"), "links[0].trace: …text…3"),
        (DUMBBELL.replace("rate_mbps: 48, ", ""), "links[0]: queue_bdp…rate…trace"),
        (
            DUMBBELL.replace("rate_mbps: 48", "trace: nothing.down"),
            "nothing.down: No such file or directory",
        ),
        (DUMBBELL.replace("rate_mbps: 48", "trace: network.yaml"), "network.yaml, line 1: …ms"),
        (DUMBBELL.replace("rate_mbps: 48", 'trace: "a\\0b"'), "links[0]: no file can have the name"),
        (DUMBBELL.replace("rate_mbps: 48", "trace: ."), "links[0]: …is a folder, where a file is expected"),
        *(
            (
                DUMBBELL.replace("rate_mbps: 48", f'trace: {{name: "{name}", opportunities_ms: [1]}}'),
                f"links[0]: trace '{shown}",
            )
            for name, shown in (("\\e[2J", r"\x1b[2J': …128 printable"), ("a\\0", r"a\x00': …128"), ("a" * 129, "aaa"))
        ),
        (DUMBBELL.replace("queue_bdp: 1", "queue_bdp: 0.001"), "links[0]: …queue…packet"),
        *(
            (DUMBBELL.replace("queue_bdp: 1", fields), message)
            for fields, message in (
                ("policer: {rate_mbps: 1}", "links[0].policer: burst_bytes is missing"),
                ("policer: {rate_mbps: 1, burst_bytes: 1500, burst: 1}", "links[0].policer.burst: …burst_bytes?"),
                ("policer: {rate_mbps: 0, burst_bytes: 1500}", "links[0]: a policer's rate…0.001"),
                ("policer: {rate_mbps: 1, burst_bytes: 1499}", "links[0]: a policer's burst…1500…1499"),
                ("policer: 5", "links[0].policer: …mapping…5"),
                ("ecn: true", "links[0]: ecn belongs to codel, fq-codel, not to tail-drop"),
                ("ecn: 1", "links[0].ecn: …true or false"),
                ("mark_packets: 0", "links[0]: mark_packets…at least 1"),
                ("mark_packets: 1.5", "links[0].mark_packets: …whole number"),
                ("quantum_bytes: 300", "links[0]: quantum_bytes belongs to fq-codel"),
                ("discipline: fq-codel, quantum_bytes: 99", "links[0]: quantum_bytes…100"),
                ("discipline: fq-codel, grain_ms: 1", "links[0]: fq-codel and grain_ms"),
            )
        ),
        (DUMBBELL + "flow: {size_bytes: 0}", "the flow: size_bytes…at least 1"),
        (DUMBBELL + "flow: {size_bytes: many}", "flow.size_bytes: …whole number"),
        (DUMBBELL + "flow: {ecn: maybe}", "flow.ecn: …true or false"),
        (DUMBBELL + "flow: {receive_window_bytes: 2999}", "the flow: receive_window_bytes…at least 3000"),
        (DUMBBELL + "flow: {pauses_s: [[2, 1]]}", "the flow: pauses_s must increase"),
        (DUMBBELL + "flow: {pauses_s: [[1, 2], [2, 3]]}", "the flow: pauses_s must increase"),
        (DUMBBELL + "flow: {pauses_s: [[1, 1000]]}", "the flow: pauses_s must lie within the episode"),
        (DUMBBELL + "flow: {pauses_s: [3]}", "flow.pauses_s[0]: "),
        (DUMBBELL + "return_links: [{ack_filter: true}]", "return_links[0]: ack_filter needs a link with a rate"),
        (DUMBBELL.replace("40", "-40"), "links[0]: …delay…0…10000 ms"),
        ("links: [{rate_mbps: 1}, {rate_mbps: 1}]\nrtt_ms: 9\nduration_s: 1", "rtt_ms: …one link…2"),
    ],
)
def test_errors_name_file_and_place_in_one_line(file: Path, text: str, message: str) -> None:
    with pytest.raises(SageccError) as raised:
        load(file, text)
    assert str(raised.value).startswith(str(file))
    assert re.search(facts(message), str(raised.value))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"set": "a",', "line 1: no JSON"),
        ('{"set": "a", "set": "b"}', "'set'…twice"),
        ('{"links": [{"loss": Infinity}]}', "links[0].loss: …finite…inf"),
        ("[" * 100_000, "cannot be read"),
        ('{"set": 1' + "0" * 5000 + "}", "cannot be read"),
    ],
)
def test_errors_of_json(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SageccError) as raised:
        load(tmp_path / "network.json", text)
    assert re.search(facts(message), str(raised.value))
    assert "\n" not in str(raised.value)


def test_bytes_that_are_no_text(file: Path) -> None:
    file.write_bytes(b"links: \xff")
    with pytest.raises(SageccError, match="cannot be read: it is not in UTF-8: see byte 8"):
        load_environment(file)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(("cubic", "codel")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from((*EnvironmentPart.model_fields, "scheme", "rates", "trace", "t_s", "x")), inner
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from((*EnvironmentPart.model_fields, "x")), JSON))
def test_any_document_is_an_environment_or_one_line_of_error(document: dict[str, object]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "any.json"
        path.write_text(json.dumps(document))
        try:
            assert isinstance(load_environment(path), Environment)
        except SageccError as error:
            assert str(error).startswith(str(path))
            assert "\n" not in str(error)
