# SPDX-License-Identifier: Apache-2.0
# Not followed as an import: the kernel's stage writes it into files, on which the others depend.
"""What a scheme's trajectories hang on besides their specification: the lab's version, the module's source.

`sagecc kernel` writes it beside the kernel it built, one small file a scheme; every raw file carries it. A kernel
that gives the same trajectories has the same identity, whoever built it from whichever Debian release.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from sagecc.collector.kernel.machine import check_kernel
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file, write_atomically
from sagecc.schemas.schemes import OTHERS, POLICY_PREFIX, SCHEMES

LAB_VERSION = 1
"""Raised when the golden test (tests/collector/test_golden.py) changes: everything is collected anew then."""

LAB = f"linux-6.12 lab-{LAB_VERSION}"
POLICY = "pure"
"""The kernel scheme whose window a policy sets."""

MODULES: Mapping[str, str] = MappingProxyType({"bbr2": "tcp_bbr2.c", POLICY: "tcp_pure.c"})
"""Schemes of our own: a change of such a file collects its scheme anew, and no other."""

_SOURCES = Path(__file__).parent / "modules"


def identity_of_source(scheme: str) -> str:
    """Return the identity that a kernel built now would give to `scheme`: `linux-6.12 lab-1 [MODULE=SHA-256]`."""
    module = MODULES.get(scheme)
    return LAB if module is None else f"{LAB} {module}={sha256_file(_SOURCES / module)[:12]}"


def identity_folder(kernel: Path) -> Path:
    """Return where the identities of the kernel at `kernel` lie."""
    return kernel.parent / "kernel-identity"


def write_identities(kernel: Path) -> None:
    """Write the identity of each scheme beside a kernel that was built from the present source."""
    folder = identity_folder(kernel)
    wanted = {scheme: identity_of_source(scheme) + "\n" for scheme in (*SCHEMES, *OTHERS, POLICY)}
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.name not in wanted:
            path.unlink()
    for scheme, text in wanted.items():
        path = folder / scheme
        if not path.exists() or path.read_text() != text:
            with write_atomically(path) as beside:
                beside.write_text(text)


def forget_identities(kernel: Path) -> None:
    """Remove the identities: before another kernel takes its place, so that none is ever taken for the other."""
    shutil.rmtree(identity_folder(kernel), ignore_errors=True)


def kernel_identity(kernel: Path, schemes: Iterable[str]) -> str:
    """Return the identity of trajectories in which these schemes take part, run by the kernel at `kernel`.

    Raises SageccError if the kernel or its identities are missing.
    """
    check_kernel(kernel)
    texts = []
    for scheme in schemes:
        path = identity_folder(kernel) / (POLICY if scheme.startswith(POLICY_PREFIX) else scheme)
        try:
            texts.append(path.read_text().strip())
        except FileNotFoundError:
            raise SageccError(f"{path} is missing, the identity of {kernel}: run 'sagecc kernel'") from None
    return join_identities(texts)


def join_identities(identities: Iterable[str]) -> str:
    """Return what trajectories of these identities have run on together: one lab, and every module.

    Raises SageccError where two differ in their lab or in a module's source.
    """
    labs: set[str] = set()
    modules: dict[str, str] = {}
    for identity in identities:
        labs.add(" ".join(word for word in identity.split() if "=" not in word))
        for word in (word for word in identity.split() if "=" in word):
            known = modules.setdefault(word.partition("=")[0], word)
            if known != word:
                raise SageccError(f"different kernels: {known} and {word}")
    if len(labs) > 1:
        raise SageccError(f"different kernels: {' and '.join(sorted(labs))}")
    return " ".join((*labs, *sorted(modules.values())))
