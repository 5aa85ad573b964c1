"""Arrays that hold tensors are found; tensors are packed and unpacked."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morello.errors import ArgumentError
from morello.ir.dtypes import ALL, BF16, F32, I16, DType
from morello.ir.layout import Dynamic, Layout, OddEven, Packed, PhysicalDim, col_major, row_major
from morello.ir.tensor import OperandState, TensorSpec
from morello.run.arrays import empty, form_of, pack, unpack


def tensor(shape: tuple[int, ...], layout: Layout | None, dtype: DType = F32, contig: int | None = None) -> TensorSpec:
    run = len(layout.dims) if layout and contig is None else contig or 0
    return TensorSpec(shape, OperandState(dtype, "GL", layout, run))


@st.composite
def tensors(draw: st.DrawFn) -> TensorSpec:
    """Tensors of up to 4 dimensions in any layout: a permutation, with up to two strips at its end."""
    rank = draw(st.integers(1, 4))
    shape = [draw(st.integers(1, 4)) for _ in range(rank)]
    dims: list[PhysicalDim] = [Dynamic(dim) for dim in draw(st.permutations(range(rank)))]
    for _ in range(draw(st.integers(0, 2))):
        dim, size = draw(st.integers(0, rank - 1)), draw(st.sampled_from([2, 3, 4]))
        shape[dim] *= size
        dims.append(OddEven(dim, size) if size % 2 == 0 and draw(st.booleans()) else Packed(dim, size))
    layout = draw(st.one_of(st.just(Layout(tuple(dims))), st.none()))
    contig = draw(st.integers(0, len(dims))) if layout else None
    # Strips nest from the innermost outwards, in any order of drawing.
    return tensor(tuple(shape), layout, draw(st.sampled_from(ALL)), contig)


def numbered(spec: TensorSpec) -> np.ndarray:
    shape = tuple(map(int, spec.shape))
    count = int(np.prod(shape))
    return (np.arange(count) % 100).astype(spec.state.dtype.numpy).reshape(shape)


@given(tensors())
def test_unpack_is_the_inverse_of_pack(spec: TensorSpec) -> None:
    logical = numbered(spec)
    packed = pack(logical, spec)
    assert packed.dtype == logical.dtype
    assert packed.shape == form_of(spec).shape
    assert np.array_equal(unpack(packed, spec), logical)


@given(tensors())
def test_values_are_at_the_offsets_of_the_layout(spec: TensorSpec) -> None:
    logical = numbered(spec)
    packed = pack(logical, spec)
    flat = np.lib.stride_tricks.as_strided(packed, (packed.size,), (packed.itemsize,))
    layout = spec.state.layout or row_major(len(spec.shape))
    for offset, value in enumerate(flat):
        assert logical[layout.point(offset, [int(size) for size in spec.shape])] == value


@given(tensors(), st.integers(0, 5))
def test_gaps_do_not_move_the_contiguous_run(spec: TensorSpec, gap: int) -> None:
    form = form_of(spec)
    strides = form.strides_with_gaps(gap)
    memory = np.zeros(form.extent(strides) * form.dtype.bytes, np.uint8)
    array = form.place(memory, 0, strides)
    array.view(f"u{form.dtype.bytes}")[...] = 1
    assert np.count_nonzero(memory) == array.size
    for known, stride in zip(form.strides, strides, strict=True):
        assert known in (None, stride)
    assert len(form.outer_strides(array)) == form.free


def test_plain_layouts_are_strides() -> None:
    packed = pack(np.arange(6, dtype=np.float32).reshape(2, 3), tensor((2, 3), col_major(2)))
    assert packed.shape == (2, 3)
    assert packed.strides == (4, 8)
    assert packed.ctypes.data % 64 == 0


def test_strips_are_dimensions() -> None:
    spec = tensor((1, 2, 8), Layout((Dynamic(0), Dynamic(1), Dynamic(2), OddEven(2, 4))))
    packed = pack(np.arange(16, dtype=np.float32).reshape(1, 2, 8), spec)
    assert packed.shape == (2, 2, 4)
    assert packed[0].tolist() == [[0, 2, 1, 3], [4, 6, 5, 7]]


def test_bf16_may_be_bit_patterns() -> None:
    spec = tensor((3,), row_major(1), BF16)
    bits = np.array([0x3F80, 0x7FC1, 0x8000], np.uint16)
    packed = pack(bits, spec)
    assert packed.dtype == ml_dtypes.bfloat16
    assert packed.view(np.uint16).tolist() == bits.tolist()
    assert unpack(bits, spec).view(np.uint16).tolist() == bits.tolist()


def test_empty_has_the_requested_alignment() -> None:
    assert all(empty(tensor((3, 5), row_major(2), I16), 4096).ctypes.data % 4096 == 0 for _ in range(5))


@pytest.mark.parametrize("function", [pack, unpack])
def test_wrong_shape_or_type(function) -> None:
    spec = tensor((2, 3), row_major(2))
    with pytest.raises(ArgumentError, match=r"shape \(2, 3\), got \(3, 2\)"):
        function(np.zeros((3, 2), np.float32), spec)
    with pytest.raises(ArgumentError, match=r"expected an array of float32, got float64"):
        function(np.zeros((2, 3)), spec)
