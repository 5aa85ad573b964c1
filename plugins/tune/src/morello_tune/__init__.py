"""Tuning: measured edits of schedules, planned by a proposer. Edits that make a program faster are kept.

    start ──> plans ──> edits ──> programs ──> measured ──> beam ──> plans ...

An edit of a schedule may be refused or slow, but never wrong ([Hong2025] edits code instead).
"""

from morello.lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from morello_tune.interface import (
        Feedback,
        MenuItem,
        PlanRequest,
        Proposal,
        Proposer,
        ProposerSession,
        TuningCandidate,
        TuningInfo,
        TuningPlugin,
        TuningSample,
        TuningTask,
        hookimpl,
    )
    from morello_tune.tuner import TuningOptions, tune

__all__ = [
    "Feedback",
    "MenuItem",
    "PlanRequest",
    "Proposal",
    "Proposer",
    "ProposerSession",
    "TuningCandidate",
    "TuningInfo",
    "TuningOptions",
    "TuningPlugin",
    "TuningSample",
    "TuningTask",
    "hookimpl",
    "tune",
]
_TUNER = ("TuningOptions", "tune")
__getattr__, __dir__ = lazy(__name__, {"morello_tune.interface": __all__, "morello_tune.tuner": _TUNER})
