"""The library that fails calls and records them (shim.c), as seen from the process that it is loaded into."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any

import attrs
import cffi

from morello.build.library import build
from morello.build.toolchain import find_compiler
from morello.errors import ToolchainError

#: One thread each: processes are forked, which threads do not survive.
_ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_DECLARATIONS = """
struct report { int64_t calls, fired; void *caller; char call[16]; char path[4096]; };
struct origin { const char *file; void *base; const char *name; void *address; };
struct report *faults_report(void);
void faults_watch(const char *path);
void faults_arm(int what, int64_t at, int from_then_on);
void faults_disarm(void);
void faults_record(int fd);
void faults_mark(int64_t number);
int dladdr(const void *address, struct origin *found);
"""


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
        self._ffi = cffi.FFI()
        self._ffi.cdef(_DECLARATIONS)
        self.library: Any = self._ffi.dlopen(None)

    def arm(self, folder: Path, what: Fault, number: int, *, forever: bool) -> None:
        """Fail the call that is the `number`th from now on, and perhaps all that follow; with 0, only count them."""
        self.library.faults_watch(os.fsencode(folder))
        self.library.faults_arm(what, number or -1, forever and number > 0)

    def disarm(self) -> None:
        """Fail nothing any more. May be called when no memory is left."""
        while True:
            with contextlib.suppress(MemoryError):
                self.library.faults_disarm()
                return

    def fired(self) -> Fired:
        """Return what the fault has done since it was armed, in this process or in one forked from it."""
        report = self.library.faults_report()
        origin: Any = self._ffi.new("struct origin *")
        found = report.caller and self.library.dladdr(report.caller, origin)
        place = Path(self._text(origin.file)).name if found else self._text(report.path)
        return Fired(report.calls, report.fired, self._text(report.call), place)

    def _text(self, data: Any) -> str:
        return os.fsdecode(self._ffi.string(data))

    @contextmanager
    def recording(self, folder: Path, record: Path) -> Iterator[None]:
        """Write all changes of the files of `folder` to `record`."""
        self.library.faults_watch(os.fsencode(folder))
        with record.open("ab", buffering=0) as file:
            self.library.faults_record(file.fileno())
            try:
                yield
            finally:
                self.library.faults_record(-1)


def load() -> Shim:
    """Return the library; if it is not loaded yet, restart this process with it. Raises ToolchainError elsewhere."""
    shim = Shim()
    if not hasattr(shim.library, "faults_arm"):
        if sys.platform != "linux" or platform.libc_ver()[0] != "glibc" or sys.maxsize < 1 << 32:
            raise ToolchainError("calls are failed on 64-bit Linux with glibc only", "leave out --calls and --power")
        source = Path(__file__).with_name("shim.c").read_text(encoding="utf-8")
        library = build({"shim.c": source}, ("-fno-builtin",), find_compiler())
        variables = {**os.environ, **_ALONE, "LD_PRELOAD": str(library)}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], variables)
    # Compilers and other programs run as they always do.
    os.environ.pop("LD_PRELOAD", None)
    return shim
