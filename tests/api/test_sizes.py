"""Programs for a size that is known at run time: covers, their C, and calls in every size."""

from __future__ import annotations

import pickle
from functools import cache

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import morello
from morello import api
from morello.api.sizes import MOST_PARTS, RATIO, Covers, SizedGoal, SizedKernel, choose_parts
from morello.build.toolchain import find_compiler
from morello.errors import ArgumentError, Inapplicable, MorelloError
from morello.frontend.diagnostics import SourceError
from morello.frontend.parser import parse
from morello.frontend.specfile import show_file
from morello.run.compiler_choice import CompilerChoice, CompilerTime
from morello.run.function import NativeFunction
from tools.fixtures import Cli, Write

HEAD = "target x86_avx2\nspec f = "
MATMUL = "Matmul(m×6×5, GL, GL, GL, serial) for m in 2..21"


@cache
def kernel(text: str, target: str = "x86_avx2") -> SizedKernel:
    made = morello.compile(text, target=target, db=False, progress=False)
    assert isinstance(made, SizedKernel)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("text", [
    MATMUL,
    "Relu(m×3, GL, GL) for m in 1..19",
    "Softmax(m×7, GL, GL, serial) for m in 1..10",
    "Conv(m×2×3×4×4×3×3, GL, GL, GL, serial) for m in 1..5",
    "MatmulAccum(m×3×4, (f32, GL, c1), GL, (f32, GL, c1), serial) for m in 1..9",
])  # fmt: skip
def test_every_size_is_verified_and_costs_what_the_plan_says(text: str) -> None:
    made = kernel(text)
    sizes, plan = made.goal.sizes, made.goal.plan
    assert plan is not None
    for size in range(sizes.low, sizes.high + 1):
        one = made.at(size)
        assert one.cost == plan.cost(size)
        assert sum(part * count for part, count in plan.cover(size).items()) == size
        assert one.check().worst < 1
        assert one.source == made.source
    assert made.cost == made.at(sizes.high).cost


def test_calls_take_arrays_of_any_size() -> None:
    made, rng = kernel(MATMUL), np.random.default_rng(0)
    b = rng.random((6, 5), np.float32)
    for size in [*range(2, 22), 0, 7, 7]:
        a = rng.random((size, 6), np.float32)
        np.testing.assert_allclose(made(a, b), a @ b, rtol=1e-5)
        out = np.zeros((size, 5), np.float32)
        assert made(a, rhs=b, out=out) is out
        np.testing.assert_allclose(out, a @ b, rtol=1e-5)
        assert made(a, b, out) is None


def test_calls_of_size_0_check_their_arrays() -> None:
    made, b = kernel(MATMUL), np.ones((6, 5), np.float32)
    for shape in ((0, 6), (1, 0, 6)):
        assert made(np.ones(shape, np.float32), b).shape == (*shape[:-1], 5)
    for wrong in (np.ones((0, 7), np.float32), np.ones((0, 6))):
        with pytest.raises(ArgumentError, match=r"operand 0 \(lhs\)"):
            made(wrong, b)
    with pytest.raises(ArgumentError, match=r"operand 2 \(out\)"):
        made(np.ones((0, 6), np.float32), b, np.ones((2, 5), np.float32))


def test_sizes_share_one_loaded_function_and_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("morello.api.sizes._KERNELS", 2)
    made = SizedKernel(*kernel(MATMUL).__reduce__()[1])
    first = made.at(2)
    assert first.function.load() is made.function.load()
    assert made.at(2) is first
    assert [made.at(size).spec.shape[1] for size in (3, 4)] == [3, 4]
    assert made.at(2) is not first


def test_compilers_are_timed_on_the_largest_part(monkeypatch: pytest.MonkeyPatch) -> None:
    goal, timed = morello.parse(f"{HEAD}Relu(m×8, GL, GL) for m in 1..20")["f"], list[int]()
    goal = attrs.evolve(goal, few=True).synthesize(db=False, progress=False)
    assert isinstance(goal, SizedGoal)

    def choose(function: NativeFunction) -> CompilerChoice:
        timed.append(int(function.spec.shape[0]))
        return CompilerChoice((CompilerTime(find_compiler(), None),))

    monkeypatch.setattr("morello.run.compiler_choice.choose_compiler", choose)
    made = SizedKernel(goal, goal.program, "auto")
    assert made(np.ones((3, 8), np.float32)).shape == (3, 8)
    assert timed == [8]


@pytest.mark.parametrize("size", [1, 22])
def test_sizes_out_of_range_are_errors(size: int) -> None:
    made, out = kernel(MATMUL), np.zeros((size, 5), np.float32)
    with pytest.raises(ArgumentError, match=rf"m is {size}, not in 2\.\.21"):
        made(np.ones((size, 6), np.float32), np.ones((6, 5), np.float32), out)


def test_error_codes_of_the_c_function() -> None:
    loaded = kernel(MATMUL).function.load()
    a, b, out = (np.ones(shape, np.float32) for shape in ((22, 6), (6, 5), (22, 5)))
    pointers = [loaded.ffi.cast("float *", one.ctypes.data) for one in (a, b, out)]
    codes = {size: loaded.function(*pointers, size) for size in (-1, 0, 1, 2, 21, 22, 2**40)}
    assert codes == {-1: 1, 0: 0, 1: 1, 2: 0, 21: 0, 22: 1, 2**40: 1}
    assert (out[:21] == 6).all()
    assert (out[21:] == 1).all()


def test_the_same_spec_gives_the_same_c() -> None:
    again = morello.compile(MATMUL, target="x86_avx2", db=False, progress=False)
    assert again.source == kernel(MATMUL).source
    assert pickle.loads(pickle.dumps(again)).source == again.source


@settings(max_examples=50)
@given(st.dictionaries(st.integers(2, 9), st.integers(0, 40), max_size=4), st.integers(0, 40), st.integers(1, 60))
def test_covers_cost_as_little_as_any(costs: dict[int, int], single: int, high: int) -> None:
    costs = {**costs, 1: single}
    covers, few = Covers.of(costs, high), Covers.of(costs, 0)
    reached = {0: {0}}  # all costs of each size
    for size in range(1, high + 1):
        reached[size] = {costs[one] + cost for one in costs if one <= size for cost in reached[size - one]}
        assert covers.cost(size) == min(reached[size])
    assert few.least == [0]


def test_parts_are_few_and_their_covers_nearly_exact() -> None:
    def cost(size: int) -> int:
        return 50_000 + 1_000 * size

    parts = choose_parts(cost, 4096)
    covers = Covers.of({part: cost(part) for part in parts}, 4096)
    assert len(parts) <= MOST_PARTS
    assert max(covers.cost(size) / cost(size) for size in parts) <= RATIO
    assert choose_parts(lambda size: size, 4096)[-2:] == [512, 1024]
    assert choose_parts(lambda size: 10 + size, 3) == [1, 2, 3]


@pytest.mark.parametrize("text", [
    MATMUL,
    "(Softmax(8×rows, GL, GL), [L1=4096]) for rows in 1..3",
    "Compose([y = Relu(h), h = Matmul(x, w)], [x: (1×m×8, GL), w: (1×8×4, GL), y: (1×m×4, GL)]) for m in 2..9",
])  # fmt: skip
def test_texts_print_and_parse_again(text: str) -> None:
    if "rows" in text:
        text = text.replace("8×rows", "rows×8")
    file = parse(HEAD + text)
    shown = show_file(file)
    assert parse(shown) == file
    assert text.rpartition(" for ")[2] in shown


@pytest.mark.parametrize(("text", "message"), [
    ("Matmul(4×m×8, GL, GL, GL) for m in 1..9", "Matmul cannot be cut along k, of size 'm'"),
    ("Softmax(4×m, GL, GL) for m in 1..9", "Softmax cannot be cut along"),
    ("FillZero(m×8, (f32, VRF, row_major, v8), serial) for m in 1..7", "out is in registers, of number 'm'"),
    ("FillZero(m×8, (f32, RF), serial) for m in 1..7", "out is in registers, of number 'm'"),
    ("Matmul(m×4×m, GL, GL, GL) for m in 1..9", "'m' is the size of m and n"),
    ("Matmul(4×4×4, GL, GL, GL) for m in 1..9", "the Spec has no size 'm'"),
    ("Matmul(m×4×4, GL, GL, GL) for n in 1..9", "'m' is not a size"),
    ("Matmul(m×4×4, GL, GL, GL)", "'m' is not a size"),
    ("Matmul(m×4×4, GL, GL, GL) for m in 9..1", "no m is in 9..1"),
    ("Matmul(m×4×4, GL, GL, GL) for m in 0..9", "m is 0"),
    ("Matmul(m×4×4, GL, GL, GL) for m in 1..16777217", "m is 16777217"),
    ("Matmul(m×4×4, (GL, col_major), GL, GL) for m in 1..9", "the layout of lhs"),
    ("Matmul(m×4×4, GL, (GL, constant), GL) for m in 1..9", "a constant operand"),
    ("Conv(1×1×1×m×4×3×3, GL, GL, GL) for m in 1..9", "parts of image of Conv along h overlap"),
    ("Matmul(m×4×4, GL, GL, GL) for m in 1..", "the text ends too early"),
])  # fmt: skip
def test_errors_in_texts(text: str, message: str) -> None:
    with pytest.raises(SourceError) as caught:
        parse(HEAD + text)
    assert message in caught.value.message
    assert caught.value.hint


def test_the_schedule_is_empty_and_spec_files_keep_the_sizes() -> None:
    goal, done = morello.parse(HEAD + MATMUL)["f"], kernel(MATMUL).goal
    assert (goal.facts["schedule"], done.facts["schedule"], done.schedule) == ("not scheduled", "", "")
    assert "m in 2..21" in goal._repr_html_()
    assert "m in 2..21" in kernel(MATMUL)._repr_html_()
    assert done.spec_file == api.spec_file([done])
    assert parse(done.spec_file).goals[0].sizes == done.sizes


def test_comments_name_no_size_that_depends_on_the_call() -> None:
    assert "Sizes:" not in kernel("Conv(m×1×1×2×2×1×1, GL, GL, GL, serial) for m in 1..2").source


def test_steps_of_schedules_are_errors() -> None:
    goal = morello.parse(HEAD + MATMUL)["f"]
    with pytest.raises(Inapplicable, match="has no schedule"):
        goal.tile(1, 2, 4)
    with pytest.raises(SourceError, match="a schedule for"):
        parse(f"{HEAD}{MATMUL}\nschedule f {{ tile [1, 1, 1] }}")
    with pytest.raises(MorelloError, match="no programs yet"):
        _ = goal.program


def test_commands(cli: Cli, write: Write) -> None:
    file = write(f"spec f = {MATMUL}\n")
    assert "int f(" in cli("compile", file, "--no-db", "--emit", "header").stdout
    assert "optimal among covers" in cli("explain", file, "--no-db").stdout
    assert "for m in 2..21" in cli("compile", file, "--no-db", "--emit", "schedule").stdout
    refused = cli("compile", file, "--no-search", "-d", "lib")
    assert "a library has no f, which takes a size at run time" in refused.stderr
    refused = cli("precompute", file, "--up-to", "1x4x4")
    assert refused.exit_code
    assert "'m' is known at run time alone" in refused.stderr
