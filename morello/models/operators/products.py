"""Products of matrices."""

from __future__ import annotations

from morello.models.building import Builder, Source, translates


@translates("MatMul")
def _matmul(make: Builder, node: Source) -> None:
    left, right = node.inputs
    # Vectors are matrices of one row or column.
    left = make.reshape(left, (1, *make.shape(left))) if make.rank(left) == 1 else left
    right = make.reshape(right, (*make.shape(right), 1)) if make.rank(right) == 1 else right
    if (left, right) == node.inputs:
        make.node("Matmul", left, right, to=node.outputs[0])
        return
    shape = make.shape(node.outputs[0])
    rows = () if make.rank(node.inputs[0]) == 1 else shape[-1:] if make.rank(node.inputs[1]) == 1 else shape[-2:-1]
    full = (*make.shape(left)[:-1], make.shape(right)[-1])
    if max(make.rank(left), make.rank(right)) > 2:
        batch = max((make.shape(left)[:-2], make.shape(right)[:-2]), key=len)
        full = (*batch, *(rows or (1,)), make.shape(right)[-1])
    make.reshape(make.node("Matmul", left, right, shape=full), shape, node.outputs[0])


@translates("Gemm")
def _gemm(make: Builder, node: Source) -> None:
    left, right = node.inputs[:2]
    left = make.view("transpose", left, (1, 0)) if node.get("transA", 0) else left
    right = make.view("transpose", right, (1, 0)) if node.get("transB", 0) else right
    alpha, beta, third = node.get("alpha", 1.0), node.get("beta", 1.0), node.input(2)
    shape = make.shape(node.outputs[0])
    last = not third or beta == 0
    found = make.node("Matmul", left, right, to=node.outputs[0] if last and alpha == 1 else "", shape=shape)
    if alpha != 1:
        found = make.node("Scale", found, to=node.outputs[0] if last else "", shape=shape, given={"by": float(alpha)})
    if last:
        return
    if beta != 1:
        third = make.node("Scale", third, shape=make.shape(third), given={"by": float(beta)})
    make.node("Add", found, third, to=node.outputs[0])
