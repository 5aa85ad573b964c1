"""Compare the database with a list of cells: all that is added is found, and nothing else is claimed."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morello.db import labels, maintenance
from morello.db.answers import AnswerBlock, AnswerKind, SpecAnswer
from morello.db.boxes import Boxes, covered, of_limits, of_sizes, settle, to_limits, to_sizes
from morello.db.export_import import export_lines, import_lines, import_tables
from morello.db.store import Conflict, SpecStore
from morello.errors import MorelloError, SpecError
from morello.frontend.parser import parse_spec
from morello.ir.limits import Limits, fits
from morello.ir.spec import Spec
from morello.plugins.registry import installed

TARGET = installed().target("x86_avx2")
LABELS = [
    parse_spec(text, TARGET).logical
    for text in ("FillZero(4×8, (f32, L1), serial)", "FillZero(4×8, (f32, GL))", "FillZero(4×8, (u8, L1, c1), serial)")
]
SIZES = (1, 2, 3, 4, 5, 6, 8)
LIMITS = [*product((0, 4, 8), (0, 32, 64), (0, 64, 128, 256), (0,), (0,), (0, 1 << 30))]
NOTHING = (0,) * len(TARGET.levels)
SHAPES: list[tuple[int, ...]] = [*product(SIZES, (1, 2, 4))]


@attrs.frozen
class Program:
    """One program of all Specs of a kind: cost per point of the iteration space, peak, and first step."""

    density: int
    peak: Limits
    step: str


@attrs.frozen
class Cell:
    """A Spec of table `labels`, and how it is answered: `slack` below its optimum, or exactly."""

    labels: int
    shape: tuple[int, ...]
    limits: Limits
    slack: int | None


@attrs.frozen
class World:
    """The programs, best first, of each of two kinds of Specs; `kinds` is the kind of each shape."""

    programs: tuple[tuple[Program, ...], ...]
    kinds: tuple[int, ...]
    scale: int

    def best(self, cell: Cell) -> Program | None:
        """The optimum: the cheapest program that fits, the first of equally cheap ones."""
        fitting = [one for one in self.programs[self.kinds[SHAPES.index(cell.shape)]] if fits(one.peak, cell.limits)]
        return min(fitting, key=lambda one: one.density, default=None)

    def entry(self, cell: Cell) -> SpecAnswer:
        """Return the answer of search to a cell."""
        best = self.best(cell)
        volume = math.prod(cell.shape) * self.scale
        if cell.slack is not None:
            cost = best.density * volume if best else 1000 * volume
            return SpecAnswer(max(0, cost - cell.slack), AnswerKind.LOWER, NOTHING, None)
        if best is None:
            return SpecAnswer(0, AnswerKind.NONE, NOTHING, None)
        return SpecAnswer(best.density * volume, AnswerKind.EXACT, best.peak, best.step)

    def claimed(self, cells: Sequence[Cell], labels: int, shape: tuple[int, ...], limits: Limits) -> SpecAnswer | None:
        """Return the answer to a Spec that follows from these cells; None if none does."""
        near = [one for one in cells if (one.labels, one.shape) == (labels, shape) and fits(limits, one.limits)]
        entries = [self.entry(one) for one in near]
        for entry in entries:
            if entry.kind == AnswerKind.NONE or (entry.kind == AnswerKind.EXACT and fits(entry.peak, limits)):
                return entry
        return max((one for one in entries if one.kind == AnswerKind.LOWER), key=lambda one: one.cost, default=None)

    def block(self, cells: Sequence[Cell]) -> AnswerBlock:
        """The answers to cells of one table."""
        entries = [self.entry(one) for one in cells]
        steps = list(dict.fromkeys(one.step for one in entries if one.step))
        costs = [one.cost for one in entries]
        return AnswerBlock(
            LABELS[cells[0].labels],
            np.array([one.shape for one in cells], dtype=np.int64),
            np.array([one.limits for one in cells], dtype=np.int64),
            np.array([one.peak for one in entries], dtype=np.int64),
            np.array(costs, dtype=np.int64),
            np.array([one.kind for one in entries], dtype=np.int8),
            tuple(steps),
            np.array([steps.index(one.step) if one.step else -1 for one in entries], dtype=np.int32),
        )

    def blocks(self, cells: Sequence[Cell]) -> list[AnswerBlock]:
        """One block per table."""
        tables = [[one for one in cells if one.labels == labels] for labels in range(len(LABELS))]
        return [self.block(table) for table in tables if table]


def spec(labels: int, shape: tuple[int, ...], limits: Limits) -> Spec:
    return Spec(attrs.evolve(LABELS[labels], shape=shape), limits)


_programs = st.lists(
    st.builds(Program, st.integers(1, 3), st.sampled_from(LIMITS), st.sampled_from(["tile [1, 1]", "move 0 to L1"])),
    max_size=4,
).map(tuple)
worlds = st.builds(
    World,
    st.tuples(_programs, _programs),
    st.tuples(*[st.integers(0, 1)] * len(SHAPES)),
    st.sampled_from([1, 3, 1 << 38]),
)
#: Whole boxes of cells are likely, as search answers them.
_some = st.builds(
    lambda labels, shapes, limits, slack: [Cell(labels, *one, slack) for one in product(shapes, limits)],
    st.integers(0, len(LABELS) - 1),
    st.lists(st.sampled_from(SHAPES), min_size=1, max_size=8, unique=True),
    st.lists(st.sampled_from(LIMITS), min_size=1, max_size=6, unique=True),
    st.sampled_from([None, None, 0, 1, 7]),
)
#: Blocks of answers from search, one after another.
pieces = st.lists(_some, min_size=1, max_size=5)


def filled(folder: str, name: str, world: World, pieces: Sequence[Sequence[Cell]]) -> SpecStore:
    """A database that was handed the pieces one after another."""
    store = SpecStore(Path(folder) / name)
    for cells in pieces:
        store.add(TARGET, world.blocks(cells))
    return store


def check(store: SpecStore, world: World, cells: Sequence[Cell]) -> None:
    """Every lookup in the store returns the consequence of the cells, and no more."""
    for table in range(len(LABELS)):
        asked = [*product(SHAPES, LIMITS)]
        for shape, limit in asked[:: 1 + len(asked) // 60]:
            assert store.find(TARGET, spec(table, shape, limit)) == world.claimed(cells, table, shape, limit)


@pytest.mark.slow
@settings(max_examples=20)
@given(worlds, pieces)
def test_added_answers_are_found_and_no_others(world: World, pieces: list[list[Cell]]) -> None:
    cells = [cell for piece in pieces for cell in piece]
    with tempfile.TemporaryDirectory() as folder:
        check(filled(folder, "a.db", world, pieces), world, cells)
        # Another process finds the same, and so does a store that got the pieces in another order.
        check(SpecStore(Path(folder) / "a.db"), world, cells)
        check(filled(folder, "b.db", world, pieces[::-1]), world, cells)


@pytest.mark.slow
@settings(max_examples=8)
@given(worlds, pieces)
def test_text_and_merging_keep_every_answer(world: World, pieces: list[list[Cell]]) -> None:
    cells = [cell for piece in pieces for cell in piece]
    with tempfile.TemporaryDirectory() as folder:
        first = filled(folder, "first.db", world, pieces[::2])
        second = filled(folder, "second.db", world, pieces[1::2])
        for name, sources in {"a.db": (first, second), "b.db": (second, first)}.items():
            merged = SpecStore(Path(folder) / name)
            for source in sources:
                import_tables(merged, source.tables(), trust=True)
            check(merged, world, cells)
            text = [*export_lines(merged)]
            copy = SpecStore(Path(folder) / f"copy-{name}")
            import_tables(copy, import_lines(text, "text"), trust=True)
            assert [*export_lines(copy)] == text
            check(copy, world, cells)


@pytest.mark.slow
@settings(max_examples=10)
@given(worlds, pieces)
def test_dropping_bounds_keeps_answers(world: World, pieces: list[list[Cell]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = filled(folder, "a.db", world, pieces)
        maintenance.prune(store, [TARGET], lower=True)
        assert not [*maintenance.damage(store)]
        check(store, world, [cell for piece in pieces for cell in piece if cell.slack is None])


@pytest.mark.slow
@settings(max_examples=10)
@given(worlds, pieces)
def test_statistics_count_every_spec_once(world: World, pieces: list[list[Cell]]) -> None:
    cells = [cell for piece in pieces for cell in piece]
    with tempfile.TemporaryDirectory() as folder:
        store = filled(folder, "a.db", world, pieces)
        (found,) = maintenance.summaries(store)
    exact, none, lower = set(), set(), set()
    for cell in cells:
        entry = world.entry(cell)
        ends = of_limits(np.array([entry.peak, cell.limits], dtype=np.int64), TARGET.grids)
        points = product(*(range(low, high + 1) for low, high in ends.T.tolist()))
        kind = {AnswerKind.EXACT: exact, AnswerKind.NONE: none, AnswerKind.LOWER: lower}[entry.kind]
        kind |= {(cell.labels, cell.shape, point) for point in points}
    assert (found.exact, found.none, found.lower) == (len(exact), len(none), len(lower - exact - none))


@pytest.mark.slow
@settings(max_examples=12)
@given(worlds, pieces)
def test_nothing_is_added_unless_all_is(world: World, pieces: list[list[Cell]]) -> None:
    exact = Cell(0, (4, 4), LIMITS[-1], None)
    wrong = attrs.evolve(world, programs=((Program(9, NOTHING, "split 9"),),) * 2)
    cells = [cell for piece in pieces for cell in piece]
    with tempfile.TemporaryDirectory() as folder:
        store = filled(folder, "a.db", world, [*pieces, [exact]])
        with pytest.raises(Conflict, match="contradict"):
            store.add(TARGET, [*wrong.blocks([Cell(1, (2, 2), LIMITS[0], None)]), *wrong.blocks([exact])])
        check(store, world, [*cells, exact])


def test_a_bound_above_an_answer_contradicts_it(tmp_path: Path) -> None:
    world = World(((Program(1, NOTHING, "tile [1, 1]"),),) * 2, (0,) * len(SHAPES), 1)
    store = filled(str(tmp_path), "a.db", world, [[Cell(0, (4, 4), LIMITS[3], None)]])
    bound = attrs.evolve(world.block([Cell(0, (4, 4), LIMITS[-1], 0)]), costs=np.array([17]))
    with pytest.raises(Conflict, match=r"4×4 within .*EXACT 16 and LOWER 17|LOWER 17 and EXACT 16"):
        store.add(TARGET, [bound])


@pytest.mark.parametrize("shape", [(1 << 47, 1), ((1 << 47) - 1, 1), (1, 1), (63, 65)])
def test_the_largest_sizes_are_stored_and_read(shape: tuple[int, int], tmp_path: Path) -> None:
    world = World(((Program(1, NOTHING, "tile [1, 1]"),),) * 2, (0,) * len(SHAPES), 1)
    block = world.block([Cell(0, (4, 4), LIMITS[-1], None)])
    block = attrs.evolve(block, shapes=np.array([shape]), costs=np.array([math.prod(shape)]))
    SpecStore(tmp_path / "a.db").add(TARGET, [block])
    found = SpecStore(tmp_path / "a.db").find(TARGET, spec(0, shape, LIMITS[-1]))
    assert found == SpecAnswer(math.prod(shape), AnswerKind.EXACT, NOTHING, "tile [1, 1]")


@pytest.mark.parametrize("kind", [AnswerKind.EXACT, AnswerKind.LOWER, AnswerKind.NONE])
def test_answers_to_specs_of_more_points_than_64_bits_count(kind: AnswerKind, tmp_path: Path) -> None:
    world = World(((Program(1, NOTHING, "tile [1, 1]"),),) * 2, (0,) * len(SHAPES), 1)
    block = world.block([Cell(0, (4, 4), LIMITS[-1], None if kind == AnswerKind.EXACT else 0)])
    shapes = [(1 << 47, 1 << 16), (1 << 47, 1 << 17), (1 << 47, 1 << 47), (1 << 46, 1 << 4)]
    costs = [0 if kind == AnswerKind.NONE else cost for cost in (3, 3, (1 << 53) - 1, 7)]
    for shape, cost in zip(shapes, costs, strict=True):
        one = attrs.evolve(block, shapes=np.array([shape]), costs=np.array([cost]), kinds=np.array([kind], np.int8))
        SpecStore(tmp_path / "a.db").add(TARGET, [one])
    store = SpecStore(tmp_path / "a.db")
    text = [*export_lines(store)]
    copy = SpecStore(tmp_path / "copy.db")
    import_tables(copy, import_lines(text, "text"), trust=True)
    for shape, cost in zip(shapes, costs, strict=True):
        for one in (store, copy):
            found = one.find(TARGET, spec(0, shape, LIMITS[-1]))
            assert found is not None
            assert (found.kind, found.cost) == (kind, cost)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"shapes": np.array([[0, 4]])}, "sizes are at least 1"),
        ({"kinds": np.array([3], dtype=np.int8)}, "kinds are"),
        ({"costs": np.array([-1])}, "costs are from 0"),
        ({"costs": np.array([1 << 53])}, "to 9,007,199,254,740,991"),
        ({"peaks": np.array([[*NOTHING[1:], 2 << 30]])}, "within its limits"),
        ({"step": np.array([1], dtype=np.int32)}, "has a step"),
        ({"limits": np.array([NOTHING[1:]])}, "limits and peaks"),
    ],
)
def test_blocks_that_make_no_sense(change: dict, rule: str, tmp_path: Path) -> None:
    world = World(((Program(1, NOTHING, "tile [1, 1]"),),) * 2, (0,) * len(SHAPES), 1)
    block = attrs.evolve(world.block([Cell(0, (4, 4), LIMITS[-1], None)]), **change)
    with pytest.raises(ValueError, match=rule):
        SpecStore(tmp_path / "a.db").add(TARGET, [block])


def test_limits_that_are_not_in_normal_form(tmp_path: Path) -> None:
    world = World(((Program(1, NOTHING, "tile [1, 1]"),),) * 2, (0,) * len(SHAPES), 1)
    store = filled(str(tmp_path), "a.db", world, [[Cell(0, (1, 1), LIMITS[-1], None)]])
    for limits in ((3, 0, 0, 0, 0, 0), (0, 0, 3, 0, 0, 0), (0, 0, -1, 0, 0, 0)):
        with pytest.raises(SpecError, match="normal form"):
            store.find(TARGET, spec(0, (1, 1), limits))


@given(st.lists(st.integers(1, 1 << 47) | st.integers(0, 47).map(lambda bit: 1 << bit), min_size=1))
def test_sizes_have_coordinates_of_their_own(sizes: list[int]) -> None:
    points = of_sizes(np.array(sizes))
    assert to_sizes(points).tolist() == sizes
    assert len(set(points.tolist())) == len(set(sizes))


def test_neighbours_are_powers_of_two_and_values_of_limits() -> None:
    assert of_sizes(np.array([1, 2, 4, 8])).tolist() == [0, 1, 2, 3]
    assert of_sizes(np.array([3, 5, 6, 7])).tolist() == [67, 69, 70, 71]
    limits = np.array(
        [
            [0] * 6,
            [4, 32, 64, 64, 64, 64],
            [8, 64, 128, 128, 128, 128],
            [12, 96, 12 << 10, 192 << 10, 12 << 20, 1 << 31],
        ]
    )
    points = of_limits(limits, TARGET.grids)
    assert points.T.tolist() == [[0, 1, 2, 3]] * 2 + [[0, 1, 2, 9], [0, 1, 2, 13], [0, 1, 2, 19], [0, 1, 2, 26]]
    assert to_limits(points, TARGET.grids).tolist() == limits.tolist()


@pytest.mark.parametrize(
    "text",
    [
        "Matmul(1×8×16×32, (bf16, GL, layout[0, 1, 2, 1p4]), (f32, L1, layout[0, 2, 1, 2oe16], ua, c2), RF)",
        "FillZero(4×8, (f32, VRF, v8), serial)",
        "FillZero(1×1, GL)",
        "Compose([Matmul, Matmul], [(1×8×8, f32, GL), (1×8×8, f32, GL), (1×8×8, f32, GL), (1×8×8, f32, GL)])",
        "Softmax[dim=0](4×8, GL, GL)",
        "Scale[by=-1.5e-7](4, GL, GL)",
        "Conv[stride=2, padding=[1, 0, 1, 0]](1×2×3×4×4×3×3, GL, GL, GL, serial)",
        "Compose([Relu, Relu], [(4×4×2, GL), (4×4×2, GL)], serial)",
        "Compose([y = Add(h, x), h = Softmax[dim=1](x)], [y: (4×4×2, GL), x: (4×4×2, L1)], serial)",
        "LayerNorm(4×4×2, GL, GL, GL, GL)",
    ],
)
def test_labels_are_read_as_they_were_written(text: str) -> None:
    logical = parse_spec(text, TARGET).logical
    again = labels.read(labels.write(logical), TARGET.operations, TARGET.dtypes)
    assert attrs.evolve(again, shape=logical.shape) == logical
    assert labels.write(again) == labels.write(logical)


@pytest.mark.parametrize("text", ["", "FillZero", "Pet 1: f32 L1 - c0", "FillZero 1: f32 L1 layout[x] c1"])
def test_invalid_labels(text: str) -> None:
    with pytest.raises(MorelloError):
        labels.read(text, TARGET.operations, TARGET.dtypes)


_side = st.tuples(st.integers(0, 6), st.integers(0, 3))
_boxes = st.integers(1, 4).flatmap(
    lambda axes: st.lists(st.lists(_side, min_size=axes, max_size=axes), min_size=1, max_size=8)
)


@given(_boxes)
def test_points_covered_are_counted_once(boxes: list[list[tuple[int, int]]]) -> None:
    low = np.array([[start for start, _ in box] for box in boxes], dtype=np.int64).reshape(len(boxes), -1)
    high = low + np.array([[more for _, more in box] for box in boxes], dtype=np.int64).reshape(len(boxes), -1)
    points = {point for a, b in zip(low, high + 1, strict=True) for point in product(*map(range, a, b))}
    assert covered(low, high) == len(points)


def test_boxes_that_contain_a_point_are_found_in_large_tables() -> None:
    numbers = np.random.default_rng(1).integers(0, 12, (3, 1500, 4))
    low, high, zeros = numbers[0], numbers[0] + numbers[1], np.zeros(1500, dtype=np.int64)
    boxes = Boxes(zeros, low, high, zeros.astype(np.int8), zeros, zeros + 1, np.arange(1500), zeros > 0, zeros > 0)
    for point in numbers[2, :100]:
        assert np.array_equal(boxes.containing(point).step, np.flatnonzero(((low <= point) & (point <= high)).all(1)))


def test_boxes_that_intersect_are_found_in_large_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 300
    low, more = np.random.default_rng(1).integers(0, 6, (2, size, 3))
    table, zeros = np.sort(np.arange(size) % 3), np.zeros(size, dtype=np.int64)
    kind = np.full(size, AnswerKind.LOWER, dtype=np.int8)
    boxes = Boxes(table, low, low + more, kind, 1 + np.arange(size) % 7, zeros + 1, zeros - 1, zeros > 0, table < 2)
    kept, _ = settle(boxes, 3, True)
    monkeypatch.setattr("morello.db.boxes._FEW_PAIRS", 0)
    found, _ = settle(boxes, 3, True)
    assert 0 < len(kept) < size
    assert np.array_equal(found.matrix(), kept.matrix())


def test_rectangles_grow_over_all_axes(tmp_path: Path) -> None:
    """8 sizes of two dimensions, answered one at a time, are one box in the end."""
    world = World(((Program(2, NOTHING, "tile [1, 1]"),),) * 2, (0,) * len(SHAPES), 1)
    shapes = [shape for shape in SHAPES if shape[0] in (1, 2, 4, 8)]
    store = filled(str(tmp_path), "a.db", world, [[Cell(0, shape, LIMITS[-1], None)] for shape in shapes])
    assert [len(table.boxes) for table in store.tables()] == [1]
    store.add(TARGET, [attrs.evolve(world.block([Cell(0, (2, 2), LIMITS[-1], 0)]), costs=np.array([1]))])
    assert [len(table.boxes) for table in store.tables()] == [1]
