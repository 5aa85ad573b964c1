"""The base class of rewrites: schedule steps that turn a logical Spec into a node over smaller Specs.

A rewrite is one class; an instance is one step with its arguments. `steps` lists the instances that search tries;
`cases` rewrites a single Spec (ints) or a batch of Specs (arrays).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from typing import Any, ClassVar, Self, cast

import attrs
import numpy as np

from morello.errors import Inapplicable, MorelloError, PluginError, remedy
from morello.ir.dtypes import F32, DType
from morello.ir.impl import Expansion
from morello.ir.layout import Layout, name_of
from morello.ir.numbers import CellIndices, Mask, Num, anywhere, partition, take
from morello.ir.ops.base import Operation
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import MemoryLevel
from morello.kernels.target import Target


@attrs.frozen
class Word:
    """A bare name in a schedule: a level, a kernel, a layout or a keyword."""

    text: str

    def __str__(self) -> str:
        return self.text


@attrs.frozen
class Vector:
    """`v8` in a schedule: values per vector register."""

    size: int

    def __str__(self) -> str:
        return f"v{self.size}"


#: The hint for a step that does not apply.
LEAVE_OUT = "leave it out; `synthesize` finds steps that apply"
#: The values that arguments of a schedule step consist of.
Atom = int | tuple[int, ...] | Word | Vector | Layout


def argument(*kinds: type, keyword: str | None = None, default: Any = attrs.NOTHING) -> Any:
    """Declare an argument of a step, of these types of atoms; it is written after `keyword` if it has one."""
    return attrs.field(default=default, metadata={"kinds": kinds, "keyword": keyword})


@attrs.frozen
class Example:
    """A small Spec that a rewrite applies to: every test of all rewrites draws from it."""

    op: Operation
    shape: tuple[int, ...]
    types: tuple[DType, ...] | None = None

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """Return the data types of the operands: those given, or the only ones possible, or f32."""
        return self.types or self.op.only_types or (F32,) * len(self.op.operands(len(self.shape)))


@attrs.frozen
class RewriteCase:
    """One kind of node that a rewrite makes, and the cells of the batch that get it (None: all, or a single Spec)."""

    cells: CellIndices
    expansion: Expansion


@attrs.frozen(cache_hash=True)
class Rewrite(ABC):
    """One step of a schedule. Subclasses are frozen attrs classes whose fields are made with `argument`."""

    #: The word that starts the step in a schedule.
    keyword: ClassVar[str]
    #: The place of a standard rewrite among all of them: where programs cost the same, the lower one wins.
    order: ClassVar[int]
    #: A Spec that a standard rewrite applies to.
    example: ClassVar[Example]
    #: Whether the parts' operands are the node's own or tiles of them, and operand states matter only through
    #: `supports_level`. Search then tabulates one batch per step for all operand states together.
    structural: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        """Yield every step that search tries on this Spec, in tie-break order.

        A batch gets the steps of its largest sizes; `cases` leaves out the cells to which a step does not apply.
        """

    @classmethod
    def blocks_until(cls, op: Operation) -> tuple[int, ...] | None:
        """Return the only dimensions of an operation that search tiles before this rewrite; None: no restriction.

        Other rewrites and tiles are then tried on the result alone, in a smaller space, and so are moves in restricted
        spaces.
        """
        return None

    def supports_level(self, level: MemoryLevel) -> bool:
        """Return True if the step applies to operands in `level`; structural ones depend on no other state."""
        return True

    def worth_trying(self, logical: LogicalSpec, target: Target) -> Mask:
        """Return the mask of the cells on which search tries the step, among those to which it applies."""
        return True

    @abstractmethod
    def cases(self, logical: LogicalSpec, target: Target) -> Iterator[RewriteCase]:
        """Rewrite a Spec or a batch. Raises Inapplicable where the step applies to no Spec of it."""

    def expansion(self, logical: LogicalSpec, target: Target) -> Expansion:
        """Rewrite a single Spec. Raises Inapplicable with the broken precondition."""
        # Exhaust the generator: Python loses a Ctrl-C that arrives while it closes an unfinished one.
        cases = [*self.cases(logical, target)]
        if not cases:
            raise Inapplicable(f"`{self}` does not apply to {logical.op}", LEAVE_OUT)
        return self._checked(cases[0].expansion, target)

    def _checked(self, expansion: Expansion, target: Target) -> Expansion:
        """Return the node. Raises PluginError if it could cost less than one of its children."""
        if anywhere(expansion.cost < 0) or any(anywhere(part.times < 1) for part in expansion.parts):
            plugin = target.origins.get(f"rewrite {self.keyword}", target.name)
            raise PluginError(
                f"plugin {plugin!r}, rewrite {self.keyword} of target {target.name}: a node costs at least as much as "
                "each of its children, so its own cost is not negative and each of its parts runs at least once",
                remedy(plugin),
            )
        return expansion

    def __str__(self) -> str:
        words = [self.keyword]
        for field in attrs.fields(type(self)):
            value = getattr(self, field.name)
            if value == field.default:
                continue
            prefix = field.metadata["keyword"]
            words += [prefix] if prefix else []
            words += [] if value is True else [_show(value, field.metadata["kinds"])]
        return " ".join(words)

    @classmethod
    def parse(cls, atoms: Sequence[Atom]) -> Self:
        """Return the step with these arguments. Raises MorelloError with its usage."""
        fields = list(attrs.fields(cls))
        values: dict[str, Any] = {}
        waiting = list(atoms)
        while waiting:
            atom = waiting.pop(0)
            field = _field_for(atom, fields, values)
            if field is None:
                raise MorelloError(f"`{cls.keyword}` does not take `{_show(atom)}` here", f"write: {cls.usage()}")
            kinds = field.metadata["kinds"]
            if field.metadata["keyword"] and bool not in kinds:
                if not waiting or not isinstance(waiting[0], kinds):
                    raise MorelloError(f"`{cls.keyword}`: a value is missing after `{atom}`", f"write: {cls.usage()}")
                atom = waiting.pop(0)
            values[field.name] = _plain(atom) if bool not in kinds else True
        missing = [field.name for field in fields if field.default is attrs.NOTHING and field.name not in values]
        if missing:
            raise MorelloError(f"`{cls.keyword}` needs {' and '.join(missing)}", f"write: {cls.usage()}")
        return cls(**values)

    @classmethod
    def usage(cls) -> str:
        """Return the syntax of the step, for messages and docs."""
        words = [cls.keyword]
        for field in attrs.fields(cls):
            prefix = field.metadata["keyword"]
            kinds = field.metadata["kinds"]
            value = f"[{field.name.upper()}, ...]" if tuple in kinds else field.name.upper()
            word = " ".join(filter(None, (prefix, None if bool in kinds else value)))
            words.append(word if field.default is attrs.NOTHING else f"[{word}]")
        return " ".join(words)


def _field_for(
    atom: Atom, fields: Sequence[attrs.Attribute[Any]], values: Mapping[str, object]
) -> attrs.Attribute[Any] | None:
    """Return the unset argument that takes `atom` as its value or keyword, or None."""
    free = [field for field in fields if field.name not in values]
    for field in free:
        if isinstance(atom, Word) and field.metadata["keyword"] == atom.text:
            return field
    for field in free:
        if not field.metadata["keyword"] and isinstance(atom, field.metadata["kinds"]):
            return field
    return None


def _plain(atom: Atom) -> int | tuple[int, ...] | str | Layout:
    """Return a word as a string, a vector as its size, and any other atom unchanged."""
    if isinstance(atom, Word):
        return atom.text
    return atom.size if isinstance(atom, Vector) else atom


def _show(value: Atom | str, kinds: Sequence[type] = ()) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return f"v{value}" if Vector in kinds else str(value)


def rewrites_of(target: Target) -> tuple[type[Rewrite], ...]:
    """Return the target's rewrites as Rewrite classes; the registry has checked them."""
    return cast(tuple[type[Rewrite], ...], target.rewrites)


def pending_dims(op: Operation, target: Target) -> tuple[int, ...] | None:
    """Return the first `Rewrite.blocks_until` of an operation among the whole target's rewrites, or None."""
    return next(
        (dims for rewrite in (target.whole or target).rewrites if (dims := rewrite.blocks_until(op)) is not None), None
    )


@cache
def layout_name(layout: Layout, rank: int) -> str | None:
    """Return the language's name of a layout for tensors of this rank, or None."""
    return name_of(layout, (2,) * rank)


def wrong_operation(step: Rewrite, takes: str, op: Operation) -> Inapplicable:
    """Return the error for a step on an operation that it is not for."""
    return Inapplicable(f"`{step.keyword}` is for {takes}, not for {op}", LEAVE_OUT)


def require(condition: Mask, rule: str, hint: str | None = None) -> Mask:
    """Return the mask of cells that satisfy a precondition. Raises Inapplicable if none does."""
    if isinstance(condition, np.ndarray):
        if condition.any():
            return condition
        condition = False
    if not condition:
        raise Inapplicable(rule, hint)
    return True


def by_group(
    codes: Sequence[Num], rewrite: Callable[[tuple[int, ...], CellIndices], Iterator[RewriteCase]]
) -> Iterator[RewriteCase]:
    """Yield the cases of each group of cells that agree on `codes`; a batch skips groups that are inapplicable."""
    for group, cells in partition(codes):
        with skipping(cells):
            yield from rewrite(group, cells)


def skipping(cells: CellIndices) -> AbstractContextManager[None]:
    """Suppress Inapplicable for part of a batch; a single Spec raises it."""
    return nullcontext() if cells is None else suppress(Inapplicable)


def cases_within(cells: CellIndices, cases: Iterator[RewriteCase]) -> Iterator[RewriteCase]:
    """Yield the cases of a part of a batch, their cells numbered as in the batch."""
    return (RewriteCase(within(cells, case.cells), case.expansion) for case in cases)


def select_cells(logical: LogicalSpec, cells: CellIndices) -> LogicalSpec:
    """Return the Specs of a batch at these cells."""
    if cells is None:
        return logical
    return LogicalSpec(logical.op, tuple([take(size, cells) for size in logical.shape]), logical.states, logical.serial)


def within(outer: CellIndices, inner: CellIndices) -> CellIndices:
    """Return the cells of a batch that `inner` numbers among those of `outer`."""
    return inner if outer is None else outer if inner is None else outer[inner]


def masked(cells: CellIndices, mask: Mask) -> CellIndices:
    """Return those of `cells` for which `mask`, one value for each of them, holds."""
    if not isinstance(mask, np.ndarray):
        return cells
    return within(cells, np.flatnonzero(mask))


def largest(size: Num) -> int:
    """Return the largest size in a batch."""
    return int(np.max(size))


def tried_sizes(size: Num, target: Target) -> list[int]:
    """Return the tile sizes that search tries along a dimension, largest first."""
    return [1 << bit for bit in range(0, (largest(size) - 1).bit_length(), target.size_bits)][::-1]
