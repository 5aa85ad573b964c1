"""Arrays in all layouts, and options for kernels that need no search."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

#: Most tests are about arrays, not about programs.
PLAIN: dict[str, Any] = {"target": "reference_c", "progress": False}


def values(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    """Return small whole numbers, whose products are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


@st.composite
def laid_out(draw: st.DrawFn, shape: tuple[int, ...], seed: int = 0, writes: bool = False) -> np.ndarray:
    """Draw an array of a shape, with its axes in any order in memory and gaps between them, or repeated."""
    order = draw(st.permutations(range(len(shape))))
    gaps = [draw(st.sampled_from([0, 0, 0, 1])) for _ in shape]
    memory = values(*(shape[axis] + gap for axis, gap in zip(order, gaps, strict=True)), seed=seed)
    view = memory[(*(slice(shape[axis]) for axis in order), ...)].transpose(np.argsort(order))
    if not writes and len(shape) > 1 and draw(st.integers(0, 7)) == 0:
        view = np.broadcast_to(view[:1], view.shape)
    return view
