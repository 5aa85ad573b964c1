"""Printed Specs and schedules parse to equal ones."""

import itertools
import math
import random

import attrs
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from morello.codegen.reserved import fault
from morello.errors import SpecError
from morello.frontend import (
    Declaration,
    SourceError,
    SpecFile,
    parse,
    parse_schedule,
    parse_spec,
    show_file,
    show_spec,
)
from morello.frontend.parser import family, parse_signed
from morello.ir import dtypes
from morello.ir.impl import AllowedSteps
from morello.ir.layout import NAMED, Dynamic, Layout, OddEven, Packed, row_major
from morello.ir.ops import BY_NAME
from morello.ir.ops.binary import Add
from morello.ir.ops.compose import Compose
from morello.ir.ops.conv import Conv
from morello.ir.ops.pad import Pad
from morello.ir.ops.softmax import Softmax
from morello.ir.ops.softmax_per_part import SoftmaxDenominatorAndMaxPerPart
from morello.ir.ops.unary import Gelu, Scale, Shift
from morello.ir.ops.views import Concat, Transpose
from morello.ir.signature import Signature
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import SPACINGS, TensorSpec
from morello.rewrites.move import MoveStep
from morello.rewrites.select import Select
from morello.rewrites.split import Split
from morello.rewrites.tile import Tile
from morello.rewrites.to_accum import ToAccum
from morello.schedule import Subschedule, Synthesize, schedule_text
from morello.testing.graphs import random_compose

LEVELS = ("RF", "VRF", "L1", "GL")


@st.composite
def layouts(draw, rank):
    """Any layout of this rank: dimensions in any order, with strips that may not fit every shape."""
    dims = list(map(Dynamic, draw(st.permutations(range(rank)))))
    for _ in range(draw(st.integers(0, 2))):
        strip = draw(st.sampled_from([Packed, OddEven]))(draw(st.integers(0, rank - 1)), draw(st.sampled_from([2, 4])))
        first = next(i for i, one in enumerate(dims) if one.dim == strip.dim)
        dims.insert(draw(st.integers(first + 1, len(dims))), strip)
    return Layout(tuple(dims))


@st.composite
def states(draw, target, shape):
    level, dtype = target.level(draw(st.sampled_from(LEVELS))), draw(st.sampled_from(dtypes.ALL))
    layout = draw(layouts(len(shape)) | st.just(row_major(len(shape))))
    if not layout.applies(shape):
        layout = row_major(len(shape))
    contig = draw(st.integers(0, len(layout.dims)) | st.just(len(layout.dims)))
    state = target.state(level.name, dtype, layout, contig=contig, aligned=draw(st.booleans()))
    if state.layout is not None and contig < len(layout.dims):
        state = attrs.evolve(state, spacing=draw(st.sampled_from([0, *SPACINGS])))
    if level.kind != "vector":
        return state
    fitting = [size for size in target.vector_sizes(level, dtype) if TensorSpec(shape, state).run % size == 0]
    assume(fitting)
    return attrs.evolve(state, vector=draw(st.sampled_from(fitting)))


SIZES = st.sampled_from([1, 1, 2, 3, 4, 8, 16, 24])


CONFIGURED = [
    Softmax(dim=0),
    Gelu(form="tanh"),
    Pad(padding=(1, 0), value=-math.inf),
    Pad(padding=(0, 1), value=math.inf),
    Add(over=(0, 2)),
    Conv(stride=(2, 1), padding=(1, 1, 0, 0)),
    Conv(accumulate=True, dilation=2),
    Transpose(order=(1, 2, 0)),
    Concat(sizes=(1, 2, 5)),
]


@st.composite
def operations(draw):
    """An operation and a shape for it."""
    kind = draw(st.sampled_from(["plain", "plain", "configured", "compose", "compose"]))
    if kind == "compose":
        return random_compose(random.Random(draw(st.integers(0, 10**6))))[:2]
    if kind == "plain":
        op = BY_NAME[draw(st.sampled_from(sorted(BY_NAME)))]
    else:
        numbers = st.floats(-1e6, 1e6, width=32)
        op = draw(st.sampled_from(CONFIGURED) | st.builds(Scale, by=numbers) | st.builds(Shift, by=numbers))
    shape = tuple(draw(SIZES) for _ in range(op.rank or draw(st.integers(3, 4))))
    if isinstance(op, SoftmaxDenominatorAndMaxPerPart):
        shape = (draw(SIZES), *shape[:-1], op.of)
    if isinstance(op, Concat):
        shape = (*shape[:-1], sum(op.sizes))
    if isinstance(op, Transpose):
        shape = shape[: len(op.order) or None]
    # A padded image may have no values left.
    assume(all(size > 0 for one in op.operands(len(shape)) for size in one.shape(shape)))
    return op, shape


@st.composite
def specs(draw, target):
    op, shape = draw(operations())
    own = tuple(draw(states(target, one.shape(shape))) for one in op.operands(len(shape)))
    limits = draw(st.none() | st.tuples(*(st.integers(0, 2 * level.capacity) for level in target.levels)))
    try:
        return target.spec(LogicalSpec(op, shape, own, draw(st.booleans())), limits)
    except SpecError:
        # The operation does not take these data types.
        offered = itertools.product((dtypes.F32, dtypes.I32, dtypes.U8, dtypes.BOOL), repeat=len(own))
        types = next((one for one in offered if op.refusal(shape, one) is None), ())
        assume(types)
        own = tuple(attrs.evolve(state, dtype=dtype) for state, dtype in zip(own, types, strict=True))
        assume(all(one.vector is None or (one.dtype.bytes == 4 and one.vector in (4, 8)) for one in own))
        return target.spec(LogicalSpec(op, shape, own, draw(st.booleans())), limits)


def test_an_image_is_printed_as_the_padding_that_makes_it_fit(target):
    framework = parse_spec("Conv[stride=2, padding=3, image=224](1×64×3×112×112×7×7, GL, GL, GL)", target)
    exact = parse_spec("Conv[stride=2, padding=[3, 3, 2, 2]](1×64×3×112×112×7×7, GL, GL, GL)", target)
    assert framework == exact
    assert parse_spec(show_spec(framework, target), target) == framework
    assert "image=" not in show_spec(framework, target)
    assert framework.logical.operands[0].shape == (1, 3, 224, 224)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("Conv[padding=same](1×2×2×8×8×2×4, ", "Conv[padding=[0, 1, 1, 2]](1×2×2×8×8×2×4, "),
        ("Conv[stride=2, padding=SAME](1×2×2×4×4×3×3, ", "Conv[stride=2, padding=[0, 0, 1, 1]](1×2×2×4×4×3×3, "),
        ("Conv[stride=2, padding=same, image=7](1×2×2×4×4×3×3, ", "Conv[stride=2, padding=1](1×2×2×4×4×3×3, "),
        ("Conv[padding=valid](1×2×2×4×4×3×3, ", "Conv(1×2×2×4×4×3×3, "),
    ],
)
def test_padding_in_words(given, meant, target):
    operands = "(f32, GL, NCHW), GL, (f32, GL, NHWC))"
    assert parse_spec(given + operands, target) == parse_spec(meant + operands.lower().replace("gl", "GL"), target)
    alone, inside = "Conv[padding=same, stride=2]", "[(1×1×8×9, GL), (1×1×3×3, GL), (1×1×4×5, GL)])"
    graph = parse_spec(f"Compose([Relu, {alone}], {inside}", target)
    assert graph == parse_spec(f"Compose([Relu, Conv[padding=[0, 1, 1, 1], stride=2]], {inside}", target)


def test_images_in_a_graph_are_printed_as_padding_too(target):
    text = """\
Compose([Conv[padding=1, image=56], Relu, Conv[stride=2, padding=3, image=[112, 112]]],
    [(8×64×3×3, GL), (1×3×112×112, GL), (64×3×7×7, GL), (1×8×56×56, GL)])"""
    framework = parse_spec(text, target)
    op, shape = framework.logical.op, tuple(map(int, framework.shape))
    assert isinstance(op, Compose)
    assert [stage.op for stage in op.stages if isinstance(stage.op, Conv)] == [
        Conv(padding=1),
        Conv(stride=2, padding=(3, 3, 2, 2)),
    ]
    assert parse_spec(show_spec(framework, target), target) == framework
    assert framework.logical.implied == (
        "operation 0, Conv: image 1×64×56×56, padding [1, 1, 1, 1]; "
        "operation 2, Conv: image 1×3×112×112, padding [3, 3, 2, 2]"
    )
    assert family(text, target).at(shape) == framework


def test_other_sizes_keep_the_padding_that_the_text_means(target):
    given = family("Conv[stride=2, padding=1, image=8](1×2×2×4×4×3×3, GL, GL, GL)", target)
    assert given.at((1, 2, 2, 6, 5, 3, 3)).op == Conv(stride=2, padding=(1, 1, 0, 0))


NUMBERS = st.integers(0, 2**40)
LAYOUTS = st.integers(1, 4).flatmap(layouts) | st.sampled_from([*NAMED, "nchw4c"]) | st.just(row_major(3)) | st.none()
NAMES = st.lists(st.sampled_from(["VectorMove", "tile"]), unique=True).map(tuple)
STEPS = st.one_of(
    st.builds(Select, st.sampled_from(["VectorMove", "ScalarMove"])),
    st.builds(ToAccum),
    st.builds(Tile, st.lists(NUMBERS, max_size=5).map(tuple)),
    st.builds(Split, NUMBERS),
    st.builds(
        MoveStep,
        NUMBERS,
        st.sampled_from(LEVELS),
        LAYOUTS,
        st.none() | st.integers(0, 64),
        st.none() | st.sampled_from([*dtypes.BY_NAME]),
    ),
    st.builds(Synthesize, st.builds(AllowedSteps, NAMES, NAMES)),
)
STATEMENTS = st.recursive(
    STEPS,
    lambda inner: st.builds(
        Subschedule, st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple), st.lists(inner).map(tuple)
    ),
    max_leaves=8,
)
SCHEDULES = st.lists(STATEMENTS, max_size=5).map(tuple)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_specs_survive_printing(target, data):
    spec = data.draw(specs(target))
    assert parse_spec(show_spec(spec, target), target) == spec
    assert parse_spec(str(spec), target) == spec
    unlimited = target.spec(spec.logical)
    assert parse_spec(str(spec.logical), target) == unlimited


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(schedule=SCHEDULES)
def test_schedules_survive_printing(target, schedule):
    assert parse_schedule(schedule_text(schedule), target) == schedule


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_files_survive_printing(registry, target, data):
    words = st.from_regex(r"[a-z]\w{0,4}", fullmatch=True).filter(lambda name: fault(name) is None)
    names = data.draw(st.lists(words, unique=True, min_size=1, max_size=3))
    goals = tuple(Declaration(name, data.draw(specs(target)), data.draw(SCHEDULES)) for name in names)
    file = SpecFile(target, goals)
    assert parse(show_file(file), registry=registry) == file


def test_show_spec(target):
    text = """\
(MatmulAccum(1×4×128×16,
    (bf16, L1, row_major),
    (bf16, L1, col_major, ua, c0),
    (f32, VRF, row_major, v8), serial),
    [64, 512, 32768, 1073741824])"""
    assert show_spec(parse_spec(text, target), target) == text


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_products_without_a_batch_survive_printing(target, data):
    op = data.draw(st.sampled_from([BY_NAME["Matmul"], BY_NAME["MatmulAccum"]]))
    shape = (1, *(data.draw(SIZES) for _ in range(3)))
    own = tuple(
        attrs.evolve(data.draw(states(target, one.shape(shape))), dtype=dtypes.F32) for one in op.operands(len(shape))
    )
    assume(all(state.vector in (None, 4, 8) for state in own))
    spec = target.spec(LogicalSpec(op, shape, own, data.draw(st.booleans())))
    signature = Signature.of(spec.logical, 1)
    for text in (show_spec(spec, target, signature), signature.text(spec.logical)):
        assert parse_signed(text, target) == (spec, signature)
        assert text.count("×") == 2
        assert show_spec(*parse_signed(text.replace("×", "x"), target)[:1], target, signature) == show_spec(
            spec, target, signature
        )


def test_a_product_without_a_batch_is_the_one_with_a_batch_of_1(target):
    text = """\
Matmul(4×128×16,
    (bf16, L1, row_major),
    (bf16, L1, col_major, ua, c0),
    (f32, VRF, layout[1, 0, 1p8], v8), serial)"""
    spec, signature = parse_signed(text, target)
    assert show_spec(spec, target, signature) == text
    with_batch = parse_spec(text.replace("(4×", "(1×4×").replace("[1, 0, 1p8]", "[2, 1, 2p8]"), target)
    assert spec == with_batch
    assert family(text, target).at((1, 8, 128, 16)).shape == (1, 8, 128, 16)
    with pytest.raises(SourceError, match="Matmul without b, which is 2"):
        family(text, target).at((2, 8, 128, 16))


def test_show_spec_leaves_full_limits_out(target):
    assert show_spec(parse_spec("Move(4×4, GL, RF)", target), target) == (
        "Move(4×4,\n    (f32, GL, row_major),\n    (f32, RF))"
    )


def test_show_compose(target):
    text = """\
Compose([Matmul, Matmul],
    [(1×32×128, f32, GL, row_major),
     (1×64×1024, bf16, L1, col_major, c1),
     (1×1024×32, f32, GL, layout[0, 2, 1, 2p16]),
     (1×64×128, f32, RF)], serial)"""
    printed = show_spec(parse_spec(text, target), target)
    # The normal form has no dimensions of size 1.
    assert printed == text.replace("layout[0, 2,", "layout[2,")


def test_str_is_one_line(target):
    spec = parse_spec("MatmulAccum(1×4×4×16, RF, VRF, (L1, c1), serial)", target)
    assert str(spec.logical) == (
        "MatmulAccum(1×4×4×16, (f32, RF), (f32, VRF, row_major, v8), (f32, L1, row_major, c1), serial)"
    )


@pytest.mark.parametrize(
    "text",
    [
        "(1×64×128, f32, GL, row_major)",
        "(4×8, u8, L1, col_major, ua, c1)",
        "(2×3×4×5, bf16, GL, nhwc)",
        "(2×32×4×5, u8, GL, nchw16c)",
        "(4×8, bf16, VRF, layout[0, 1oe8], v16)",
        "(4, i32, RF)",
    ],
)
def test_str_of_a_tensor(target, text):
    shape, rest = text[1:].split(", ", 1)
    tensor = parse_spec(f"FillZero({shape}, ({rest})", target).operands[0]
    assert str(tensor) == text


def test_show_file(registry):
    text = """\
target tiny

spec gemm = Matmul(1×64×64×64,
    (f32, GL, row_major),
    (f32, GL, row_major),
    (f32, GL, row_major), serial)

schedule gemm {
    tile [1, 64, 0]
    move 1 to L1 as layout[0, 2, 1, 2p16]
    move 1 to VRF as row_major v8
    subschedule [0] {
        select VectorMove
    }
    synthesize
}

spec zero = FillZero(4,
    (f32, RF))
"""
    assert show_file(parse(text, registry=registry)) == text


def test_a_layout_in_a_step_is_written_out():
    # Its name is another layout for operands of more dimensions.
    assert schedule_text((MoveStep(0, "L1", NAMED["col_major"](2)),)) == "move 0 to L1 as layout[1, 0]"
    assert schedule_text((MoveStep(0, "L1", "col_major"),)) == "move 0 to L1 as col_major"
