"""Every example runs: synthesized, emitted, built, verified, and run under the sanitizers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import morello
from morello.build.toolchain import find_compiler
from morello.errors import ToolchainError
from morello.ir.impl import KernelCall, Loop, Node, cost_and_peak, leaves, walk
from morello.plugins import TargetInfo
from morello.plugins.registry import installed
from morello.run.runner import missing_here
from morello.untrusted import read_file

EXAMPLES = Path(__file__).parent.parent / "examples"


#: Sizes of examples that take long to solve or to verify, and their replacements here.
SCALED = {
    "attention": {"1×1536×64": "1×4×4", "1×64×1536": "1×4×4"},
    "batch_parallel": {"4×2048×2048×2048": "4×128×128×128"},
    "chain": {"1×4096×32": "1×8×8", "1×32×4096": "1×8×8"},
    "conv": {"1×8×4×8×8×3×3": "1×2×2×4×4×2×2", "1×32×1×1×56×56×3×3": "1×2×1×1×2×4×3×3"},
    "fused": {
        "1×2048×32": "1×8×8",
        "1×32×2048": "1×8×8",
        "1×1×2048": "1×1×8",
        "1×2048×2048": "1×8×8",
        "1×4×130×130": "1×2×5×5",
        "32×4×3×3": "4×2×2×2",
        "1×32×128×128": "1×4×4×4",
    },
    "matmul_2048": {"1×2048×2048×2048": "1×16×16×16"},
    "matvec_bf16": {"1×1×2048×16384": "1×1×32×32"},
    "mlp": {"1×8192×32": "1×8×8", "1×32×128": "1×8×8", "1×128×32": "1×8×8"},
    "norms": {"1×64×512": "1×1×16"},
    "operators": {
        "8192": "8",
        "512×512×512": "4×4×8",
        "×512,": "×8,",
        "446×446": "4×4",
        "8×512×1×1×1×2046": "1×2×1×1×1×8",
        "16×512×128×126×126": "1×2×2×4×4",
        "(1×128×": "(1×4×",
        "2048×8×4096": "4×8×8",
        "256×524288×256": "4×16×4",
        "32768×32×32768": "4×4×8",
        "×768": "×8",
        "image=224](256×96×3×55×55": "image=19](1×2×2×4×4",
        "16×64×3×62×62×62×3×3×3": "1×2×2×2×2×4×2×2×2",
        "8×128×64×508×250×5×7": "1×2×2×2×4×2×3",
        "rows = 4096": "rows = 4",
        "tokens = 2048": "tokens = 4",
        "long = 16384": "long = 8",
        "depth = 128": "depth = 4",
        "rows×64": "rows×8",
        "states = 16": "states = 2",
        "channels = 256": "channels = 8",
    },
    "quantized": {"1×1×1024×1024": "1×1×16×4", "1×128×256×128": "1×1×16×4"},
    "resnet18": {"1×64×64×56×56×3×3": "1×2×2×2×2×3×3", "image=56](1×128×64×28×28×3×3": "image=4](1×2×2×2×2×3×3"},
    "sketch": {"1×64×65536×16": "1×4×8×8"},
    "softmax": {"1024×1024": "4×8", "8×512": "1×8", "8×4096": "1×8", "8×32768": "1×8", "8×524288": "1×8"},
    "transpose": {"2048×2048": "64×64"},
}
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.spec"))
#: Those with schedules of their own are for AVX2. Of the other targets, each searches for half of these.
SEARCHED = sorted(SCALED)


@cache
def example(name: str, target: str = "x86_avx2") -> Mapping[str, morello.Goal]:
    """The goals of an example, scaled down where it is slow."""
    path = EXAMPLES / f"{name}.spec"
    text = read_file(path)
    for before, after in SCALED.get(name, {}).items():
        assert before in text
        text = text.replace(before, after)
    return morello.parse(text.replace("target x86_avx2", f"target {target}"), filename=str(path))


@cache
def synthesized(name: str, target: str = "x86_avx2") -> list[morello.Goal]:
    return [goal.synthesize() for goal in example(name, target).values()]


def grouped(names: Iterable[str], target: str = "x86_avx2") -> list[Any]:
    """The names as parameters; tests of one example share a worker, and so its search."""
    group = pytest.mark.xdist_group
    return [pytest.param(name, marks=[pytest.mark.slow, group(f"{name} {target}")], id=name) for name in names]


@pytest.mark.slow
@pytest.mark.parametrize("name", grouped(sorted({*NAMES} - {*SEARCHED} | {"batch_parallel"})))
def test_examples_run(name: str, prove) -> None:
    assert synthesized(name)
    for done in synthesized(name):
        kernel = prove(done.impl, done.target, done.name)
        assert kernel.bench(min_time=0.01, repeats=2).median > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", grouped(SEARCHED))
def test_examples_are_found_by_search(name: str) -> None:
    found_by_search(name, "x86_avx2")


@pytest.mark.slow
@pytest.mark.parametrize("name", grouped(SEARCHED[::2], "x86_avx512"))
def test_examples_are_found_by_search_on_avx512(name: str) -> None:
    found_by_search(name, "x86_avx512")


@pytest.mark.slow
@pytest.mark.parametrize("name", grouped(SEARCHED[1::2], "aarch64_neon"))
def test_examples_are_found_by_search_on_neon(name: str) -> None:
    found_by_search(name, "aarch64_neon")


def found_by_search(name: str, target: str) -> None:
    info = installed().target(target).info
    _skip_without(info)
    for goal, done in zip(example(name, target).values(), synthesized(name, target), strict=True):
        assert goal.schedule == ""
        kernel = morello.compile(done)
        _skip_without(info, kernel.program.cpu_features)
        kernel.check()


def _skip_without(info: TargetInfo, features: Sequence[str] = ()) -> None:
    try:
        find_compiler(info=info)
        if missing := missing_here(info, features):
            pytest.skip(f"this CPU lacks {', '.join(missing)}")
    except ToolchainError as error:
        pytest.skip(f"{error.message}; {error.hint}")


@pytest.mark.slow
@pytest.mark.parametrize("name", grouped(["attention", "chain", "fused", "mlp"]))
def test_fused_programs_cost_less_than_their_operations_one_by_one(name: str) -> None:
    """The best programs of the operations, with all intermediates in GL."""
    for goal, done in zip(example(name).values(), synthesized(name), strict=True):
        apart = goal.apply("bufferize to GL").synthesize()
        assert cost_and_peak(done.impl).cost < cost_and_peak(apart.impl).cost


@pytest.mark.slow
@pytest.mark.xdist_group("batch_parallel x86_avx2")
def test_search_shares_the_batch_among_threads() -> None:
    (goal,) = example("batch_parallel").values()
    assert goal.schedule == ""
    (done,) = synthesized("batch_parallel")
    assert isinstance(done.impl, Node)
    loop = done.impl.expansion
    assert isinstance(loop, Loop)
    assert loop.parallel
    assert loop.parts[0].tiles >= 4
    assert morello.compile(done).program.parallel


@pytest.mark.slow
@pytest.mark.xdist_group("matmul x86_avx2")
def test_the_main_example_is_found_by_search_through_all_levels() -> None:
    (goal,) = example("matmul").values()
    assert goal.schedule == ""
    (done,) = synthesized("matmul")
    levels = {state.level for node in walk(done.impl) for state in node.spec.logical.states}
    assert levels >= {"VRF", "L1", "GL"}
    assert not [*leaves(done.impl)]


def test_figure_1_is_the_papers_program() -> None:
    """Papers' Figure 1 and §2.3, through the scheduling API as the paper prints it."""
    goal = (
        morello.goal("MatmulAccum(1×4×4×16, RF, VRF, L1)", target="x86_avx2")
        .tile(1, 1, 1, 16)
        .move_param(2, "VRF", "row_major", 8)
        .subschedule(0, lambda load: load.select("VectorMove"))
        .subschedule(1, lambda matmul: matmul.select("BroadcastVecMultAdd"))
        .subschedule(2, lambda store: store.select("VectorMove"))
    )
    by_default = (
        morello.goal("MatmulAccum(1×4×4×16, RF, VRF, L1)", target="x86_avx2")
        .tile([1, 1, 1, 16])
        .move_param(2, "VRF", "row_major", 8)
        .select("BroadcastVecMultAdd")
        .synthesize()
    )
    assert goal.impl == by_default.impl
    (from_file,) = morello.parse(read_file(EXAMPLES / "figure1.spec")).values()
    assert from_file.synthesize().impl == goal.impl
    nodes = [node.expansion for node in walk(goal.impl) if isinstance(node, Node)]
    assert [one.kernel for one in nodes if isinstance(one, KernelCall)] == [
        "VectorMove",
        "BroadcastVecMultAdd",
        "VectorMove",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "read"),
    [
        ("[64, 1024, 32768, 1073741824]", (64, 512, 32 << 10, 512 << 10, 16 << 20, 2 << 30)),
        ("[64, 1024, 32768, GL=1073741824]", (64, 512, 32 << 10, 512 << 10, 16 << 20, 1 << 30)),
    ],
)
def test_the_papers_spec_with_four_limits_is_solved(limits: str, read: tuple[int, ...]) -> None:
    """Papers' §2.2, character by character, and with the last limit for the level that the paper means."""
    text = f"""\
(MatmulAccum(
 1×4×128×16,
 (bf16, L1, row_major),
 (bf16, L1, col_major, ua, c0),
 (f32, VRF, row_major, v8),
 serial),
{limits})"""
    goal = morello.goal(text, target="x86_avx2")
    assert goal.spec.limits == read
    assert morello.goal(str(goal.spec), target="x86_avx2").spec == goal.spec
    kernel = morello.compile(goal)
    assert kernel.proof == "optimal"
    assert kernel.check().worst < 1


def test_the_hand_schedule_keeps_a_6x16_tile_in_twelve_registers() -> None:
    (goal,) = morello.parse(read_file(EXAMPLES / "gemm_6x16.spec")).values()
    source = morello.compile(goal).source
    body = source[source.index("split 1 */") :]
    assert body.count("_mm256_fmadd_ps") == 12
