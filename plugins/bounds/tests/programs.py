"""Programs that tests of bounds share."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import attrs
from morello_bounds.hbl import Exponents, constraints
from morello_bounds.nest import Nest, parse_nest
from morello_bounds.programs import exact_minimum


def product(m: int, k: int, n: int, bytes_: int = 1) -> Nest:
    nest = parse_nest({"m": m, "k": k, "n": n}, "A[m,k] B[k,n] C[m,n]")
    return attrs.evolve(nest, arrays=tuple(attrs.evolve(one, bytes=bytes_) for one in nest.arrays))


def convolution(c: int, k: int, size: int, filters: int, stride: int = 1, batch: int = 1) -> Nest:
    loops = {"b": batch, "c": c, "k": k, "w": size, "h": size, "r": filters, "s": filters}
    return parse_nest(loops, f"In[b,c,{stride}w+r,{stride}h+s] F[k,c,r,s] Out[b,k,w,h]")


def tile_exponents(nest: Nest, beta: Sequence[Fraction]) -> Exponents:
    """Return exponents of the tightest bound on a tile for loops of M^beta[i] points and memory M ([Dinh2023] §3.2)."""
    rows = [(*one.loops, *one.arrays) for one in constraints(nest)]
    count = len(nest.loops)
    x = exact_minimum([*beta, *[1] * len(nest.arrays)], rows, [one.rank for one in constraints(nest)])
    return Exponents(x[count:], x[:count])
