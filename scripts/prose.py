# SPDX-License-Identifier: Apache-2.0
"""Holds the documents to plain English: `python -m scripts.prose [FILE ...]` prints each fault with its line.

A sentence has at most WORDS words, begins with none of OPENINGS and has none of BANNED. Code, tables, targets of links
and generated parts are not read. All pages together have at most BUDGET words. CONTRIBUTING.md has the rules.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORDS = 25
OPENINGS = ("What", "Who", "Whoever", "Whom", "One that", "One who")
BANNED = (
    "anew",
    "as it is",
    "as they are",
    "beside",
    "besides",
    "come along",
    "comes along",
    "goes on where",
    "hang on",
    "hangs on",
    "of one's own",
    "what it is worth",
    "who is",
)
BUDGET = 35_000
"""Words that all documents have at most, tables and examples included."""
RECORDS = ("CHANGELOG.md", "evidence/NOTES.md")
"""Documents that grow with the project: held to plain English, and not to the budget."""

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_HIDDEN = (
    re.compile(r"```.*?```", re.DOTALL),
    re.compile(r"<!-- = [\w-]+ -->.*?<!-- / -->", re.DOTALL),
    _COMMENT,
    re.compile(r"!\[[^\]]*\]\([^)]*\)"),
    re.compile(r"<(?:picture|source|img)\b[^>]*>"),
)
_WORD = re.compile(r"[A-Za-z][\w'-]*")
_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_BLOCK = re.compile(
    r"(?:^(?![ \t]*$|#|\||[ \t]*(?:[-*]|\d+\.) |    |:::).*\n?)+|^[ \t]*(?:[-*]|\d+\.) .*\n?(?:^ +\S.*\n?)*", re.M
)
_END = re.compile(r"[.!?](?=[)\"*]*(?:\s|$))")
_ABBREVIATION = re.compile(r"\b(?:al|Eq|Fig|e\.g|i\.e|cf|vs)\.$")
_BANNED = re.compile(rf"\b(?:{'|'.join(BANNED)})\b", re.IGNORECASE)


@dataclass(frozen=True)
class BrokenRule:
    """A sentence that breaks a rule."""

    line: int
    rule: str
    text: str


def pages() -> list[Path]:
    """Return the pages that are held to the rules."""
    folders = [(ROOT / folder).rglob("*.md") for folder in ("docs", "models")]
    others = [ROOT / "datasets/README.md", ROOT / "evidence/NOTES.md"]
    return sorted([*ROOT.glob("*.md"), *(path for found in folders for path in found), *others])


def words(markdown: str) -> int:
    """Return how many words a page shows: what begins with a letter, in text, tables, code and targets of links."""
    return len(_WORD.findall(_COMMENT.sub(" ", markdown)))


def words_by_page() -> dict[str, int]:
    """Return the words of every document but RECORDS, most first."""
    counted = {path.relative_to(ROOT).as_posix(): words(path.read_text()) for path in pages()}
    return {name: counted[name] for name in sorted(counted, key=lambda name: -counted[name]) if name not in RECORDS}


def faults(markdown: str) -> Iterator[BrokenRule]:
    """Yield what breaks the rules in a page."""
    for hidden in _HIDDEN:
        markdown = hidden.sub(lambda found: re.sub(r"[^\n]+", "x" if "\n" not in found[0] else "", found[0]), markdown)
    for block in _BLOCK.finditer(markdown):
        line = markdown.count("\n", 0, block.start()) + 1
        for sentence in sentences(block[0]):
            words = [word for word in sentence.split() if re.search(r"\w", word)]
            if len(words) > WORDS:
                yield BrokenRule(line, f"{len(words)} words, more than {WORDS}", sentence)
            if any(re.match(rf"{opening}\b", sentence) for opening in OPENINGS):
                yield BrokenRule(line, f"begins with '{' '.join(words[:2])}'", sentence)
            if found := _BANNED.search(sentence):
                yield BrokenRule(line, f"'{found[0]}' is banned", sentence)


def sentences(block: str) -> Iterator[str]:
    """Yield the sentences of a paragraph or an item of a list, without markup; code counts no word."""
    plain = re.sub(r"^[ \t]*(?:[-*]|\d+\.) ", "", block)
    plain = _CODE.sub("`", _LINK.sub(r"\1", plain))
    plain = " ".join(plain.replace("*", "").split())
    begin = 0
    for end in _END.finditer(plain):
        if not _ABBREVIATION.search(plain[: end.end()]):
            yield plain[begin : end.end()].strip()
            begin = end.end()
    if rest := plain[begin:].strip():
        yield rest


def main() -> int:
    """Print the faults of the given files, or of all pages; return the exit status."""
    found = 0
    for path in [Path(name).resolve() for name in sys.argv[1:]] or pages():
        for fault in faults(path.read_text()):
            print(f"{path.relative_to(ROOT)}:{fault.line}: {fault.rule}: {fault.text}")
            found += 1
    if not sys.argv[1:] and (count := sum(words_by_page().values())) > BUDGET:
        print(f"all pages: {count:,} words, more than {BUDGET:,}")
        found += 1
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
