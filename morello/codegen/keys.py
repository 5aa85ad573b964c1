"""Keys of programs: hashes of their C, by which programs are known again that other steps made."""

from __future__ import annotations

import hashlib
import re

from morello.ir.impl import Impl
from morello.kernels.target import Target

_COMMENT = re.compile(r"\s*/\*.*?\*/", re.DOTALL)


def key_of(source: str) -> str:
    """Return a hash of C without its comments, which tell the steps that made it."""
    return hashlib.sha256(_COMMENT.sub("", source).encode()).hexdigest()


def program_key(impl: Impl, target: Target) -> str:
    """Return a hash of a finished program's C, whatever the function and its parameters are called."""
    return key_of(target.emitter.emit(impl, target, "kernel").source)
