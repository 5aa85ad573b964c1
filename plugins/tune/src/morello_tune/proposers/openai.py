"""openai: a language model behind any endpoint for chat completions, through the package `openai`."""

from __future__ import annotations

import asyncio
import email.utils
import json
import math
import os
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, cast

import attrs

from morello.errors import MorelloError
from morello.paths import config_file
from morello_tune.interface import Proposer, ProposerSession, TuningTask
from morello_tune.proposers.budget import TokenBudget, TokenCount
from morello_tune.proposers.language import LanguageModel, LanguageSession, Unanswered

#: The file in the folder of the user's configuration, and the prefix of environment variables, which have precedence.
FILE, PREFIX = "openai.toml", "MORELLO_OPENAI_"
#: Statuses that are retried, the longest pause in seconds, and the characters of an error that are shown.
_RETRIED, _LONGEST, _SHOWN = (408, 409, 425, 429, 500, 502, 503, 504, 529), 60.0, 300


@attrs.frozen(kw_only=True)
class OpenAISettings:
    """The endpoint, the rates of requests, and the budget: tokens in all, or money by prices per million tokens.

    `timeout` is in seconds for a whole request. At most `parallel` requests are under way, and `per_minute` begin in a
    minute. A failed request is sent again up to `retries` times, after `backoff` seconds, then twice as many, and so
    on, or when the endpoint's `Retry-After` says.
    """

    base_url: str = "https://api.openai.com/v1"
    model: str = ""
    key: str = attrs.field(default="", repr=False)
    temperature: float = 1.0
    timeout: float = 120.0
    parallel: int = 4
    per_minute: float = 0.0
    retries: int = 4
    backoff: float = 1.0
    max_tokens: int = 0
    tokens: int = 0
    money: float = 0.0
    price_in: float = 0.0
    price_out: float = 0.0


def settings(model: str = "") -> OpenAISettings:
    """Return the settings of file and environment. Raises MorelloError, without the key, for wrong or missing ones."""
    path = config_file().with_name(FILE)
    given: dict[str, Any] = {}
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        raise MorelloError(
            f"cannot read {path}: {type(error).__name__}", "it is TOML, such as model = 'NAME'"
        ) from None
    kinds = {field.name: type(field.default) for field in attrs.fields(OpenAISettings)}
    for name in kinds:
        if value := os.environ.get(f"{PREFIX}{name.upper()}"):
            given[name] = value
    for name, variable in (("key", "OPENAI_API_KEY"), ("base_url", "OPENAI_BASE_URL")):
        if name not in given and (value := os.environ.get(variable)):
            given[name] = value
    if model:
        given["model"] = model
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name not in kinds:
            raise MorelloError(f"{path} has {name!r}", f"it may have {', '.join(kinds)}")
        try:
            found[name] = kinds[name](value)
        except (TypeError, ValueError):
            shown = "" if name == "key" else f", not {value!r}"
            raise MorelloError(
                f"the setting {name} of openai is a {kinds[name].__name__}{shown}", f"see {path}"
            ) from None
    return _checked(OpenAISettings(**found))


def _checked(made: OpenAISettings) -> OpenAISettings:
    if not made.model:
        what = "the proposer openai needs the name of a model"
        raise MorelloError(
            what, f"set {PREFIX}MODEL, or model in {config_file().with_name(FILE)}, or write openai:NAME"
        )
    if not made.base_url.startswith(("http://", "https://")):
        raise MorelloError(f"base_url is {made.base_url!r}", "it begins with http:// or https://")
    if made.parallel < 1 or made.retries < 0 or not 0 < made.timeout < math.inf:
        raise MorelloError(
            "openai needs parallel of at least 1, retries of at least 0, and some timeout", "correct its settings"
        )
    for name in ("max_tokens", "tokens", "money", "price_in", "price_out"):
        if not 0 <= getattr(made, name) < math.inf:
            raise MorelloError(f"{name} of openai is {getattr(made, name)}", "it is a number, and not negative")
    if any(not one.isprintable() or not one.isascii() for one in made.key):
        raise MorelloError("the key of openai has characters that no header may have", "set it again")
    if made.money and not (made.price_in or made.price_out):
        raise MorelloError("a limit of money needs prices", "set price_in and price_out, per million tokens")
    if (made.tokens or made.money) and not made.max_tokens:
        what = "a limit of tokens or money needs max_tokens: an answer is not limited otherwise"
        raise MorelloError(what, "set max_tokens in the settings of openai")
    return made


@attrs.define
class OpenAIModel(LanguageModel):
    """Sends conversations to an endpoint within rates and budgets. Errors never contain the key."""

    settings: OpenAISettings
    _budget: TokenBudget = attrs.field(init=False)
    _counts: Counter[str] = attrs.field(factory=Counter[str], init=False)
    _next: float = attrs.field(default=0.0, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)
    _tasks: set[asyncio.Task[str]] = attrs.field(factory=set[asyncio.Task[str]], init=False)

    def __attrs_post_init__(self) -> None:
        made = self.settings
        self.parallel = made.parallel
        self._budget = TokenBudget(made.tokens, made.money, made.max_tokens, made.price_in, made.price_out)

    def stop(self) -> None:
        super().stop()
        with self._lock:
            for task in self._tasks:
                with suppress(RuntimeError):  # its loop has ended
                    task.get_loop().call_soon_threadsafe(task.cancel)

    def facts(self) -> Mapping[str, Any]:
        spent = self._budget.spent
        counts = {name: self._counts[name] for name in ("requests", "retries")}
        money = round(self._budget.money(spent), 6)
        return {**counts, "tokens in": spent.prompt, "tokens out": spent.answer, "money": money}

    def answer(self, system: str, texts: Sequence[str]) -> str:
        roles = ("user", "assistant")
        messages = [{"role": "system", "content": system}]
        messages += [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
        body: dict[str, Any] = {"model": self.settings.model, "messages": messages}
        body["temperature"] = self.settings.temperature
        if self.settings.max_tokens:
            body["max_tokens"] = self.settings.max_tokens

        async def run() -> str:
            task = asyncio.create_task(self._answer(body))
            with self._lock:
                self._tasks.add(task)
            try:
                return await task
            finally:
                with self._lock:
                    self._tasks.discard(task)

        try:
            return asyncio.run(run())
        except asyncio.CancelledError:
            raise Unanswered("no time is left", "give a larger budget") from None

    async def _answer(self, body: Mapping[str, Any]) -> str:
        """Return the answer. Raises Unanswered after the last retry, MorelloError if a retry is useless."""
        import openai

        made, message, most = self.settings, "", self._budget.most(json.dumps(body).encode())
        client = openai.AsyncOpenAI(
            api_key=made.key or "none",
            base_url=made.base_url,
            max_retries=0,
            timeout=None,
            # The key is sent to base_url alone.
            http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False),
        )
        headers = {} if made.key else {"Authorization": openai.Omit()}
        async with client:
            for attempt in range(made.retries + 1):
                if attempt:
                    self._counts["retries"] += 1
                self._budget.reserve(most)
                used, pause = TokenCount(), made.backoff * 2**attempt
                try:
                    await self._turn()
                    used = most  # unless the endpoint reports the usage
                    async with asyncio.timeout(max(0.0, min(made.timeout, self.until - time.monotonic()))):
                        self._counts["requests"] += 1
                        response = await client.chat.completions.create(**body, extra_headers=cast(Any, headers))
                    text, used = _content(response, most)
                    if not text.strip():
                        raise Unanswered("the model answered nothing", "raise max_tokens, or use another model")
                    return self._redacted(text)
                except openai.APIStatusError as error:
                    used, message = TokenCount(), self._failure(error.status_code, error.response.text)
                    if error.status_code not in _RETRIED:
                        raise MorelloError(message, "check base_url, model and key") from None
                    pause = _retry_after(error.response.headers.get("Retry-After"), pause)
                except TimeoutError:
                    message = "no answer: timed out"
                except (openai.APIError, OSError, ValueError) as error:
                    cause = error.__cause__ or error
                    message = self._redacted(f"no answer: {str(cause) or type(cause).__name__}")
                    if type(cause).__name__ == "ConnectError":
                        used = TokenCount()  # nothing was sent
                finally:
                    self._budget.settle(most, used)
                if attempt < made.retries:
                    await self._sleep(min(_LONGEST, pause))
        raise Unanswered(f"{message}; tried {made.retries + 1} times", "try again later") from None

    async def _turn(self) -> None:
        """Wait until one more request may begin by `per_minute`."""
        with self._lock:
            now = time.monotonic()
            start = max(now, self._next)
            self._next = start + (60 / self.settings.per_minute if self.settings.per_minute else 0.0)
        await self._sleep(start - now)

    async def _sleep(self, seconds: float) -> None:
        """Wait. Raises Unanswered if no time is left afterwards."""
        left = self.until - time.monotonic()
        await asyncio.sleep(max(0.0, min(seconds, left)))
        if seconds >= left:
            raise Unanswered("no time is left", "give a larger budget")

    def _failure(self, status: int, text: str) -> str:
        text = "".join(one for one in self._redacted(" ".join(text.split())) if one.isprintable())[:_SHOWN]
        return f"the endpoint answered {status}{text and f': {text}'}"

    def _redacted(self, text: str) -> str:
        return text.replace(self.settings.key, "***") if self.settings.key else text


def _content(response: Any, most: TokenCount) -> tuple[str, TokenCount]:
    """Return the text of a completion and its tokens: `most` if the endpoint does not report them."""
    try:
        text, usage = response.choices[0].message.content, response.usage
        used = TokenCount(usage.prompt_tokens or 0, usage.completion_tokens or 0) if usage else most
    except (AttributeError, IndexError, TypeError):
        raise Unanswered("the endpoint's answer is no chat completion", "check base_url") from None
    return text if isinstance(text, str) else "", used


def _retry_after(value: str | None, otherwise: float) -> float:
    """Return the seconds that a header `Retry-After` asks for, as a number or a date."""
    try:
        return max(0.0, float(value or otherwise))
    except ValueError:
        date = email.utils.parsedate_tz(value)
        return max(0.0, email.utils.mktime_tz(date) - time.time()) if date else otherwise


def openai(model: str = "") -> Proposer:
    """Return the proposer that uses a model, by default the one in the settings."""

    def start(task: TuningTask) -> ProposerSession:
        if find_spec("openai") is None:
            raise MorelloError("the proposer openai needs the package openai", "pip install 'morello-tune[openai]'")
        return LanguageSession(task, OpenAIModel(settings(model)))

    return Proposer(
        name=f"openai:{model}" if model else "openai",
        start=start,
        description=f"a language model behind an endpoint for chat completions: {PREFIX}MODEL, or openai:NAME",
    )
