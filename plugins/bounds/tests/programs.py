"""Programs that tests of bounds share."""

from __future__ import annotations

import attrs
from morello_bounds.nest import Nest, parse_nest


def product(m: int, k: int, n: int, bytes_: int = 1) -> Nest:
    nest = parse_nest({"m": m, "k": k, "n": n}, "A[m,k] B[k,n] C[m,n]")
    return attrs.evolve(nest, arrays=tuple(attrs.evolve(one, bytes=bytes_) for one in nest.arrays))


def convolution(c: int, k: int, size: int, filters: int, stride: int = 1, batch: int = 1) -> Nest:
    loops = {"b": batch, "c": c, "k": k, "w": size, "h": size, "r": filters, "s": filters}
    return parse_nest(loops, f"In[b,c,{stride}w+r,{stride}h+s] F[k,c,r,s] Out[b,k,w,h]")
