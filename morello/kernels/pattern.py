"""The operands and sizes that a microkernel accepts: as data, as short text, and the first rule that a Spec breaks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Literal, Self, TypeAlias

import attrs

from morello.ir.dtypes import NAME
from morello.ir.layout import Layout, col_major, row_major
from morello.ir.ops import BY_NAME as OPERATIONS
from morello.ir.ops import Operation
from morello.ir.tensor import OperandState

LayoutRule: TypeAlias = Literal["any", "row_major", "col_major"]
_ORDERS = {"row_major": row_major, "col_major": col_major}


@attrs.frozen(kw_only=True)
class Multiple:
    """A size that is a multiple of `of`."""

    of: int


#: The rule for the size of one iteration dimension: an exact size, a multiple, or None for any size.
SizeRule: TypeAlias = int | Multiple | None
#: One rule per dimension; None accepts any sizes, and 1 requires size 1 in all dimensions, whatever the rank.
Shape: TypeAlias = tuple[SizeRule, ...] | Literal[1] | None


def is_ordered(layout: Layout | None, order: Layout) -> bool:
    """Return True if a canonical layout has no strips and its dimensions come in the order of `order`."""
    if layout is None:
        return True
    present = {physical.dim for physical in layout.dims}
    return layout.dims == tuple(physical for physical in order.dims if physical.dim in present)


@attrs.frozen(kw_only=True)
class OperandPattern:
    """The operand states that a microkernel accepts. An empty tuple accepts all values of its field.

    `layout` is an order of dimensions without strips; `layouts` lists canonical layouts, with strips or without.
    `vectors` counts values per register. `when` is a further condition on the state.
    """

    levels: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    layout: LayoutRule = "any"
    contiguous: bool = True
    aligned: bool = False
    vectors: tuple[int, ...] = ()
    layouts: tuple[Layout, ...] = ()
    when: Callable[[OperandState], bool] | None = None

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the pattern that a text such as "f32 RF/L1", "f32 VRF v8" or "u8/i8 L1 row_major strided" denotes.

        Words are data types, vector sizes, row_major, col_major, aligned, strided (contiguity is not required) and any;
        all other words are levels. `/` separates alternatives.
        """
        fields: dict[str, tuple[str, ...]] = {"levels": (), "dtypes": (), "vectors": ()}
        words = text.split()
        for word in words:
            options = tuple(word.split("/"))
            if all(NAME.fullmatch(option) for option in options):
                fields["dtypes"] += options
            elif all(re.fullmatch(r"v\d+", option) for option in options):
                fields["vectors"] += options
            elif word not in (*_ORDERS, "aligned", "strided", "any"):
                fields["levels"] += options
        return cls(
            levels=fields["levels"],
            dtypes=fields["dtypes"],
            layout="row_major" if "row_major" in words else "col_major" if "col_major" in words else "any",
            contiguous="strided" not in words,
            aligned="aligned" in words,
            vectors=tuple(int(size[1:]) for size in fields["vectors"]),
        )

    def orders(self, state: OperandState, rank: int) -> bool:
        """Return True if the dimensions of an operand lie in the order of `layout`."""
        return self.layout == "any" or is_ordered(state.layout, _ORDERS[self.layout](rank))

    def accepts(self, state: OperandState, rank: int) -> bool:
        """Return True if an operand of this rank and state matches: set-up of search calls it for every state."""
        return (
            (not self.levels or state.level in self.levels)
            and (not self.dtypes or state.dtype.name in self.dtypes)
            and self.orders(state, rank)
            and (not self.contiguous or state.contiguous)
            and (not self.aligned or state.aligned)
            and (not self.vectors or state.vector in self.vectors)
            and (not self.layouts or state.layout in self.layouts)
            and (self.when is None or self.when(state))
        )

    def mismatches(self, state: OperandState, rank: int) -> Iterator[str]:
        """Yield in words each requirement that an operand does not meet; none just when `accepts` is True."""
        if self.levels and state.level not in self.levels:
            yield f"in {' or '.join(self.levels)}, not {state.level}"
        if self.dtypes and state.dtype.name not in self.dtypes:
            yield f"of {' or '.join(self.dtypes)}, not {state.dtype}"
        if not self.orders(state, rank):
            yield f"{self.layout}, not {state.layout}"
        if self.contiguous and not state.contiguous:
            yield "contiguous"
        if self.aligned and not state.aligned:
            yield "aligned"
        if self.vectors and state.vector not in self.vectors:
            sizes = " or ".join(f"v{size}" for size in self.vectors)
            yield f"in vectors of {sizes}, not {f'v{state.vector}' if state.vector else 'none'}"
        if self.layouts and state.layout not in self.layouts:
            yield f"laid out as {' or '.join(map(str, self.layouts))}, not {state.layout}"
        if self.when is not None and not self.when(state):
            yield "the pattern's own condition does not hold"

    def __str__(self) -> str:
        """Return the text that `of` reads, with `layouts` in words."""
        words = ["/".join(self.dtypes), "/".join(self.levels), "/".join(f"v{size}" for size in self.vectors)]
        words += ["" if self.layout == "any" else self.layout, " or ".join(map(str, self.layouts))]
        words += ["" if self.contiguous else "strided", "aligned" if self.aligned else ""]
        return " ".join(filter(None, words)) or "any"


def agree(field: str, states: Sequence[OperandState]) -> bool:
    """Return True if operands are the same in `field`, one of those that `Microkernel.same` may list."""
    if field != "lanes":
        return len({getattr(state, field) for state in states}) <= 1
    layouts = {state.layout for state in states if state.layout is not None and state.layout.dims}
    return len(layouts) <= 1 and len({state.vector for state in states if state.vector}) <= 1


@attrs.frozen
class SpecPattern:
    """The Specs that a microkernel accepts: operation (None if it is given elsewhere), sizes and operands."""

    op: Operation | None
    shape: Shape
    operands: tuple[OperandPattern, ...]


@cache
def parse_pattern(text: str) -> SpecPattern:
    """Return the Specs that a text such as "MatmulAccum(1×1×1×n, f32 RF/L1, f32 VRF v8, f32 VRF v8)" denotes.

    Without an operation, there are no parentheses. Sizes are numbers, multiples such as 8i, or a letter for any size.
    A single 1 requires size 1 in all dimensions, a single letter accepts any shape. Raises ValueError for another size
    or an unknown operation.
    """
    named = re.fullmatch(r"\s*(\w+)\s*\((.*)\)\s*", text)
    if named and named[1] not in OPERATIONS:
        hint = "an operation of your own is given by `op`, with sizes and operands alone in `takes`"
        raise ValueError(f"pattern {text!r}: {named[1]} is not an operation of Morello: {hint}")
    sizes, *operands = (named[2] if named else text).split(",")
    rules: list[SizeRule] = []
    for word in re.split("[×x]", sizes):
        found = re.fullmatch(r"(\d+)(i?)|[A-Za-z]", word.strip())
        if found is None:
            raise ValueError(f"pattern {text!r}: size {word.strip()!r} is not a number, a multiple (8i) or a letter")
        rules.append(None if found[1] is None else Multiple(of=int(found[1])) if found[2] else int(found[1]))
    single: dict[SizeRule, Shape] = {None: None, 1: 1}
    shape = single.get(rules[0], tuple(rules)) if len(rules) == 1 else tuple(rules)
    return SpecPattern(OPERATIONS[named[1]] if named else None, shape, tuple(map(OperandPattern.of, operands)))
