"""Specs: what to compute, and under which conditions ([Kaufman2025] §2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import attrs

from morello.errors import SpecError
from morello.ir.limits import Limits
from morello.ir.numbers import Num
from morello.ir.ops.base import Operand, Operation
from morello.ir.ops.compose import Compose
from morello.ir.tensor import OperandState, TensorSpec

#: Larger sizes would overflow the 64-bit offsets of the emitted C.
MAX_BYTES = 2**47


@cache
def _declared(op: Operation, rank: int) -> tuple[Operand, ...]:
    return op.operands(rank)


@attrs.frozen(cache_hash=True)
class LogicalSpec:
    """An operation, its iteration shape, the state of each operand, and whether it runs on one thread.

    `op`, `states` and `serial` are labels; `shape` holds numbers, arrays of them in a batch.
    """

    op: Operation
    shape: tuple[Num, ...]
    states: tuple[OperandState, ...]
    serial: bool = True

    @property
    def declared(self) -> tuple[Operand, ...]:
        """Return the operands as the operation declares them."""
        return _declared(self.op, len(self.shape))

    @property
    def operands(self) -> tuple[TensorSpec, ...]:
        pairs = zip(self.declared, self.states, strict=True)
        return tuple(TensorSpec(one.shape(self.shape), state) for one, state in pairs)

    def operand(self, index: int) -> TensorSpec:
        return TensorSpec(self.declared[index].shape(self.shape), self.states[index])

    @property
    def dims(self) -> tuple[str, ...]:
        return self.op.dims(len(self.shape))

    @property
    def flops(self) -> int:
        return self.op.flops(tuple(int(size) for size in self.shape))

    @property
    def implied(self) -> str:
        """Return, as text, sizes that follow from those of the Spec, such as those of images; empty if none do."""
        return self.op.implied(tuple(int(size) for size in self.shape))

    def __str__(self) -> str:
        return self.text()

    def short(self, implicit_dims: int = 0) -> str:
        """Return [Kaufman2025]'s short form, for comments: operation, shape from `implicit_dims` on, levels."""
        shape = "×".join(map(str, self.shape[implicit_dims:]))
        return f"{self.op.without_constants}({shape}, {', '.join(state.level for state in self.states)})"

    def text(
        self,
        separator: str = ", ",
        inner: str = ", ",
        names: Sequence[str] = (),
        order: Sequence[int] = (),
        implicit_dims: int = 0,
        overwritten: int | None = None,
    ) -> str:
        """Return the text in the Spec language: `separator` between parts, `inner` between operands of a Compose.

        `names` and `order` are those of the operands in a call, if they differ from the operation's. The first
        `implicit_dims` dimensions are left out. The output is stored over the operand `overwritten`.
        """
        declared = [one.name for one in self.declared]
        listed = [*order] or [*range(len(declared))]
        labels = [declared[each] for each in listed]
        serial = ", serial" if self.serial else ""
        called = f"({', '.join(names)})" if names and [*names] != labels else ""
        op, constant = self.op.without_constants, self.op.constants
        words = {overwritten: ", overwritten"} | dict.fromkeys(constant, ", constant")
        endings = [f"{words.get(each, '')})" for each in range(len(declared))]
        if not isinstance(op, Compose):
            sizes = "×".join(map(str, self.shape[implicit_dims:]))
            texts = [f"({tensor.without_leading(implicit_dims).labels}" for tensor in self.operands]
            states = [text + ending for text, ending in zip(texts, endings, strict=True)]
            return f"{op}({separator.join([sizes, *states])}{serial}){called}"
        # Only equations can reorder their operands.
        is_chain = op.is_chain and listed == [*range(len(declared))]
        operands = inner.join(
            ("" if is_chain else f"{label}: ") + str(self.operand(each))[:-1] + endings[each]
            for label, each in zip(labels, listed, strict=True)
        )
        head = str(op)[:-1] if is_chain else f"Compose([{', '.join(op.equations())}]"
        return f"{head}{separator}[{operands}]{serial}){called}"

    def canonical(self) -> LogicalSpec:
        """Return the normal form. Raises SpecError if operation, shape and operands are inconsistent."""
        rank = len(self.shape)
        if self.op.rank not in (None, rank):
            names = "×".join(self.op.dims(self.op.rank or 0))
            raise SpecError(
                f"{self.op} has the {self.op.rank} dimensions {names}, not {rank}",
                "write a size for each of them; 1 where there is only one",
            )
        if any(size < 1 for size in self.shape):
            raise SpecError(
                f"sizes are at least 1, not {'×'.join(map(str, self.shape))}", "write 1 where there is only one"
            )
        declared = self.op.operands(rank)
        if len(declared) != len(self.states):
            names = ", ".join(one.name for one in declared)
            raise SpecError(
                f"{self.op.without_constants} has {len(declared)} operands ({names}), not {len(self.states)}",
                "give one for each",
            )
        shape = tuple(int(size) for size in self.shape)
        fault = self.op.refusal(shape, [state.dtype for state in self.states])
        if fault:
            raise SpecError(f"{self.op.without_constants}: {fault.message}", fault.hint)
        for one, tensor in zip(declared, self.operands, strict=True):
            if tensor.bytes > MAX_BYTES:
                raise SpecError(
                    f"{self.op}: {one.name} holds {tensor.bytes} bytes, more than 2^47 can be addressed",
                    "make the sizes smaller",
                )
        states = tuple(tensor.canonical().state for tensor in self.operands)
        return attrs.evolve(self, op=self.op.normal(rank), states=states)


@attrs.frozen(cache_hash=True)
class Spec:
    """A logical Spec and its memory limits, in bytes, fastest level first.

    Its str is a line of the Spec language that parses to an equal Spec.
    """

    logical: LogicalSpec
    limits: Limits

    def __str__(self) -> str:
        return f"({self.logical}, [{', '.join(map(str, self.limits))}])"

    @property
    def op(self) -> Operation:
        return self.logical.op

    @property
    def shape(self) -> tuple[Num, ...]:
        return self.logical.shape

    @property
    def operands(self) -> tuple[TensorSpec, ...]:
        return self.logical.operands
