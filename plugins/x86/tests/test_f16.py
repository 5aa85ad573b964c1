"""Conversions of f16: by an instruction where compilers have it, and without what is then left over."""

from __future__ import annotations

import pytest

from morello import api
from morello.build.library import build
from morello.build.toolchain import Compiler
from morello.testing.trials import FLAGS


@pytest.mark.parametrize(("target", "lanes"), [("x86_avx2", 8), ("x86_avx512", 8), ("x86_avx512", 16)])
def test_compilers_warn_of_no_unused_function(target: str, lanes: int, compiler: Compiler) -> None:
    spec = f"Move({lanes}, (f16, L1), (f32, VRF, v{lanes}), serial)"
    program = api.compile(api.goal(spec, target=target).select("VectorCast")).program
    build({"cast.c": program.source}, (*program.flags, *FLAGS), compiler)
