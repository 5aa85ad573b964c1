"""Fixtures that all tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from morello_reference_c import plugin

from morello.api.kernel import Kernel
from morello.build.library import build
from morello.build.toolchain import Compiler
from morello.ir.impl import Impl
from morello.ir.program import Program
from morello.kernels.target import Target
from morello.plugins.registry import Registry, installed
from morello.run.arrays import empty
from morello.testing.sanitize import SANITIZERS, run_sanitized
from tools.fixtures import COMPILERS, cli, isolated, make, refused, runnable, write
from tools.postgres import postgres, postgres_server

__all__ = ["cli", "isolated", "make", "postgres", "postgres_server", "refused", "runnable", "write"]

# The same examples are drawn every time, so that tests fail for a change and not by chance.
# `pytest --hypothesis-profile varied` draws others.
settings.register_profile("repeated", derandomize=True, deadline=None)
settings.register_profile("varied", deadline=None)
settings.load_profile("repeated")

#: Verifies a complete program and returns its kernel.
Prove = Callable[..., Kernel]


def pytest_configure() -> None:
    """Fix what would depend on the machine: costs, the terminal, and Ctrl-C, which background jobs ignore."""
    os.environ["MORELLO_PROFILE"] = "base"
    for name in ("COLUMNS", "NO_COLOR", "TERM"):
        os.environ.pop(name, None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long tests first, so that no worker is left with one of them when the others are done.

    Where a test is run with each compiler, all but the first are for the full run. One worker runs the tests with
    a server.
    """
    first = COMPILERS[:1]
    for item in items:
        if "postgres_server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("postgres"))
        call = getattr(item, "callspec", None)
        compilers = [one for one in call.params.values() if isinstance(one, Compiler)] if call else []
        if compilers and compilers != first:
            item.add_marker("slow")
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def avx2() -> Target:
    return installed().target("x86_avx2")


@pytest.fixture(scope="session")
def target() -> Target:
    """The reference target, whatever else is installed."""
    return Registry.of(reference_c=plugin).target("reference_c")


@pytest.fixture(params=COMPILERS, ids=lambda compiler: compiler.name)
def compiler(request: pytest.FixtureRequest) -> Compiler:
    """Each of two C compilers of this machine."""
    return request.param


def built(program: Program, compiler: Compiler) -> Path:
    """Build a program as kernels are built, with all of the compiler's warnings on, which are errors."""
    sources = {f"{program.name}.c": program.including(f"{program.name}.h"), f"{program.name}.h": program.header}
    return build(sources, (*program.flags, "-Wall", "-Wextra", "-Werror"), compiler)


@pytest.fixture
def prove(pytestconfig: pytest.Config) -> Prove:
    """Return a function that emits a program, builds it without warnings, and checks it with numpy and the reference.

    A run with slow tests also runs the program under each sanitizer, and for `each_compiler` builds it with the
    second compiler, too. Compiling takes most of the time of such tests.
    """
    quick = "not slow" in (pytestconfig.getoption("markexpr") or "")

    def check(impl: Impl, target: Target, name: str = "kernel", each_compiler: bool = False) -> Kernel:
        program = target.emitter.emit(impl, target, name)
        first, *others = COMPILERS
        kernel = Kernel.of(impl, target, program, first)
        kernel.function.library = built(program, first)
        kernel.check()
        for compiler in others if each_compiler and not quick else ():
            again = Kernel.of(impl, target, program, compiler)
            again.function.library = built(program, compiler)
            again.check()
        if not quick:
            rng = np.random.default_rng(0)
            arrays = [empty(tensor) for tensor in impl.spec.operands]
            for array in arrays:
                array[...] = rng.integers(0, 9, array.shape).astype(array.dtype)
            for sanitizers in (SANITIZERS, *(("thread",) if program.parallel else ())):
                for output in run_sanitized(program, impl.spec, arrays, first, sanitizers=sanitizers):
                    assert not np.isnan(output.astype(np.float64)).any()
        return kernel

    return check
