"""The CPU of a goal: the optional features that its programs may use, from text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from morello.errors import MorelloError, UnknownName, suggestion
from morello.host import NATIVE, missing_features
from morello.kernels.target import Target


def features_of(cpu: str, target: Target) -> tuple[str, ...]:
    """Return the optional features of a target that a CPU has: `native`, a name, or `+FEATURE,+FEATURE`.

    Raises MorelloError for an unknown name or feature, and for a CPU without the features that the target needs.
    """
    if re.fullmatch(r"\+\w+(,\+\w+)*", cpu):
        return known_features(re.findall(r"\w+", cpu), target)
    if missing := missing_features(target.info.cpu_features, cpu):
        named = "this machine" if cpu == NATIVE else cpu
        hint = "choose another target with --target, or another CPU with --cpu"
        raise MorelloError(f"{named} lacks {', '.join(missing)}, which {target.name} needs", hint)
    lacks = missing_features(target.optional_features, cpu)
    return tuple(one for one in target.optional_features if one not in lacks)


def known_features(features: Sequence[str], target: Target) -> tuple[str, ...]:
    """Return features that kernels of a target need, in order. Raises MorelloError for others."""
    known = target.optional_features
    for one in features:
        if one not in known:
            hint = f"its optional features are {', '.join(known)}" if known else "it has no optional features"
            raise UnknownName(f"{target.name} has no kernels for the CPU feature {one!r}", suggestion(one, known, hint))
    return tuple(sorted({*features}))
