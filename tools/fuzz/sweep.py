"""Compare search on blocks with the textbook recursion on every Spec below small random goals.

    python -m tools.fuzz.sweep [--specs 100000] [--seed 0] [--target NAME]

Cost, peak memory and the whole program must be equal. Exit code 1 if anything differs. tests/search runs the same on
fewer Specs.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from morello.errors import PluginError
from morello.frontend.parser import parse_spec
from morello.ir.dtypes import by_name as dtype_named
from morello.ir.numbers import Num
from morello.ir.ops import by_name
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.microkernel import Microkernel
from morello.kernels.target import Target
from morello.plugins import Combined, Weights
from morello.plugins.registry import Registry, installed
from morello.search.session import SearchSession
from morello.testing.generate import random_spec
from morello.testing.textbook import Cheapest, Textbook, differences

#: Sources of the third party's toy_cpu. They come with a checkout only.
TOY = Path(__file__).parents[2] / "tests" / "thirdparty" / "toy_cpu" / "src"
NAMES = ("x86_avx2", "x86_avx512", "toy_cpu", "packing", "sharing", "uneven", "dear")

#: What Matmul of f32 in GL costs on x86_avx2 with all its memory. A plain recursion needs hours for it.
FULL = {(1, 2, 2, 8): 6253, (1, 4, 4, 4): 6297, (1, 4, 4, 8): 6450}

_MOVE, _ZERO, _MATMUL, _ACCUM = map(by_name, ("Move", "FillZero", "Matmul", "MatmulAccum"))
#: Its products see every other pixel.
_STRIDED = by_name("ConvAccum").configured({"stride": 2})
#: Operations, sizes and types of random goals: no more than the recursion solves in seconds.
DRAWS = [
    *[
        (_MOVE, shape, dtypes)
        for shape in ((2, 3), (5, 3), (1, 8), (6, 7), (4, 8))
        for dtypes in ("f32 f32", "i32 i32")
    ],
    *[(_MOVE, shape, "bf16 f32") for shape in ((3, 5), (2, 8), (1, 7))],
    *[(_ZERO, shape, dtype) for shape in ((3, 7), (2, 8), (13,)) for dtype in ("f32", "i32")],
    *[(_MATMUL, shape, "f32 f32 f32") for shape in ((1, 1, 2, 3), (1, 2, 3, 2), (1, 1, 1, 8), (1, 5, 1, 3))],
    *[(_ACCUM, shape, "f32 f32 f32") for shape in ((1, 3, 1, 5), (2, 1, 3, 1), (1, 1, 8, 1), (1, 2, 1, 8))],
    (_ACCUM, (1, 1, 7, 1), "bf16 f32 f32"),
    (_MATMUL, (1, 2, 2, 3), "i32 i32 i32"),
    *[
        (_STRIDED, shape, "f32 f32 f32")
        for shape in ((1, 1, 2, 1, 2, 1, 1), (1, 2, 1, 1, 3, 1, 1), (2, 1, 1, 1, 2, 1, 2))
    ],
]


#: What starting threads costs where parallel loops pay even for such small goals.
_SOON = 10


class Enough(Exception):
    """The recursion has seen as many Specs as it may."""


class Bounded(Textbook):
    """A textbook recursion that stops after `most` Specs; the answers so far are valid."""

    most = 0

    def _solve(self, spec: Spec) -> Cheapest | None:
        if spec not in self.seen and len(self.seen) >= self.most:
            raise Enough
        return super()._solve(spec)


def target_named(name: str) -> Target:
    """Return an installed target, toy_cpu from its sources, `packing`, `sharing`, `uneven`, or `dear`."""
    variants: dict[str, Callable[[Any], Any]] = {
        "toy_cpu": lambda one: one,
        "packing": packing,
        "sharing": sharing,
        "uneven": uneven,
        "dear": dear,
    }
    if name not in variants:
        return installed().target(name)
    return Registry.of(toy_cpu=variants[name](toy_plugin())).target("toy_cpu")


def toy_plugin() -> Any:
    """Return the plugin object of toy_cpu."""
    if not TOY.is_dir():
        raise PluginError(
            f"there are no sources of toy_cpu in {TOY}",
            "run it in a checkout of Morello, installed with pip install -e .",
        )
    if str(TOY) not in sys.path:
        sys.path.append(str(TOY))
    return importlib.import_module("toy_cpu.plugin").PLUGIN


def packing(plugin: Any) -> Any:
    """Give toy_cpu memory so cheap that copies in it pay: what search finds without its limit often does not fit."""

    def changed(kernel: Microkernel) -> Microkernel:
        costs: dict[str, Callable[..., Any]] = {
            "MultAdd": lambda spec, target: 60,
            "Copy": lambda spec, target: 1,
            "AddScaledRow": lambda spec, target: spec.shape[3],
        }
        if kernel.name not in costs:
            return kernel
        operands = tuple(attrs.evolve(one, levels=("R", "C", "MEM")) for one in kernel.operands)
        return attrs.evolve(kernel, operands=operands, cost=costs[kernel.name])

    *rest, memory = plugin.levels
    memory = attrs.evolve(memory, destinations=("C", "MEM"), hit_cost=1)
    return attrs.evolve(plugin, levels=(*rest, memory), kernels=tuple(map(changed, plugin.kernels)))


def sharing(plugin: Any) -> Any:
    """Give toy_cpu four threads that start so soon that even small loops are shared."""
    return attrs.evolve(plugin, weights=Weights(threads=4, sync=3))


def dear(plugin: Any) -> Any:
    """Give toy_cpu kernels that cost so much that bounds by class, which keep 24 bits, are rounded."""

    def costlier(kernel: Microkernel) -> Microkernel:
        assert not isinstance(kernel.cost, Combined)
        return attrs.evolve(kernel, cost=Dear(kernel.cost))

    return attrs.evolve(plugin, kernels=tuple(map(costlier, plugin.kernels)))


@attrs.frozen
class Dear:
    """A multiple of the cost of a kernel."""

    cost: Any
    times: int = (1 << 24) + 43

    def __call__(self, spec: LogicalSpec, target: Target) -> Num:
        return self.cost(spec, target) * self.times


def uneven(plugin: Any) -> Any:
    """Give toy_cpu little memory, no power of two of it at any level, and registers that are counted in thirds."""
    registers, cache, memory = packing(plugin).levels
    levels = (
        attrs.evolve(registers, capacity=10 * registers.unit, divisions=3),
        attrs.evolve(cache, capacity=7 * cache.unit, divisions=7),
        attrs.evolve(memory, capacity=12 * memory.unit, divisions=8),
    )
    return attrs.evolve(packing(plugin), levels=levels)


def random_goal(rng: random.Random, target: Target) -> Spec:
    """Draw a goal of a few values, with operands anywhere and little memory."""
    while True:
        op, shape, types = rng.choice(DRAWS)
        dtypes = [dtype_named(one) for one in types.split()]
        if len({*dtypes}) == 1 or target.info.casts:
            break
    serial = target.weights.sync > _SOON and rng.random() < 0.8
    levels = [level.name for level in target.levels]
    # Where vectors do not fit, operands go elsewhere.
    spec = random_spec(rng, target, op, shape, dtypes, rng.choice([levels, levels[-2:], levels[-2:-1]]))
    return Spec(attrs.evolve(spec.logical, serial=serial), random_limits(rng, target))


def random_limits(rng: random.Random, target: Target) -> tuple[int, ...]:
    """Draw limits: no memory or little of it, at every level."""
    return tuple(rng.choice(grid.values[:4]) for grid in target.grids)


def sweep(target: Target, rng: random.Random, goals: int, most: int) -> tuple[int, list[str]]:
    """Compare all Specs below some random goals; return how many, and a line on each that differs."""
    textbook = Bounded(target)
    for _ in range(goals):
        textbook.most = len(textbook.seen) + most
        with contextlib.suppress(Enough):
            textbook.solve(random_goal(rng, target))
    return len(textbook.seen), [*differences(textbook.seen, SearchSession(target, refine_after=0).programs)]


def full_spec(shape: tuple[int, ...], target: Target) -> Spec:
    return parse_spec(f"Matmul({'×'.join(map(str, shape))}, GL, GL, GL, serial)", target)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--specs", type=int, default=100_000, help="the least number of comparisons")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", choices=NAMES, action="append", help="by default all, in turn")
    options = parser.parse_args()
    rng, start = random.Random(options.seed), time.monotonic()
    wrong: list[str] = []
    compared = turn = 0
    while compared < options.specs:
        name = (options.target or NAMES)[turn % len(options.target or NAMES)]
        count, found = sweep(target_named(name), rng, goals=8, most=1500)
        compared, turn, wrong = compared + count, turn + 1, wrong + [f"{name}: {one}" for one in found]
        summary = f"{compared:,} Specs compared, {len(wrong)} differ, {time.monotonic() - start:.0f} s"
        print(f"{summary}; last: {count} on {name}", flush=True)
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
