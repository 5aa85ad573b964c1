"""Holds certificates of cost against what search finds: no program costs less than is certified.

    python -m tools.fuzz.certificates [--specs 2000] [--seed 0] [--first 0] [--seconds 5] [--target NAME]

Every third Spec is a product or a convolution, large enough for values to come more than once; the others are small
ones of everything there is, with any levels and limits, on the targets in turn. Each certificate is also verified.
Search may take `--seconds` for each. Exit code 1 if a program costs less than certified.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator

import attrs
from morello_bounds.certificate import Certificate, certificate, verify

from morello.api.goals import Goal
from morello.errors import MorelloError, NoImplementation, Undecided
from morello.frontend.parser import parse_spec
from morello.frontend.specfile import show_spec
from morello.ir.impl import cost_and_peak
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.plugins.registry import installed
from morello.search.budget import SearchBudget
from tools.fuzz.specs import SMALL, drawn_spec

TARGETS = ("x86_avx2", "x86_avx512")
_SIZES = (1, 3, 8, 16, 17, 32, 48, 64)
_TYPES = ("f32, f32, f32", "bf16, bf16, f32", "u8, i8, i32", "bf16, bf16, bf16")

#: Certificates are of Specs as calls get them.
_SMALL = attrs.evolve(SMALL, constant=0.0)


@attrs.frozen
class Result:
    """A Spec, its certified lower bound, and the cost of its program, or None."""

    spec: Spec
    certified: Certificate
    cost: int | None
    proven: bool

    @property
    def holds(self) -> bool:
        """Return True if no program was found that costs less than certified."""
        return self.cost is None or self.certified.cost <= self.cost


def large_spec(target: Target, seed: int, number: int) -> Spec:
    """Return a product or convolution, with a fast memory that may be small; it depends on nothing else."""
    rng = random.Random(f"{seed} {number} {target.name} large")
    types = rng.choice(_TYPES).split(", ")
    level = rng.choice(["GL", "GL", "L2", "L1"])
    operands = ", ".join(f"({dtype}, {rng.choice([level, 'GL'])})" for dtype in types)
    serial = rng.choice([", serial", ""])
    if rng.random() < 0.6:
        op, shape = "Matmul" + rng.choice(["", "Accum"]), [1, *(rng.choice(_SIZES) for _ in range(3))]
    else:
        op = rng.choice(["Conv", "Conv[stride=2]", "Conv[padding=1]", "ConvAccum[stride=[2, 1], dilation=[1, 2]]"])
        window = [rng.choice([1, 2, 3]) for _ in range(2)] if "padding" not in op else [3, 3]
        shape = [1, *(rng.choice([1, 4, 8, 16]) for _ in range(2)), *(rng.choice([2, 4, 7]) for _ in range(2)), *window]
    spec = parse_spec(f"{op}({'×'.join(map(str, shape))}, {operands}{serial})", target)
    limits = [
        int(limit) >> rng.choice([0, 0, 1, 3, 5]) if not one.is_register else int(limit)
        for limit, one in zip(spec.limits, target.levels, strict=True)
    ]
    return attrs.evolve(spec, limits=target.limits(limits))


def examine(spec: Spec, target: Target, seconds: float | None) -> Result:
    """Certify a Spec, verify that, and search for a program. Raises MorelloError for an invalid certificate."""
    certified = certificate(spec, target)
    verify(certified)
    try:
        found = Goal.of(spec, target).synthesize(False, None, SearchBudget(seconds=seconds))
    except (NoImplementation, Undecided):
        return Result(spec, certified, None, proven=False)
    cost = cost_and_peak(found.impl).cost
    return Result(spec, certified, cost, proven=found.low >= cost)


def results(targets: list[Target], seed: int, first: int, count: int, seconds: float | None) -> Iterator[Result]:
    """Examine Specs, the targets in turn."""
    for number in range(first, first + count):
        target = targets[number % len(targets)]
        spec = large_spec(target, seed, number) if number % 3 == 0 else drawn_spec(target, seed, number, _SMALL)
        yield examine(spec, target, seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--specs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first Spec")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each search")
    parser.add_argument("--target", action="append", help=f"by default {' and '.join(TARGETS)}, in turn")
    options = parser.parse_args()
    targets = [installed().target(name, cpu="native") for name in options.target or TARGETS]
    start, done, proven, gaps, failures = time.monotonic(), 0, 0, [], 0
    operations: set[str] = set()
    try:
        for result in results(targets, options.seed, options.first, options.specs, options.seconds):
            done += 1
            proven += result.proven
            operations.add(result.spec.op.name)
            if result.cost is not None:
                gaps.append(result.cost / result.certified.cost)
            if not result.holds:
                failures += 1
                print(
                    f"Spec {options.first + done - 1}: a program costs {result.cost:,}, certified are "
                    f"{result.certified.cost:,}\n{show_spec(result.spec, result.certified.target)}",
                    flush=True,
                )
            if done % 50 == 0:
                print(f"{done:,} Specs, {failures} failures, {time.monotonic() - start:.0f} s", flush=True)
    except MorelloError as error:
        print(f"Spec {options.first + done}: {error}")
        return 1
    median = sorted(gaps)[len(gaps) // 2] if gaps else 0
    print(
        f"{done:,} Specs of {len(operations)} operations, {len(gaps):,} with a program, {proven:,} of them proven "
        f"cheapest; the median cost is {median:.2f} times the certified bound; {failures} failures"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
