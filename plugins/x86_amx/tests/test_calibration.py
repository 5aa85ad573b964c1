"""The C that measures tiles runs under the emulation, and its times become costs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from morello_x86_amx.calibration import CLOCK
from morello_x86_amx.emitter import AmxEmitter
from morello_x86_amx.emulated import emulated
from morello_x86_amx.plugin import PLUGIN, WITHOUT_TILES

from morello.build.toolchain import find_compiler
from morello.calibration.meter import Timer
from morello.host import missing_features


class FakeMeter:
    """Takes fixed times for the four functions."""

    quick = True
    source = ""

    def build(self, source: str, flags: Sequence[str] = ()) -> Path:
        raise NotImplementedError

    def units(self, source: str, names: Sequence[str]) -> list[float]:
        self.source = source
        assert [*names] == ["apart", "waiting", "loads", "stores"]
        return [640_000.0, 2_080_000.0, 320_000.0, 1.0]


def test_a_table_has_the_cost_of_each_instruction() -> None:
    (measurement,) = PLUGIN.measurements
    assert measurement.measure(FakeMeter()) == ((160, 520, 80, 1),)
    assert emulated().target("x86_amx", "base").tables[measurement.table] == ((174, 565, 87, 174),)


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_features(WITHOUT_TILES)), reason="the emulation needs AVX-512 with VNNI and BF16")
@pytest.mark.parametrize("types", [("bf16", "bf16", "f32"), ("i8", "u8", "i32")])
def test_the_peak_is_that_of_tiles(types: tuple[str, ...]) -> None:
    peak, vectors = CLOCK.peak(types), CLOCK.peak(("f32", "f32", "f32"))
    assert peak is not None
    assert vectors is not None
    assert "_tile" not in vectors.source
    # Four products of 16×16 sums a round.
    assert peak.flops == 4 * 1000 * 2 * 16 * 16 * {"f32": 32, "i32": 64}[types[2]]
    (measurement,), meter = PLUGIN.measurements, FakeMeter()
    measurement.measure(meter)
    emitter, names = emulated().target("x86_amx", "base").emitter, ["morello_peak", "apart", "stores"]
    assert isinstance(emitter, AmxEmitter)
    timer = Timer(find_compiler(None), (*emitter.flags, "-Wall"), 1 << 16, quick=True, deadline=time.monotonic() + 30)
    source = peak.source + meter.source[meter.source.index("\nstatic void apart(") :]
    assert min(timer.seconds(source, names)) > 0
