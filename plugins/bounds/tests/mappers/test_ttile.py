"""The mapper `ttile`: what the paper counts, classes of kernels, and tables of results."""

from __future__ import annotations

import csv
import io
import re
from itertools import islice
from pathlib import Path

import attrs
import pytest
from morello_bounds.mappers.kernel_classes import (
    Family,
    KernelClass,
    KernelTable,
    MeasuredKernel,
    classes_of,
    heat_map,
)
from morello_bounds.mappers.mapped import Completion
from morello_bounds.mappers.permutations import (
    Caches,
    best_permutation,
    completed,
    covers,
    divisors,
    six_orders,
    volume,
)
from morello_bounds.mappers.ttile import Candidate, TTileOptions, candidates, drawn, longest, ttile, variants
from morello_bounds.nest import nest_of
from morello_bounds.scheme import LoopSequence, Specifier, parse_scheme, resolved, scheme_text
from morello_bounds.scheme_steps import schedule_of_scheme
from morello_vectors.register_tiles import rows_within

from morello import api
from morello.errors import MorelloError
from morello.ir.ops.conv import Conv
from morello.schedule import schedule_text

NHWC = "(f32, GL, nhwc), (f32, GL, layout[2, 3, 1, 0]), (f32, GL, nhwc)"
#: [Tollenaere2021], Figures 8 and 10: layer, filters, channels, rows of the image and of filters, stride, and kernels.
LAYERS = """
Yolo9000-0,32,3,544,3,1,[8H2K]
Yolo9000-2,64,32,272,3,1,[3S4H4K]
Yolo9000-4,128,64,136,3,1,[3R10H]+2[3R12H]
Yolo9000-5,64,128,136,1,1,[8H2K]+2[13H2K]
Yolo9000-8,256,128,68,3,1,[3S4H4K]
Yolo9000-9,128,256,68,1,1,[8H2K]+5[12H2K]
Yolo9000-12,512,256,34,3,1,2[3R11H]+[3R12H]
Yolo9000-13,256,512,34,1,1,2[10H2K]+[14H2K]
Yolo9000-18,1024,512,17,3,1,[8H2K]+[9H2K]
Yolo9000-19,512,1024,17,1,1,[8H2K]+[9H2K]
Yolo9000-23,28269,1024,17,1,1,[8H3K]+[9H3K]
ResNet18-1,64,3,224,7,2,[14H2K]
ResNet18-2,64,64,56,3,1,[14H2K]
ResNet18-3,64,64,56,1,1,[14H2K]
ResNet18-4,128,64,56,3,2,[14H2K]
ResNet18-5,128,64,56,1,2,[14H2K]
ResNet18-6,128,128,28,3,1,[3S4H4K]
ResNet18-7,256,128,28,3,2,[14H2K]
ResNet18-8,256,128,28,3,1,[14H2K]
ResNet18-9,256,256,14,3,1,[3R14H]
ResNet18-10,512,512,14,3,2,[3R7H4K]
ResNet18-11,512,256,14,1,2,[7H4K]
ResNet18-12,512,512,7,3,1,[3S7H4K]
"""
EXAMPLE = "[T16,k, T1,h, λseq_h β.[(2,11),(1,12)], T17,w, T1,h, T1,h, T3,s, T3,r, T2,w, T256,c, Uβ,h, U2,k, Vk]"
MOVED = "[T16,k, T1,h, T17,w, λseq_h β.[(2,11),(1,12)], T1,h, T1,h, T3,s, T3,r, T2,w, T256,c, Uβ,h, U2,k, Vk]"


def conv(f: int, c: int, size: int, filters: int, serial: str = ", serial", target: str = "x86_avx2") -> api.Goal:
    text = f"Conv(1×{f}×{c}×{size}×{size}×{filters}×{filters}, {NHWC}{serial})"
    return api.goal(text, target=target, profile="base")


def by_rows(goal: api.Goal) -> float:
    """Return a time with which kernels of 3 to 5 rows are the best."""
    flops = goal.spec.logical.flops
    return flops * (1.0 if 3 <= int(goal.spec.shape[4]) <= 5 else 2.0)


def test_combinations_of_the_paper_cover_its_layers() -> None:
    """A label without K has one vector; the last image of Yolo9000 has 28,272 filters with padding."""
    layers = [line.split(",") for line in LAYERS.strip().splitlines()]
    assert len(layers) == 23
    covered: list[int] = []
    distinct: set[str] = set()
    flops: dict[str, float] = {}
    for name, filters, channels, rows, positions, stride, text in layers:
        kernels = re.findall(r"(\d*)\[(\w+)\]", text)
        distinct |= {label for _, label in kernels}
        parts = [
            (int(trips or 1), {dim: int(n) for n, dim in re.findall(r"(\d+)(\w)", label)}) for trips, label in kernels
        ]
        cover = tuple((trips, part["H"]) for trips, part in parts)
        covered.append(total := sum(trips * one for trips, one in cover))
        padded = -(-int(filters) // 16) * 16
        assert all(padded % (16 * part.get("K", 1)) == 0 for _, part in parts)
        size = int(rows) // int(stride)
        assert int(rows) % total == size % total == 0
        assert cover in [*covers(size, range(4, 16))]
        shape = (1, int(filters), int(channels), size, size, int(positions), int(positions))
        flops[name] = Conv(stride=int(stride)).flops(shape) / 1e9
    assert len(distinct) == 16
    assert covered == [8, 4, 34, 34, 4, 68, 34, 34, 17, 17, 17, 14, 14, 14, 14, 14, 4, 14, 14, 14, 7, 7, 7]
    rounded = {name: round(flops[name], 4) for name in ("Yolo9000-12", "Yolo9000-23", "ResNet18-2", "ResNet18-1")}
    assert rounded == {"Yolo9000-12": 2.7273, "Yolo9000-23": 16.7316, "ResNet18-2": 0.2312, "ResNet18-1": 0.2360}


@pytest.mark.parametrize(
    ("rows", "pairs", "uncovered"),
    [
        (range(8, 16), {17: 1, 34: 7, 68: 25, 136: 59, 272: 129, 544: 278, 28: 4, 56: 14, 112: 38, 224: 97, 7: 0}, []),
        (range(8, 15), {17: 1, 34: 7, 68: 24, 136: 55, 272: 119, 544: 257, 28: 3, 56: 11}, [15]),
    ],
)
def test_pairs_of_a_class_are_those_of_the_paper(rows: range, pairs: dict[int, int], uncovered: list[int]) -> None:
    assert {size: sum(len(one) == 2 for one in covers(size, rows)) for size in pairs} == pairs
    assert [size for size in range(8, 200) if not any(covers(size, rows))] == uncovered


def test_schemes_of_a_permutation_are_those_of_the_paper() -> None:
    """[Tollenaere2021] §5.3: 3 places of λseq by 4 splits of w; the pair 8, 9 leaves a 2 for three loops."""
    permutation = (("f", "w"), ("h", "w"), ("w",), ("fh", "fw", "h", "c"))
    kernel = (Specifier("U", "w"), Specifier("U", "f", 2), Specifier("V", "f", 16))
    counts: dict[tuple[tuple[int, int], ...], int] = {}
    for cover in (one for one in covers(34, range(8, 16)) if len(one) == 2):
        sequence = LoopSequence("w", cover)
        left = {"f": 16, "c": 256, "fh": 3, "fw": 3, "h": 34, "w": 34 // sequence.total}
        schemes = [*completed(permutation, left, sequence, kernel)]
        assert len({*schemes}) == len(schemes)
        counts[cover] = len(schemes)
        if cover == ((2, 11), (1, 12)):
            sizes = left | {"w": 34, "f": 512}
            assert resolved(parse_scheme(EXAMPLE, Conv()), sizes, 16, Conv()) in schemes
    assert counts[(2, 11), (1, 12)] == 12
    assert counts[(1, 8), (1, 9)] == 36
    assert sum(counts.values()) == 108


def test_volumes_are_those_of_the_formula() -> None:
    goal = conv(512, 256, 34, 3)
    nest = nest_of(goal.spec)
    found = {}
    for text in (EXAMPLE, MOVED):
        sizes = dict(zip(nest.loops, nest.sizes, strict=True))
        scheme = resolved(parse_scheme(text, Conv()), sizes, 16, Conv())
        found[text] = [volume(scheme, nest, 4 * values) // 4 for values in (8192, 12288, 262144, 22 << 18)]
    assert found[EXAMPLE] == [173_592_576, 113_430_528, 9_441_280, 2_695_168]
    assert found[MOVED][2] == 12_390_400


def test_kernels_of_the_paper_fill_the_registers() -> None:
    """αβ + α + 1 registers; 7H4K of the paper has one of 33 in memory, so that four vectors take 6 rows here."""
    assert rows_within(32) == 14
    goal = api.goal("Matmul(1×252×16×192, GL, GL, GL, serial)", target="x86_avx512", profile="base")
    for rows, vectors, fits in ((14, 2, True), (9, 3, True), (6, 4, True), (7, 4, False)):
        scheme = parse_scheme(f"[R_i, R_j, T16,k, U{rows},i, U{vectors},j, V_j]", goal.spec.op)
        if fits:
            assert schedule_of_scheme(scheme, goal.spec, goal.target)
        else:
            with pytest.raises(MorelloError, match="no microkernel"):
                schedule_of_scheme(scheme, goal.spec, goal.target)


def test_six_orders_are_those_of_three_arrays() -> None:
    nest = nest_of(conv(32, 8, 6, 3).spec)
    orders = six_orders(nest)
    assert len({*orders}) == 6
    assert {nest.loops[one[0]] for one in orders} == {"f", "b", "c"}
    assert all(sorted(one) == [*range(7)] for one in orders)


def test_a_permutation_ends_with_the_loop_of_the_kernel() -> None:
    goal = conv(64, 64, 14, 3)
    nest = nest_of(goal.spec)
    steps = {dim: divisors(size) for dim, size in zip(nest.loops, nest.sizes, strict=True)}
    found = best_permutation(nest, {"f": 16, "w": 7}, steps, Caches.of(goal.spec, goal.target), "c")
    assert len(found) == 4
    assert found[-1][-1] == "c"
    assert {dim for group in found for dim in group} == {"f", "c", "h", "w", "fh", "fw"}


def test_classes_are_intervals_of_rows_near_the_best() -> None:
    rates = {3: 80.0, 4: 86.0, 5: 100.0, 6: 84.0, 7: 90.0}
    kernels = [MeasuredKernel(Family(2), rows, rate) for rows, rate in rates.items()]
    assert classes_of(kernels, 0.85) == [KernelClass(Family(2), (4, 5)), KernelClass(Family(2), (7,))]
    assert heat_map(kernels, 0.85, str) == (
        "one position: percent of the best, by vectors (down) and rows; * at least 85%\n"
        "        3    4    5    6    7\n"
        "  2   80   86* 100*  84   90*\n"
    )


def test_the_longest_loops_along_the_sum_are_kept() -> None:
    scheme = (Specifier("T", "c", 2),)
    found = [Candidate(scheme, summed) for summed in (1, 8, 4, 4, 2)]
    assert [one.summed for one in longest(found, 0.4)] == [8, 4, 4]
    assert longest([], 0.4) == []


def test_measured_kernels_are_kept_in_a_file(tmp_path: Path) -> None:
    goal, path = conv(16, 8, 6, 1), tmp_path / "kernels.csv"
    first = KernelTable(by_rows, path).kernels(goal.spec, goal.target)
    assert {one.rows for one in first if one.rate == 1.0} == {3, 4, 5}

    def fail(goal: api.Goal) -> float:
        raise AssertionError("is measured again")

    assert KernelTable(fail, path).kernels(goal.spec, goal.target) == first
    path.write_text("target,rate\nx,fast\n")
    with pytest.raises(MorelloError, match="cannot read kernels"):
        KernelTable(by_rows, path)


def test_parallel_variants_share_the_longest_band() -> None:
    spec = conv(32, 16, 6, 1, serial="").spec
    scheme = parse_scheme("[T_{2,k}, T_{2,c}, T_{6,w}, T_{2,h}, T_{8,c}, U_{3,h}, U_{2,k}, V_k]", spec.op)
    kernel = "T_{8,c}, U_{3,h}, U_{2,k}, V_k]"
    assert [(name, scheme_text(one, spec.op), [*band]) for name, one, band in variants(scheme, spec)] == [
        ("a", "[T_{2,k}, T_{2,c}, T_{6,w}, T_{2,h}, " + kernel, [2, 3]),
        ("b", "[T_{2,k}, T_{6,w}, T_{2,h}, T_{2,c}, " + kernel, [0, 1, 2]),
        ("c", "[T_{2,c}, T_{2,k}, T_{6,w}, T_{2,h}, " + kernel, [1, 2, 3]),
    ]
    serial = attrs.evolve(spec, logical=attrs.evolve(spec.logical, serial=True))
    assert [name for name, _, _ in variants(scheme, serial)] == [""]


@pytest.mark.slow
def test_programs_are_ranked_in_a_table(tmp_path: Path) -> None:
    goal = conv(16, 8, 11, 1)
    options = TTileOptions(by_rows, tmp_path, threshold=0.4, tried=3)
    best = Completion(goal, ()).best(ttile(options))
    assert not best.refused
    assert "fit 4" in best.text
    assert "boundary" not in str(best.goal.impl)
    (name,) = [one.name for one in tmp_path.iterdir() if one.name.startswith("Conv")]
    rows = [*csv.DictReader(io.StringIO((tmp_path / name).read_text()))]
    assert [row["rank"] for row in rows] == ["1", "2", "3"]
    assert [float(row["value"]) for row in rows] == sorted(float(row["value"]) for row in rows)
    assert float(rows[0]["value"]) == pytest.approx(best.cost, rel=1e-5)
    assert rows[0]["schedule"] == schedule_text(best.schedule)
    assert "* at least 40%" in (tmp_path / "kernels.txt").read_text()
    kernels = KernelTable(by_rows, tmp_path / "kernels.csv").kernels(goal.spec, goal.target)
    found = [candidates(goal.spec, goal.target, kernels, options) for _ in range(2)]
    assert found[0] == found[1]
    costs = [Caches.of(goal.spec, goal.target).cost(one.moved) for one in found[0]]
    assert costs == sorted(costs)


def test_other_operations_get_no_proposals() -> None:
    goal = api.goal("Softmax(4×8, GL, GL, serial)", target="x86_avx2", profile="base")
    assert not [*ttile().propose(goal.spec, goal.target, 0)]


def test_random_schemes_depend_on_the_seed_alone() -> None:
    goal = conv(64, 128, 17, 1)
    kernels = KernelTable(by_rows).kernels(goal.spec, goal.target)
    options = TTileOptions(tried=3)

    def texts(seed: int) -> list[str]:
        found = islice(drawn(goal.spec, goal.target, kernels, options, seed), 12)
        return [scheme_text(one.scheme, goal.spec.op) for one in found]

    first = texts(1)
    assert first == texts(1) != texts(2)
    assert len({*first}) == len(first) > 5
    for one in islice(drawn(goal.spec, goal.target, kernels, options, 1), 12):
        # Kernels of 3 to 5 rows are near the best; the loop above them is long, and the scheme covers all sizes.
        assert one.summed >= 32
        assert re.search(r"[345][),]|U_\{[345],h\}", scheme_text(one.scheme, goal.spec.op))
        assert schedule_of_scheme(one.scheme, goal.spec, goal.target)


def test_random_schemes_become_programs() -> None:
    goal = conv(16, 32, 10, 1)
    program = Completion(goal, ()).best(ttile(TTileOptions(by_rows, tried=3, drawn=True)), 5)
    assert program.cost == Completion(goal, ()).best(ttile(TTileOptions(by_rows, tried=3, drawn=True)), 5).cost
