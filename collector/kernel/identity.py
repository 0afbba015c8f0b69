# SPDX-License-Identifier: Apache-2.0
"""Identity of the kernel that ran a scheme's trajectories: the lab's version and the source of the scheme's module.

`sagecc kernel` writes it beside the kernel that it built, one file per scheme; every raw file states it. Kernels that
give the same trajectories have the same identity, whoever built them from whichever Debian release. A stamp beside a
kernel says which file was built.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sagecc.collector.kernel.machine import check_kernel
from sagecc.common import shipped
from sagecc.common.document import read_document
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file, write_atomically
from sagecc.common.inputs import read_regular
from sagecc.schemas.schemes import OTHERS, SCHEMES, is_driven, undisturbed

LAB_VERSION = 1
"""To be raised when the golden digests (tests/collector/test_golden.py) change; everything is then collected anew."""

LAB = f"linux-6.12 lab-{LAB_VERSION}"
POLICY = "pure"
"""The kernel scheme whose window the host sets, for a policy or a scheme in user space."""

MODULES: Mapping[str, str] = MappingProxyType(
    {
        "bbr2": "tcp_bbr2.c",
        "bbr3": "tcp_bbr3.c",
        "copa": "tcp_copa.c",
        "c2tcp": "tcp_c2tcp.c",
        "ledbat": "tcp_ledbat.c",
        "ledbatpp": "tcp_ledbat.c",
        POLICY: "tcp_pure.c",
    }
)
"""Source files of our own schemes: after a change of one, only its scheme is collected anew."""

_SOURCES = Path(__file__).parent / "modules"


def own_kernel() -> Path:
    """Return the kernel to run where none is named: the checkout's or the installation's, whatever lies elsewhere.

    Where there is none yet, that is where it would be: who needs it says so.

    Raises:
        SageccError: the file there is not the one that was built, or that came along.
    """
    kernel = shipped.KERNEL
    if kernel.exists() and not read_stamp(kernel):
        maker, remedy = "'sagecc kernel' built", "run 'sagecc kernel', which builds one"
        if shipped.INSTALLED:
            maker, remedy = "came with sagecc", "install sagecc anew"
        raise SageccError(f"{kernel} is not the kernel that {maker} (its SHA-256 is not in {stamp(kernel)}): {remedy}")
    return kernel


def stamp(kernel: Path) -> Path:
    """Return the path of a kernel's stamp, which states its SHA-256 and what it was built from."""
    return kernel.with_name(f"{kernel.name}.json")


def read_stamp(kernel: Path) -> dict[str, Any]:
    """Return a kernel's stamp; nothing where there is none, or it is that of another file."""
    try:
        facts = read_document(stamp(kernel))
        return facts if isinstance(facts, dict) and facts.get("sha256") == sha256_file(kernel) else {}
    except (OSError, SageccError):
        return {}


def identity_of_source(scheme: str) -> str:
    """Return a scheme's identity in a kernel built from the present source: `linux-6.12 lab-1 [MODULE=SHA-256]`."""
    module = MODULES.get(scheme)
    return LAB if module is None else f"{LAB} {module}={sha256_file(_SOURCES / module)[:12]}"


def identity_folder(kernel: Path) -> Path:
    """Return the folder of the identities of the kernel at `kernel`."""
    return kernel.parent / "kernel-identity"


def write_identities(kernel: Path) -> None:
    """Write each scheme's identity beside the kernel at `kernel`, which was built from the present source."""
    folder = identity_folder(kernel)
    texts = {scheme: identity_of_source(scheme) + "\n" for scheme in (*SCHEMES, *OTHERS, POLICY)}
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.name not in texts and _is_identity(path):
            path.unlink()
    for scheme, text in texts.items():
        path = folder / scheme
        if not path.exists() or path.read_text() != text:
            with write_atomically(path) as file:
                file.write_text(text)


def _text(path: Path) -> str:
    return read_regular(path).decode(errors="replace")


def forget_identities(kernel: Path) -> None:
    """Remove the identities of the kernel at `kernel`, before another kernel replaces it."""
    folder = identity_folder(kernel)
    for path in folder.glob("*"):
        if _is_identity(path):
            path.unlink()


def _is_identity(path: Path) -> bool:
    """Tell whether a file is one of `write_identities`."""
    return path.is_file() and _text(path).startswith("linux-")


def kernel_identity(kernel: Path, schemes: Iterable[str]) -> str:
    """Return the identity of trajectories in which schemes take part.

    Args:
        kernel: path of the kernel that runs them.
        schemes: the schemes; what the host drives counts as POLICY.

    Raises:
        SageccError: the kernel or its identities are missing, or it has no such scheme.
    """
    check_kernel(kernel)
    identities = []
    for scheme in schemes:
        name = POLICY if is_driven(scheme) else undisturbed(scheme)[0]
        if name not in (*SCHEMES, *OTHERS, POLICY):  # a policy's card may say anything
            raise SageccError(f"the kernel has no scheme '{scheme}': 'sagecc schemes' lists them")
        path = identity_folder(kernel) / name
        try:
            identities.append(_text(path).strip())
        except FileNotFoundError:
            raise SageccError(f"{path} is missing, the identity of {kernel}: run 'sagecc kernel'") from None
    return join_identities(identities)


def join_identities(identities: Iterable[str]) -> str:
    """Return the joint identity of trajectories: their one lab, and every module.

    Raises:
        SageccError: two identities differ in their lab or in a module's source.
    """
    labs: set[str] = set()
    modules: dict[str, str] = {}
    for identity in identities:
        labs.add(" ".join(word for word in identity.split() if "=" not in word))
        for word in (word for word in identity.split() if "=" in word):
            first = modules.setdefault(word.partition("=")[0], word)
            if first != word:
                raise SageccError(f"different kernels: {first} and {word}")
    if len(labs) > 1:
        raise SageccError(f"different kernels: {' and '.join(sorted(labs))}")
    return " ".join((*labs, *sorted(modules.values())))
