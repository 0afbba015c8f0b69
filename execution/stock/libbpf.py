# SPDX-License-Identifier: Apache-2.0
"""libbpf through ctypes: as much of it as the scheme needs. Every failure is an OSError with the kernel's reason."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from sagecc.common.errors import SageccError

LIBRARY = "libbpf.so.1"

BPF_CGROUP_SOCK_OPS, BPF_TRACE_RAW_TP, BPF_TRACE_ITER = 3, 23, 28
KIND_STRUCT = 4

Handle = ctypes.c_void_p
"""An opaque pointer of libbpf's."""

_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "libbpf_set_print": (Handle, (Handle,)),
    "libbpf_version_string": (ctypes.c_char_p, ()),
    "bpf_object__open_mem": (Handle, (ctypes.c_char_p, ctypes.c_size_t, Handle)),
    "bpf_object__load": (ctypes.c_int, (Handle,)),
    "bpf_object__close": (None, (Handle,)),
    "bpf_object__find_map_by_name": (Handle, (Handle, ctypes.c_char_p)),
    "bpf_object__find_program_by_name": (Handle, (Handle, ctypes.c_char_p)),
    "bpf_program__set_autoload": (ctypes.c_int, (Handle, ctypes.c_bool)),
    "bpf_program__fd": (ctypes.c_int, (Handle,)),
    "bpf_map__fd": (ctypes.c_int, (Handle,)),
    "bpf_map__set_max_entries": (ctypes.c_int, (Handle, ctypes.c_uint32)),
    "bpf_map__attach_struct_ops": (Handle, (Handle,)),
    "bpf_link__disconnect": (None, (Handle,)),
    "bpf_link__destroy": (ctypes.c_int, (Handle,)),
    "bpf_link_create": (ctypes.c_int, (ctypes.c_int, ctypes.c_int, ctypes.c_int, Handle)),
    "bpf_iter_create": (ctypes.c_int, (ctypes.c_int,)),
    "bpf_map_update_elem": (ctypes.c_int, (ctypes.c_int, Handle, Handle, ctypes.c_uint64)),
    "bpf_map_lookup_elem": (ctypes.c_int, (ctypes.c_int, Handle, Handle)),
    "bpf_map_lookup_and_delete_elem": (ctypes.c_int, (ctypes.c_int, Handle, Handle)),
    "bpf_map_delete_elem": (ctypes.c_int, (ctypes.c_int, Handle)),
    "bpf_map_get_next_id": (ctypes.c_int, (ctypes.c_uint32, Handle)),
    "bpf_map_get_fd_by_id": (ctypes.c_int, (ctypes.c_uint32,)),
    "bpf_obj_get_info_by_fd": (ctypes.c_int, (ctypes.c_int, Handle, Handle)),
    "bpf_obj_pin": (ctypes.c_int, (ctypes.c_int, ctypes.c_char_p)),
    "bpf_obj_get": (ctypes.c_int, (ctypes.c_char_p,)),
    "btf__load_vmlinux_btf": (Handle, ()),
    "btf__parse": (Handle, (ctypes.c_char_p, Handle)),
    "btf__free": (None, (Handle,)),
    "btf__find_by_name_kind": (ctypes.c_int32, (Handle, ctypes.c_char_p, ctypes.c_uint32)),
    "btf__type_by_id": (Handle, (Handle, ctypes.c_uint32)),
    "btf__name_by_offset": (ctypes.c_char_p, (Handle, ctypes.c_uint32)),
}


class MapInfo(ctypes.Structure):
    """The beginning of struct bpf_map_info."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("id", ctypes.c_uint32),
        ("key_size", ctypes.c_uint32),
        ("value_size", ctypes.c_uint32),
        ("max_entries", ctypes.c_uint32),
        ("map_flags", ctypes.c_uint32),
        ("name", ctypes.c_char * 16),
    )


class _IteratorOptions(ctypes.Structure):
    """The beginning of struct bpf_link_create_opts."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("flags", ctypes.c_uint32),
        ("info", Handle),
        ("info_bytes", ctypes.c_uint32),
    )


class _BtfType(ctypes.Structure):
    _fields_ = (("name", ctypes.c_uint32), ("info", ctypes.c_uint32), ("type", ctypes.c_uint32))

    @property
    def count(self) -> int:
        """Members of a structure, arguments of a function."""
        return int(self.info & 0xFFFF)

    @property
    def kind(self) -> int:
        return int(self.info >> 24 & 0x1F)


_warnings: list[str] = []


def _note(level: int, form: bytes, arguments: int | None) -> int:
    """Keep libbpf's warnings, which tell why a call failed."""
    if level == 0:
        text = ctypes.create_string_buffer(4096)
        ctypes.CDLL(None).vsnprintf(text, ctypes.c_size_t(4096), form, ctypes.c_void_p(arguments))
        _warnings.append(text.value.decode(errors="replace").strip())
    return 0


_NOTE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(_note)


@cache
def library() -> ctypes.CDLL:
    """Return libbpf; raises SageccError where it is not installed."""
    try:
        loaded = ctypes.CDLL(LIBRARY, use_errno=True)
    except OSError:
        raise SageccError(f"{LIBRARY} is missing: apt-get install libbpf1") from None
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    loaded.libbpf_set_print(_NOTE)
    return loaded


def call(name: str, *arguments: Any) -> Any:
    """Call a function of libbpf by name; raises OSError where it fails."""
    _warnings.clear()
    result = getattr(library(), name)(*arguments)
    if result is None or (isinstance(result, int) and result < 0):
        number = ctypes.get_errno() or -int(result or -errno.EINVAL)
        raise OSError(number, _reason(number))
    return result


def _reason(number: int) -> str:
    """Return an error number's meaning, and libbpf's first warning that is not a listing of the program."""
    warning = next((line for text in _warnings for line in text.splitlines() if line.startswith("libbpf:")), "")
    return f"{os.strerror(number)} ({warning})" if warning else os.strerror(number)


class Object:
    """A BPF object file's maps and programs in the kernel, until `close`."""

    def __init__(self, content: bytes) -> None:
        self._handle = call("bpf_object__open_mem", content, len(content), None)

    def close(self) -> None:
        """Free it; what is registered, linked or pinned stays."""
        library().bpf_object__close(self._handle)

    def map(self, name: str) -> Any:
        """Return a map's handle."""
        return call("bpf_object__find_map_by_name", self._handle, name.encode())

    def map_fd(self, name: str) -> int:
        """Return the file descriptor of a loaded map; the object's own, closed with it."""
        return int(call("bpf_map__fd", self.map(name)))

    def program_fd(self, name: str) -> int:
        """Return the file descriptor of a loaded program; the object's own."""
        return int(call("bpf_program__fd", self._program(name)))

    def resize(self, name: str, entries: int) -> None:
        """Set a map's number of entries, before `load`."""
        call("bpf_map__set_max_entries", self.map(name), entries)

    def leave_out(self, name: str) -> None:
        """Do not load a program."""
        call("bpf_program__set_autoload", self._program(name), False)

    def load(self) -> None:
        """Create the maps and have the kernel verify the programs."""
        call("bpf_object__load", self._handle)

    def register(self, name: str) -> None:
        """Register a struct_ops map's operations; they stay until `unregister`, whatever becomes of this process."""
        link = call("bpf_map__attach_struct_ops", self.map(name))
        library().bpf_link__disconnect(link)
        library().bpf_link__destroy(link)

    def _program(self, name: str) -> Any:
        return call("bpf_object__find_program_by_name", self._handle, name.encode())


def unregister(fd: int) -> bool:
    """Unregister the operations of a struct_ops map; return whether they were registered.

    Sockets that use them keep them until they close.
    """
    key = ctypes.c_uint32(0)
    try:
        call("bpf_map_delete_elem", fd, ctypes.byref(key))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EINPROGRESS):
            return False
        raise
    return True


def operations(fd: int) -> bytes:
    """Return a struct_ops map's value: the operations as the kernel holds them, with its header before them."""
    key, value = ctypes.c_uint32(0), ctypes.create_string_buffer(map_info(fd).value_size)
    call("bpf_map_lookup_elem", fd, ctypes.byref(key), value)
    return value.raw


def push(fd: int, value: int) -> None:
    """Put a 32-bit number into a queue map."""
    item = ctypes.c_uint32(value)
    call("bpf_map_update_elem", fd, None, ctypes.byref(item), 0)


def drain(fd: int) -> bytes:
    """Take all values out of a queue map and return them, one after the other."""
    value = ctypes.create_string_buffer(map_info(fd).value_size)
    values: list[bytes] = []
    while True:
        try:
            call("bpf_map_lookup_and_delete_elem", fd, None, value)
        except FileNotFoundError:
            return b"".join(values)
        values.append(value.raw)


def link_tracepoint(program_fd: int) -> int:
    """Return the file descriptor of a link of a program to the tracepoint that its section names."""
    return int(call("bpf_link_create", program_fd, 0, BPF_TRACE_RAW_TP, None))


def link_map_iterator(program_fd: int, map_fd: int) -> int:
    """Return the file descriptor of a link of an iterator program to the map that it walks."""
    info = (ctypes.c_uint32 * 4)(map_fd)
    options = _IteratorOptions(ctypes.sizeof(_IteratorOptions), 0, ctypes.cast(info, Handle), ctypes.sizeof(info))
    return int(call("bpf_link_create", program_fd, 0, BPF_TRACE_ITER, ctypes.byref(options)))


def link_cgroup(program_fd: int, cgroup_fd: int) -> int:
    """Return the file descriptor of a socket-operations program's link to a cgroup; closing it detaches."""
    return int(call("bpf_link_create", program_fd, cgroup_fd, BPF_CGROUP_SOCK_OPS, None))


def walk(link_fd: int) -> bytes:
    """Walk an iterator to its end; return what it wrote."""
    iterator, parts = int(call("bpf_iter_create", link_fd)), []
    try:
        while part := os.read(iterator, 1 << 16):
            parts.append(part)
    finally:
        os.close(iterator)
    return b"".join(parts)


def pin(fd: int, path: Path) -> None:
    """Give a map or link a path in a BPF file system, which keeps it alive."""
    call("bpf_obj_pin", fd, os.fsencode(path))


def pinned(path: Path) -> int:
    """Return the file descriptor of what is pinned at `path`."""
    return int(call("bpf_obj_get", os.fsencode(path)))


def map_info(fd: int) -> MapInfo:
    """Return the kernel's description of a map."""
    info, size = MapInfo(), ctypes.c_uint32(ctypes.sizeof(MapInfo))
    call("bpf_obj_get_info_by_fd", fd, ctypes.byref(info), ctypes.byref(size))
    return info


def map_ids() -> Iterator[int]:
    """Yield the ids of all maps of this kernel (root only)."""
    current = ctypes.c_uint32(0)
    while True:
        try:
            call("bpf_map_get_next_id", current.value, ctypes.byref(current))
        except FileNotFoundError:
            return
        yield current.value


def map_by_id(number: int) -> int:
    """Return the file descriptor of a map (root only)."""
    return int(call("bpf_map_get_fd_by_id", number))


class Btf:
    """Type information: of the running kernel, or of an object file."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def members(self, structure: str) -> dict[str, tuple[int, int]]:
        """Return a structure's members as name -> (type, offset in bits), empty where there is no such structure."""
        number = library().btf__find_by_name_kind(self._handle, structure.encode(), KIND_STRUCT)
        if number < 0:
            return {}
        kind = self._type(number)
        first = ctypes.addressof(kind) + ctypes.sizeof(_BtfType)
        fields = (ctypes.c_uint32 * (3 * kind.count)).from_address(first)
        return {
            library().btf__name_by_offset(self._handle, fields[i]).decode(): (fields[i + 1], fields[i + 2] & 0xFFFFFF)
            for i in range(0, 3 * kind.count, 3)
        }

    def size(self, structure: str) -> int:
        """Return a structure's size in bytes."""
        return int(self._type(library().btf__find_by_name_kind(self._handle, structure.encode(), KIND_STRUCT)).type)

    def arguments(self, pointer: int) -> int:
        """Return the number of arguments of the function that type number `pointer` points to."""
        return self._type(self._type(pointer).type).count

    def _type(self, number: int) -> _BtfType:
        return _BtfType.from_address(call("btf__type_by_id", self._handle, number))


@contextmanager
def kernel_btf() -> Iterator[Btf]:
    """Yield the running kernel's type information; raises SageccError where it has none."""
    with _parsed("the running kernel", "btf__load_vmlinux_btf") as btf:
        yield btf


@contextmanager
def object_btf(path: Path) -> Iterator[Btf]:
    """Yield an object file's type information; raises SageccError where it has none."""
    with _parsed(str(path), "btf__parse", os.fsencode(path), None) as btf:
        yield btf


@contextmanager
def _parsed(owner: str, name: str, *arguments: Any) -> Iterator[Btf]:
    """Yield the type information that a function of libbpf loads, freed at the end of the `with` block."""
    try:
        handle = call(name, *arguments)
    except OSError as error:
        raise SageccError(
            f"{owner} has no BTF type information ({error.strerror}): the scheme needs a kernel with"
            " CONFIG_DEBUG_INFO_BTF, which is at /sys/kernel/btf/vmlinux"
        ) from None
    try:
        yield Btf(handle)
    finally:
        library().btf__free(handle)
