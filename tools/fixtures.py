"""Pytest fixtures for tests of commands and plugins."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner, Result

from morello import crash
from morello.api.kernel import Kernel
from morello.build.toolchain import Compiler, available_compilers
from morello.cli.app import main
from morello.host import missing_features
from morello.ir.dtypes import F32, DType
from morello.ir.layout import Layout, row_major
from morello.ir.ops import Operation, by_name
from morello.ir.program import Program
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.kernels.target import Target
from morello.plugins.registry import installed
from morello.verify.reference import implement

#: Runs a command line: arguments, then perhaps environment variables.
Cli = Callable[..., Result]
#: Writes a Spec file of a target; returns its path.
Write = Callable[..., str]

#: Data type, and where it is not row-major or contiguous, layout and contiguity.
Kind = DType | tuple[DType | Layout | int, ...]
Make = Callable[..., Kernel]

#: Compilers for which tests are repeated. The third is that of ziglang: clang again, which emulated programs use.
COMPILERS = available_compilers()[:2]

ONE = "spec one = Matmul(1×1×1×1, GL, GL, GL, serial)\n"


@pytest.fixture(scope="session", autouse=True)
def isolated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep caches and crash reports in a folder of the tests' own, use no database, and costs as declared."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        # Workers share compiled libraries.
        folder = folder.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MORELLO_CACHE_DIR", str(folder / "cache" / "morello"))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("MORELLO_DB", "off")
        patch.setenv("MORELLO_PROFILE", "base")
        yield


@pytest.fixture
def cli() -> Cli:
    """Run a command in this process. Unexpected exceptions fail the test."""

    def invoke(*arguments: str, **environment: str) -> Result:
        result = CliRunner(catch_exceptions=False).invoke(main, [*arguments], env=environment)
        assert result.exit_code != crash.EXIT, result.stderr
        return result

    return invoke


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a Spec file."""

    def write(text: str = ONE, target: str = "x86_avx2", name: str = "test.spec") -> str:
        path = tmp_path / name
        path.write_text(f"target {target}\n{text}", encoding="utf-8")
        return str(path)

    return write


@pytest.fixture(scope="session")
def runnable() -> str:
    """Return a target whose programs this machine can run: x86_avx2 if possible."""
    features = installed().target("x86_avx2").info.cpu_features
    return "reference_c" if missing_features(features) else "x86_avx2"


@pytest.fixture(scope="session")
def refused() -> Callable[..., None]:
    """Check that a command failed with an empty standard output and a message that has these words."""

    def check(result: Result, *words: str, code: int = 1) -> None:
        assert result.exit_code == code, result.output
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
        for word in words:
            assert word in result.stderr

    return check


def _state(kind: Kind, rank: int) -> OperandState:
    facts = kind if isinstance(kind, tuple) else (kind,)
    dtype = next(each for each in facts if isinstance(each, DType))
    layout = next((each for each in facts if isinstance(each, Layout)), row_major(rank))
    contig = next((each for each in facts if isinstance(each, int)), len(layout.dims))
    return OperandState(dtype, "GL", layout, contig)


@pytest.fixture
def make(target: Target) -> Make:
    """Makes a reference kernel; `replace` swaps pieces of its C, to break it."""

    def build(
        op: str | Operation,
        shape: Sequence[int],
        kinds: list[Kind] | Kind = F32,
        *,
        compiler: Compiler | None = None,
        replace: dict[str, str] | None = None,
        on: Target | None = None,
    ) -> Kernel:
        op = by_name(op) if isinstance(op, str) else op
        operands = op.operands(len(shape))
        listed = kinds if isinstance(kinds, list) else [kinds] * len(operands)
        states = tuple(_state(kind, len(one.dims)) for kind, one in zip(listed, operands, strict=True))
        impl = implement(LogicalSpec(op, tuple(shape), states), on or target)
        program: Program = target.emitter.emit(impl, target, "sample")
        for old, new in (replace or {}).items():
            assert old in program.source
            program = attrs.evolve(program, source=program.source.replace(old, new))
        return Kernel.of(impl, on or target, program, compiler)

    return build
