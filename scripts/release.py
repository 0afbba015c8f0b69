# SPDX-License-Identifier: Apache-2.0
"""`make release`: what a release consists of, in dist/: wheel, sdist, notes, bill of materials, digests of all.

The same bytes from one commit. Publishing them is left to a person.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from sagecc.collector.kernel.build import PACKAGE
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file, write_atomically
from scripts import base_requirements
from scripts.wheel import KERNEL, ROOT, build, kernel_files

GENERATOR = ROOT / "build" / "release-venv" / "bin" / "cyclonedx-py"
"""Of `requirements/release.txt`."""
NOTES, SUMS = "NOTES.md", "SHA256SUMS"
UNRELEASED = "Unreleased"


def main() -> None:
    """Make a release."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument(
        "--for-test", action="store_true", help="As of `scripts.wheel`; changes may be uncommitted too."
    )
    options = parser.parse_args()
    try:
        if not options.for_test:
            refuse_changes(ROOT)
        version = base_requirements.setup_cfg(ROOT)["metadata"]["version"]
        notes = notes_of((ROOT / "CHANGELOG.md").read_text(), version)
        files = kernel_files(ROOT / "build", options.for_test)
        out = options.out.resolve()
        made = [*build(ROOT, files, out)]
        made += [
            write(out / f"sagecc-{version}.cdx.json", bill_of_materials(python_packages(), version, kernel_stamp())),
            write(out / NOTES, notes),
        ]
        made.append(write(out / SUMS, sums(made)))
    except SageccError as error:
        print(f"make release: {error}", file=sys.stderr)
        sys.exit(2)
    for file in made:
        print(file)
    print(f"check them with: cd {out} && sha256sum -c {SUMS}")


def refuse_changes(root: Path) -> None:
    """Raise SageccError where the checkout is not its last commit: others could not make the same bytes."""
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=no"], cwd=root, capture_output=True, text=True, check=True
    )
    if changed.stdout:
        raise SageccError(f"{changed.stdout.splitlines()[0][3:]} is changed: commit first")


def notes_of(changelog: str, version: str) -> str:
    """Return what the changelog says of a version, after what is in it and has no version's section yet.

    Raises:
        SageccError: it has neither.
    """
    sections = re.split(r"^## +", changelog, flags=re.MULTILINE)[1:]
    by_name = {section.split()[0].strip("[]"): section.partition("\n")[2].strip() for section in sections}
    body = "\n\n".join(filter(None, (by_name.get(UNRELEASED), by_name.get(version))))
    if not body:
        raise SageccError(f"CHANGELOG.md has no section '## {version}' and none '## {UNRELEASED}'")
    return f"# sagecc {version}\n\n{body}\n"


def bill_of_materials(python: str, version: str, kernel: dict[str, str]) -> str:
    """Return a wheel's bill of materials in CycloneDX: its Python packages as locked, and what is built into it.

    Args:
        python: CycloneDX of the Python packages.
        version: sagecc's.
        kernel: what the kernel's stamp says: source, libc, sha256.
    """
    document: dict[str, Any] = json.loads(python)
    for component in document["components"]:
        component.pop("description", None)  # the lock's lines again
    document["components"] += [
        _debian(PACKAGE, kernel["source"], "GPL-2.0-only"),
        _debian("glibc", kernel["libc"], "LGPL-2.1-or-later"),
    ]
    document["metadata"]["component"] = {
        "bom-ref": "sagecc",
        "type": "application",
        "name": "sagecc",
        "version": version,
        "purl": f"pkg:pypi/sagecc@{version}",
        "licenses": [{"expression": "Apache-2.0 AND GPL-2.0-only AND LGPL-2.1-or-later"}],
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def sums(files: list[Path]) -> str:
    """Return the files' digests as `sha256sum -c` reads them."""
    return "".join(f"{sha256_file(file)}  {file.name}\n" for file in sorted(files))


def write(path: Path, text: str) -> Path:
    """Write a file; return its path."""
    with write_atomically(path) as temporary:
        temporary.write_text(text)
    return path


def _debian(name: str, version: str, licence: str) -> dict[str, Any]:
    return {
        "bom-ref": name,
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:deb/debian/{name}@{version}?arch=source",
        "licenses": [{"expression": licence}],
    }


def kernel_stamp() -> dict[str, str]:
    """Return what the kernel's stamp says of it."""
    return dict(json.loads((ROOT / "build" / f"{KERNEL}.json").read_text()))


def python_packages() -> str:
    """Return CycloneDX of what a wheel needs of the lock."""
    packages = base_requirements.blocks(base_requirements.LOCK.read_text())
    needed = base_requirements.needed(packages, base_requirements.base())
    process = subprocess.run(
        [GENERATOR, "requirements", "--output-reproducible", "--of", "JSON", "-"],
        input="".join(block for name, block in packages.items() if name in needed),
        capture_output=True,
        text=True,
    )
    if process.returncode:
        raise SageccError(f"cyclonedx-py failed: {(process.stderr.strip() or 'no output').splitlines()[-1]}")
    return process.stdout


if __name__ == "__main__":
    main()
