"""The menu items and the description of this target for `morello tune`. Only morello_tune imports this module."""

from morello_tune import TuningPlugin
from morello_x86.menu import MENU, tuning

PLUGIN = TuningPlugin(target="x86_avx2", menu=MENU, info=tuning("AVX2 and FMA (32-byte vectors)", registers=16))
