"""Index expressions have the same value in C as in Python."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morello.ir.index import IndexExpr, Symbol, as_index

COUNTERS = {"i": 3, "j": 16, "k": 5}


@st.composite
def expressions(draw: st.DrawFn) -> IndexExpr:
    """Sums, products with constants, quotients and remainders of counters."""
    names = st.sampled_from(sorted(COUNTERS))
    leaf = st.one_of(names.map(lambda name: as_index(Symbol(name, COUNTERS[name]))), st.integers(0, 40).map(as_index))
    grow = st.deferred(
        lambda: st.one_of(
            leaf,
            st.tuples(grow, grow).map(lambda pair: pair[0] + pair[1]),
            st.tuples(grow, st.integers(1, 20)).map(lambda pair: pair[0] * pair[1]),
            st.tuples(grow, st.integers(1, 20)).map(lambda pair: pair[0] // pair[1]),
            st.tuples(grow, st.integers(1, 20)).map(lambda pair: pair[0] % pair[1]),
        )
    )
    return draw(grow)


def value(index: IndexExpr, at: dict[str, int]) -> int:
    """Return the value that C computes: counters are not negative, so that it divides as Python's // does."""
    return eval(str(index).replace("/", "//"), {}, dict(at))


@pytest.mark.slow
@given(expressions(), expressions(), st.integers(1, 20), st.data())
def test_operations_keep_the_value(a: IndexExpr, b: IndexExpr, by: int, data: st.DataObject) -> None:
    at = {name: data.draw(st.integers(0, extent - 1)) for name, extent in COUNTERS.items()}
    left, right = value(a, at), value(b, at)
    assert value(a + b, at) == left + right
    assert value(a * b, at) == left * right
    assert value(a // by, at) == left // by
    assert value(a % by, at) == left % by


@given(expressions(), st.data())
def test_bounds_hold(index: IndexExpr, data: st.DataObject) -> None:
    at = {name: data.draw(st.integers(0, extent - 1)) for name, extent in COUNTERS.items()}
    bounds = index.bounds()
    assert bounds is not None
    assert bounds[0] <= value(index, at) <= bounds[1]


def test_simplification() -> None:
    i, j = as_index(Symbol("i", 3)), as_index(Symbol("j", 16))
    assert str((16 * i + j) % 16) == "j"
    assert str((16 * i + j) // 16) == "i"
    assert str((i + j) % 16) == "((i + j) % 16)"
    assert str(j + 48 * i + 5) == "48 * i + j + 5"
    assert (0 * i).constant == 0


def test_strides_known_only_at_run_time() -> None:
    i, stride = as_index(Symbol("i", 3)), as_index(Symbol("stride"))
    assert str(4 * i * stride + 1) == "4 * i * stride + 1"
    assert (i * stride).bounds() is None


def test_divisions_are_those_in_divisions_too() -> None:
    i, j = as_index(Symbol("i", 40)), as_index(Symbol("j", 40))
    assert [one.by for one in (i * 3 + j % 16 % 2 + i * j + j // 5).divisions()] == [2, 16, 5]
    assert [*(i * 3 + 20 * j // 5).divisions()] == []
