"""Spaces: shapes in an order that smaller ones come first in."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from morello.ir.ops.matmul import Matmul
from morello.search.tables.shapes import Key, Space

sizes = st.sampled_from([1, 2, 3, 8, 64])


@given(shapes=st.lists(st.tuples(sizes, sizes, sizes, sizes), min_size=1, max_size=12))
def test_layers_hold_every_shape_once_and_after_all_that_it_contains(shapes: list[tuple[int, ...]]) -> None:
    space = Space(Key(Matmul(), 4, True), np.array(shapes, dtype=np.int64).T)
    layers = space.layers()
    assert all(len(layer) for layer in layers)
    assert sorted(np.concatenate(layers).tolist()) == [*range(space.count)]
    layer_of = {int(shape): number for number, layer in enumerate(layers) for shape in layer}
    for one in range(space.count):
        for other in range(space.count):
            if one != other and np.all(space.sizes[:, one] <= space.sizes[:, other]):
                assert layer_of[one] < layer_of[other]
