"""Errors that a user of Morello sees: one message that names the place, the rule and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

#: The longest word that is compared with others.
_MAX_WORD = 40


class MorelloError(Exception):
    """Base of every error Morello raises on purpose; `hint` says what to do about it."""

    def __init__(self, message: str, hint: str | None = None):
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors of other processes are made without calling __init__, which may take more than `args`.
        return _unpickled, (type(self), *self.args), self.__dict__

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  hint: {self.hint}"


def _unpickled(kind: type[MorelloError], *args: object) -> MorelloError:
    return kind.__new__(kind, *args)


class UnknownName(MorelloError):
    """A name that an argument does not take; commands exit with status 2, as for other wrong arguments."""


class SpecError(MorelloError):
    """A Spec, tensor spec or layout that contradicts itself."""


class Inapplicable(MorelloError):
    """A rewrite's precondition does not hold for this Spec.

    `statement` is the statement of a schedule that could not be carried out, where it was one of a schedule.
    """

    statement: object = None


class PluginError(MorelloError):
    """A plugin that failed or broke a rule; the message names plugin, object and rule.

    `plugin` is its name, where leaving it out would help.
    """

    def __init__(self, message: str, hint: str | None = None, plugin: str | None = None):
        super().__init__(message, hint)
        self.plugin = plugin


def remedy(plugin: str) -> str:
    """Return the hint for a plugin that breaks a rule."""
    return f"mend or uninstall the plugin: pip uninstall {plugin}"


class NoImplementation(MorelloError):
    """The target has no program for this Spec within its memory limits."""


class Undecided(MorelloError):
    """Search ended without a program and without a proof of infeasibility."""


class EmitError(MorelloError):
    """A program the emitter cannot print, such as one with Spec leaves left."""


class ToolchainError(MorelloError):
    """No C compiler, or one that failed or hung."""


class ArgumentError(MorelloError):
    """An array that does not fit the kernel's operand."""


class VerificationError(MorelloError):
    """Emitted code that computed something else than its Spec says."""


class MorelloWarning(UserWarning):
    """Base of every warning Morello gives on purpose: things go on, but not as they might."""


class NotSaved(MorelloWarning):
    """A database or cache that cannot be used, or an answer that could not be stored in it."""


class SetAside(MorelloWarning):
    """A database that was renamed and made again, since it has an older format or is damaged."""


class MemoryLimited(MorelloWarning):
    """A search that reached its memory limit, so that with more memory it might find another program."""


class PluginDisabled(MorelloWarning):
    """An installed plugin that fails or breaks a rule, and is left out for it."""


def closest(word: str, words: Iterable[str]) -> str | None:
    """Return the known word that was probably meant, if any."""
    if len(word) > _MAX_WORD:
        return None
    folded = {one.casefold(): str(one) for one in words}
    matches = difflib.get_close_matches(word.casefold(), folded, n=1)
    return folded[matches[0]] if matches else None


def suggestion(word: str, words: Iterable[str], listing: str) -> str:
    """Return a hint: the word that was probably meant, then `listing`, what there is."""
    meant = closest(word, words)
    return f"did you mean {meant!r}? {listing}" if meant else listing
