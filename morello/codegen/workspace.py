"""Places of the intermediates of a pipeline in the workspace: those that no part needs together share memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import attrs

from morello.errors import SpecError
from morello.ir.impl import Node
from morello.ir.in_place import hazard, output_over
from morello.kernels.buffers import ALIGNMENT
from morello.rewrites.pipeline import lifetimes


@attrs.frozen
class SharedPlaces:
    """The places of new tensors of a pipeline, by number.

    `same` is the first of the tensors that are stored one over another with each, perhaps itself; `starts` are in
    bytes. For each part there are the tensors that it uses, and the bytes held while it runs.
    """

    same: dict[int, int]
    starts: dict[int, int]
    used: tuple[tuple[int, ...], ...]
    held: tuple[int, ...]


def shared_places(impl: Node, tensors: Collection[int], in_place: Callable[[str], bool]) -> SharedPlaces | None:
    """Return the places of these new tensors of a pipeline; None if none of them can share memory.

    Larger tensors come first, each at the lowest start at which it overlaps no other one that is held with it.
    """
    parts, operands = impl.expansion.parts, len(impl.spec.logical.states)
    held = [{*each} & {*tensors} for each in lifetimes([part.args for part in parts], operands)]
    same = _stored_over(impl, held, in_place)
    live = [{same[one] for one in each} for each in held]
    sizes = {one: -(-int(impl.expansion.tensors[one].bytes) // ALIGNMENT) * ALIGNMENT for one in tensors}
    starts = dict[int, int]()
    for one in sorted({*same.values()}, key=lambda each: (-sizes[each], each)):
        start, beside = 0, {other for each in live if one in each for other in each & {*starts}}
        for other in sorted(beside, key=lambda each: (starts[each], each)):
            if start + sizes[one] > starts[other]:
                start = max(start, starts[other] + sizes[other])
        starts[one] = start
    most = tuple(max((starts[one] + sizes[one] for one in each), default=0) for each in live)
    if max(most, default=0) == sum(sizes.values()):
        return None
    used = (sorted({same[arg - operands] for arg in part.args if arg - operands in same}) for part in parts)
    return SharedPlaces(same, starts, tuple(map(tuple, used)), most)


def _stored_over(impl: Node, held: Sequence[Collection[int]], in_place: Callable[[str], bool]) -> dict[int, int]:
    """Return, for each tensor, the first of those that are stored one over another in its place, perhaps itself.

    One is stored over another if the part that makes it is the last to use the other.
    """
    operands, same = len(impl.spec.logical.states), {one: one for each in held for one in each}
    for number, (part, child) in enumerate(zip(impl.expansion.parts, impl.children, strict=True)):
        before, after = held[number - 1] if number else (), held[number + 1] if number + 1 < len(held) else ()
        for operand, arg in enumerate(part.args):
            if part.dim_maps or part.args.count(arg) > 1 or arg - operands not in {*before} - {*after}:
                continue
            try:
                made = part.args[output_over(part.logical, operand)] - operands
            except SpecError:
                continue
            if made in same and made not in before and hazard(child, operand, in_place) is None:
                same[made] = same[arg - operands]
                break
    return same
