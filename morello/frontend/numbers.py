"""Numbers of the text, none of which is too large to compute with."""

from __future__ import annotations

from math import isinf

from lark import Token

from morello.frontend.diagnostics import Source, quoted
from morello.frontend.syntax import span

MAX = 2**63 - 1
_DIGITS = len(str(MAX))


def read(source: Source, token: Token, digits: str | None = None) -> int:
    """Return the number that a token is, or that its part `digits` is."""
    text = (digits or str(token)).lstrip("0") or "0"
    # The length comes first: int() refuses thousands of digits, and is slow before it does.
    if len(text) > _DIGITS + 1 or abs(int(text)) > MAX:
        raise source.error(span(token), f"{quoted(token)} is too large", "numbers are at most 2^63 - 1")
    return int(text)


def read_float(source: Source, token: Token) -> float:
    """Return the number that a token with a decimal point or an exponent is."""
    number = float(token)
    if isinf(number):
        raise source.error(span(token), f"{quoted(token)} is too large", "numbers are at most 1.7e308")
    return number
