"""i64: indices, and integers that no float holds, equal to numpy to the bit."""

from __future__ import annotations

import numpy as np
import pytest

import morello
from morello.api.kernel import Kernel
from morello.errors import ArgumentError, MorelloError
from morello.frontend import parse_spec
from morello.ir.dtypes import BY_NAME
from morello.plugins import Target
from morello.verify.tolerance import expectations

#: The ends of the type, the first integers that f64 and f32 lack, and those around types of 32 bits.
EXTREMES = [-(2**63), 2**63 - 1, 2**63 - 2, 2**53 + 1, 2**24 + 1, 2**32, 2**31, -(2**31) - 1, -1, 0, 1, 256]


def compiled(text: str) -> Kernel:
    return morello.compile(morello.goal(f"{text[:-1]}, serial)", target="x86_avx2"))


@pytest.mark.parametrize("dtype", ["i32", "u8", "f32", "f64", "bool"])
def test_conversions_are_those_of_numpy(dtype: str) -> None:
    """Floats round once, to nearest; integers wrap around; bool is whether a value is not 0."""
    values = np.array(EXTREMES)
    expected = values.astype(BY_NAME[dtype].numpy)
    assert np.array_equal(compiled(f"Move(12, (i64, GL), ({dtype}, GL))")(values), expected)


@pytest.mark.parametrize("dtype", ["i8", "u32", "bool"])
def test_conversions_from_others_keep_values(dtype: str) -> None:
    low, high = BY_NAME[dtype].limits
    values = np.array([low, high, 1]).astype(BY_NAME[dtype].numpy)
    assert compiled(f"Move(3, ({dtype}, GL), (i64, GL))")(values).tolist() == [low, high, 1]


def test_rows_are_gathered_by_int64() -> None:
    table, rows = np.array(EXTREMES).reshape(6, 2), np.array([5, -1, 0, 2**40, -(2**63)])
    found = compiled("Gather(5×2×6, (i64, GL), (i64, GL), (i64, GL))")(table, rows)
    assert np.array_equal(found, table[[5, 5, 0, 5, 0]]), "rows outside are the first or the last"
    kernel = compiled("Gather(5×2×6, (f32, GL), (i64, GL), (f32, GL))")
    numbers = np.arange(12, dtype=np.float32).reshape(6, 2)
    assert np.array_equal(kernel(numbers, np.array([5, 4, 0, 2, 2])), numbers[[5, 4, 0, 2, 2]])
    with pytest.raises(ArgumentError, match="int64"):
        kernel(numbers, np.array([5, 4, 0, 2, 2], np.int32))


def test_places_of_extremes_are_int64() -> None:
    values = np.random.default_rng(0).choice(np.array(EXTREMES), (7, 70))
    largest = compiled("ArgMax(7×70, (i64, GL), (i64, GL))")(values)
    assert largest.dtype == np.int64
    assert np.array_equal(largest, values.argmax(1, keepdims=True))
    smallest = compiled("ArgMin[dim=0](7×70, (i64, GL), (i64, GL))")(values)
    assert np.array_equal(smallest, values.argmin(0, keepdims=True))
    found, places = compiled("TopK[k=3](7×70, (i64, GL), (i64, GL), (i64, GL))")(values)
    order = np.argsort(~values, axis=1, kind="stable")[:, :3]
    assert np.array_equal(places, order)
    assert np.array_equal(found, np.take_along_axis(values, order, 1))


def test_neighbours_that_no_float_tells_apart_are_wrong(target: Target) -> None:
    logical = parse_spec("Neg(12, (i64, GL), (i64, GL))", target).logical
    values = np.array(EXTREMES)
    (expected,) = expectations(logical, [values], integral=False)
    assert not expected.errors(-values).any()
    for wrong in (1 - values, ~values ^ -(2**63)):
        assert np.isinf(expected.errors(wrong)).all()


@pytest.mark.parametrize(
    "text",
    [
        "Compose([out = And(less, equal), less = Less(x, y), equal = Equal(i, j)], "
        "[x: (9×40, f32, GL), y: (9×40, f32, GL), i: (9×40, i64, GL), j: (9×40, i64, GL), out: (9×40, bool, GL)])",
        "Compose([out = Mul(sum, x), sum = Add(i, j)], [i: (9×40, i64, GL), j: (9×40, i64, GL), x: (9×40, f32, GL), "
        "sum: (9×40, i64, GL), out: (9×40, f32, GL)])",
        "Compose([ArgMax, Neg], [(9×40, f32, GL), (9×1, i64, GL)])",
    ],
)
def test_graphs_with_floats_are_exact_in_integers(text: str) -> None:
    assert compiled(text).check().worst < 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Exp(12, (i64, GL), (i64, GL))", "defined for floats, not for i64"),
        ("Move(12, (f64, GL), (i64, GL))", "floats do not convert to integers"),
        ("Div(12, (i64, GL), (i64, GL), (i64, GL))", "defined for floats, not for i64"),
        ("Less(12, (i64, GL), (f32, GL), (bool, GL))", "i64 and f32 do not compare"),
        ("Gather(5×2×6, (f32, GL), (f32, GL), (f32, GL))", "make them i32 or i64"),
        ("ArgMax(5×2, (f32, GL), (u32, GL))", "i32 or i64"),
    ],
)
def test_operations_without_a_meaning_are_refused(target: Target, text: str, message: str) -> None:
    with pytest.raises(MorelloError) as found:
        parse_spec(text, target)
    assert message in f"{found.value.message} {found.value.hint}"
