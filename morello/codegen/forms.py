"""Equality of programs: hashes of their C, and forms, which are equal only if the C is."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Sequence
from typing import TypeAlias

import attrs

from morello.codegen.loops import goes_on, printed, repeated
from morello.ir.impl import Alloc, Impl, KernelCall, Loop, Node, TileRange
from morello.kernels.target import Target

_COMMENT = re.compile(r"\s*/\*.*?\*/", re.DOTALL)
#: Start, size and number of the tiles of a loop's body, by dimension.
_Body: TypeAlias = tuple[tuple[int, int, int], ...]


def key_of(source: str) -> str:
    """Return a hash of C without its comments, which name the steps."""
    return hashlib.sha256(_COMMENT.sub("", source).encode()).hexdigest()


def program_key(impl: Impl, target: Target) -> str:
    """Return a hash of a finished program's C that ignores the names of the function and its parameters."""
    return key_of(target.emitter.emit(impl, target, "kernel").source)


@attrs.frozen
class _Loops:
    """A loop, or several that are printed as one."""

    parallel: bool
    bodies: tuple[_Body, ...]
    below: tuple[int, ...]


@attrs.define
class Forms:
    """Numbers the forms of programs: a form leaves out steps that print nothing and merges loops printed as one."""

    _numbers: dict[Hashable, int] = attrs.field(factory=dict[Hashable, int], init=False)
    _forms: list[Hashable] = attrs.field(factory=list[Hashable], init=False)

    def of(self, node: Node, children: Sequence[int]) -> int:
        """Return the number of a finished program's form, from those of its children."""
        expansion = node.expansion
        if isinstance(expansion, Alloc) and expansion.view:
            return children[0]
        if isinstance(expansion, Loop):
            return self._number(self._loops(expansion, node.children[0], children))
        # The code of a kernel may depend on all labels of its operands.
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
