"""The plugin of the target x86_amx: x86_avx512 with products in AMX's tiles."""

from __future__ import annotations

from importlib.resources import files

from morello_vectors.core import layouts
from morello_x86_avx512.plugin import INFO as AVX512
from morello_x86_avx512.plugin import VECTORS

from morello.plugins import BF16, I8, U8, DType, Layout, MemoryLevel, derive
from morello.plugins.profile import read_profile
from morello_x86_amx.emitter import AmxEmitter
from morello_x86_amx.kernels import COLUMNS, KERNELS, TABLE

#: The machines with AMX: Intel's of the Sapphire Rapids family, and later ones.
_MEASURED = read_profile(files("morello_x86_avx512") / "profiles" / "sapphire_rapids.toml")
#: Eight tiles of 1 KiB, which kernels load and store themselves.
_TILES = MemoryLevel(name="TMM", kind="temporaries", capacity=8 << 10, unit=1 << 10)
_WIDE, _IN_STRIPS = layouts(VECTORS, strips=(64,)), layouts(VECTORS, strips=(COLUMNS,))
#: At 3,800 MHz: products take 16 cycles and 52 if they wait, loads 8 and stores 16, all at 3,500 MHz.
_COSTS = ((174, 565, 87, 174),)
#: What the emitted C needs besides AMX: all CPUs with AMX have it.
WITHOUT_TILES = (*AVX512.cpu_features, "avx512_vnni", "avx512_bf16")


def _layouts(dtype: DType, rank: int) -> list[Layout]:
    """Return the layouts of x86_avx512; factors are in strips of a tile's columns."""
    return (_IN_STRIPS if dtype in (BF16, I8, U8) else _WIDE)(dtype, rank)


PLUGIN = derive(
    "x86_avx512",
    name="x86_amx",
    description="x86-64 with AMX and AVX-512 F, VL, BW, VNNI and BF16",
    layouts=_layouts,
    cpu_features=(*WITHOUT_TILES, "amx_tile", "amx_bf16", "amx_int8"),
    levels={"TMM": _TILES, **_MEASURED.levels},
    kernels=KERNELS,
    tables={**_MEASURED.tables, TABLE: _COSTS},
    emitter=AmxEmitter(),
)
