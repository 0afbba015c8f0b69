# SPDX-License-Identifier: Apache-2.0
"""What the lab's kernel was built from, out of Debian's archive of all of Linux: a twentieth of it.

Kept are the files that a finished build names as read (in the `.cmd` files that Kbuild leaves beside each object), and
by their names what it reads or looks for without leaving a trace: configuration, rules, scripts, tables, generic
headers. Whether that is all is not a matter of opinion: `python -m scripts.try_wheel --rebuild` builds the kernel from
it and compares the bytes.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from pathlib import Path

from sagecc.common.files import write_atomically

WORD = re.compile(r"[^\s()$=:;\\,'\"]+")
RULES = re.compile(
    r"(Makefile|Kbuild|Kconfig)[^/]*$|\.(sh|bc|tbl|config)$"  # wherever they lie
    r"|^(scripts|LICENSES|arch/um|arch/x86/(um|include)|include/(uapi/)?asm-generic)/"
    r"|^(COPYING|CREDITS|README)$"
)


def pack(archive: Path, tree: Path, output: Path) -> None:
    """Write what the built `tree` needed of `archive` (tar.xz) to `output` (tar.xz): always the same bytes."""
    read = files_read(tree)
    members: dict[str, tuple[tarfile.TarInfo, bytes | None]] = {}
    with tarfile.open(archive) as everything:
        for member in everything:
            name = member.name.partition("/")[2]
            if (member.isfile() or member.issym()) and (name in read or RULES.search(name)):
                file = everything.extractfile(member) if member.isfile() else None
                members[member.name] = member, file.read() if file else None
    with write_atomically(output) as temporary, tarfile.open(temporary, "w:xz", preset=9) as part:
        for name in sorted(members):
            member, content = members[name]
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.pax_headers = {}
            part.addfile(member, None if content is None else io.BytesIO(content))


def files_read(tree: Path) -> set[str]:
    """Return what the build of `tree` says that it read, relative to it (and much that is no file of it)."""
    root = f"{tree.resolve()}/"
    return {
        os.path.normpath(word.removeprefix(root))
        for command in tree.rglob(".*.cmd")
        for word in WORD.findall(command.read_text(errors="replace"))
    }
