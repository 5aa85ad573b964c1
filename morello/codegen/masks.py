"""Scores that a CausalMask masks: which tensors of a pipeline hold them, before and after."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from morello.ir.impl import Expansion, Impl, KernelCall, Node
from morello.ir.numbers import product
from morello.ir.ops.binary import Add
from morello.ir.ops.causal import CausalMask
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.softmax import Softmax
from morello.kernels.buffers import PositionMask, View
from morello.kernels.positions import uses_keys
from morello.kernels.site import OperandSite, Printer

#: The most multiply-adds for which one test decides whether all their scores are masked.
_TESTED = 1 << 16


def scores_used(impl: Impl, views: Sequence[View], printer: Printer) -> str | None:
    """Return the C condition that a product's scores are not all masked, for products worth a test; else None."""
    if not isinstance(impl.spec.op, Matmul) or views[-1].buffer.mask is None:
        return None
    call = isinstance(impl, Node) and isinstance(impl.expansion, KernelCall)
    mask = OperandSite(views[-1], printer).mask if call or product(impl.spec.shape) <= _TESTED else None
    return mask and uses_keys(mask, printer)


def with_masks(expansion: Expansion, tensors: Sequence[View], operands: int) -> list[View]:
    """Return a pipeline's tensors, its `operands` first, with the masks of values that count for nothing.

    These are scores that are only read to be masked, and the zeros that softmax makes of masked scores.
    """
    found, parts = [*tensors], expansion.parts
    for part in parts:
        op = part.logical.op
        if not isinstance(op, CausalMask) or part.dim_maps:
            continue
        scores, rows, columns, masked = part.args
        # Intermediates may be gone, or not declared, where a product asks for them.
        if max(rows, columns) >= operands or not (tensors[rows].buffer.strided and tensors[columns].buffer.strided):
            continue
        mask = PositionMask(tensors[rows], tensors[columns], op.window)
        while scores >= operands and sum(one.args.count(scores) for one in parts) == 2:
            found[scores] = _masked(found[scores], mask)
            made = next((one for one in parts if one.args[-1] == scores), None)
            if made is None or not isinstance(made.logical.op, Add) or made.dim_maps or made.logical.op.over_lhs:
                break
            scores = made.args[0]
        for other in parts:
            softmax = other.logical.op
            if isinstance(softmax, Softmax) and softmax.axis(3) == 2 and other.args[0] == masked and not other.dim_maps:
                found[other.args[1]] = _masked(found[other.args[1]], mask)
    return found


def _masked(view: View, mask: PositionMask) -> View:
    whole = View.whole(view.buffer) == view
    return attrs.evolve(view, buffer=attrs.evolve(view.buffer, mask=mask)) if whole else view
