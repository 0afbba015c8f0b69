# SPDX-License-Identifier: Apache-2.0
"""`make wheel-test`: install the wheel as a user would, far from the checkout, and use it there.

The environment is empty but for the wheel and what it asks for. Where root runs this, an ordinary user uses it, if the
Python is one that others may run. In PATH there is nothing but the environment: neither compiler nor apt nor git. A
command that needs an extra must work where the extra is installed, and else name it in one line and exit with 2.
"""

from __future__ import annotations

import argparse
import configparser
import os
import re
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sagecc.common.files import sha256_file
from sagecc.common.shipped import BEST_POLICY

ROOT = Path(__file__).resolve().parents[1]
NOBODY = 65534
MOST_BYTES = 900_000_000
"""Of an installation without extras."""

PIP = ("-m", "pip", "--disable-pip-version-check", "-q")
RUN = ("run", "--scheme", "cubic", "--bandwidth", "48", "--rtt", "40", "--duration", "5", "--json")
EXTRAS = ("litert", "onnx", "analysis", "train", "minari", "rlds", "huggingface", "ray")


@dataclass(frozen=True)
class WheelStep:
    """Arguments of `sagecc`, or those of Python under a name, and the extra that they need, if any."""

    arguments: tuple[str, ...]
    extra: str = ""
    name: str = ""


def sagecc(line: str, extra: str = "") -> WheelStep:
    """Return the step of a command line without quotes."""
    return WheelStep(tuple(line.split()), extra)


def runtime(name: str, extra: str = "") -> WheelStep:
    """Return the step of a policy in a runtime."""
    return WheelStep(("-c", RUNTIME.format(name)), extra, f"a policy in the runtime {name}")


RUNTIME = """
import sys
import numpy as np
from sagecc.policy import runtime
from sagecc.policy.artefact import PolicyArtefact
from sagecc.common.errors import SageccError
policy = PolicyArtefact.load("sagecc-1")
try:
    step = runtime.load(policy, "{}")
except SageccError as error:
    print(error, file=sys.stderr)
    sys.exit(2)
assert np.isfinite(step(np.zeros((1, policy.sizes.inputs), np.float32), policy.initial_state(1))[0]).all()
"""

GYMNASIUM = """
import gymnasium
import sagecc.execution.environments
environment = gymnasium.make("sagecc/Congestion-v0", max_episode_steps=20)
environment.reset(seed=1)
while not (last := environment.step(environment.action_space.sample()))[3]:
    pass
print("reward", last[1])
from sagecc.execution.environments.parallel import CongestionParallelEnv
"""

SUPERSUIT = """
import supersuit
from sagecc.execution.environments.parallel import CongestionParallelEnv
environment = supersuit.frame_stack_v1(CongestionParallelEnv(constant_agents=True), 2)
vector = supersuit.concat_vec_envs_v1(supersuit.pettingzoo_env_to_vec_env_v1(environment), 2)
vector.reset(seed=1)
for _ in range(20):
    vector.step([vector.action_space.sample()] * vector.num_envs)
vector.close()
"""

RAY = """
from sagecc.cli import main
cluster = []
try:
    from ray.cluster_utils import Cluster
    cluster = ["--ray-address", Cluster(initialize_head=True, head_node_args={"num_cpus": 1}).address]
except ImportError:
    pass
main(["collect", "--profile", "smoke", "--schemes", "bbr2", "--out", "ray", "--engine", "ray", *cluster])
"""

STEPS = (
    sagecc("--help"),
    sagecc("kernel"),
    *(sagecc(name) for name in ("doctor",) if (ROOT / "sagecc" / "commands" / f"{name}.py").exists()),
    sagecc("schemes"),
    sagecc("environments --profile full --count"),
    sagecc("environments parking-lot.yaml"),
    sagecc(f"compare cubic bbr2 {BEST_POLICY} --bandwidth 24mbps --rtt 20ms --duration 5s --plot compared.svg"),
    sagecc("run --scheme cubic --bandwidth 48 --rtt 40 --duration 5 --plot cubic.png --out cubic.parquet"),
    sagecc(f"run --scheme policy:{BEST_POLICY} --bandwidth 24 --rtt 20 --duration 5 --cross cubic"),
    sagecc("run --scheme vegas --environment codel.yaml"),
    sagecc("run --scheme vegas --trace cellular.down --duration 5"),
    sagecc("collect --profile smoke --schemes vegas,cubic"),
    sagecc("pool"),
    sagecc("pool check"),
    WheelStep(("sql", "SELECT scheme, avg(reward_mean) FROM episodes GROUP BY ALL ORDER BY 2 DESC")),
    sagecc("league --profile smoke --schemes vegas,cubic --policy sagecc-1"),
    sagecc("report"),
    sagecc("compile"),
    sagecc("distance --profile smoke --network I-24mbps-20ms-1bdp-bcfbf9 --policy sagecc-1 --every 50"),
    WheelStep(("-c", GYMNASIUM), name="the Gymnasium environment"),
    runtime("exact"),
    runtime("litert", "litert"),
    runtime("onnx", "onnx"),
    sagecc("tsne --profile smoke --set I --draw 1 --policy sagecc-1 --points 50", "analysis"),
    sagecc(
        "distance --profile smoke --network I-24mbps-20ms-1bdp-bcfbf9 --policy sagecc-1 --every 50 --search index",
        "analysis",
    ),
    sagecc("train --config tiny --steps 5 --out models/tried", "train"),
    *(sagecc(f"pool export {form} --to {form} --limit 1", form) for form in ("minari", "rlds", "huggingface")),
    WheelStep(("-c", RAY), "ray", "episodes on a Ray cluster"),
)


class Trial:
    """An environment of its own with the wheel in it, and a folder to work in."""

    def __init__(self, folder: Path, wheel: Path, extras: Sequence[str]) -> None:
        self.folder, self.wheel, self.extras = folder, wheel, frozenset(extras)
        self.bin, self.work = folder / "venv" / "bin", folder / "work"
        self.user: int | None = None
        self.failed: list[str] = []
        self.passed = 0

    def install(self, python: Path, constraints: Path | None) -> int:
        """Install the wheel and its extras; return what that takes on disk (bytes)."""
        subprocess.run([python, "-m", "venv", self.folder / "venv"], check=True)
        before = _bytes(self.folder / "venv")
        self.add(f"{self.wheel}[{','.join(sorted(self.extras))}]" if self.extras else str(self.wheel), constraints)
        return _bytes(self.folder / "venv") - before

    def add(self, wanted: str, constraints: Path | None) -> None:
        """Install a package, and hold that all that is installed fits together."""
        pins = ("-c", str(constraints)) if constraints else ()
        pip = (str(self.bin / "python"), *PIP)
        subprocess.run([*pip, "install", *pins, wanted], cwd=self.folder, check=True)
        subprocess.run([*pip, "check"], cwd=self.folder, check=True)

    def prepare(self) -> None:
        """Make the folder to work in; choose who works there."""
        self.folder.chmod(0o755)
        self.work.mkdir()
        self.user = NOBODY if os.geteuid() == 0 and for_all(self.bin / "python") else None
        if self.user is not None:
            os.chown(self.work, self.user, self.user)
        elif os.geteuid() == 0:
            print(f"note: as root, for no other user may run {(self.bin / 'python').resolve()}", flush=True)

    def try_step(self, step: WheelStep) -> None:
        """Run a step, and note whether it did what it must."""
        began = time.monotonic()
        process = self.run(("python" if step.name else "sagecc", *step.arguments))
        missing = step.extra and step.extra not in self.extras
        errors = process.stderr.strip().splitlines()
        if missing:
            right = process.returncode == 2 and errors and f"pip install 'sagecc[{step.extra}]'" in errors[-1]
        else:
            right = process.returncode == 0
        title = step.name or f"sagecc {' '.join(step.arguments)}"
        took = f"{' (its extra is missing)' if missing else ''}, {time.monotonic() - began:.1f} s"
        self.note(right, title + took, process)

    def note(self, right: object, line: str, done: subprocess.CompletedProcess[str] | None = None) -> None:
        """Count a result and print it, with what the program said where it is wrong."""
        print(f"{'ok  ' if right else 'FAIL'} {line}", flush=True)
        if right:
            self.passed += 1
            return
        self.failed.append(line)
        if done:
            print(f"exit {done.returncode}\n{done.stdout[-800:]}{done.stderr[-800:]}", flush=True)

    def run(self, command: Iterable[str], path: str = "", root: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in the folder to work in, with nothing of this process's environment."""
        first, *rest = command
        user = None if root else self.user
        return subprocess.run(
            [str(self.bin / first), *rest],
            cwd=self.work,
            env={"PATH": path or str(self.bin), "HOME": str(self.work), "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            user=user,
            group=user,
            extra_groups=None if user is None else (),
        )


def main() -> None:
    """Try a wheel; exit with 1 where something does not work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=Path, help="Default: the one in dist/.")
    parser.add_argument("--extras", default="", help=f"Comma-separated, of {', '.join(EXTRAS)}; or all.")
    parser.add_argument("--python", type=Path, default=a_python(), help="Default: this one, or one that all may run.")
    parser.add_argument(
        "--versions",
        choices=("locked", "newest", "lowest"),
        default="locked",
        help="Of what the wheel asks for: those of requirements/, the newest there are, or setup.cfg's lower bounds.",
    )
    parser.add_argument("--rebuild", action="store_true", help="Build the kernel from the wheel's source: its bytes?")
    options = parser.parse_args()
    (wheel,) = [options.wheel] if options.wheel else sorted((ROOT / "dist").glob("*.whl"))
    extras = EXTRAS if options.extras == "all" else tuple(filter(None, options.extras.split(",")))
    with tempfile.TemporaryDirectory(prefix="sagecc-wheel-") as folder:
        trial = Trial(Path(folder), wheel.resolve(), extras)
        constraints = _constraints(Path(folder), options.versions, extras)
        size = trial.install(options.python, constraints)
        trial.prepare()
        trial.note(extras or size <= MOST_BYTES, f"{size / 1e6:.0f} MB installed")
        for step in STEPS:
            trial.try_step(step)
        try_bytes(trial)
        try_exec(trial)
        try_supersuit(trial, constraints)
        if options.rebuild:
            try_rebuild(trial)
    print(f"wheel: {trial.passed} passed, {len(trial.failed)} failed")
    sys.exit(bool(trial.failed))


def a_python() -> Path:
    """Return this Python, or where root runs it and no other user may, the system's if that will do."""
    system = Path("/usr/bin/python3")
    if os.geteuid() or for_all(Path(sys.executable)) or not system.exists():
        return Path(sys.executable)
    fits = "import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))"
    process = subprocess.run([system, "-c", fits], capture_output=True)
    return Path(sys.executable) if process.returncode else system


def for_all(program: Path) -> bool:
    """Tell whether any user may run a program."""
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (program.resolve(), *program.resolve().parents))


def try_bytes(trial: Trial) -> None:
    """Hold that an episode has the same bytes as in the checkout."""
    ours = subprocess.run([sys.executable, "-m", "sagecc", *RUN], cwd=ROOT, capture_output=True, text=True)
    theirs = trial.run(("sagecc", *RUN))
    digests = [re.findall(r'"sha256": "(\w+)"', process.stdout) for process in (ours, theirs)]
    trial.note(digests[0] and digests[0] == digests[1], "an episode has the bytes that it has in the checkout", theirs)


def try_exec(trial: Trial) -> None:
    """Put the shipped policy in charge of a program's connections, where this machine's kernel takes it."""
    command = ("sagecc", "exec", "--policy", "sagecc-1", "--", "true")
    process = trial.run(command, os.environ["PATH"], root=True)
    if process.returncode == 2:
        print(f"skip {' '.join(command)}: {process.stderr.strip()}")
    else:
        trial.note(process.returncode == 0, " ".join(command), process)


def try_supersuit(trial: Trial, constraints: Path | None) -> None:
    """Let SuperSuit, which nothing here needs, make a batch of all flows of several networks."""
    trial.add("supersuit", constraints)
    trial.try_step(WheelStep(("-c", SUPERSUIT), name="flows in a batch of SuperSuit's"))


def try_rebuild(trial: Trial) -> None:
    """Build the kernel from the source in the wheel, where apt and git are not to be had."""
    builders = trial.folder / "builders"
    builders.mkdir()
    for program in Path("/usr/bin").iterdir():
        if not program.name.startswith(("apt", "dpkg", "git")):
            (builders / program.name).symlink_to(program)
    process = trial.run(("sagecc", "kernel", "--output", "own/sagecc-linux"), f"{trial.bin}:{builders}")
    own = trial.work / "own" / "sagecc-linux"
    (shipped,) = trial.folder.glob("venv/lib/*/site-packages/sagecc/shipped/sagecc-linux")
    same = own.exists() and sha256_file(own) == sha256_file(shipped)
    trial.note(same, "the kernel built from the source in the wheel is the one in the wheel, to the byte", process)


def _constraints(folder: Path, versions: str, extras: Sequence[str]) -> Path | None:
    """Write which version of each package is to be installed, as pip's constraints."""
    if versions == "newest":
        return None
    output = folder / "constraints.txt"
    if versions == "locked":
        locked = (ROOT / "requirements" / "requirements.txt").read_text()
        output.write_text("\n".join(re.findall(r"^[\w.-]+==[^ \\]+(?: ; [^\\\n]+)?", locked, re.MULTILINE)) + "\n")
        return output
    requests = folder / "wanted.txt"
    requests.write_text("\n".join(requirements(ROOT / "setup.cfg", extras)) + "\n")
    subprocess.run([sys.executable, "-m", "venv", folder / "uv"], check=True)
    programs = folder / "uv" / "bin"
    subprocess.run([programs / "python", *PIP, "install", "uv"], check=True)
    lowest = ("--resolution", "lowest-direct", "--python-version", "3.11", "--no-cache", "-q")
    subprocess.run([programs / "uv", "pip", "compile", *lowest, requests, "-o", output], check=True)
    return output


def requirements(config: Path, extras: Iterable[str]) -> list[str]:
    """Return what setup.cfg asks for, with these extras and those that they name."""
    options = configparser.ConfigParser()
    options.read(config)
    names = options["options"]["install_requires"].split("\n")
    for extra in extras:
        for line in options["options.extras_require"][extra].split("\n"):
            inner = re.fullmatch(r"sagecc\[(.*)\]", line)
            names += requirements(config, inner[1].split(",")) if inner else [line]
    return list(dict.fromkeys(filter(None, names)))


def _bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


if __name__ == "__main__":
    main()
