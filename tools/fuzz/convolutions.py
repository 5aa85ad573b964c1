"""Run and judge random convolutions in the kernels of a target: with edges, strides, groups, graphs and packed filters.

    python -m tools.fuzz.convolutions [--count 500] [--seed 0] [--target NAME] [--kernel PREFIX]... [--sanitize]

Sizes, types, padding on each side, strides, dilations, layouts, levels, constant filters, and what follows the sums are
drawn; kernels of convolutions come before other steps, so that most programs call one. Each is compared with numpy and
with reference_c on all data sets, between guard zones, with all warnings. Exit code 1 if anything fails.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

import attrs

from morello.build.toolchain import available_compilers, find_compiler, is_foreign
from morello.errors import Inapplicable, MorelloError
from morello.frontend.parser import parse_spec
from morello.ir.impl import Impl, KernelCall, Node, walk
from morello.ir.numbers import product
from morello.ir.ops.compose import Compose
from morello.ir.ops.conv import Convolution
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.plugins.registry import installed
from morello.rewrites import Rewrite
from morello.rewrites.move import MoveStep
from morello.rewrites.pack import Pack
from morello.rewrites.select import Select
from morello.rewrites.tile import Tile
from morello.rewrites.to_accum import ToAccum
from morello.schedule import rewrite_leaf, with_child
from morello.testing.generate import RandomPrograms
from morello.testing.trials import Trials
from tools.fuzz.examine import packed
from tools.fuzz.isolated import outcomes

#: Programs that are built together.
BATCH = 40
TARGETS = ("x86_avx2", "x86_avx512")
#: Prefixes of the names of kernels of convolutions in vectors.
KERNELS = ("Conv", "Depthwise")
#: Types of image, filters and sums; the first more often.
_TYPES = (
    *(("f32", "f32", "f32"),) * 6,
    *(("bf16", "bf16", "f32"), ("u8", "i8", "i32")) * 2,
    *(("f16", "f16", "f16"), ("f16", "f16", "f32")),
    *(("bf16", "bf16", "bf16"), ("f64", "f64", "f64"), ("i8", "i8", "i32"), ("i16",) * 3, ("i32",) * 3),
)
#: Layouts of images and filters, with groups and without.
_IMAGES = {False: ("row_major", "nhwc", "nhwc", "nchw8c"), True: ("row_major", *("layout[0, 3, 4, 1, 2]",) * 2)}
_FILTERS = {
    False: ("row_major", "layout[2, 3, 1, 0]", "layout[1, 2, 3, 0]", "layout[0, 2, 3, 1, 0p16]"),
    True: ("row_major", "layout[1, 2, 3, 4, 0]", "layout[1, 2, 3, 4, 0]"),
}
_CHANNELS, _FILTER_COUNTS = (1, 2, 3, 4, 5, 8), (1, 3, 4, 8, 16, 17, 24, 32, 33)
_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17)
#: Layouts of filters in words of several channels, which kernels of narrow types read.
_WORDS = ("layout[2, 3, 1, 0, 1p2]", "layout[2, 3, 1, 0, 1p4]")
#: The most multiply-adds.
_VOLUME = 40_000
_AFTERWARDS = ("Relu", "Silu", "HardSwish", "Clip[low=0, high=6]")


@attrs.define
class Convolutions:
    """Draws programs from a seed that call a kernel whose name has one of the prefixes."""

    target: Target
    rng: random.Random
    prefixes: tuple[str, ...] = KERNELS

    def specs(self) -> Iterator[Spec]:
        """Yield Specs, without end."""
        while True:
            with suppress(MorelloError):
                yield parse_spec(self._text(), self.target)

    def draw(self) -> Iterator[Node]:
        """Yield programs, without end."""
        for spec in self.specs():
            impl = self._program(spec, 0)
            if isinstance(impl, Node) and any(name.startswith(self.prefixes) for name in called(impl)):
                yield packed(impl)

    def _text(self) -> str:
        rng, grouped = self.rng, self.rng.random() < 0.5
        types, levels = rng.choice(_TYPES), rng.choice((("GL",), *(("L1",),) * 3, ("L1", "L2"), ("L1", "L2", "GL")))
        graph, narrow = rng.random() < 0.4, types[1] in ("bf16", "i8")
        # Mostly layouts that kernels read: rows of pixels, or channels last, those of narrow types in words.
        last = "words" if narrow else "last"
        kind = "any" if grouped else rng.choice(("any", "rows", "last", last, last))
        channels, counts = ((2, 4, 8), (16, 24, 32)) if kind == "words" else (_CHANNELS, _FILTER_COUNTS)
        while True:
            h, w = rng.choice(_SIZES), rng.choice(_SIZES)
            fh, fw = (rng.choice((1, 2, 3, 3, 3, 5, 7)) for _ in range(2))
            inner = (rng.choice((1, 1, 1, 2)), rng.choice((1, 1, 1, 2))) if grouped else ()
            outer = (rng.choice(counts),) if grouped else (rng.choice(counts), rng.choice(channels))
            shape = (rng.choice((1, 1, 1, 2)), *outer, *inner, h, w, fh, fw)
            if product(shape) <= _VOLUME:
                break
        given = [f"padding=[{', '.join(str(rng.randrange(one)) for one in (fh, fw, fh, fw))}]"] * (rng.random() < 0.6)
        given += [f"stride=[{rng.randint(1, 3)}, {rng.randint(1, 3)}]"] * (rng.random() < 0.4)
        given += [f"dilation=[{rng.randint(1, 2)}, {rng.randint(1, 2)}]"] * (rng.random() < 0.2)
        name = ("GroupedConv" if grouped else "Conv") + (f"[{', '.join(given)}]" if given else "")
        layouts = {
            "any": (_IMAGES[grouped], _FILTERS[grouped], _IMAGES[grouped]),
            "rows": (("row_major",),) * 3,
            "words": (("nhwc",), _WORDS, ("nhwc",)),
            "last": (("nhwc",), _FILTERS[False][2 if graph else 1 : 3], ("nhwc",)),
        }[kind]
        image, filters, out = (
            f"({one}, {rng.choice(levels)}, {rng.choice(layout)})" for one, layout in zip(types, layouts, strict=True)
        )
        if rng.random() < 0.3:
            filters = f"{filters[:-1]}, constant)"
        end = f"{rng.choice(('', ', serial'))})"
        alone = f"{name}({'×'.join(map(str, shape))}, {image}, {filters}, {out}{end}"
        if not graph:
            return alone
        return self._graph(name, parse_spec(alone, self.target), (image, filters, out), end)

    def _graph(self, name: str, spec: Spec, states: Sequence[str], end: str) -> str:
        """Return the text of a convolution with a bias, a residual and an activation, some of them."""
        rng = self.rng
        image, filters, out = spec.operands
        sizes, (of_image, of_filters, of_out) = out.shape, states
        rank, ops, last = len(sizes), [f"s0 = {name}(x, w)"], "s0"
        given = [("x", image.shape, of_image), ("w", filters.shape, of_filters)]
        channels = tuple(1 if dim in (0, rank - 2, rank - 1) else size for dim, size in enumerate(sizes))
        for operand, extents, over in (
            ("b", channels, f"[over=[0, {rank - 2}, {rank - 1}]]"),
            ("r", sizes, ""),
        ):
            if rng.random() < 0.5:
                made = f"s{len(ops)}"
                ops.append(f"{made} = Add{over}({last}, {operand})")
                given.append(
                    (operand, extents, f"({out.state.dtype}, {rng.choice(('GL', 'L1', 'L1'))})" if over else of_out)
                )
                last = made
        if len(ops) == 1 or rng.random() < 0.6:
            ops.append(f"y = {rng.choice(_AFTERWARDS)}({last})")
            last = "y"
        given.append((last, sizes, of_out))
        listed = ", ".join(f"{one}: ({'×'.join(map(str, extents))}, {state[1:]}" for one, extents, state in given)
        return f"Compose([{', '.join(reversed(ops))}], [{listed}]{end}"

    def _program(self, spec: Spec, depth: int) -> Impl | None:
        """Return a program of a Spec, of kernels if it is a convolution; None if attempts found none."""
        op = spec.logical.op
        inner = op.stages[-1].op if isinstance(op, Compose) else op.without_constants
        if not isinstance(inner, Convolution) or depth > 12:
            return RandomPrograms(self.target, self.rng).draw(spec)
        for step in self._steps(spec):
            try:
                impl = rewrite_leaf(spec, step, self.target)
            except Inapplicable:
                continue
            for number, child in enumerate(impl.children):
                part = self._program(child.spec, depth + 1)
                if part is None:
                    return None
                impl = with_child(impl, (number,), part)
            return impl
        return RandomPrograms(self.target, self.rng).draw(spec)

    def _steps(self, spec: Spec) -> Iterator[Rewrite]:
        """Yield kernels, mostly before other steps, which are in random order."""
        rng, logical = self.rng, spec.logical
        kernels: list[Rewrite] = [*Select.steps(logical, self.target)]
        rng.shuffle(kernels)
        steps: list[Rewrite] = [*Pack.steps(logical, self.target)] if logical.op.constants else []
        extents = [int(one) for one in logical.shape]
        steps += [Tile(tuple(rng.choice((0, 0, rng.randint(1, one))) for one in extents), rng.random() < 0.2)]
        steps += [MoveStep(operand, rng.choice(("L1", "L2"))) for operand in range(len(logical.states))]
        steps.append(ToAccum())
        rng.shuffle(steps)
        yield from [*kernels, *steps] if rng.random() < 0.8 else [*steps, *kernels]


def called(impl: Impl) -> set[str]:
    """Return the names of the microkernels of a program."""
    nodes = (node.expansion for node in walk(impl) if isinstance(node, Node))
    return {expansion.kernel for expansion in nodes if isinstance(expansion, KernelCall)}


def batches(
    target: Target, count: int, seed: int, prefixes: tuple[str, ...] = KERNELS, sanitize: bool = False
) -> Iterator[tuple[Trials, list[Node]]]:
    """Yield the first `count` programs of a seed in batches, to be verified."""
    compilers = [find_compiler(info=target.info)] if is_foreign(target.info) else available_compilers()
    drawn = Convolutions(target, random.Random(f"{seed} {target.name}"), prefixes).draw()
    for turn, first in enumerate(range(0, count, BATCH)):
        programs = [*itertools.islice(drawn, min(BATCH, count - first))]
        yield (
            Trials(programs, target, compiler=compilers[turn % len(compilers)], sanitize=sanitize, seed=seed),
            programs,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=500, help="programs of each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", action="append", help=f"by default {' and '.join(TARGETS)}")
    parser.add_argument(
        "--kernel", action="append", help=f"prefix of a kernel to call; by default {' and '.join(KERNELS)}"
    )
    parser.add_argument("--sanitize", action="store_true", help="also run all of them under the sanitizers")
    options = parser.parse_args()
    failed, prefixes = 0, tuple(options.kernel or KERNELS)
    for name in options.target or TARGETS:
        done, kernels = 0, Counter[str]()
        target = installed().target(name, "base", cpu="native")
        for trials, programs in batches(target, options.count, options.seed, prefixes, options.sanitize):
            kernels.update(one for each in programs for one in called(each))
            for fault in outcomes(trials):
                if fault:
                    failed += 1
                    print(f"program {done} of seed {options.seed} on {name}: {fault}")
                done += 1
            print(f"{name}: {done} programs, {failed} failed", flush=True)
        print(f"{name}: {', '.join(f'{kernel} {count}' for kernel, count in kernels.most_common())}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
