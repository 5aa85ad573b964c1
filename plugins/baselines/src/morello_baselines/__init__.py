"""Libraries that compute the same as programs do, for comparison: as their users would call them, each at its best."""

from morello_baselines.calls import NotOffered
from morello_baselines.times import LIBRARIES, BaselineReport, compare, require

__all__ = ["LIBRARIES", "BaselineReport", "NotOffered", "compare", "require"]
