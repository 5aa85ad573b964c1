"""The tiles of tensors in one state, for all ways that tensors are cut."""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

#: Numbers of kinds: there is one for each state and each way to cut a tensor.
Kinds = npt.NDArray[np.int16]


@attrs.frozen(eq=False)
class Tiles:
    """States of tiles, or patterns: `kinds`, [cuts], says which kind each tile is of, and `made`, [kinds], what it is.

    A kind of -1: there is no tile. Many states have tiles of the same kinds, and share the array.
    """

    kinds: Kinds
    made: npt.NDArray[np.int32]

    def __attrs_post_init__(self) -> None:
        assert len(self.made) <= np.iinfo(self.kinds.dtype).max, "there are few kinds"
