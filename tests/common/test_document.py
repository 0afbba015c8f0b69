# SPDX-License-Identifier: Apache-2.0
"""Any bytes are a document with one meaning, or an error of one line."""

from __future__ import annotations

import json
import math
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sagecc.common.core_yaml import MAX_BYTES, MAX_DEPTH, MAX_VALUES
from sagecc.common.document import parse, read_document
from sagecc.common.errors import SageccError
from tests.conftest import ROOT
from tests.helpers.messages import facts


def refusal(data: bytes, name: str = "a.yaml") -> str:
    with pytest.raises(SageccError) as caught:
        parse(data, name)
    said = str(caught.value)
    assert said.startswith(name)
    assert "\n" not in said
    assert len(said) < 300
    return said


SCALARS: list[tuple[Any, tuple[str, ...]]] = [
    (12, ("12", "+12", "0xC", "!!int '12'")),
    (2**63 - 1, (str(2**63 - 1), "0x7FFFFFFFFFFFFFFF")),
    (0, ("0", "-0")),
    (1.5, ("1.5", "15e-1", "0.15E+1", "01.5", "!!float 1.5")),
    (0.5, (".5", "+.5", "5e-1")),
    (1000.0, ("1e3", "1000.")),
    (math.inf, (".inf", "+.INF")),
    (None, ("", "~", "null", "Null")),
    (True, ("true", "TRUE")),
    (False, ("False",)),
    ("020", ("'020'", '"020"', "!!str 020")),
    *((text, (text,)) for text in ("yes", "no", "on", "off", "y", "2001-01-01", "1.2.3", "10.0.0.1", "=", "4g", "1e")),
    *((text, (text,)) for text in ("12:30.down", "0x", "1:90", "_1", "a_1")),
]
"""Scalars of the core schema of YAML 1.2: a value and how it may be written."""


@pytest.mark.parametrize(("value", "texts"), SCALARS)
def test_scalars_of_yaml_1_2(value: Any, texts: tuple[str, ...]) -> None:
    for text in texts:
        found = parse(f"a: {text}".encode(), "a.yaml")["a"]
        assert (type(found), found) == (type(value), value), text


@pytest.mark.parametrize(
    "text",
    [
        *("020", "-020", "08", "00", "1_000", "1_0.5", "1.5_0", "1_0e3", "0b11", "0o17", "0x1_F", "-0x1F"),
        *("1:30", "1:30:00", "-1:30", "1:30.5", "01:30"),
    ],
)
def test_a_number_that_yaml_1_1_reads_otherwise_is_an_error(text: str) -> None:
    said = refusal(f"b: 1\na: [{text}]".encode())
    assert re.match(facts(f"a.yaml, line 2: no YAML: {text} is not the same…write…quote"), said)
    refusal(f"b: 1\n? {text}\n: 1".encode())


def test_what_ships_means_the_same_to_a_reader_of_yaml_1_1() -> None:
    """DVC, editors and libraries read it too."""

    class Other(yaml.SafeLoader):
        """YAML 1.1 as PyYAML reads it, which takes 1e-3 for text."""

    Other.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9.]+[eE][-+]?[0-9]+$"), [*"-+.0123456789"]
    )
    listed = ["git", "ls-files", "*.yaml"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert len(names) > 50
    for name in names:
        data = (ROOT / name).read_bytes()
        assert repr(parse(data, name)) == repr(yaml.load(data, Other)), name


def test_anchors_and_merge_keys_are_read() -> None:
    text = b"a: &one {x: 1, y: 2}\nb: [{<<: *one, y: 3}, *one, {<<: [*one, {z: 4}]}]"
    assert parse(text, "a.yaml")["b"] == [{"x": 1, "y": 3}, {"x": 1, "y": 2}, {"x": 1, "y": 2, "z": 4}]


def test_aliases_count_with_what_they_stand_for() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert re.match(facts(f"a.yaml, line 5: …{MAX_VALUES:,} values"), refusal("\n".join(lines).encode()))
    lines = ["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}, *a{n - 1}]}}" for n in range(1, 40))]
    assert re.match(facts(f"a.yaml, line …{MAX_VALUES:,} values"), refusal("\n".join(lines).encode()))


@pytest.mark.parametrize("text", ["&a [*a]", "&a {<<: *a}", "a: &a [1, {b: *a}]", "&a {? *a : 1}"])
def test_an_alias_of_what_it_is_a_part_of(text: str) -> None:
    assert "line 1: no YAML: *a stands for what it is a part of" in refusal(text.encode())


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a": ', "}")])
@pytest.mark.parametrize("times", [MAX_DEPTH, 512, 100_000])
def test_deep_nesting(opening: str, closing: str, times: int) -> None:
    for name in ("a.yaml", "a.json"):
        assert f"more than {MAX_DEPTH} levels" in refusal(f"{opening * times}1{closing * times}".encode(), name)


@pytest.mark.parametrize("opening", ["- ", "? ", "- - ? ", "[{a: "])
def test_deep_nesting_of_yaml_alone(opening: str) -> None:
    assert f"more than {MAX_DEPTH} levels" in refusal(opening.encode() * 512)


def test_nesting_that_is_deep_enough() -> None:
    data = b"[" * (MAX_DEPTH - 1) + b"1" + b"]" * (MAX_DEPTH - 1)
    assert parse(data, "a.json") == parse(data, "a.yaml")


@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
@pytest.mark.parametrize(("digits", "words"), [(str(2**63), "9223372036854775808 is"), ("-1" + "0" * 5000, "... is")])
def test_whole_numbers_beyond_what_any_field_takes(name: str, digits: str, words: str) -> None:
    assert f"{words} beyond 2^63" in refusal(f'{{"a": {digits}}}'.encode(), name)


@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
def test_half_of_a_surrogate_pair(name: str) -> None:
    for text in ('["\\ud800"]', '{"\\udfff": 1}', '{"a": [{"b": "x\\ud83dx"}]}'):
        assert "is half of a character" in refusal(text.encode(), name)


def test_a_whole_surrogate_pair_of_json() -> None:
    assert parse(b'"\\ud83d\\ude00"', "a.json") == "\U0001f600"


@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
def test_what_editors_make_of_a_file(name: str) -> None:
    text = '{"a": 1,\n "b": "é"}\n'
    sound = parse(text.encode(), name)
    assert parse(text.encode("utf-8-sig"), name) == sound
    assert parse(text.replace("\n", "\r\n").encode(), name) == sound
    for encoding in ("utf-16", "latin-1"):
        assert "UTF-8" in refusal(text.encode(encoding), name)


def test_an_empty_document() -> None:
    assert parse(b"", "a.yaml") is None
    assert "a.json, line 1: no JSON" in refusal(b"", "a.json")


@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
def test_a_key_that_stands_there_twice_among_many(name: str) -> None:
    keys = json.dumps({f"key-{number}": number for number in range(1000)})
    assert len(parse(keys.encode(), name)) == 1000
    assert "the key 'key-7' stands" in refusal(keys.replace("key-999", "key-7").encode(), name)


@pytest.mark.parametrize(
    "text",
    [
        *("!!int x", "!!int ''", "!!float x", "!!bool x", "!!null x", "!!timestamp x", "!!binary '*'", "!!set {a}"),
        *(
            "!!python/object/apply:os.getcwd []",
            "!x 1",
            "!!int [1]",
            "!!map 1",
            "!!seq {}",
            "!!str []",
            "? {a: 1}\n: 1",
        ),
        *("a: <<", "{<<: 1}", "\0", "a: *b", "a: b: c", "--- 1\n--- 2", "%YAML 3.0\n--- 1", "- &a 1\n- &a 2"),
    ],
)
def test_what_is_no_yaml(text: str) -> None:
    refusal(text.encode())


def test_long_yaml_is_for_json() -> None:
    assert "JSON" in refusal(b"#" * (MAX_BYTES + 1))


def test_documents_are_read_from_regular_files(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}')
    assert read_document(tmp_path / "a.json") == {"a": 1}
    with pytest.raises(SageccError, match="is a folder"):
        read_document(tmp_path)


LIVELY = st.lists(
    st.sampled_from(
        [
            *(
                "a",
                "b",
                "1",
                "020",
                "1:30",
                ".inf",
                "0x",
                "'",
                '"',
                "\\u",
                "\\ud800",
                "~",
                "<<",
                "&a",
                "*a",
                "!!int",
                "!",
                "|",
            ),
            *(
                ": ",
                "- ",
                "? ",
                ", ",
                "[",
                "]",
                "{",
                "}",
                "\n",
                "  ",
                "#",
                "---",
                "...",
                "%",
                "\t",
                "\0",
                "é",
                "\ufeff",
            ),
        ]
    ),
    max_size=30,
).map(lambda parts: "".join(parts).encode())


@settings(max_examples=300)
@example(b"!!int\n.\n\n!")
@given(st.binary(max_size=60) | LIVELY | st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_are_a_document_or_one_line(data: bytes) -> None:
    for name in ("a.yaml", "a.json"):
        try:
            value = parse(data, name)
        except SageccError as error:
            assert "\n" not in str(error)
            assert str(error).startswith(name)
        else:
            json.dumps(value, ensure_ascii=False, default=repr).encode()
