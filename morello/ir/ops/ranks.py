"""Numbers of dimensions of the operations of a Compose, where these are not fixed."""

from __future__ import annotations

from collections.abc import Sequence

from morello.errors import SpecError
from morello.ir.ops.base import Operation

#: Any rank that all operations without a fixed one can have.
_SOME_RANK = 32


def chained(ops: Sequence[Operation]) -> tuple[tuple[int, ...], ...]:
    """Return the inputs of each stage of a chain: first the output of the next one, then external inputs."""
    wires: list[tuple[int, ...]] = []
    external = 0
    for number, op in enumerate(ops, 1):
        # How many operands there are does not depend on their rank.
        own = sum(not one.writes for one in op.operands(op.rank or _SOME_RANK)) - (number < len(ops))
        linked = (~number,) if number < len(ops) else ()
        wires.append((*linked, *range(external, external + own)))
        external += own
    return tuple(wires)


def ranks_of(ops: Sequence[Operation], wires: Sequence[Sequence[int]], output: int | None = None) -> tuple[int, ...]:
    """Return the ranks that stages with these inputs have, from those that are fixed, or else from that of the output.

    Raises SpecError where they do not follow.
    """
    ranks = [op.rank for op in ops]
    _spread_ranks(ops, wires, ranks)
    if output is not None and ranks[0] is None:
        ranks[0] = _rank(ops[0], -1, output)
        _spread_ranks(ops, wires, ranks)
    unknown = [str(op) for op, rank in zip(ops, ranks, strict=True) if rank is None]
    if unknown:
        raise SpecError(
            f"the number of dimensions of {unknown[0]} does not follow from the other operations",
            "let an operation of the others use what it makes, or make what it uses",
        )
    return tuple(rank for rank in ranks if rank is not None)


def _spread_ranks(ops: Sequence[Operation], wires: Sequence[Sequence[int]], ranks: list[int | None]) -> None:
    """Ranks that follow from those known already: what one stage reads has the rank of what the other makes."""
    links = [(user, at, ~entry) for user, wire in enumerate(wires) for at, entry in enumerate(wire) if entry < 0]
    progress = True
    while progress:
        before = list(ranks)
        for user, place, maker in links:
            reader, writer = ranks[user], ranks[maker]
            if writer is None and reader is not None:
                ranks[maker] = _rank(ops[maker], -1, len(ops[user].operands(reader)[place].dims))
            elif reader is None and writer is not None:
                ranks[user] = _rank(ops[user], place, len(ops[maker].operands(writer)[-1].dims))
        progress = ranks != before


def _rank(op: Operation, operand: int, dims: int) -> int:
    """Return the rank at which this operand has so many dimensions."""
    for rank in (dims, dims - 1, dims + 1):
        if rank >= 0 and len(op.operands(rank)[operand].dims) == dims:
            return rank
    raise SpecError(
        f"{op} has no operand {op.operands(dims)[operand].name} of {dims} dimensions",
        "compose it with operations on as many dimensions",
    )
