"""The library that fails calls and records them (shim.c), as seen from the process that it is loaded into."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from functools import cached_property
from pathlib import Path

import attrs

from morello.build.library import build
from morello.build.toolchain import find_compiler
from morello.errors import ToolchainError

#: One thread each: processes are forked, which threads do not survive.
_ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Fault(IntEnum):
    """A way to fail, as shim.c numbers it."""

    #: Any call on a file: a disk error. A write leaves half of its data.
    EIO = 1
    #: A call that needs disk space: the disk is full.
    ENOSPC = 2
    #: A read or write: half of it is done, without an error.
    SHORT = 4
    #: An allocation: it fails.
    ENOMEM = 8


class _Report(ctypes.Structure):
    _fields_ = (
        ("calls", ctypes.c_int64),
        ("fired", ctypes.c_int64),
        ("caller", ctypes.c_void_p),
        ("call", ctypes.c_char * 16),
        ("path", ctypes.c_char * 4096),
    )


class _Origin(ctypes.Structure):
    """The answer of dladdr for an address."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


@attrs.frozen
class Fired:
    """The place of a fault: the call, and the file or, for memory, the library that asked for it."""

    calls: int
    fired: int
    call: str
    place: str


class Shim:
    """The loaded library."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.faults_report.restype = ctypes.POINTER(_Report)
        for name in ("arm", "disarm", "record", "watch", "mark"):
            getattr(self._library, f"faults_{name}").restype = None
        self._library.faults_arm.argtypes = ctypes.c_int, ctypes.c_int64, ctypes.c_int
        self._library.faults_mark.argtypes = (ctypes.c_int64,)

    @cached_property
    def _report(self) -> _Report:
        return self._library.faults_report().contents

    def arm(self, folder: Path, what: Fault, number: int, *, forever: bool) -> None:
        """Fail the call that is the `number`th from now on, and perhaps all that follow; with 0, only count them."""
        self._library.faults_watch(os.fsencode(folder))
        self._library.faults_arm(what, number or -1, forever and number > 0)

    def disarm(self) -> None:
        """Fail nothing any more. May be called when no memory is left."""
        while True:
            with contextlib.suppress(MemoryError):
                self._library.faults_disarm()
                return

    def fired(self) -> Fired:
        """Return what the fault has done since it was armed, in this process or in one forked from it."""
        report, place = self._report, _Origin()
        if report.caller and self._library.dladdr(ctypes.c_void_p(report.caller), ctypes.byref(place)):
            where = Path(os.fsdecode(place.file)).name
        else:
            where = os.fsdecode(report.path)
        return Fired(report.calls, report.fired, os.fsdecode(report.call), where)

    @contextmanager
    def recording(self, folder: Path, record: Path) -> Iterator[None]:
        """Write all changes of the files of `folder` to `record`."""
        self._library.faults_watch(os.fsencode(folder))
        with record.open("ab", buffering=0) as file:
            self._library.faults_record(file.fileno())
            try:
                yield
            finally:
                self._library.faults_record(-1)

    def mark(self, number: int) -> None:
        """Note in the record that something was committed."""
        self._library.faults_mark(number)


def environment() -> dict[str, str]:
    """Return the variables of a process that the library is loaded into. Raises ToolchainError on other systems."""
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc" or sys.maxsize < 1 << 32:
        raise ToolchainError("calls are failed on 64-bit Linux with glibc only", "leave out --calls and --power")
    source = Path(__file__).with_name("shim.c").read_text(encoding="utf-8")
    library = build({"shim.c": source}, ("-fno-builtin",), find_compiler())
    return {**os.environ, **_ALONE, "LD_PRELOAD": str(library)}


def load() -> Shim:
    """Return the library; if it is not loaded yet, restart this process with it."""
    if not hasattr(ctypes.CDLL(None), "faults_arm"):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment())
    # Compilers and other programs run as they always do.
    os.environ.pop("LD_PRELOAD", None)
    return Shim()
