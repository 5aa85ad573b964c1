"""Products of matrices."""

from __future__ import annotations

from functools import reduce
from math import prod

from morello.models.building import Builder, Source, Unsupported, translates


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
    shape = (make.shape(left)[0], make.shape(right)[1])
    if make.shape(left)[1] != make.shape(right)[0]:
        raise Unsupported(f"matrices of the shapes {make.shape(left)} and {make.shape(right)}")
    last = not third or beta == 0
    found = make.node("Matmul", left, right, to=node.outputs[0] if last and alpha == 1 else "", shape=shape)
    if alpha != 1:
        found = make.node("Scale", found, to=node.outputs[0] if last else "", shape=shape, given={"by": float(alpha)})
    if last:
        return
    if beta != 1:
        third = make.node("Scale", third, shape=make.shape(third), given={"by": float(beta)})
    make.node("Add", found, third, to=node.outputs[0])


@translates("Einsum")
def _einsum(make: Builder, node: Source) -> None:
    left, _, out = node.get("equation").replace(" ", "").partition("->")
    spare = "".join(chr(ord("\u0100") + number) for number in range(32))
    terms, arrow = left.split(","), "->" in node.get("equation")
    rank = max(
        (make.rank(name) - len(one) + 3 for name, one in zip(node.inputs, terms, strict=True) if "..." in one),
        default=0,
    )
    names = spare[:rank]
    pairs = list[tuple[str, str]]()
    for name, one in zip(node.inputs, terms, strict=True):
        own = make.rank(name) - len(one) + 3
        pairs.append((name, one.replace("...", names[rank - own :] if "..." in one else "")))
    letters = "".join(one for _, one in pairs)
    if not arrow:
        out = "..." * bool(rank) + "".join(sorted(one for one in {*letters} - {*names} if letters.count(one) == 1))
    out = out.replace("...", names)
    if any(len({*one}) != len(one) for _, one in pairs):
        raise Unsupported("a diagonal")

    def both(one: tuple[str, str], other: tuple[str, str], kept: str) -> tuple[str, str]:
        (left, a), (right, b) = _summed(make, *one, other[1] + kept), _summed(make, *other, one[1] + kept)
        sizes = dict(zip(a, make.shape(left), strict=True))
        sizes |= {each: max(size, sizes.get(each, 1)) for each, size in zip(b, make.shape(right), strict=True)}
        left, right = (
            _of_sizes(make, name, [sizes[letter] for letter in own]) for name, own in ((left, a), (right, b))
        )
        batch = [letter for letter in a if letter in b and letter in kept]
        inner = [letter for letter in a if letter in b and letter not in kept]
        rows, columns = ([letter for letter in each if letter not in batch + inner] for each in (a, b))
        left = _ordered(make, left, a, (batch, rows, inner))
        right = _ordered(make, right, b, (batch, inner, columns))
        groups = (batch, rows, columns)
        found = make.node("Matmul", left, right, shape=[prod(sizes[letter] for letter in each) for each in groups])
        made = [*batch, *rows, *columns]
        return make.reshape(found, [sizes[letter] for letter in made]), "".join(made)

    found = pairs[0]
    for number, other in enumerate(pairs[1:], start=2):
        found = both(found, other, out + "".join(one for _, one in pairs[number:]))
    name, letters = _summed(make, *found, out)
    make.view("transpose", name, [letters.index(letter) for letter in out], node.outputs[0])


def _of_sizes(make: Builder, name: str, sizes: list[int]) -> str:
    """Return a tensor that is repeated to these sizes."""
    return name if make.shape(name) == tuple(sizes) else make.view("expand", name, sizes)


def _summed(make: Builder, name: str, letters: str, kept: str) -> tuple[str, str]:
    """Return a tensor and its letters, without those that are not kept: sums along them."""
    dims = tuple(at for at, letter in enumerate(letters) if letter not in kept)
    if not dims:
        return name, letters
    shape = make.shape(name)
    sums = make.node(
        "Sum", name, shape=[1 if at in dims else size for at, size in enumerate(shape)], given={"dim": dims}
    )
    left = [at for at in range(len(shape)) if at not in dims]
    return make.reshape(sums, [shape[at] for at in left]), "".join(letters[at] for at in left)


def _ordered(make: Builder, name: str, letters: str, groups: tuple[list[str], ...]) -> str:
    """Return a tensor with one dimension for each group of letters."""
    moved = make.view("transpose", name, [letters.index(letter) for letter in reduce(list.__add__, groups)])
    sizes = dict(zip(letters, make.shape(name), strict=True))
    return make.reshape(moved, [prod(sizes[letter] for letter in each) for each in groups])
