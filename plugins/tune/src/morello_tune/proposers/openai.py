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
from morello_tune.proposers.language import LanguageModel, LanguageSession, Spent, Unanswered

#: The file in the folder of the user's configuration, and the prefix of environment variables, which have precedence.
FILE, PREFIX = "openai.toml", "MORELLO_OPENAI_"
#: Statuses that are retried, the longest pause in seconds, and the characters of an error that are shown.
_RETRIED, _LONGEST, _SHOWN = (408, 409, 425, 429, 500, 502, 503, 504, 529), 60.0, 300


def _require(fulfilled: object, rule: str, remedy: str) -> None:
    if not fulfilled:
        raise MorelloError(rule, remedy)


def _setting(default: Any, least: float = 0) -> Any:
    def check(_: object, field: attrs.Attribute[Any], value: float) -> None:
        _require(least <= value < math.inf, f"{field.name} of openai is {value}", f"it is finite, and at least {least}")

    return attrs.field(default=default, validator=check)


@attrs.frozen(kw_only=True)
class OpenAISettings:
    """The endpoint, the rates of requests, and the budget: tokens in all, or money by prices per million tokens.

    `timeout` is in seconds for a whole request. At most `parallel` requests are under way, and `per_minute` begin in a
    minute. A failed request is sent again up to `retries` times, after `backoff` seconds, doubled each time, or after
    the endpoint's `Retry-After`. Raises MorelloError, without the key, for wrong values.
    """

    base_url: str = "https://api.openai.com/v1"
    model: str = ""
    key: str = attrs.field(default="", repr=False)
    temperature: float = 1.0
    timeout: float = _setting(120.0, 1e-3)
    parallel: int = _setting(4, 1)
    per_minute: float = 0.0
    retries: int = _setting(4)
    backoff: float = 1.0
    max_tokens: int = _setting(0)
    tokens: int = _setting(0)
    money: float = _setting(0.0)
    price_in: float = _setting(0.0)
    price_out: float = _setting(0.0)

    def __attrs_post_init__(self) -> None:
        file, priced = config_file().with_name(FILE), self.price_in or self.price_out
        rule = "the proposer openai needs the name of a model"
        _require(self.model, rule, f"set {PREFIX}MODEL, or model in {file}, or write openai:NAME")
        http = self.base_url.startswith(("http://", "https://"))
        _require(http, f"base_url is {self.base_url!r}", "it begins with http:// or https://")
        rule = "the key of openai has characters that no header may have"
        _require(self.key.isprintable() and self.key.isascii(), rule, "set it again")
        rule = "a limit of money needs prices"
        _require(priced or not self.money, rule, "set price_in and price_out, per million tokens")
        rule = "a limit of tokens or money needs max_tokens: an answer is not limited otherwise"
        _require(self.max_tokens or not (self.money or self.tokens), rule, "set max_tokens in the settings of openai")


def settings(model: str = "") -> OpenAISettings:
    """Return the settings of file and environment. Raises MorelloError, without the key, for wrong or missing ones."""
    path = config_file().with_name(FILE)
    given: dict[str, Any] = {}
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        rule = f"cannot read {path}: {type(error).__name__}"
        raise MorelloError(rule, "it is TOML, such as model = 'NAME'") from None
    kinds = {field.name: type(field.default) for field in attrs.fields(OpenAISettings)}
    given |= {name: value for name in kinds if (value := os.environ.get(f"{PREFIX}{name.upper()}"))}
    for name, variable in (("key", "OPENAI_API_KEY"), ("base_url", "OPENAI_BASE_URL")):
        if value := os.environ.get(variable):
            given.setdefault(name, value)
    given |= {"model": model} if model else {}
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name not in kinds:
            raise MorelloError(f"{path} has {name!r}", f"it may have {', '.join(kinds)}")
        try:
            found[name] = kinds[name](value)
        except (TypeError, ValueError):
            shown = "" if name == "key" else f", not {value!r}"
            rule = f"the setting {name} of openai is a {kinds[name].__name__}{shown}"
            raise MorelloError(rule, f"see {path}") from None
    return OpenAISettings(**found)


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

    settings: OpenAISettings
    spent: TokenCount = attrs.field(default=TokenCount(), init=False)
    _under_way: Counter[TokenCount] = attrs.field(factory=Counter[TokenCount], init=False)
    _changed: threading.Condition = attrs.field(factory=threading.Condition, init=False)

    def most(self, body: bytes) -> TokenCount:
        """Return the maximum usage of a request: a token has at least one byte. It is zero without a limit."""
        limited = self.settings.tokens or self.settings.money
        return TokenCount(len(body), self.settings.max_tokens) if limited else TokenCount()

    def money(self, tokens: TokenCount) -> float:
        """Return the price of tokens."""
        return (tokens.prompt * self.settings.price_in + tokens.answer * self.settings.price_out) / 1e6

    def reserve(self, most: TokenCount) -> None:
        """Reserve the maximum usage of a request when it is available. Raises Spent if it never will be."""
        with self._changed:
            while not self._affords(most):
                if not self._under_way.total():
                    need = f"a request may need {most.prompt + most.answer:,} tokens, more than are left"
                    remedy = "raise tokens or money in the settings of openai, or lower max_tokens"
                    raise Spent(f"the budget of tokens or money is spent: {need}", remedy)
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
        within = not self.settings.tokens or total.prompt + total.answer <= self.settings.tokens
        return within and (not self.settings.money or self.money(total) <= self.settings.money)


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
        self.parallel, self._budget = self.settings.parallel, TokenBudget(self.settings)

    def stop(self) -> None:
        super().stop()
        with self._lock:
            for task in self._tasks:
                with suppress(RuntimeError):  # its loop has ended
                    task.get_loop().call_soon_threadsafe(task.cancel)

    def facts(self) -> Mapping[str, Any]:
        spent, counts = self._budget.spent, {name: self._counts[name] for name in ("requests", "retries")}
        tokens = {"tokens in": spent.prompt, "tokens out": spent.answer}
        return {**counts, **tokens, "money": round(self._budget.money(spent), 6)}

    def answer(self, system: str, texts: Sequence[str]) -> str:
        roles = ("user", "assistant")
        messages = [{"role": "system", "content": system}]
        messages += [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
        body = {"model": self.settings.model, "messages": messages, "temperature": self.settings.temperature}
        body |= {"max_tokens": self.settings.max_tokens} if self.settings.max_tokens else {}

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
        raise Unanswered("the endpoint's answer is not a chat completion", "check base_url") from None
    return text if isinstance(text, str) else "", used


def _retry_after(value: str | None, otherwise: float) -> float:
    """Return the seconds of a header `Retry-After`, a number or a date."""
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
