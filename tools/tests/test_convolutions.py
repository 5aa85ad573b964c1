"""The fuzzer of convolutions: draws depend on the seed alone, and its programs are right."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from contextlib import suppress

import pytest

from morello.errors import Inapplicable
from morello.ir.ops.compose import Compose
from morello.ir.ops.conv import Convolution
from morello.plugins.registry import installed
from morello.rewrites.select import Select
from tools.fuzz.convolutions import KERNELS, Convolutions, batches, called
from tools.fuzz.isolated import outcomes


@pytest.mark.slow
def test_draws_depend_on_the_seed_alone() -> None:
    target = installed().target("x86_avx2", "base")
    first, second = ([*itertools.islice(Convolutions(target, random.Random(1)).draw(), 8)] for _ in range(2))
    assert first == second
    assert all(any(name.startswith(KERNELS) for name in called(one)) for one in first)
    assert len({type(one.spec.op) is Compose for one in first}) == 2
    assert not any(one.spec.op.constants for one in first)


def test_draws_reach_all_kernels_with_edges() -> None:
    """Check the kernels that take drawn Specs as they are."""
    target, found = installed().target("x86_avx2", "base"), defaultdict[str, set[str]](set)
    drawn = (itertools.islice(Convolutions(target, random.Random(seed)).specs(), 300) for seed in range(8))
    for spec in itertools.chain(*drawn):
        op = spec.op.without_constants
        inner = op.stages[-1].op if isinstance(op, Compose) else op
        assert isinstance(inner, Convolution)
        given = {"padding": any(inner.pads), "stride": inner.strides != (1, 1), "dilation": inner.dilations != (1, 1)}
        for step in Select.steps(spec.logical, target):
            with suppress(Inapplicable):
                step.expansion(spec.logical, target)
                found[step.kernel] |= {name for name, there in given.items() if there}
    # ConvTile and ConvTilePixels take one row of images without padding, which programs tile others to.
    tiles = ("ConvTile", "ConvTilePixels")
    assert [one for one in target.kernels_by_name if one.startswith(KERNELS) and one not in {*found, *tiles}] == []
    assert [name for name, given in found.items() if name.startswith(KERNELS) and not given and name not in tiles] == []
    for name in ("ConvImage", "ConvImageAny", "ConvPixels", "Depthwise", "DepthwisePixels"):
        assert found[name] >= {"padding", "stride"}, name
    assert set().union(*found.values()) == {"padding", "stride", "dilation"}


@pytest.mark.slow
def test_programs_are_verified() -> None:
    ((trials, programs),) = batches(installed().target("x86_avx2", "base"), 6, 2)
    assert [*outcomes(trials)] == [None] * len(programs) == [None] * 6
