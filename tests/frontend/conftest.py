"""A small target for reading and printing Specs; nothing is compiled for it."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from morello import rewrites
from morello.frontend import SourceError
from morello.ir.layout import row_major
from morello.plugins import MemoryLevel, Microkernel, Target, TargetInfo, TargetPlugin
from morello.plugins.registry import Registry


def tiny(name: str = "tiny", kernels: tuple[str, ...] = ("VectorMove", "ScalarMove")) -> TargetPlugin:
    """Return the plugin of a target for tests, with the levels of an AVX2 machine."""
    emit: Any = SimpleNamespace(emit=lambda impl, target, name: None)
    return TargetPlugin(
        info=TargetInfo(name=name, description="for tests", layouts=lambda _, rank: [row_major(rank)]),
        levels=[
            MemoryLevel(name="RF", kind="scalar", capacity=64, unit=4, destinations=("RF",)),
            MemoryLevel(name="VRF", kind="vector", capacity=512, unit=32, vectors=(16, 32), destinations=("VRF",)),
            MemoryLevel(name="L1", kind="cache", capacity=65536, unit=64, hit_cost=2, destinations=("L1", "RF", "VRF")),
            MemoryLevel(name="GL", kind="memory", capacity=2**31, unit=64, hit_cost=20, destinations=("GL", "L1")),
        ],
        rewrites=rewrites.STANDARD,
        kernels=[
            Microkernel(name=each, takes="Move(n, any, any)", cost=lambda *_: 1, emit=lambda _: None)
            for each in kernels
        ],
        emitter=emit,
    )


@pytest.fixture(scope="session")
def plugin() -> TargetPlugin:
    return tiny()


@pytest.fixture(scope="session")
def small() -> TargetPlugin:
    """The plugin of the target `small`, which has one microkernel more."""
    return tiny("small", ("VectorMove", "ScalarMove", "SmallMove"))


@pytest.fixture(scope="session")
def registry(plugin: TargetPlugin) -> Registry:
    return Registry.of(tiny=plugin)


@pytest.fixture(scope="session")
def target(registry: Registry) -> Target:
    return registry.target("tiny")


@pytest.fixture(scope="session")
def fails() -> Callable[[str, Callable[[str], object]], SourceError]:
    """Checks that reading a text fails at the part between ‹ and ›, and gives the error."""

    def check(marked: str, read: Callable[[str], object]) -> SourceError:
        start, end = marked.index("‹"), marked.index("›") - 1
        text = marked.replace("‹", "").replace("›", "")
        with pytest.raises(SourceError) as caught:
            read(text)
        error = caught.value
        line, column = text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
        assert (error.line, error.column) == (line, column), str(error)
        assert error.excerpt == text.split("\n")[line - 1]
        assert error.caret == " " * (column - 1) + "^" + "~" * (end - start - 1)
        return error

    return check
