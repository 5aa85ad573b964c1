"""A small target for reading and printing Specs; nothing is compiled for it."""

from collections.abc import Callable
from types import SimpleNamespace

import attrs
import pytest

from morello import rewrites
from morello.frontend import SourceError
from morello.ir.layout import row_major
from morello.ir.ops import by_name
from morello.plugins import MemoryLevel, Microkernel, OperandPattern, Target, TargetInfo, hookimpl
from morello.plugins.registry import Registry


@attrs.frozen
class Tiny:
    """Plugin of the target `tiny`, or of one called otherwise, with the levels of an AVX2 machine."""

    name: str = "tiny"
    kernels: tuple[str, ...] = ("VectorMove", "ScalarMove")

    @hookimpl
    def morello_targets(self):
        return [TargetInfo(name=self.name, description="for tests", layouts=lambda _, rank: [row_major(rank)])]

    @hookimpl
    def morello_levels(self, target):
        if target != self.name:
            return None
        return [
            MemoryLevel(name="RF", kind="scalar", capacity=64, unit=4, destinations=("RF",)),
            MemoryLevel(name="VRF", kind="vector", capacity=512, unit=32, vectors=(16, 32), destinations=("VRF",)),
            MemoryLevel(name="L1", kind="cache", capacity=65536, unit=64, hit_cost=2, destinations=("L1", "RF", "VRF")),
            MemoryLevel(name="GL", kind="memory", capacity=2**31, unit=64, hit_cost=20, destinations=("GL", "L1")),
        ]

    @hookimpl
    def morello_rewrites(self, target):
        return rewrites.STANDARD if target == self.name else None

    @hookimpl
    def morello_microkernels(self, target):
        if target != self.name:
            return None
        operands = (OperandPattern(), OperandPattern())
        return [
            Microkernel(name=name, op=by_name("Move"), operands=operands, cost=lambda *_: 1, emit=lambda _: None)
            for name in self.kernels
        ]

    @hookimpl
    def morello_emitter(self, target):
        return SimpleNamespace(emit=lambda impl, target, name: None) if target == self.name else None


@pytest.fixture(scope="session")
def plugin() -> Tiny:
    return Tiny()


@pytest.fixture(scope="session")
def registry(plugin: Tiny) -> Registry:
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
