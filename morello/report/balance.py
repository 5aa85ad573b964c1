"""The bottleneck of a program under the model: computing, a level of memory, or starting threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import attrs

from morello.ir.impl import Alloc, Impl, KernelCall, Leaf, Loop
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import TensorSpec
from morello.kernels.target import Target

COMPUTING, THREADS = "computing", "threads"


@attrs.frozen
class Balance:
    """The parts of a program's cost, in percent: `computing`, each level of memory, `threads`. They add up to 100."""

    shares: dict[str, float]

    @property
    def bound(self) -> str:
        """Return `computing` if it is at least half of the cost, else the largest other part."""
        if self.shares.get(COMPUTING, 0.0) >= 50:
            return COMPUTING
        return max((part for part in self.shares if part != COMPUTING), key=lambda part: self.shares[part])

    def __str__(self) -> str:
        words = {COMPUTING: "compute-bound", THREADS: "bound by starting threads"}
        parts = ", ".join(f"{part} {share:.1f} %" for part, share in self.shares.items() if share >= 0.05)
        return f"{words.get(self.bound, f'memory-bound by {self.bound}')}: {parts}"


def balance(impl: Impl, target: Target) -> Balance:
    """Return the parts of a finished program's cost."""
    parts: Counter[str] = Counter()
    _add(impl, target, 1, parts)
    total = sum(parts.values())
    order = [COMPUTING, *(level.name for level in target.levels), THREADS]
    return Balance({part: 100 * parts[part] / total for part in order if parts[part]})


def _add(impl: Impl, target: Target, runs: int, parts: Counter[str]) -> None:
    assert not isinstance(impl, Leaf)
    expansion, logical = impl.expansion, impl.spec.logical
    own = int(expansion.cost)
    if isinstance(expansion, KernelCall):
        found = _of_kernel(logical, expansion.kernel, own, target)
    elif isinstance(expansion, Alloc):
        found = _of_touches([logical.operand(expansion.operand), *expansion.tensors], own, target)
    else:
        found = {THREADS if isinstance(expansion, Loop) else COMPUTING: own}
    for part, cost in found.items():
        parts[part] += cost * runs
    for part, child in zip(expansion.parts, impl.children, strict=True):
        _add(child, target, runs * int(part.times), parts)


def _of_touches(tensors: Sequence[TensorSpec], own: int, target: Target) -> dict[str, int]:
    """Return the parts of a move's cost: touching its tensors in each level; the rest counts for the slower level."""
    costs: Counter[str] = Counter()
    for tensor in tensors:
        costs[tensor.state.level] += int(target.move_cost(tensor))
    rest = own - sum(costs.values())
    last = slowest([tensor.state.level for tensor in tensors], target)
    return {last: own} if rest < 0 else dict(costs + Counter({last: rest}))


def _of_kernel(logical: LogicalSpec, kernel: str, own: int, target: Target) -> dict[str, int]:
    """Return the parts of a call's cost: the savings if operands were in the fastest cache, and the rest."""
    called, fastest = target.kernels_by_name[kernel], next(one.name for one in target.levels if not one.is_register)
    costs: Counter[str] = Counter()
    for index, state in enumerate(logical.states):
        if not target.level(state.level).is_register and state.level != fastest:
            states = list(logical.states)
            states[index] = attrs.evolve(state, level=fastest)
            near = attrs.evolve(logical, states=tuple(states))
            costs[state.level] += max(0, own - int(called.call_cost(near, target)))
    saved = min(own, sum(costs.values()))
    scaled = {level: cost * saved // max(1, sum(costs.values())) for level, cost in costs.items()}
    moves = logical.op.moves_data or logical.op.initializes
    rest = slowest([state.level for state in logical.states], target) if moves else COMPUTING
    return {**scaled, rest: scaled.get(rest, 0) + own - sum(scaled.values())}


def slowest(levels: Sequence[str], target: Target) -> str:
    """Return the slowest of some levels."""
    return max(levels, key=[level.name for level in target.levels].index)
