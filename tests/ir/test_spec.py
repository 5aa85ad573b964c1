"""Specs in normal form, operations' operand shapes and meanings."""

from __future__ import annotations

import numpy as np
import pytest

from morello.errors import SpecError
from morello.ir.dtypes import BF16, F32, I8, U8, by_name
from morello.ir.layout import row_major
from morello.ir.ops import Compose
from morello.ir.ops import by_name as operation
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState


def state(rank: int, dtype=F32) -> OperandState:
    return OperandState(dtype, "GL", row_major(rank), rank)


def test_operand_shapes_follow_from_the_iteration_space() -> None:
    spec = LogicalSpec(operation("Matmul"), (2, 3, 4, 5), (state(3),) * 3)
    assert [tensor.shape for tensor in spec.operands] == [(2, 3, 4), (2, 4, 5), (2, 3, 5)]
    assert spec.flops == 2 * 2 * 3 * 4 * 5


@pytest.mark.parametrize(
    ("op", "shape", "states", "message"),
    [
        ("Matmul", (1, 2, 3), 3, "4 dimensions b×m×k×n, not 3"),
        ("Matmul", (1, 2, 0, 3), 3, "at least 1"),
        ("Matmul", (1, 2, 3, 4), 2, "3 operands"),
        ("Matmul", (1, 2**30, 2**30, 4), 3, "lhs holds"),
    ],
)
def test_contradictions_are_refused(op: str, shape: tuple[int, ...], states: int, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        LogicalSpec(operation(op), shape, (state(3),) * states).canonical()


def test_floats_do_not_become_integers() -> None:
    with pytest.raises(SpecError, match="does not fit"):
        LogicalSpec(operation("Matmul"), (1, 2, 2, 2), (state(3), state(3), state(3, I8))).canonical()
    with pytest.raises(SpecError, match="no defined meaning"):
        LogicalSpec(operation("Move"), (2, 2), (state(2), state(2, U8))).canonical()


def test_unknown_names() -> None:
    with pytest.raises(SpecError, match="data types are"):
        by_name("f65")
    with pytest.raises(SpecError, match="operations are"):
        operation("Matmull")


def test_compose_is_the_chain_of_its_meanings() -> None:
    chain = Compose.chain([operation("Matmul"), operation("Matmul")])
    shape = (1, 3, 5, 2, 4)
    spec = LogicalSpec(chain, shape, (state(3),) * 4).canonical()
    assert [tensor.shape for tensor in spec.operands] == [(1, 5, 2), (1, 3, 4), (1, 4, 5), (1, 3, 2)]
    rng = np.random.default_rng(0)
    c, a, b = (rng.normal(size=tensor.shape) for tensor in spec.operands[:3])
    np.testing.assert_allclose(chain.evaluate(shape, [c, a, b], [F32] * 4)[0], (a @ b) @ c)
    assert spec.flops == 2 * (3 * 5 * 2 + 3 * 4 * 5)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("Matmul",), "at least two"),
        (("Matmul", "MatmulAccum"), "only the first"),
        (("Matmul", "FillZero"), "needs an input"),
        (("Matmul", "OnePrefix", "Matmul"), "OnePrefix reads 2 dimensions, but Matmul before it makes 3"),
        (("Relu", "Relu"), "number of dimensions of Relu does not follow"),
    ],
)
def test_compose_refuses_components(names: tuple[str, ...], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Compose.chain([*map(operation, names)])


def test_bfloat16_rounds_to_eight_bits() -> None:
    assert BF16.unit_roundoff == 2.0**-8
    assert BF16.numpy.type(1 + 2.0**-9) == 1
