"""Proposals by language models: each plan and each edit is a prompt; answers go through the schedule parser alone."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs

from morello.errors import MorelloError
from morello.interrupt import result_of
from morello.schedule import Schedule
from morello_tune.interface import MenuItem, PlanRequest, Proposal, ProposerSession, TuningTask
from morello_tune.proposers import prompts

#: Characters of an answer that a trace keeps.
_KEPT = 4000


class Unanswered(MorelloError):
    """A model gave no answer to one prompt."""


class Spent(Unanswered):
    """The budget of tokens or money is used up."""


class LanguageModel(ABC):
    """A model that answers a conversation: texts of the user and the model, in turns. Used by several threads."""

    parallel: int = 1
    #: The time, of `time.monotonic`, until which answers are of use.
    until: float = math.inf

    @abstractmethod
    def answer(self, system: str, texts: Sequence[str]) -> str:
        """Return the answer. Raises Unanswered without one, and MorelloError if a repetition is useless."""

    def stop(self) -> None:
        """Cancel the requests under way."""
        self.until = -math.inf

    def facts(self) -> Mapping[str, Any]:
        """Return the usage so far."""
        return {}


@attrs.define
class LanguageSession(ProposerSession):
    """Requests plans from a model, edits by these plans, and one repair of each that is refused."""

    task: TuningTask
    model: LanguageModel
    _answers: int = attrs.field(default=0, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self.model.until = self.task.deadline

    def propose(self, requests: Sequence[PlanRequest]) -> list[Sequence[Proposal]]:
        with ThreadPoolExecutor(self.model.parallel) as pool:
            try:
                planned = [pool.submit(self._plan, request) for request in requests]
                plans = [result_of(one) for one in planned]
                futures = [
                    pool.submit(self._edit, request, item, plan)
                    for request, (item, plan, refused) in zip(requests, plans, strict=True)
                    for _ in range(0 if refused else request.implementations)
                ]
                edits = iter([result_of(one) for one in futures])
            except BaseException:
                # After an interrupt, the pool would wait for requests under way.
                self.model.stop()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        if self.task.late:
            return [()] * len(requests)
        made: list[Sequence[Proposal]] = []
        for request, (item, plan, refused) in zip(requests, plans, strict=True):
            lost = Proposal(item=item.name if item else "", plan=plan, schedule=None, refused=refused, text=plan)
            made.append([lost] if refused else [next(edits) for _ in range(request.implementations)])
        # A spent budget makes no proposals; without any, the search ends.
        return [[one for one in each if one.refused != _SPENT] for each in made]

    def facts(self) -> Mapping[str, Any]:
        return self.model.facts()

    def _plan(self, request: PlanRequest) -> tuple[MenuItem | None, str, str]:
        """Return the planned item, the plan, and the reason for a missing item."""
        try:
            plan = self._ask([prompts.plan_prompt(self.task, request)])
        except Spent:
            if not (self._answers or self.task.late):
                raise
            return None, "", _SPENT
        except Unanswered as error:
            return None, "", error.message
        item = prompts.chosen_item(plan, request.menu)
        names = ", ".join(one.name for one in request.menu)
        return item, plan[:_KEPT], "" if item else f"the plan names no single item of the menu: {names}"

    def _edit(self, request: PlanRequest, item: MenuItem | None, plan: str) -> Proposal:
        name = item.name if item else ""
        texts = [prompts.edit_prompt(self.task, request, item, plan)]
        refused = answer = ""
        try:
            for _ in range(2):
                answer = self._ask(texts)
                try:
                    return Proposal(item=name, plan=plan, schedule=self._read(answer), text=answer[:_KEPT])
                except MorelloError as error:
                    again = "; asked again for" if refused else ""
                    refused = f"{error}{again}"
                    texts += [answer, prompts.repair_prompt(str(error))]
        except Spent:
            refused = refused or _SPENT
        except Unanswered as error:
            refused = error.message
        return Proposal(item=name, plan=plan, schedule=None, refused=refused, text=answer[:_KEPT])

    def _read(self, answer: str) -> Schedule:
        with self._lock:
            return self.task.read(prompts.schedule_in(answer))

    def _ask(self, texts: Sequence[str]) -> str:
        try:
            answer = self.model.answer(prompts.SYSTEM, texts)
        except Unanswered:
            raise
        except MorelloError as error:
            # A model that has answered may fail later; measurements must not be lost.
            if self._answers or self.task.late:
                raise Unanswered(error.message, error.hint) from error
            raise
        self._answers += 1
        return answer


_SPENT = "the budget of tokens or money is spent"
