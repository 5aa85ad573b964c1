"""How costs of tiles are measured, and the peak of a core that does nothing but multiply them."""

from __future__ import annotations

from typing import cast

import attrs
from morello_x86_avx512.plugin import PLUGIN as X86_AVX512

from morello.plugins import Clock, Measurement, Meter, Peak, Rows
from morello_x86_amx.kernels import BF16, COLUMNS, PRODUCTS, ROWS, TABLE, TILES

_ROUNDS = 1_000
_HEADERS = "".join(f"#include <{name}.h>\n" for name in ("immintrin", "stdint", "stdio", "stdlib"))
_FUNCTION = """
static void {name}(void *memory) {{
    (void)memory;
    morello_tiles_begin();
    for (int round = 0; round < {rounds}; ++round) {{
        {body}
    }}
    morello_tiles_end();
}}
"""
#: Products of two by two tiles, and four that add to the same sums.
_APART = "{call}(0, 4, 6); {call}(1, 4, 7); {call}(2, 5, 6); {call}(3, 5, 7);"
_WAITING = "{call}(0, 4, 6); " * 4
_LOADS = " ".join(f"_tile_loadd({tile}, memory, 64);" for tile in (4, 5, 6, 7))
_STORES = " ".join(f"_tile_stored({tile}, (char *)memory + {tile << 10}, 64);" for tile in range(4))
_BODIES = {"apart": _APART, "waiting": _WAITING, "loads": _LOADS, "stores": _STORES}


def _function(name: str, body: str, call: str) -> str:
    return _FUNCTION.format(name=name, rounds=_ROUNDS, body=body.format(call=call))


def _measure(meter: Meter) -> Rows:
    """Return the row of the table: a product, one that waits, a load and a store, in units of cost."""
    functions = [_function(name, body, BF16.call([])) for name, body in _BODIES.items()]
    units = meter.units("".join([_HEADERS, TILES, *functions]), [*_BODIES])
    return (tuple(max(1, round(one / (4 * _ROUNDS))) for one in units),)


def _peak(types: tuple[str, ...]) -> Peak | None:
    """Return the peak of products in tiles, else that of AVX-512."""
    for product in PRODUCTS:
        *factors, out = types
        if {*factors} <= {*product.factors} and out in product.sums:
            source = f"{_HEADERS}{TILES}{_function('morello_peak', _APART, product.call(factors))}"
            return Peak(source=source, flops=2 * ROWS * COLUMNS * product.depth * 4 * _ROUNDS)
    return _AVX512.peak(types)


_AVX512 = cast("Clock", X86_AVX512.clock)
CLOCK = attrs.evolve(_AVX512, peak=_peak)
MEASUREMENTS = (Measurement(table=TABLE, keys=0, measure=_measure),)
