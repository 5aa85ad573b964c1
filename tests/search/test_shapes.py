"""Numbers of shapes and priorities are unique and in order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from morello.ir.ops.matmul import Matmul
from morello.search.arrays import distinct_numbers
from morello.search.tables.shapes import Key, Space
from morello.search.tables.step_tables import Priority

sizes = st.sampled_from([1, 2, 3, 8, 64])
priorities = st.builds(Priority, st.integers(0, 200), st.integers(0, 10**6), st.integers(0, 100))


@given(shapes=st.lists(st.tuples(sizes, sizes, sizes, sizes), min_size=1, max_size=12))
def test_layers_have_every_shape_once_after_its_parts(shapes: list[tuple[int, ...]]) -> None:
    space = Space(Key(Matmul(), 4, True), np.array(shapes, dtype=np.int64).T)
    layers = space.layers()
    assert all(len(layer) for layer in layers)
    assert sorted(np.concatenate(layers).tolist()) == [*range(space.count)]
    layer_of = {int(shape): number for number, layer in enumerate(layers) for shape in layer}
    for one in range(space.count):
        for other in range(space.count):
            if one != other and np.all(space.sizes[:, one] <= space.sizes[:, other]):
                assert layer_of[one] < layer_of[other]


@given(shapes=st.lists(st.tuples(sizes, sizes, sizes, sizes), min_size=1, max_size=12), other=st.tuples(sizes, sizes))
def test_a_shape_has_the_same_number_alone(shapes: list[tuple[int, ...]], other: tuple[int, int]) -> None:
    space = Space(Key(Matmul(), 4, True), np.array(shapes, dtype=np.int64).T)
    tried = [*shapes, (*other, 8, 1), (1, 5, *other), (128, *other, 128)]
    numbers = space.numbers([np.array(column) for column in zip(*tried, strict=True)])
    assert [space.number(shape) for shape in tried] == numbers.tolist()
    assert all((number >= 0) == (shape in shapes) for shape, number in zip(tried, numbers.tolist(), strict=True))


@given(values=st.lists(st.integers(-3, 2**60), max_size=30))
def test_distinct_numbers_are_sorted(values: list[int]) -> None:
    assert distinct_numbers(np.array(values, dtype=np.int64)).tolist() == sorted({*values})


@given(priorities, priorities)
def test_packing_keeps_the_order(first: Priority, second: Priority) -> None:
    def place(one: Priority) -> tuple[int, int, int]:
        return one.rewrite, one.operand, one.step

    assert (first.pack() < second.pack()) == (place(first) < place(second))
    assert Priority.unpack(first.pack()) == first
