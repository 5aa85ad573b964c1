"""Tuning: measured edits of schedules, planned by a proposer. Edits that make a program faster are kept.

    start ──> plans ──> edits ──> programs ──> measured ──> beam ──> plans ...

    interface  menu items, proposers, and the data they exchange with the search
    hooks      how other distributions add menu items and proposers
    edits      functions that edit schedules
    menu       the menu of every target
    evaluate   builds programs, verifies them, and times them in turns with their parents
    beam       the beam search, its limits and its trace
    proposers  what plans edits: rules, the k best programs of the model, evolution, language models

An edit of a schedule may be refused or slow, but never wrong ([Hong2025] edits code instead).
"""

# Nothing is imported before it is used: `morello --help` imports this package.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from morello_tune.hooks import TuningPlugin, hookimpl
    from morello_tune.interface import (
        Feedback,
        MenuItem,
        PlanRequest,
        Proposal,
        ProposalOutcome,
        Proposer,
        ProposerSession,
        TuningCandidate,
        TuningInfo,
        TuningTask,
    )
    from morello_tune.tuner import TuningOptions, tune

_MODULES = {"tune": "tuner", "TuningOptions": "tuner", "TuningPlugin": "hooks", "hookimpl": "hooks"}
__all__ = [
    "Feedback",
    "MenuItem",
    "PlanRequest",
    "Proposal",
    "ProposalOutcome",
    "Proposer",
    "ProposerSession",
    "TuningCandidate",
    "TuningInfo",
    "TuningOptions",
    "TuningPlugin",
    "TuningTask",
    "hookimpl",
    "tune",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'morello_tune' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"morello_tune.{_MODULES.get(name, 'interface')}"), name)
