# SPDX-License-Identifier: Apache-2.0
"""How pages are filled: places, links, and what is wrong with a template said in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from sagecc.common.errors import SageccError
from scripts import pages, templates
from tests.conftest import ROOT

pytestmark = pytest.mark.heavy

PAGE = ROOT / "docs" / "measured" / "benchmarks.md"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a page in a folder, and texts of our own."""
    for module in (pages, templates):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(templates, "ENVIRONMENT", templates.environment(tmp_path))
    monkeypatch.setattr(pages, "named", lambda: {"rate": "48 Mbps", "table": "| a |\n|---|\n[why](why.md#here)"})
    (tmp_path / "docs" / "method").mkdir(parents=True)
    (tmp_path / "docs" / "method" / "why.md").write_text("# Why\n")
    return tmp_path


def test_a_number_stands_in_its_line_and_a_table_on_lines_of_its_own(project: Path) -> None:
    page = project / "docs" / "page.md"
    text = "It has <!-- = rate -->no<!-- / -->.\n\n<!-- = table --><!-- / -->\n"
    filled = pages.fill(page, text)
    assert filled == (
        "It has <!-- = rate -->48 Mbps<!-- / -->.\n\n"
        "<!-- = table -->\n\n| a |\n|---|\n[why](method/why.md#here)\n\n<!-- / -->\n"
    )
    assert pages.fill(page, filled) == filled
    assert pages.names(filled) == {"rate", "table"}


def test_links_lead_to_a_page_wherever_it_lies(project: Path) -> None:
    assert pages.linked(project / "README.md", "[a](why.md)") == "[a](docs/method/why.md)"
    assert pages.linked(project / "docs" / "method" / "b.md", "[a](why.md), [b](x/y.md)") == "[a](why.md), [b](x/y.md)"
    with pytest.raises(SageccError, match="0 pages of docs/ are gone"):
        pages.linked(project / "README.md", "[a](gone.md)")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("<!-- = goodput -->48<!-- / -->", "page.md: no template has a text 'goodput'"),
        ("<!-- = rate -->48", "page.md: a place is not closed with"),
        ("<!-- = rate -->48 <!-- = table --><!-- / --> <!-- / -->", "page.md: 'rate' is not closed with"),
    ],
)
def test_what_cannot_be_filled_is_one_line(project: Path, text: str, error: str) -> None:
    with pytest.raises(SageccError, match=error):
        pages.fill(project / "page.md", text)


@pytest.mark.parametrize(
    ("template", "error"),
    [
        ("{% set a %}\n{{ result.b }}\n{% endset %}", "a.md.j2:2: 'dict object' has no attribute 'b'"),
        ("\n{% set a %}{{ [] | one(b=1) }}{% endset %}", "a.md.j2:2: 0 rows have {'b': 1}"),
        ("{% set a %}", "a.md.j2:1: Unexpected end of template"),
        ("{% set a = 1 %}", "a.md.j2: 'a' is no text"),
    ],
)
def test_a_template_says_where_it_is_wrong(project: Path, template: str, error: str) -> None:
    (project / "a.md.j2").write_text(template)
    with pytest.raises(SageccError) as raised:
        templates.texts(project / "a.md.j2", {"result": {}})
    assert str(raised.value).startswith(error)


def test_texts_are_what_a_template_sets(project: Path) -> None:
    (project / "a.md.j2").write_text(
        "{% set _slow = rows | where(rate=12) %}\n"
        "{% set a %}{{ _slow | map(attribute='us') | span('.1f') }}{% endset %}\n"
        "{% set b %}\n{% for r in rows %}\n{{ r.us }}\n{% endfor %}\n{% endset %}\n"
    )
    rows = [{"rate": 12, "us": 1.0}, {"rate": 12, "us": 3.0}, {"rate": 24, "us": 9}]
    assert templates.texts(project / "a.md.j2", {"rows": rows}) == {"a": "2.0 (1.0-3.0)", "b": "1.0\n3.0\n9"}


def test_two_templates_with_the_same_name(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(pages, "sources", lambda: iter([(Path("a"), {}), (Path("b"), {})]))
    monkeypatch.setattr(pages, "texts", lambda path, context: {"same": path.name})
    with pytest.raises(SageccError, match="b and a both have a text 'same'"):
        pages.named.__wrapped__()
