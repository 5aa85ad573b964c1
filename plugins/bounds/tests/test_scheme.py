"""Schemes: texts, schedules, and back from programs."""

from __future__ import annotations

import pytest
from morello_bounds.scheme import parse_scheme, resolved, scheme_text
from morello_bounds.scheme_steps import schedule_of_scheme, scheme_of

from morello import api
from morello.errors import MorelloError
from morello.host import missing_features
from morello.ir.impl import Node
from morello.ir.ops.conv import Conv
from morello.ir.ops.matmul import Matmul
from morello.plugins.registry import installed
from morello.schedule import schedule_text
from morello.testing.trials import Trials

CONV, MATMUL = Conv(), Matmul()
#: [Tollenaere2021] §5.3, Figure 5, §4, and a file of TTile's.
TEXTS = [
    (CONV, "[T16,k, T1,h, λseq_h β.[(2,11),(1,12)], T17,w, T1,h, T1,h, T3,s, T3,r, T2,w, T256,c, Uβ,h, U2,k, Vk]"),
    (MATMUL, "[R_j, λseq_i α.[(12,6),(8,7)], T_{64,k}, U_{α,i}, U_{2,j}, V_j]"),
    (MATMUL, "[R_i,R_j,R_k]"),
    (
        CONV,
        "[V f; U(4,f); ULambda y; U(3,w); T(128,c); Hoist_vars[c]; T(34,x); T(3,h); T(2,c); T(2,f); "
        "Lambda_apply y [(Iter 1,Arg 4);(Iter 5,Arg 6)]; T(1,x); T(4,f); T(1,f)]",
    ),
]
FILES = "[V j; U(2,j); ULambda i; T(64,k); Lambda_apply i [(Iter 12,Arg 6);(Iter 8,Arg 7)]; R j]"
NHWC = "(f32, GL, nhwc), (f32, GL, layout[2, 3, 1, 0]), (f32, GL, nhwc)"


def conv(f: int, c: int, size: int, filters: int, serial: str = ", serial", target: str = "x86_avx2") -> api.Goal:
    text = f"Conv(1×{f}×{c}×{size}×{size}×{filters}×{filters}, {NHWC}{serial})"
    return api.goal(text, target=target, profile="base")


def product(m: int, k: int, n: int) -> api.Goal:
    return api.goal(f"Matmul(1×{m}×{k}×{n}, GL, GL, GL, serial)", target="x86_avx2", profile="base")


def finished(goal: api.Goal, text: str) -> api.Goal:
    steps = schedule_of_scheme(parse_scheme(text, goal.spec.op), goal.spec, goal.target)
    return goal.apply(steps).synthesize(db=False)


@pytest.mark.parametrize(("op", "text"), TEXTS)
def test_both_spellings_parse_to_the_same(op: Conv | Matmul, text: str) -> None:
    scheme = parse_scheme(text, op)
    assert parse_scheme(scheme_text(scheme, op), op) == scheme == parse_scheme(scheme_text(scheme, op, True), op)


def test_files_begin_with_the_innermost_specifier() -> None:
    assert scheme_text(parse_scheme(TEXTS[1][1], MATMUL), MATMUL, files=True) == FILES


def test_sizes_determine_trips() -> None:
    made = resolved(
        parse_scheme("[R_j, R_k, R_i, T_{4,k}, U_{6,i}, U_{2,j}, V_j]", MATMUL), {"m": 12, "k": 8, "n": 48}, 8, MATMUL
    )
    assert scheme_text(made, MATMUL) == "[T_{3,j}, T_{2,k}, T_{2,i}, T_{4,k}, U_{6,i}, U_{2,j}, V_j]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("T16,k", "is not a scheme"),
        ("[T16,q]", "no dimension 'q'"),
        ("[T16,k, foo]", "'foo' is not a specifier"),
        ("[R_k R_c]", "no separator before 'R_c'"),
        ("[T_{0,k}]", "at least one trip"),
        ("[V_k, T_{1,k}]", "V is the innermost"),
        ("[R_k, R_k]", r"more than one R along k \(f of the Spec\)"),
        ("[U_{α,h}]", "belong together"),
        ("[λseq_h α.[(1,2)], U_{α,h}]", "at least two pairs"),
    ],
)
def test_text_that_is_no_scheme_is_an_error(text: str, message: str) -> None:
    with pytest.raises(MorelloError, match=message):
        parse_scheme(text, CONV)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[R_i, R_k, U_{2,j}, V_j]", r"covers 16 of 64 along j \(n of the Spec\)"),
        ("[R_i, R_j, R_k, U_{5,i}, U_{2,j}, V_j]", "tiles of 5 do not divide 24"),
        ("[R_i, R_j, T_{16,k}, U_{4,j}, V_i]", "neighbours along j alone"),
        ("[R_i, R_j, T_{16,k}, U_{12,i}, U_{2,j}, V_j]", "no microkernel of x86_avx2 implements"),
        ("[R_j, λseq_i α.[(3,4),(2,6)], T_{16,k}, U_{α,i}, U_{2,j}, V_j]", None),
        ("[R_j, λseq_i α.[(6,2),(4,3)], T_{16,k}, U_{α,i}, U_{2,j}, V_j]", None),
    ],
)
def test_what_schedules_cannot_express_is_an_error(text: str, message: str | None) -> None:
    goal = product(24, 16, 64)
    scheme = parse_scheme(text, goal.spec.op)
    if message is None:
        assert schedule_of_scheme(scheme, goal.spec, goal.target)
        return
    with pytest.raises(MorelloError, match=message):
        schedule_of_scheme(scheme, goal.spec, goal.target)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("[R_j, λseq_i α.[(12,6),(8,7)], T_{16,k}, U_{α,i}, U_{1,j}, V_j]", None),
        ("[λseq_i α.[(8,7),(12,6)], R_j, T_{2,k}, T_{8,k}, U_{α,i}, V_j]", "[λseq_i α.[(8,7), (12,6)], T_{2,j}, "),
        ("[R_k, R_i, R_j]", "[T_{16,k}, T_{128,i}, T_{16,j}]"),
    ],
)
def test_schemes_of_products_are_printed_from_their_programs(text: str, printed: str | None) -> None:
    """Figure 5: i from 0 to 72 by 6, then to 128 by 7."""
    done = finished(product(128, 16, 16), text)
    back = scheme_text(scheme_of(done.impl, done.target), MATMUL)
    assert back.startswith(printed or "[T_{2,j}, λseq_i α.[(12,6), (8,7)], T_{16,k}, U_{α,i}, V_j]")
    assert finished(product(128, 16, 16), back).impl == done.impl


def test_schemes_of_convolutions_are_printed_from_their_programs() -> None:
    goal = conv(16, 8, 17, 3)
    for text in (
        "[T_{17,w}, λseq_h α.[(2,6), (1,5)], T_{3,s}, T_{3,r}, T_{8,c}, U_{α,h}, U_{2,k}, V_k]",
        "[λseq_h α.[(1,5), (2,6)], T_{3,s}, T_{2,c}, T_{17,w}, T_{4,c}, U_{3,r}, U_{α,h}, U_{2,k}, V_k]",
    ):
        done = finished(goal, text)
        assert scheme_text(scheme_of(done.impl, done.target), CONV) == text


def test_a_band_of_loops_is_one_parallel_loop() -> None:
    goal = conv(32, 8, 6, 1, serial="")
    scheme = parse_scheme("[R_k, R_w, R_c, U_{6,h}, U_{2,k}, V_k]", goal.spec.op)
    steps = schedule_of_scheme(scheme, goal.spec, goal.target, range(2))
    assert schedule_text(steps[:1]) == "tile [1, 16, 8, 1, 6, 1, 1] parallel"


def test_programs_that_are_no_schemes_are_an_error() -> None:
    goal = product(17, 16, 48).apply("tile [1, 6, 16, 16]").synthesize(db=False)
    with pytest.raises(MorelloError, match=r"leaves boundary tiles|differ by more than"):
        scheme_of(goal.impl, goal.target)
    with pytest.raises(MorelloError, match="has no scheme"):
        scheme_of(product(4, 4, 8).impl, goal.target)
    softmax = api.goal("Softmax(4×8, GL, GL, serial)", target="x86_avx2", profile="base")
    with pytest.raises(MorelloError, match="schemes are for Matmul and Conv"):
        scheme_of(softmax.impl, softmax.target)


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_features(installed().target("x86_avx2").info.cpu_features)), reason="needs AVX2")
def test_composed_programs_are_right() -> None:
    goal = conv(16, 8, 11, 3)
    texts = (
        "[R_w, λseq_h α.[(1,5),(1,6)], R_s, R_r, T_{8,c}, U_{α,h}, U_{2,k}, V_k]",
        "[λseq_h α.[(2,3),(1,5)], R_c, R_w, T_{4,c}, U_{3,s}, U_{3,r}, U_{α,h}, U_{2,k}, V_k]",
    )
    impls = [impl for text in texts if isinstance(impl := finished(goal, text).impl, Node)]
    trials = Trials(impls, goal.target)
    for index in range(len(impls)):
        trials.check(index)
