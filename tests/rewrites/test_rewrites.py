"""Each rewrite makes its nodes, and reports why it does not apply."""

from __future__ import annotations

import itertools
from collections import Counter

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import morello
from morello.errors import Inapplicable
from morello.frontend.parser import parse_schedule
from morello.ir.impl import Alloc, Loop, Node
from morello.ir.ops.matmul import Matmul
from morello.rewrites.base import rewrites_of
from morello.rewrites.tile import Tile


def matmul(
    shape: str = "1×4×8×16", op: str = "MatmulAccum", operands: str = "GL, GL, GL", limits: str = ""
) -> morello.Goal:
    text = f"{op}({shape}, {operands}, serial)"
    return morello.goal(f"({text}, {limits})" if limits else text, target="x86_avx2")


def node(goal: morello.Goal) -> Node:
    assert isinstance(goal.impl, Node)
    return goal.impl


@given(st.tuples(*[st.integers(1, 9)] * 3), st.data())
def test_tiles_cover_the_iteration_space_exactly_once(shape: tuple[int, int, int], data: st.DataObject) -> None:
    sizes = tuple(data.draw(st.integers(1, size)) for size in shape)
    if sizes == shape:
        return
    goal = matmul("1×" + "×".join(map(str, shape))).tile(0, *sizes)
    expansion = node(goal).expansion
    assert isinstance(expansion, Loop)
    seen: Counter[tuple[int, ...]] = Counter()
    for part in expansion.parts:
        assert part.ranges is not None
        reached = [
            [int(s.start + trip * s.size + at) for trip in range(int(s.trips)) for at in range(int(s.size))]
            for s in part.ranges
        ]
        seen.update(itertools.product(*reached))
        assert part.logical.shape == tuple(tile_range.size for tile_range in part.ranges)
    assert set(seen.values()) == {1}
    assert set(seen) == set(itertools.product(range(1), *map(range, shape)))


def test_tile_of_the_output_keeps_the_reduction_whole() -> None:
    body = node(matmul().tile(1, 2, 8)).expansion.parts[0]
    assert body.logical.shape == (1, 2, 8, 8)
    assert body.times == 4


def test_boundaries_get_bodies_of_their_own() -> None:
    parts = node(matmul("1×5×8×7").tile(1, 4, 4)).expansion.parts
    assert [(part.logical.shape, part.times) for part in parts] == [
        ((1, 4, 8, 4), 1),
        ((1, 4, 8, 3), 1),
        ((1, 1, 8, 4), 1),
        ((1, 1, 8, 3), 1),
    ]


def test_a_move_into_a_cache_that_changes_nothing_is_a_view() -> None:
    goal = matmul().move_param(0, "L1")
    memory, cache = map(goal.target.level, ("GL", "L1"))
    expansion = node(goal).expansion
    assert isinstance(expansion, Alloc)
    assert expansion.view
    assert len(expansion.parts) == 1
    # m(source) + m(destination): the 4×8 operand is one run of 2 lines.
    touched = memory.start_cost + 2 * memory.hit_cost + memory.miss_cost
    assert expansion.cost == touched + 2 * cache.hit_cost + cache.miss_cost


def test_an_accumulated_operand_is_loaded_and_stored() -> None:
    goal = matmul(operands="GL, GL, L1").move_param(2, "VRF", "row_major", 8)
    assert [part.role for part in node(goal).expansion.parts] == ["load", "body", "store"]
    plain = matmul(op="Matmul", operands="GL, GL, L1").move_param(2, "VRF", "row_major", 8)
    assert [part.role for part in node(plain).expansion.parts] == ["body", "store"]
    read = matmul(operands="GL, L1, L1").move_param(1, "VRF", "row_major", 8)
    assert [part.role for part in node(read).expansion.parts] == ["load", "body"]


def test_moves_lower_the_limits_of_all_children() -> None:
    goal = matmul(operands="GL, GL, L1").move_param(2, "VRF", "row_major", 8)
    scalars, vectors, *rest = goal.target.full_limits()
    assert [child.spec.limits for child in node(goal).children] == [(scalars, vectors - 8 * 32, *rest)] * 3
    cached = matmul().move_param(1, "L1", "col_major")
    assert [child.spec.limits[2] for child in node(cached).children] == [rest[0] * 7 // 8] * 2


def test_a_widening_cast() -> None:
    goal = morello.goal("Matmul(1×4×8×16, (bf16, GL), (bf16, GL), (f32, GL), serial)", target="x86_avx2").move_param(
        0, "L1", "row_major", dtype="f32"
    )
    load, body = node(goal).expansion.parts
    assert [str(state.dtype) for state in load.logical.states] == ["bf16", "f32"]
    assert str(body.logical.states[0].dtype) == "f32"


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda goal: goal.tile(1, 8, 16), "larger than 4"),
        (lambda goal: goal.tile(1, 4, 16), "nothing gets smaller"),
        (lambda goal: goal.tile(1, -1, 16), "not positive"),
        (lambda goal: goal.tile(1, 2), "3 sizes .* or 4"),
        (lambda goal: goal.split(0), "not positive"),
        (lambda goal: goal.split(8), "nothing gets smaller"),
        (lambda goal: goal.to_accum(), "no accumulating variant"),
        (lambda goal: goal.select("MultAdd"), "does not implement this MatmulAccum"),
        (lambda goal: goal.select("Nothing"), "no microkernel 'Nothing'"),
        (lambda goal: goal.move_param(0, "VRF", "row_major", 8), "cannot be moved to VRF"),
        (lambda goal: goal.move_param(3, "L1"), "no operand 3"),
        (lambda goal: goal.move_param(0, "GL"), "leaves lhs where and as it is"),
        (lambda goal: goal.move_param(0, "L1", vector=8), "holds no vectors"),
        (lambda goal: goal.move_param(0, "L1").move_param(0, "VRF", "row_major"), "needs a vector size"),
        (lambda goal: goal.move_param(0, "L1").move_param(0, "VRF", "row_major", 64), "does not fill vectors"),
        (lambda goal: goal.move_param(0, "L1", "diagonal"), "unknown layout 'diagonal'"),
        (lambda goal: goal.move_param(0, "L1", "row_major", dtype="u8"), "cannot be cast"),
    ],
)
def test_steps_that_do_not_apply_say_why(step, message: str) -> None:
    with pytest.raises(Inapplicable, match=message):
        step(matmul())


def shared(
    shape: str = "1×10×8×16", op: str = "MatmulAccum", operands: str = "GL, GL, GL", target: str = "x86_avx2"
) -> morello.Goal:
    """A goal that threads may share."""
    return morello.goal(f"{op}({shape}, {operands})", target=target)


def test_a_parallel_loop_costs_its_busiest_thread() -> None:
    goal = shared("3×10×8×16").tile(1, 4, 4, parallel=True)
    serial = node(shared("3×10×8×16").tile(1, 4, 4)).expansion
    weights = goal.target.weights
    expansion = node(goal).expansion
    assert isinstance(expansion, Loop)
    assert expansion.parallel
    assert expansion.cost == weights.sync
    body, boundary = expansion.parts
    assert (body.tiles, body.times) == (24, -(-24 // weights.threads))
    assert (boundary.tiles, boundary.times) == (12, 12)
    assert body.logical.serial
    assert boundary.logical.serial
    assert [part.ranges for part in expansion.parts] == [part.ranges for part in serial.parts]
    assert str(expansion.step) == "tile [1, 4, 4] parallel"


def test_search_shares_one_or_two_dimensions_of_specs_that_are_not_serial() -> None:
    goal = shared("4×8×8×8", "Matmul")
    steps = [*Tile.steps(goal.spec.logical, goal.target)]
    serial = [*Tile.steps(attrs.evolve(goal.spec.logical, serial=True), goal.target)]
    assert steps[: len(serial)] == serial
    assert not any(step.parallel for step in serial)
    tiled = [tuple(dim for dim, size in enumerate(step.sizes) if size) for step in steps[len(serial) :]]
    assert {*tiled} == {(0,), (1,), (3,), (0, 1), (0, 3), (1, 3)}
    assert all(step.parallel for step in steps[len(serial) :])
    assert len({*steps}) == len(steps) == len(serial) + 2 + 3 + 3 + 2 * 3 + 2 * 3 + 3 * 3


@pytest.mark.parametrize(
    ("goal", "sizes", "message"),
    [
        (matmul(), (1, 2, 8), "MatmulAccum is serial, for one thread"),
        (shared(), (1, 10, 4, 16), "tiles along k of MatmulAccum write the same values"),
        (shared(operands="L1, L1, (f32, VRF, row_major, v8)"), (1, 1, 16), "out of MatmulAccum is in VRF"),
        (shared(operands="RF, L1, L1"), (1, 1, 16), "lhs of MatmulAccum is in RF, and registers belong to one thread"),
        (shared(), (1, 10, 16), "nothing gets smaller"),
        (shared().tile(1, 5, 16, parallel=True), (1, 1, 16), "is serial"),
    ],
)
def test_loops_that_cannot_be_parallel_say_why(goal: morello.Goal, sizes: tuple[int, ...], message: str) -> None:
    with pytest.raises(Inapplicable, match=message):
        goal.tile(*sizes, parallel=True)


def test_a_whole_reduction_may_be_named_in_a_parallel_tile() -> None:
    assert node(shared().tile(1, 5, 8, 16, parallel=True)).expansion.parts[0].logical.shape == (1, 5, 8, 16)


def test_reductions_of_plain_operations_stay_whole() -> None:
    with pytest.raises(Inapplicable, match="needs k whole"):
        matmul(op="Matmul").split(4)


def test_tiles_do_not_split_vectors_or_strips() -> None:
    with pytest.raises(Inapplicable, match="split its vectors of 8"):
        matmul(operands="L1, L1, (f32, VRF, row_major, v8)").tile(1, 4, 4)
    with pytest.raises(Inapplicable, match="breaks up strips"):
        matmul(operands="L1, (f32, L1, layout[0, 2, 1, 2p16]), L1", shape="1×4×8×32").tile(1, 4, 24)


def convolution(stride: str, image: str = "L1") -> morello.Goal:
    return morello.goal(
        f"ConvAccum[stride={stride}](1×8×4×1×6×1×1, (f32, {image}), (f32, L1), (f32, L1), serial)", target="x86_avx2"
    )


def test_a_convolution_with_one_position_is_a_product() -> None:
    spec = "Conv(1×8×4×1×6×1×1, (f32, L1), (f32, L1), (f32, L1), serial)"
    (part,) = node(morello.goal(spec, target="x86_avx2").apply("spatial_split")).expansion.parts
    assert part.logical.op == Matmul()


@pytest.mark.parametrize(("image", "contig"), [("L1", 0), ("L1, nhwc", 1), ("L1, nchw4c", 1)])
def test_a_product_sees_the_pixels_that_a_stride_comes_to(image: str, contig: int) -> None:
    (part,) = node(convolution("2", image).apply("spatial_split")).expansion.parts
    assert part.logical.shape == (1, 6, 4, 8)
    assert part.logical.states[0].contig == contig
    (plain,) = node(convolution("[2, 1]", image).apply("spatial_split")).expansion.parts
    assert plain.logical.states[0].contiguous


def test_pixels_in_strips_cannot_be_skipped() -> None:
    strips = "ConvAccum[stride=3](1×8×4×1×6×1×1, (f32, L1, layout[0, 2, 3, 1, 3p4]), (f32, L1), (f32, L1), serial)"
    with pytest.raises(Inapplicable, match=r"not all values of .* can be seen apart: they lie in strips or vectors"):
        morello.goal(strips, target="x86_avx2").apply("spatial_split")


def rows(image: str = "L1", filters: str = "L1", out: str = "L1") -> morello.Goal:
    return morello.goal(f"ConvAccum(1×8×4×3×7×1×1, {image}, {filters}, {out}, serial)", target="x86_avx2")


@pytest.mark.parametrize(
    ("flags", "shape"), [("", (1, 21, 4, 8)), (" filters", (1, 8, 4, 21))], ids=["as rows", "as columns"]
)
@pytest.mark.parametrize("layout", ["row_major", "nhwc", "nchw4c"])
def test_rows_of_pixels_one_after_another_are_one(layout: str, flags: str, shape: tuple[int, ...]) -> None:
    images = [f"(f32, L1, {layout})"] * 2
    (part,) = node(rows(images[0], out=images[1]).apply(f"spatial_split{flags}")).expansion.parts
    assert part.logical.shape == shape
    assert all(state.contiguous for state in part.logical.states)


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        ("(f32, L1, row_major, c1)", "do not lie one after another"),
        ("(f32, L1, layout[0, 1, 3, 2])", "one after another"),
    ],
)
def test_rows_of_pixels_apart_are_not_one(image: str, reason: str) -> None:
    with pytest.raises(Inapplicable, match=reason):
        rows(image).apply("spatial_split")


def test_one_pixel_a_row_is_a_column() -> None:
    spec = "ConvAccum(1×8×4×3×1×1×1, (f32, L1, c0), L1, L1, serial)"
    (part,) = node(morello.goal(spec, target="x86_avx2").apply("spatial_split")).expansion.parts
    assert part.logical.shape == (1, 3, 4, 8)


def test_a_step_that_exceeds_memory_reports_the_excess() -> None:
    tight = matmul(operands="GL, GL, L1", limits="[64, 128, 32768, 524288, 0, 2147483648]")
    with pytest.raises(Inapplicable, match="takes 256 bytes of VRF, 128 are left"):
        tight.move_param(2, "VRF", "row_major", 8)


@pytest.mark.parametrize("goal", [matmul("1×16×16×16"), shared("1×16×16×16")])
def test_every_step_of_search_can_be_printed_and_read_again(goal: morello.Goal) -> None:
    target = goal.target
    steps = [step for rewrite in rewrites_of(target) for step in rewrite.steps(goal.spec.logical, target)]
    assert len(steps) > 30
    for step in steps:
        assert parse_schedule(str(step), target) == (step,)
