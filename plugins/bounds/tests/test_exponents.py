"""Exponents: those of known programs, and the inequality on sets of points."""

from __future__ import annotations

import random
from fractions import Fraction
from functools import cache
from itertools import chain, combinations
from math import inf, prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from morello_bounds.hbl import Exponents, constraints, is_valid, least_sigma
from morello_bounds.linear import lattice, null_space, solved
from morello_bounds.nest import Nest, distinct, parse_nest
from morello_bounds.programs import exact_minimum

from morello.errors import MorelloError

from .programs import tile_exponents

THIRD = Fraction(1, 3)
MATMUL = parse_nest({"m": 8, "k": 8, "n": 8}, "A[m,k] B[k,n] C[m,n]")
MTTKRP = parse_nest({"i": 8, "j": 8, "k": 8, "r": 8}, "X[i,j,k] A[j,r] B[k,r] C[i,r]")
STRIDED = parse_nest(
    {"b": 4, "c": 4, "k": 4, "w": 4, "h": 4, "r": 3, "s": 3},
    "In[b,c,2w+r,2h+s] F[k,c,r,s] Out[b,k,w,h]",
)


@pytest.mark.parametrize(
    ("nest", "sigma"),
    [
        (MATMUL, Fraction(3, 2)),
        (parse_nest({"i": 8, "k": 8}, "A[i,k] x[k] y[i]"), 1),
        (parse_nest({"i": 8, "j": 8}, "P[i] Q[j] F[i]"), 2),
        (parse_nest({"b": 4, "c": 4, "k": 4, "w": 4, "h": 4}, "I[b,c,w,h] F[k,c] O[b,k,w,h]"), Fraction(3, 2)),
        (MTTKRP, Fraction(5, 3)),
        (parse_nest({"d": 8, "m": 8, "n": 8}, "A[m,n] Out[d,n]"), 2),
        (STRIDED, 2),
    ],
)
def test_sigma_of_known_programs(nest: Nest, sigma: Fraction) -> None:
    exponents = least_sigma(nest)
    assert exponents.sigma == sigma
    assert is_valid(nest, exponents)


def test_mttkrp_weighs_the_tensor_twice() -> None:
    assert least_sigma(MTTKRP).s == (2 * THIRD, THIRD, THIRD, THIRD)


@pytest.mark.parametrize(("nest", "count"), [(MATMUL, 7), (STRIDED, 14)])
def test_subspaces_of_all_loops_together(nest: Nest, count: int) -> None:
    width = len(nest.loops)
    assert len(lattice([null_space(one.rows(width), width) for one in nest.arrays], width, 100)) == count


def test_constraints_of_a_strided_convolution() -> None:
    """Each two of the three exponents sum to 1, and all to 2."""
    known = {(1, 1, 0): 1, (1, 0, 1): 1, (0, 1, 1): 1, (1, 1, 1): 2}
    assert known.items() <= {(one.arrays, one.rank) for one in constraints(STRIDED)}
    # All others follow from these: of exponents that fulfil them, none is too small.
    for one in constraints(STRIDED):
        least = exact_minimum([*one.arrays], [[*arrays] for arrays in known], [*known.values()])
        assert sum(a * s for a, s in zip(one.arrays, least, strict=True)) >= one.rank


def test_no_end_to_subspaces_is_an_error() -> None:
    """Four lines in a plane make finitely many subspaces; four in space make ever more."""
    lines = [((1, 0, 0),), ((0, 1, 0),), ((0, 0, 1),), ((1, 1, 1),)]
    exact = [tuple(tuple(map(Fraction, row)) for row in line) for line in lines]
    with pytest.raises(MorelloError, match="perhaps infinitely many"):
        lattice(exact, 3, 50)


small = st.integers(0, 60).map(lambda n: Fraction(n, 20))


@settings(max_examples=60, deadline=None)
@given(st.tuples(small, small, small))
def test_tiles_of_products(beta: tuple[Fraction, ...]) -> None:
    """The optimum of the tiling program is min(3/2, 1 + min β, Σβ)."""
    found = tile_exponents(MATMUL, beta)
    value = sum(b * z for b, z in zip(beta, found.zeta, strict=True)) + found.sigma
    assert value == min(Fraction(3, 2), 1 + min(beta), sum(beta))


@cache
def left_out(nest: Nest) -> list[tuple[tuple[int, ...], Fraction, list[Fraction]]]:
    """Each set of loops, with Σs of the least exponents that cover all others, and how far each loop is covered."""
    count = len(nest.arrays)
    of_loop = [[int(loop in array.support) for array in nest.arrays] for loop in range(len(nest.loops))]
    found: list[tuple[tuple[int, ...], Fraction, list[Fraction]]] = []
    for out in chain.from_iterable(combinations(range(len(of_loop)), some) for some in range(len(of_loop) + 1)):
        rows = [row for loop, row in enumerate(of_loop) if loop not in out]
        s = exact_minimum([1] * count, rows, [1] * len(rows)) if rows else (Fraction(0),) * count
        covered = [sum((one for one, on in zip(s, row, strict=True) if on), Fraction(0)) for row in of_loop]
        found.append((out, sum(s, Fraction(0)), covered))
    return found


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.sampled_from([MATMUL, MTTKRP]), st.tuples(small, small, small, small))
def test_tiles_are_those_of_small_loops_left_out(nest: Nest, sizes: tuple[Fraction, ...]) -> None:
    """The dual finds the least of the 2^d bounds that leave out the rows of some loops ([Dinh2023] Theorem 13)."""
    beta = sizes[: len(nest.loops)]
    found = tile_exponents(nest, beta)
    value = sum(b * z for b, z in zip(beta, found.zeta, strict=True)) + found.sigma
    assert value == min(
        sigma + sum(beta[loop] * (1 - covered[loop]) for loop in out if covered[loop] <= 1)
        for out, sigma, covered in left_out(nest)
    )


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([MATMUL, MTTKRP, STRIDED, STRIDED.lifted()]), st.integers(0, 10**6), st.data())
def test_the_inequality_holds_for_sets_of_points(nest: Nest, seed: int, data: st.DataObject) -> None:
    draw = random.Random(seed)
    beta = data.draw(st.lists(small, min_size=len(nest.loops), max_size=len(nest.loops)))
    exponents = tile_exponents(nest, beta)
    points = {tuple(draw.randrange(min(size, 3)) for size in nest.sizes) for _ in range(draw.randrange(1, 60))}
    bound = prod(size ** float(z) for size, z in zip(nest.sizes, exponents.zeta, strict=True))
    for array, s in zip(nest.arrays, exponents.s, strict=True):
        seen = {tuple(sum(c * point[loop] for loop, c in form) for form in array.index) for point in points}
        bound *= len(seen) ** float(s)
    assert len(points) <= bound * (1 + 1e-9)


def test_exponents_that_are_too_small_are_refused() -> None:
    half = Fraction(1, 2)
    none = (Fraction(0),) * 3
    assert is_valid(MATMUL, Exponents((half, half, half), none))
    assert not is_valid(MATMUL, Exponents((half, half, Fraction(49, 100)), none))
    assert not is_valid(MATMUL, Exponents((half, half), none))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 7)), min_size=1, max_size=3))
def test_distinct_values_of_a_form(terms: list[tuple[int, int]]) -> None:
    values = {0}
    for size, c in terms:
        values = {value + c * at for value in values for at in range(size)}
    form = tuple((loop, c) for loop, (_, c) in enumerate(terms))
    assert distinct(form, [size for size, _ in terms]) == len(values)


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 4), st.integers(1, 4))
def test_lifting_keeps_points_and_values_apart(w: int, r: int, stride: int, dilation: int) -> None:
    """Points and indices of a strided access are as many in the loops that it is written as."""
    nest = parse_nest({"w": w, "r": r}, f"I[{stride}w+{dilation}r] F[r] O[w]")
    lifted = nest.lifted()
    assert lifted.points == nest.points
    assert prod(lifted.sizes) >= nest.points
    assert lifted.touched(lifted.arrays[1]) >= nest.touched(nest.arrays[1])
    assert (
        all(abs(c) == 1 for array in lifted.arrays for form in array.index for _, c in form)
        or len({stride, dilation}) == 1
    )


def test_programs_are_read() -> None:
    with pytest.raises(MorelloError, match="not an access"):
        parse_nest({"i": 3}, "A(i)")
    with pytest.raises(MorelloError, match="sum of the loops i"):
        parse_nest({"i": 3}, "A[j]")


def test_solutions_are_exact() -> None:
    assert solved([[3, 0], [0, 7]], [1, 2]) == (THIRD, Fraction(2, 7))
    assert solved([[1, 1]], [1]) is None
    with pytest.raises(MorelloError, match="no optimum"):
        exact_minimum([-1], [[1]], [inf == 0])
