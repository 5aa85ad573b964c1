"""Proposals by language models: each plan and each edit is a prompt; answers go through the schedule parser alone."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import attrs

from morello.errors import MorelloError
from morello.interrupt import result_of
from morello_tune.interface import MenuItem, PlanRequest, Proposal, ProposerSession, TuningTask
from morello_tune.proposers import prompts

#: The most bytes of an answer, and the characters of it that a trace keeps.
LARGEST, _KEPT = 1 << 18, 4000
_SPENT = "the budget of tokens or money is spent"
_T = TypeVar("_T")


class Unanswered(MorelloError):
    """A model gave no answer to one prompt."""


class Spent(MorelloError):
    """The budget of tokens or money is used up."""


class LanguageModel(ABC):
    """A model that answers a conversation: texts of the user and the model, in turns."""

    parallel: int = 1

    @abstractmethod
    async def answer(self, system: str, texts: Sequence[str]) -> str:
        """Return the answer. Raises Unanswered without one, and MorelloError if a repetition is useless."""

    def facts(self) -> Mapping[str, Any]:
        """Return the usage so far."""
        return {}


@attrs.define
class LanguageSession(ProposerSession):
    """Requests plans from a model, edits by these plans, and one repair of each that is refused."""

    task: TuningTask
    model: LanguageModel
    _answers: int = attrs.field(default=0, init=False)
    _slots: asyncio.Semaphore = attrs.field(init=False)

    def propose(self, requests: Sequence[PlanRequest]) -> list[Sequence[Proposal]]:
        return run(lambda: self._propose(requests))

    def facts(self) -> Mapping[str, Any]:
        return self.model.facts()

    async def _propose(self, requests: Sequence[PlanRequest]) -> list[Sequence[Proposal]]:
        self._slots = asyncio.Semaphore(self.model.parallel)
        try:
            async with asyncio.timeout(self.task.deadline - time.monotonic()):
                made = await asyncio.gather(*map(self._proposals, requests))
        except TimeoutError:
            return [()] * len(requests)
        # A spent budget makes no proposals; without any, the search ends.
        return [[one for one in each if one.refused != _SPENT] for each in made]

    async def _proposals(self, request: PlanRequest) -> list[Proposal]:
        try:
            plan = await self._ask([prompts.plan_prompt(self.task, request)])
        except Unanswered as error:
            return [Proposal(item="", plan="", schedule=None, refused=error.message)]
        item, plan = prompts.chosen_item(plan, request.menu), plan[:_KEPT]
        if item is None:
            refused = f"the plan names no single item of the menu: {', '.join(one.name for one in request.menu)}"
            return [Proposal(item="", plan=plan, schedule=None, refused=refused, text=plan)]
        return await asyncio.gather(*(self._edit(request, item, plan) for _ in range(request.implementations)))

    async def _edit(self, request: PlanRequest, item: MenuItem, plan: str) -> Proposal:
        texts = [prompts.edit_prompt(self.task, request, item, plan)]
        refused = answer = ""
        try:
            for _ in range(2):
                answer = await self._ask(texts)
                try:
                    schedule = self.task.read(prompts.schedule_in(answer))
                    return Proposal(item=item.name, plan=plan, schedule=schedule, text=answer[:_KEPT])
                except MorelloError as error:
                    again = "; asked again for" if refused else ""
                    refused = f"{error}{again}"
                    texts += [answer, prompts.repair_prompt(str(error))]
        except Unanswered as error:
            refused = refused or error.message
        return Proposal(item=item.name, plan=plan, schedule=None, refused=refused, text=answer[:_KEPT])

    async def _ask(self, texts: Sequence[str]) -> str:
        try:
            async with self._slots:
                answer = await self.model.answer(prompts.SYSTEM, texts)
        except Unanswered:
            raise
        except MorelloError as error:
            # A model that has answered may fail later; measurements must not be lost.
            if not self._answers:
                raise
            raise Unanswered(_SPENT if isinstance(error, Spent) else error.message, error.hint) from error
        self._answers += 1
        return answer


def run(work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Return the result of a coroutine; an interrupt cancels it and waits for nothing.

    It runs in a thread of its own, since the thread of a notebook has an event loop.
    """
    tasks: list[asyncio.Task[Any]] = []

    async def main() -> _T:
        tasks.extend(asyncio.all_tasks())
        return await work()

    pool = ThreadPoolExecutor(1)
    try:
        return result_of(pool.submit(lambda: asyncio.run(main())))
    except BaseException:
        for task in tasks:
            with suppress(RuntimeError):  # its loop has ended
                task.get_loop().call_soon_threadsafe(task.cancel)
        raise
    finally:
        pool.shutdown(wait=False)
