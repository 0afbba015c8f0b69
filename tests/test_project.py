# SPDX-License-Identifier: Apache-2.0
"""What holds for the repository as a whole: licences, layers, stages, documents."""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from sagecc.cli import cli
from sagecc.learner.selection import Selection
from sagecc.learner.specification import Data, LabSettings, PoolShare, RunSpecification, algorithm_of, algorithms
from sagecc.schemas.schemes import OTHERS, SCHEMES
from scripts import configuration_page, pages, site_hooks
from tests.conftest import ROOT
from tests.helpers.modules import (
    LAYERS,
    ROOMS,
    code_behind,
    code_behind_the_head,
    identifiers,
    imported,
    modules,
    room,
    rooms_behind,
)
from tests.helpers.parallel import OF_FILE

pytestmark = pytest.mark.heavy

EVIDENCE = ("", "speed", "training", "paper", "rivals", "behaviour", "leagues")
"""Folders of evidence/, itself first: none imports one after it."""

MAKEFILE = (ROOT / "Makefile").read_text()

LIMIT_BYTES = 16_000_000
NAMING = {"", ".py", ".c", ".h", ".sh", ".md", ".j2", ".in", ".yaml", ".yml", ".ipynb", ".cfg"}
SOURCES = re.compile(r".*\.(py|c|cc|h|sh)$|(^|.*/)Makefile$|^\.ci/run$|^scripts/[a-z]+$")


def tracked() -> list[str]:
    return subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def stages(pipeline: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / pipeline).read_text())["stages"]
    return found


def licence(file: str) -> str:
    """Return the SPDX expression in a source file's first lines, or "" where there is none."""
    head = "\n".join((ROOT / file).read_text().splitlines()[:3])
    found = re.search(r"SPDX-License-Identifier: (.+?)(?: \*/)?$", head, re.MULTILINE)
    return found[1] if found else ""


def wanted_licence(file: str) -> str:
    in_kernel = file.startswith(("collector/kernel/", "execution/stock/bpf/")) and not file.endswith(".py")
    return "GPL-2.0-only" if in_kernel or file.endswith(".cc") else "Apache-2.0"  # .cc are ns-3's


def test_every_source_file_names_its_licence() -> None:
    sources = [file for file in tracked() if SOURCES.match(file) and (ROOT / file).is_file()]
    assert len(sources) > 300
    at_fault = {
        file: licence(file) or "no SPDX line"
        for file in sources
        if (ROOT / file).stat().st_size and wanted_licence(file) not in licence(file).split(" OR ")
    }
    assert not at_fault


def test_groups_of_tests_are_of_files_that_exist() -> None:
    assert [file for file in OF_FILE if not (ROOT / file).is_file()] == []


def test_licences_are_the_full_texts() -> None:
    assert "Version 2.0, January 2004" in (ROOT / "LICENSES/Apache-2.0.txt").read_text()
    assert "Version 2, June 1991" in (ROOT / "LICENSES/GPL-2.0-only.txt").read_text()


def test_the_repository_stays_small() -> None:
    sizes = {name: (ROOT / name).stat().st_size for name in tracked() if (ROOT / name).is_file()}
    assert sum(sizes.values()) < LIMIT_BYTES, sorted(sizes.items(), key=lambda item: -item[1])[:5]


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_imports_from_its_own_rooms_alone(name: str) -> None:
    elsewhere = {
        str(file.relative_to(ROOT)): others
        for file in ROOT.glob(f"{name}/*.py")
        if (others := rooms_behind(file) - ROOMS[name])
    }
    assert not elsewhere


def test_a_rival_knows_of_no_other() -> None:
    folders = sorted(path.parent for path in ROOT.glob("execution/schemes/*/__init__.py"))
    names = {folder.name for folder in folders}
    others = {
        f"{file.relative_to(ROOT)} imports {name}"
        for folder in folders
        for file in folder.glob("*.py")
        for name in imported(file)
        if name.startswith("sagecc.execution.schemes.") and name.split(".")[3] in names - {folder.name}
    }
    assert len(folders) >= 6 and not others


def test_nothing_outside_its_folder_names_a_rival() -> None:
    """But the names of schemes in user space, which a schema has, and the importer's command."""
    rivals = {path.parent.name for path in ROOT.glob("execution/schemes/*/__init__.py")}
    rivals.remove("sage")  # the project is named after it, and so are the kind of network and each message
    general = [file for layer in ("common", "pool", "policy", "learner", "execution") for file in modules(layer)]
    naming = {
        f"{file.relative_to(ROOT)}: {word}"
        for file in general
        if file.parent.name not in rivals
        for word in (file.stem, *identifiers(file))
        if any(rival in word.lower() for rival in rivals)
    }
    assert not naming


def test_every_folder_is_a_room() -> None:
    folders = {room(file) for layer in LAYERS for file in modules(layer) if file.name != "__init__.py"}
    assert folders == ROOMS.keys()


def test_rooms_import_from_rooms_above_them() -> None:
    above: set[str] = set()
    for name, others in ROOMS.items():
        assert others <= above, f"{name} imports from what comes after it"
        above.add(name)


def test_the_product_imports_no_evidence() -> None:
    beside = {
        f"{file.relative_to(ROOT)} imports {name}"
        for layer in LAYERS
        for file in modules(layer)
        for name in imported(file)
        if name.split(".")[0] in {"evidence", "scripts", "tests"}
    }
    assert not beside


@pytest.mark.parametrize("folder", EVIDENCE)
def test_no_evidence_turns_back(folder: str) -> None:
    later = tuple(f"evidence.{each}" for each in EVIDENCE[EVIDENCE.index(folder) + 1 :])
    files = modules(f"evidence/{folder}") if folder else sorted((ROOT / "evidence").glob("*.py"))
    back = {
        f"{file.relative_to(ROOT)} imports {name}"
        for file in files
        for name in imported(file)
        if name.startswith((*later, "scripts.", "tests."))
    }
    assert files and not back


def test_a_league_knows_no_report() -> None:
    """It writes tables; the page and its pictures are made of them by whoever wants them."""
    drawn = {
        f"{file.relative_to(ROOT)} imports {name}"
        for file in modules("leagues")
        for name in imported(file)
        if name.startswith("sagecc.leagues.report") and not file.is_relative_to(ROOT / "leagues" / "report")
    }
    assert not drawn
    reached = code_behind(ROOT / "leagues" / "league.py", set()) | code_behind(
        ROOT / "leagues" / "trajectories.py", set()
    )
    assert ROOT / "leagues" / "plots.py" not in reached


@pytest.mark.parametrize("folder", ["execution/flow", "execution/schemes", "execution/agent", "execution/stock"])
def test_a_policy_on_a_stock_kernel_needs_no_lab(folder: str) -> None:
    """The same agent drives flows in the lab and outside; what knows the lab lies in execution/lab."""
    of_the_lab = {
        f"{file.relative_to(ROOT)} imports {name}"
        for file in modules(folder)
        for name in imported(file)
        if name.startswith("sagecc.collector")
    }
    assert modules(folder) and not of_the_lab


@pytest.mark.parametrize(
    "module", ["execution/agent/policy_agent.py", "execution/lab/lockstep.py", "policy/runtime.py"]
)
def test_a_policy_at_work_knows_nothing_of_how_it_was_trained(module: str) -> None:
    reached = {str(file.relative_to(ROOT)) for file in code_behind(ROOT / module, set())}
    assert "policy/artefact.py" in reached
    trained = ("compiled", "data", "loop", "selection", "specification", "train")
    assert not reached & {f"learner/{name}.py" for name in trained}


def test_no_module_is_behind_itself() -> None:
    behind = {file: code_behind(file, set()) for layer in LAYERS for file in modules(layer)}
    circles = {
        f"{file.relative_to(ROOT)} and {other.relative_to(ROOT)}"
        for file, reached in behind.items()
        for other in reached - {file}
        if file in behind.get(other, ())
    }
    assert not circles


@pytest.mark.parametrize("layer", LAYERS)
def test_every_package_is_imported_under_one_name(layer: str) -> None:
    """Installed, nothing of ours but `sagecc` lies in site-packages; twice imported, a class would be two."""
    bare = {
        f"{file.relative_to(ROOT)} imports {name}"
        for file in [*modules(layer), *modules("tests"), *modules("evidence"), *modules("scripts")]
        for name in imported(file)
        if name.split(".")[0] in LAYERS.keys() - {"sagecc"}
    }
    assert not bare
    assert layer == "sagecc" or (ROOT / "sagecc" / layer).readlink() == Path("..") / layer


def test_no_two_classes_have_one_name() -> None:
    places: dict[str, list[str]] = {}
    for folder in (*LAYERS, "evidence", "scripts"):
        for file in modules(folder):
            for node in ast.parse(file.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(str(file.relative_to(ROOT)))
    assert not {name: files for name, files in places.items() if len(files) > 1}


PROPER = {
    "Python",
    "Linux",
    "Mahimahi",
    "Mbps",
    "TensorFlow",
    "Keras",
    "Adam",
    "Orca",
    "Sage",
    "Acme",
    "Huber",
    "Slurm",
}
"""Names with which an argument's description may start."""


@pytest.mark.parametrize("folder", [*LAYERS, "evidence", "scripts"])
def test_what_is_said_of_an_argument_starts_with_a_small_letter(folder: str) -> None:
    capital = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in modules(folder)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        for name, word in arguments(ast.get_docstring(node) or "")
        if word not in PROPER
    }
    assert not capital


def arguments(docstring: str) -> list[tuple[str, str]]:
    """Return the arguments that a docstring explains with a capital letter first, each with that word."""
    section = re.search(r"^Args:\n((?:(?: {4}.*)?\n?)*)", docstring, re.MULTILINE)
    return re.findall(
        r"^ {4}(\*{0,2}\w+(?:, \*{0,2}\w+)*): ([A-Z][a-z]*)\b", section[1] if section else "", re.MULTILINE
    )


def test_a_stage_for_each_scheme() -> None:
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    assert params["sets"] == ["I", "II"]
    assert set(SCHEMES) <= set(params["schemes"]) <= {*SCHEMES, *OTHERS}
    assert stages("datasets/full/dvc.yaml")["collect"]["matrix"] == {"set": "${sets}", "scheme": "${schemes}"}
    for stage in ("collect", "kick"):
        assert stages("dvc.yaml")[stage]["matrix"] == {"scheme": "${schemes}"}
        sets = [re.search(r"set=(\w+)/", next(iter(out)))[1] for out in stages("dvc.yaml")[stage]["outs"]]  # type: ignore[index]
        assert sets == params["sets"]


def test_every_direct_dependency_is_explained_and_locked() -> None:
    explained = (ROOT / "docs/reference/dependencies.md").read_text()
    for stem in ("requirements", "bootstrap", "docs", "release", "stores"):
        wanted = re.findall(r"^([a-zA-Z0-9-]+)", (ROOT / f"requirements/{stem}.in").read_text(), re.MULTILINE)
        locked = (ROOT / f"requirements/{stem}.txt").read_text().lower()
        for name in wanted:
            assert f"`{name}`" in explained, f"docs/reference/dependencies.md: what is {name} for?"
            assert re.search(rf"^{name.lower()}==[^ ]+ \\\n    --hash=sha256:", locked, re.MULTILINE), (
                f"{name}: not locked"
            )


def test_every_system_package_is_explained() -> None:
    explained = (ROOT / "docs/reference/dependencies.md").read_text()
    for name in (ROOT / "scripts/apt-packages.txt").read_text().split():
        assert f"`{name}`" in explained, f"docs/reference/dependencies.md: what is {name} for?"


@pytest.mark.parametrize("addition", re.findall(r"^### (.+)$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE))
def test_what_an_addition_touches_exists(addition: str) -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text().partition(f"### {addition}\n")[2].partition("\n### ")[0]
    files = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    assert files
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_a_file_that_imports_tensorflow_at_its_head_says_so() -> None:
    """Else a run without such tests would import it all the same."""
    unmarked = {
        str(file.relative_to(ROOT))
        for file in modules("tests")
        if file.name.startswith("test_")
        and ROOT / "common" / "tensorflow_runtime.py" in code_behind_the_head(file, set())
        and "pytest.mark.tensorflow" not in file.read_text()
    }
    assert not unmarked


PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "datasets/README.md")
DOCUMENTS = (*(ROOT / name for name in PAGES), *sorted((ROOT / "docs").rglob("*.md")))


def test_the_first_page_is_short_and_has_the_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= 120
    assert readme.index("sagecc compare") < readme.index("make repro") < readme.index("make test")
    assert readme.index("make test") < readme.index("<!-- = league -->")


CALL = re.compile(r"(?:(?:sudo(?: --user \w+)?|srun|[A-Z_]+=\S+) )*sagecc ")


def in_code(page: Path) -> Iterator[str]:
    """Yield the commands of a page: the lines of its blocks for a shell, less what is set before them."""
    for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        yield from re.sub(r"\\\n *", " ", block).splitlines()


def test_the_targets_of_the_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+(?: [a-z-]+)*):", MAKEFILE, re.MULTILINE))
    targets = {name for names in targets for name in names.split()} | set(re.findall(r"bench-[a-z0-9]+", MAKEFILE))
    for page in DOCUMENTS:
        made = set(re.findall(r"`make ([a-z0-9-]+)", page.read_text()))
        made |= {line.split()[1] for line in in_code(page) if line.startswith("make ")}
        assert made <= targets, page


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.stem)
def test_the_commands_of_the_documents_exist(page: Path) -> None:
    """Names and options, as they are called in blocks for a shell."""
    context = click.Context(cli, info_name="sagecc")
    for line in filter(CALL.match, in_code(page)):
        command: click.Command = cli
        words = shlex.split(CALL.sub("", line), comments=True)
        while isinstance(command, click.Group) and words and (found := command.get_command(context, words[0])):
            command, words = found, words[1:]
        assert command is not cli, f"{page.name}: {line}"
        known = {name for each in command.params if isinstance(each, click.Option) for name in each.opts}
        given = {word.split("=")[0] for word in words[: words.index("--") if "--" in words else None]}
        unknown = {word for word in given if word.startswith("-")} - known - {"-h", "--help"}
        assert not unknown, f"{page.name}: {line}"


def test_every_example_of_python_imports_what_there_is() -> None:
    for page in DOCUMENTS:
        for module, names in re.findall(r"^from (sagecc[\w.]*) import (.+)$", page.read_text(), re.MULTILINE):
            found = importlib.import_module(module)
            for name in names.split(", "):
                assert hasattr(found, name) or importlib.util.find_spec(f"{module}.{name}"), f"{page.name}: {name}"


def test_every_page_is_what_its_sources_say() -> None:
    for path, text in pages.made().items():
        assert path.read_text() == text, f"{path.relative_to(ROOT)} is out of date: make pages"


def test_every_text_of_a_template_is_shown() -> None:
    shown = {name for path in pages.filled_pages() for name in pages.names(path.read_text())}
    assert shown == set(pages.named())


def test_every_field_of_the_learner_is_documented() -> None:
    text = configuration_page.page()
    for kind in (RunSpecification, Data, Selection, LabSettings, PoolShare, *map(algorithm_of, algorithms())):
        assert all(f"| `{field.name}` |" in text for field in fields(kind))


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as Git's hosts make them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles)
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain}


def test_links_between_documents_lead_somewhere() -> None:
    for page in DOCUMENTS:
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
            found = page.parent / target if target else page
            assert found.exists(), f"{page.relative_to(ROOT)}: {target}"
            if anchor and found.suffix == ".md":
                assert anchor in headings(found), f"{page.relative_to(ROOT)}: {target}#{anchor}"


def test_every_page_that_is_named_exists() -> None:
    """In code, help, errors, comments, notebooks."""
    for name in tracked():
        path = ROOT / name
        if path.is_file() and not path.is_symlink() and path.suffix in NAMING and name != "tests/test_pages.py":
            for page in re.findall(r"(?<![\w/])docs/[\w/-]+\.md\b", path.read_text()):
                assert (ROOT / page).exists(), f"{name}: {page}"


def test_every_page_is_in_the_site() -> None:
    listed = re.findall(r"^ *- .*?([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [str(path.relative_to(ROOT / "docs")) for path in DOCUMENTS if path.is_relative_to(ROOT / "docs")]
    assert sorted(listed) == sorted(pages)


def test_the_site_has_no_links_out_of_it() -> None:
    text = "[a](../../LICENSE) [b](../method/leagues.md#scores) ![c](../img/report.png) [d](../../studies/x.csv#e)"
    kept = "a [b](../method/leagues.md#scores) ![c](../img/report.png) d"
    assert site_hooks.inside(text, "guide/install.md") == kept


def test_the_site_shows_no_backslash_of_a_table() -> None:
    html = r"<td><code>--set [I\|II]</code> a\|b</td><code>a\|b</code>"
    assert site_hooks.bars_in_code(html) == r"<td><code>--set [I|II]</code> a\|b</td><code>a\|b</code>"


def test_the_front_page_shows_what_readme_shows() -> None:
    command, output, picture = (
        re.compile(pattern, re.DOTALL | re.MULTILINE)
        for pattern in (r"^sagecc compare [^\n]*", r"^Link: .*?(?=```)", r"img/compare\.svg")
    )
    readme, front = (ROOT / "README.md").read_text(), (ROOT / "docs/index.md").read_text()
    for shown in (command, output, picture):
        assert shown.findall(front) == shown.findall(readme)[:1]
        assert shown.search(front)


def test_a_model_has_a_readme_with_data_metrics_and_limits() -> None:
    models = [ROOT / Path(name).parent for name in tracked() if re.fullmatch(r"models/[^/]+/card\.json", name)]
    assert len(models) == 9
    for model in models:
        page = (model / "README.md").read_text()
        assert page.startswith(f"# {model.name}\n")
        assert [part for part in ("**Data**", "**Winning rates**", "**Limits**") if part not in page] == []
        assert re.search(r"<!-- = rate_\w+ -->\d", page)
