"""The budget of tokens or money that a model may spend, kept with requests under way in parallel."""

from __future__ import annotations

import threading
from collections import Counter

import attrs

from morello_tune.proposers.language import Spent


@attrs.frozen
class TokenCount:
    """The tokens of a request: those of the prompt, and those of the answer."""

    prompt: int = 0
    answer: int = 0

    def __add__(self, other: TokenCount) -> TokenCount:
        return TokenCount(self.prompt + other.prompt, self.answer + other.answer)


@attrs.define
class TokenBudget:
    """Counts usage. A request begins only if it and those under way fit the budget at their maximum usage.

    So the budget is exact if the endpoint respects `max_tokens`.
    """

    #: Tokens, and money, that may be spent in all; 0 for no limit.
    tokens: int
    limit: float
    #: Tokens of an answer at most, and prices per million tokens of prompts and of answers.
    max_tokens: int
    price_in: float
    price_out: float
    spent: TokenCount = attrs.field(default=TokenCount(), init=False)
    _under_way: Counter[TokenCount] = attrs.field(factory=Counter[TokenCount], init=False)
    _changed: threading.Condition = attrs.field(factory=threading.Condition, init=False)

    def most(self, body: bytes) -> TokenCount:
        """Return the maximum usage of a request: a token has at least one byte. It is zero without a limit."""
        return TokenCount(len(body), self.max_tokens) if self.tokens or self.limit else TokenCount()

    def money(self, tokens: TokenCount) -> float:
        """Return what tokens cost."""
        return (tokens.prompt * self.price_in + tokens.answer * self.price_out) / 1e6

    def reserve(self, most: TokenCount) -> None:
        """Reserve the maximum usage of a request when it is available. Raises Spent if it never will be."""
        with self._changed:
            while not self._affords(most):
                if not self._under_way.total():
                    need = f"{most.prompt + most.answer:,} tokens, which a request may come to"
                    what = f"the budget of tokens or money is spent: what is left does not suffice for {need}"
                    raise Spent(what, "raise tokens or money in the settings of openai, or lower max_tokens")
                self._changed.wait()
            self._under_way[most] += 1

    def settle(self, most: TokenCount, used: TokenCount) -> None:
        """Replace the reservation of a request by its actual usage."""
        with self._changed:
            self._under_way[most] -= 1
            self.spent += used
            self._changed.notify_all()

    def _affords(self, most: TokenCount) -> bool:
        total = sum(self._under_way.elements(), self.spent + most)
        within = not self.tokens or total.prompt + total.answer <= self.tokens
        return within and (not self.limit or self.money(total) <= self.limit)
