"""Forms of programs: two of one Spec that have the same are printed as the same C, comments aside."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeAlias

import attrs

from morello.codegen.loops import goes_on, printed, repeated
from morello.ir.impl import Alloc, Impl, KernelCall, Loop, Node, TileRange

#: Start, size and number of the tiles of a loop's body, by dimension.
_Body: TypeAlias = tuple[tuple[int, int, int], ...]


@attrs.frozen
class _Loops:
    """A loop, or several that are printed as one."""

    parallel: bool
    bodies: tuple[_Body, ...]
    below: tuple[int, ...]


@attrs.define
class Forms:
    """Numbers forms. Programs may differ in steps that print nothing, and in loops that are printed as one."""

    _numbers: dict[Hashable, int] = attrs.field(factory=dict[Hashable, int], init=False)
    _forms: list[Hashable] = attrs.field(factory=list[Hashable], init=False)

    def of(self, node: Node, children: Sequence[int]) -> int:
        """Return the number of a finished program's form, given those of its children."""
        expansion = node.expansion
        if isinstance(expansion, Alloc) and expansion.view:
            return children[0]
        if isinstance(expansion, Loop):
            return self._number(self._loops(expansion, node.children[0], children))
        # What a kernel prints may depend on all that is known of its operands.
        detail = node.spec.logical if isinstance(expansion, KernelCall) else str(expansion.step)
        return self._number((expansion.kind, getattr(expansion, "kernel", ""), detail, *children))

    def _loops(self, loop: Loop, child: Impl, children: Sequence[int]) -> _Loops:
        own = _Loops(loop.parallel, tuple(_body(part.ranges or ()) for part in loop.parts), tuple(children))
        (part, *others), inner = loop.parts, self._forms[children[0]]
        if others or loop.parallel or not isinstance(inner, _Loops) or not goes_on(part, printed(child)):
            return own
        (dim,) = repeated(part)
        longer = [*next(iter(inner.bodies))]
        start, size, trips = longer[dim]
        longer[dim] = start, size, trips * own.bodies[0][dim][2]
        return attrs.evolve(inner, bodies=(tuple(longer),))

    def _number(self, form: Hashable) -> int:
        if form not in self._numbers:
            self._numbers[form] = len(self._forms)
            self._forms.append(form)
        return self._numbers[form]


def _body(ranges: Sequence[TileRange]) -> _Body:
    return tuple((int(one.start), int(one.size), int(one.trips)) for one in ranges)
