"""Run and judge random products in AMX's tiles; on CPUs with AVX-512 but no AMX, its instructions are emulated in C.

    python -m tools.fuzz.tile_programs [--count 500] [--seed 0] [--emulate]

Loops, threads, splits of sums, packing and the levels of operands are drawn; every program calls a kernel on tiles. It
is compared with numpy and with reference_c on all data sets, between guard zones, and runs under the sanitizers. Exit
code 1 if anything fails. The tests of `plugins/x86_amx` run the same on fewer programs.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from collections.abc import Iterator

from morello_x86_amx.emulated import emulated
from morello_x86_amx.kernels import COLUMNS, KERNELS, PRODUCTS, ROWS, TileProduct
from morello_x86_amx.plugin import WITHOUT_TILES

from morello.build.toolchain import available_compilers
from morello.errors import Inapplicable
from morello.frontend.parser import parse_spec
from morello.host import missing_features
from morello.ir.impl import Impl, KernelCall, Node, walk
from morello.ir.layout import Layout, Packed, col_major
from morello.ir.ops.matmul import Matmul
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.plugins import Registry, installed
from morello.rewrites import Rewrite
from morello.rewrites.move import MoveStep
from morello.rewrites.select import Select
from morello.rewrites.split import Split
from morello.rewrites.tile import Tile
from morello.rewrites.to_accum import ToAccum
from morello.schedule import rewrite_leaf, with_child
from morello.testing.generate import RandomPrograms
from morello.testing.trials import Trials
from tools.fuzz.isolated import outcomes

#: Programs that are built together.
BATCH = 50
_NAMES = [kernel.name for kernel in KERNELS]


class TilePrograms:
    """Draws programs from a seed."""

    def __init__(self, target: Target, seed: int):
        self._target, self._rng = target, random.Random(seed)

    def draw(self) -> Iterator[Node]:
        """Yield programs that call a kernel on tiles, without end."""
        while True:
            product = self._rng.choice(PRODUCTS)
            impl = self._program(self._spec(product), product)
            if isinstance(impl, Node) and any(
                isinstance(node, Node) and isinstance(node.expansion, KernelCall) and node.expansion.kernel in _NAMES
                for node in walk(impl)
            ):
                yield impl

    def _spec(self, product: TileProduct) -> Spec:
        rng = self._rng
        lhs, rhs, out = rng.choice(product.factors), rng.choice(product.factors), rng.choice(product.sums)
        m, n = (rng.choice([16, 32, 48, 64, 80, 40, 100]) for _ in range(2))
        where = [rng.choice(["L1", "L2", "GL"]) for _ in range(3)]
        accum, serial = rng.choice(["", "Accum"]), rng.choice(["", ", serial"])
        operands = ", ".join(f"({dtype}, {level})" for dtype, level in zip((lhs, rhs, out), where, strict=True))
        text = f"Matmul{accum}(1×{m}×{product.depth * rng.randint(1, 4)}×{n}, {operands}{serial})"
        return parse_spec(text, self._target)

    def _program(self, spec: Spec, product: TileProduct) -> Impl | None:
        """Return a program of a Spec, of tiles if it is a product; None if attempts found none."""
        if not isinstance(spec.logical.op, Matmul):
            return RandomPrograms(self._target, self._rng).draw(spec)
        for step in self._steps(spec, product):
            try:
                impl = rewrite_leaf(spec, step, self._target)
            except Inapplicable:
                continue
            for number, child in enumerate(impl.children):
                part = self._program(child.spec, product)
                if part is None:
                    return None
                impl = with_child(impl, (number,), part)
            return impl
        return RandomPrograms(self._target, self._rng).draw(spec)

    def _steps(self, spec: Spec, product: TileProduct) -> Iterator[Rewrite]:
        """Yield kernels on tiles, mostly before other steps, which are in random order."""
        rng = self._rng
        blocks = Layout((*col_major(3).dims, Packed(2, COLUMNS), Packed(1, product.taken)))
        steps: list[Rewrite] = [
            *(Tile((0, ROWS * count, 0, 0), rng.random() < 0.5) for count in (1, 2)),
            *(Tile((0, 0, 0, COLUMNS * count), rng.random() < 0.5) for count in (1, 2, 3)),
            *(MoveStep(operand, rng.choice(["L1", "L2"])) for operand in range(3)),
            MoveStep(1, rng.choice(["L1", "L2"]), blocks),
            Split(product.depth * rng.randint(1, 2)),
            ToAccum(),
        ]
        rng.shuffle(steps)
        kernels = [Select(name) for name in _NAMES]
        yield from [*kernels, *steps] if rng.random() < 0.8 else [*steps, *kernels]


def registries() -> dict[str, Registry]:
    """Return the registries whose x86_amx runs on this CPU, by name: the instructions' first."""
    found = {"instructions": installed(), "emulation": emulated()}
    return {name: one for name, one in found.items() if not missing_features(one.target("x86_amx").info.cpu_features)}


def batches(count: int, seed: int, registry: Registry) -> Iterator[Trials]:
    """Yield the first `count` programs of a seed in batches, to be verified with all warnings and sanitizers."""
    target, compilers = registry.target("x86_amx", "base"), available_compilers()
    drawn = TilePrograms(target, seed).draw()
    for turn, first in enumerate(range(0, count, BATCH)):
        programs = [*itertools.islice(drawn, min(BATCH, count - first))]
        yield Trials(programs, target, compiler=compilers[turn % len(compilers)], sanitize=True, seed=seed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--emulate", action="store_true", help="emulate AMX on CPUs that have it, too")
    options = parser.parse_args()
    able = registries()
    if not able:
        missing = ", ".join(missing_features(WITHOUT_TILES))
        print(f"nothing ran: this CPU lacks {missing}, which the emulation of AMX needs")
        return 1
    name = "emulation" if options.emulate else next(iter(able))
    print(f"AMX's {name} on this CPU")
    done, failures = 0, list[str]()
    for trials in batches(options.count, options.seed, able[name]):
        for fault in outcomes(trials):
            if fault:
                failures.append(fault)
                print(f"program {done} of seed {options.seed}: {fault}")
            done += 1
        print(f"{done} programs, {len(failures)} failed", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
