# SPDX-License-Identifier: Apache-2.0
"""What code each stage of a dvc.yaml hangs on, as one small file a stage in build/code: DVC's stage `code` runs this.

A file lists every source with its digest: the modules behind the stage's command (common.code), and what is BESIDE
them. So a stage's file changes exactly when code that it can reach does, and a `diff` of two tells which.

`python -m scripts.code --accept collect` tells the lock files that what the stage made is what its present code makes:
for a change that a test has shown to change no bytes (tests/collector/test_golden.py those of the raw trajectories).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import yaml
from dvc.utils.serialize import dumps_yaml, load_yaml

from sagecc.common.code import Code
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file, write_atomically

ROOT = Path(__file__).resolve().parents[1]
PIPELINES = (Path("dvc.yaml"), Path("leagues/study-results/dvc.yaml"))
LOCKS = (Path("dvc.lock"), Path("datasets/full/dvc.lock"))
OUT = Path("build/code")
STAGE = "code"

LABS: Mapping[str, str] = MappingProxyType({"labs": "sagecc.online"})
"""The stage of `sagecc train` that learns in labs, and the module that says what."""

GROWING: Mapping[str, str] = MappingProxyType(
    {
        "grow-train": "sagecc.growth.training",
        "grow-play": "sagecc.growth.playing",
        "grow-pool": "sagecc.growth.pooling",
    }
)
"""The stages of datasets/grown/dvc.yaml, all of one command, and the module of each one's work."""

BESIDE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "kernel": (
            "collector/guest/*",
            "collector/kernel/config",
            "collector/kernel/modules/*",
            "collector/kernel/patches/*",
            "sagecc.collector.kernel.identity",
            "sagecc.schemas.schemes",
        ),
        "train": ("learner/configs/*.yaml",),
        "labs": (
            "schemas/sets/*.yaml",
            "learner/online/configs/*.yaml",
            "sagecc.collector.run.grid",
            "sagecc.collector.run.set_file",
            "sagecc.learner.online.config",
            "sagecc.learner.online.train",
        ),
        "study": ("leagues/report/report.css", "leagues/templates/page.html.j2", "leagues/templates/study.html.j2"),
        "grow-train": ("learner/configs/*.yaml",),
        "grow-play": ("sagecc.collector.run.grid", "sagecc.collector.run.set_file"),
        "report": (
            "leagues/report/*.css",
            "leagues/report/*.js",
            "leagues/templates/page.html.j2",
            "leagues/templates/report.html.j2",
            "sagecc.leagues.report.files",
        ),
    }
)
"""By stage, what is no Python (patterns of files), and modules that imports are not followed to but that decide its
bytes."""


def stages(root: Path) -> dict[str, str]:
    """Return the stages' names, those of their commands, of LABS or of GROWING, and the module of each."""
    found = [yaml.safe_load((root / path).read_text())["stages"] for path in PIPELINES]
    commands = [stage["cmd"].split()[1] for stages in found for name, stage in stages.items() if name != STAGE]
    return {**{command: f"sagecc.commands.{command}" for command in commands}, **LABS, **GROWING}


def listings(root: Path) -> dict[str, str]:
    """Return by stage the text of its file: a line `DIGEST  SOURCE` for each source."""
    code, found = Code(root / "sagecc"), {}
    for stage, command in stages(root).items():
        beside = BESIDE.get(stage, ())
        digests = code.digests(command, *(name for name in beside if name.startswith("sagecc.")))
        for pattern in (name for name in beside if not name.startswith("sagecc.")):
            files = [path for path in sorted(root.glob(pattern)) if path.is_file()]
            if not files:
                raise SageccError(f"stage {stage}: there is no {pattern}; correct BESIDE in scripts/code.py")
            digests |= {path.relative_to(root).as_posix(): _digest(path) for path in files}
        found[stage] = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
    return found


def _digest(path: Path) -> str:
    """Return the digest of a file's bytes; of YAML, of its values."""
    if path.suffix != ".yaml":
        return sha256_file(path)
    return hashlib.sha256(json.dumps(yaml.safe_load(path.read_text()), sort_keys=True).encode()).hexdigest()


def write(root: Path) -> None:
    """Write every stage's file, and remove those of stages that are no more."""
    found, out = listings(root), root / OUT
    out.mkdir(parents=True, exist_ok=True)
    for path in out.iterdir():
        if path.name not in found:
            path.unlink()
    for stage, text in found.items():
        with write_atomically(out / stage) as beside:
            beside.write_text(text)


def accept(root: Path, stage: str) -> int:
    """Enter the stage's file, as it is now, wherever a lock file has the stage; return how many places these were."""
    path = OUT / stage
    if stage not in stages(root):
        raise SageccError(f"no stage '{stage}': the stages are {', '.join(stages(root))}")
    data = (root / path).read_bytes()
    entry = {"path": str(path), "hash": "md5", "md5": hashlib.md5(data).hexdigest(), "size": len(data)}
    count = 0
    for lock in (root / name for name in LOCKS):
        content = load_yaml(lock)
        for name, of in content["stages"].items():
            if name.partition("@")[0] == stage:
                others = [dep for dep in of["deps"] if dep["path"] != str(path)]
                of["deps"] = sorted([dict(entry), *others], key=lambda dep: str(dep["path"]))
                count += 1
        with write_atomically(lock) as beside:
            beside.write_text(dumps_yaml(content))
    return count


def main() -> int:
    """Write the files; return the exit status."""
    parser = argparse.ArgumentParser(description="Write what code each stage hangs on into build/code.")
    parser.add_argument("--accept", nargs="+", default=[], metavar="STAGE", help="What these made is up to date.")
    arguments = parser.parse_args()
    try:
        write(ROOT)
        for stage in arguments.accept:
            print(f"{stage}: {accept(ROOT, stage)} entries of the lock files are up to date with its code")
    except SageccError as error:
        print(f"code: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
