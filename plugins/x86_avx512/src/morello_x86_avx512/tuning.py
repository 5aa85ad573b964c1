"""The menu items and the description of this target for `morello tune`. Only morello_tune imports this module."""

from morello_tune import TuningPlugin
from morello_x86.menu import MENU, tuning

PLUGIN = TuningPlugin(
    target="x86_avx512", menu=MENU, info=tuning("AVX-512 F, VL, BW and FMA (64-byte vectors)", registers=32)
)
