"""Libraries that compute the same as programs do, for comparison: as their users would call them, each at its best."""

from morello.runtime.peers.calls import NotOffered
from morello.runtime.peers.times import LIBRARIES, PeerReport, compare, require

__all__ = ["LIBRARIES", "NotOffered", "PeerReport", "compare", "require"]
