"""The menu items and the description of this target for `morello tune`. Only morello_tune imports this module."""

from morello_tune import TuningPlugin
from morello_x86.menu import MENU, tuning

PLUGIN = TuningPlugin(
    target="x86_amx",
    menu=MENU,
    info=tuning("AVX-512 F, VL and BW (64-byte vectors) and AMX, whose eight tiles (TMM) kernels use", registers=32),
)
