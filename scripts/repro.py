# SPDX-License-Identifier: Apache-2.0
"""What `make repro` runs once set up: `dvc repro`, safe to kill at any moment and to start again; then the table."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dvc.exceptions import DvcException
from dvc.schema import COMPILED_LOCKFILE_SCHEMA
from dvc.utils import strictyaml

from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from sagecc.common.locks import lock
from sagecc.common.processes import end_with_parent
from sagecc.leagues import table

ROOT = Path(__file__).resolve().parents[1]
WHOLE = {"kicks": "100%", "walks": "4", "wider_kicks": "100%", "wider_walks": "3"}
"""The kicked pool that models/sagecc-12 learned from."""

CHOICES: Mapping[str, Mapping[str, str]] = {
    "smoke": {
        "kicked": "smoke",
        "kicks": "100%",
        "walks": "1",
        "wider": "datasets/smoke",
        "wider_kicks": "100%",
        "wider_walks": "1",
        "config": "offline-tiny",
        "labs": "labs-tiny",
    },
    "small": {
        "kicked": "spread",
        "kicks": "25%",
        "walks": "1",
        "wider": "schemas/sets",
        "wider_kicks": "25%",
        "wider_walks": "1",
        "config": "sagecc-12",
        "labs": "sagecc-10",
    },
    "full": {
        "kicked": "full",
        "wider": "schemas/sets",
        **WHOLE,
        "config": "sagecc-12",
        "labs": "sagecc-10",
    },
}
"""By profile what params.yaml has: networks and shares of the kicked pool, and the configurations by which it learns
from that and in labs."""

LEAGUE = "leagues/results"
FULL = "datasets/full/dvc.yaml"
KICKED_POOL = "kicked-pool"
LABS = "models/dvc.yaml"
STUDY = "leagues/study-results/dvc.yaml"
LOCKS = ("dvc.lock", "datasets/full/dvc.lock", "models/dvc.lock", "leagues/study-results/dvc.lock")

PATIENCE_S = 20.0
"""How long what a killed run left behind may take to end."""

STAGE_SHELL = Path(__file__).with_name("stage_shell")
"""What DVC runs a stage with."""


def main() -> int:
    """Run; return the exit status."""
    parser = argparse.ArgumentParser(description="Run every stage that is not up to date and print the league table.")
    other = parser.add_mutually_exclusive_group()
    for name, target in (("--full", FULL), ("--kicked", KICKED_POOL), ("--labs", LABS), ("--study", STUDY)):
        help_text = f"Run the stages of {target} instead, and print no table."
        other.add_argument(name, dest="target", action="store_const", const=target, help=help_text)
    parser.add_argument("--profile", choices=sorted(CHOICES), help="Written into params.yaml; default: what is there.")
    arguments = parser.parse_args()
    end_with_parent()
    try:
        with only_one(ROOT / ".dvc" / "tmp" / "repro.lock") as held:
            remove_leftovers(ROOT)
            choice = {"profile": arguments.profile, **CHOICES[arguments.profile]} if arguments.profile else {}
            choose(ROOT / "params.yaml", choice | (WHOLE if arguments.target == KICKED_POOL else {}))
            status = dvc_repro(ROOT, held, [arguments.target] if arguments.target else [])
        if status == 0 and not arguments.target:
            # Beside what draws: loaded once there is a league to show.
            from sagecc.leagues.report.folder import read_summary

            print(f"\n{table.text(read_summary(ROOT / LEAGUE))}\nreport: leagues/report.html")
    except SageccError as error:
        print(f"make repro: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("make repro: interrupted; the next one goes on here", file=sys.stderr)
        return 130
    return status


def dvc_repro(root: Path, held: int, targets: Sequence[str] = ()) -> int:
    """Run `dvc repro` (of dvc.yaml, if there are no targets), which keeps the lock `held` while it lives.

    Return its status. A Ctrl-C reaches DVC too: raised again here once it has ended.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "scripts.dvc_repro", *targets],
        cwd=root,
        env={**os.environ, "SHELL": str(STAGE_SHELL)},
        pass_fds=(held,),
        preexec_fn=end_with_parent,
    ) as dvc:
        while True:
            try:
                return dvc.wait()
            except KeyboardInterrupt:
                dvc.wait()
                raise


@contextlib.contextmanager
def only_one(path: Path) -> Iterator[int]:
    """Hold a lock that dies with its holders and yield its descriptor; wait a little for a killed run to end.

    Raises SageccError if another run goes on.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle = lock(path, PATIENCE_S)
    except BlockingIOError:
        raise SageccError("another 'make repro' runs in this folder; wait for it or end it") from None
    try:
        yield handle
    finally:
        os.close(handle)


def remove_leftovers(root: Path) -> None:
    """Remove what a killed DVC leaves half-written: it truncates these files before it writes them."""
    holders = root / ".dvc" / "tmp" / "rwlock"
    if holders.exists() and not any(is_dvc(pid) for pid in lock_holders(holders)):
        holders.unlink()
    for path in (root / name for name in LOCKS):
        if path.exists() and not is_whole(path):
            print(f"make repro: {path} was cut short by a killed run; what was done is not lost", file=sys.stderr)
            path.unlink()


def lock_holders(path: Path) -> set[int]:
    """Return the process ids in DVC's file of read and write locks; none if it was cut short."""
    try:
        content = json.loads(path.read_text())
    except ValueError:
        return set()
    return {int(pid) for pid in re.findall(r'"pid": (\d+)', json.dumps(content))}


def is_dvc(pid: int) -> bool:
    """Tell a DVC that still runs from another process that was given the same id later."""
    try:
        return b"dvc" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def is_whole(lock: Path) -> bool:
    """Tell whether DVC would accept its lock file."""
    try:
        strictyaml.load(str(lock), COMPILED_LOCKFILE_SCHEMA)
    except DvcException:
        return False
    return True


def choose(params: Path, choice: Mapping[str, str]) -> None:
    """Set fields of params.yaml, comments kept."""
    before = after = params.read_text()
    for name, value in choice.items():
        after = re.sub(rf"(?m)^( *{name}: )\S+", rf"\g<1>{value}", after, count=1)
    if after != before:
        with write_atomically(params) as temporary:
            temporary.write_text(after)
        said = ", ".join(f"{name}: {value}" for name, value in choice.items())
        print(f"make repro: params.yaml now has {said}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
