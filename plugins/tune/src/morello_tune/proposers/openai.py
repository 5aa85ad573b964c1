"""openai: a language model behind any endpoint for chat completions, through the package `openai`."""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, cast

import attrs

from morello.errors import MorelloError
from morello.paths import config_file
from morello.untrusted import parse_toml
from morello_tune.interface import Proposer, ProposerSession, TuningTask
from morello_tune.proposers.language import LARGEST, LanguageModel, LanguageSession, Spent, Unanswered

#: The file in the folder of the user's configuration, and the prefix of environment variables, which have precedence.
FILE, PREFIX = "openai.toml", "MORELLO_OPENAI_"
#: The characters of an error that are shown, and the seconds between two checks of the budget.
_SHOWN, _POLL = 300, 0.05


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

    `timeout` is in seconds for a try. A request has `retries` more, with the pauses of the package `openai`. At most
    `parallel` requests are under way, and `per_minute` tries begin in a minute. Raises MorelloError, without the key,
    for wrong values.
    """

    base_url: str = "https://api.openai.com/v1"
    model: str = ""
    key: str = attrs.field(default="", repr=False)
    temperature: float = 1.0
    timeout: float = _setting(120.0, 1e-3)
    parallel: int = _setting(4, 1)
    per_minute: float = _setting(0.0)
    retries: int = _setting(4)
    max_tokens: int = _setting(0)
    tokens: int = _setting(0)
    money: float = _setting(0.0)
    price_in: float = _setting(0.0)
    price_out: float = _setting(0.0)

    def __attrs_post_init__(self) -> None:
        remedy = f"set {PREFIX}MODEL, or model in {config_file().with_name(FILE)}, or write openai:NAME"
        _require(self.model, "the proposer openai needs the name of a model", remedy)
        http = self.base_url.startswith(("http://", "https://"))
        _require(http, f"base_url is {self.base_url!r}", "it begins with http:// or https://")
        rule = "the key of openai has characters that no header may have"
        _require(self.key.isprintable() and self.key.isascii(), rule, "set it again")
        priced = self.price_in or self.price_out or not self.money
        _require(priced, "a limit of money needs prices", "set price_in and price_out, per million tokens")
        rule = "a limit of tokens or money needs max_tokens: an answer is not limited otherwise"
        unlimited = not (self.tokens or self.money)
        _require(self.max_tokens or unlimited, rule, "set max_tokens in the settings of openai")


def settings(model: str = "") -> OpenAISettings:
    """Return the settings of file and environment. Raises MorelloError, without the key, for wrong or missing ones."""
    path = config_file().with_name(FILE)
    given: dict[str, Any] = {}
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            given = parse_toml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        rule = f"cannot read {path}: {type(error).__name__}"
        raise MorelloError(rule, "it is TOML, such as model = 'NAME'") from None
    kinds = {field.name: type(field.default) for field in attrs.fields(OpenAISettings)}
    given |= {name: value for name in kinds if (value := os.environ.get(f"{PREFIX}{name.upper()}"))}
    for name, variable in (("key", "OPENAI_API_KEY"), ("base_url", "OPENAI_BASE_URL")):
        if value := os.environ.get(variable):
            given.setdefault(name, value)
    given |= {"model": model} if model else {}
    for name, value in given.items():
        if name not in kinds:
            raise MorelloError(f"{path} has {name!r}", f"it may have {', '.join(kinds)}")
        try:
            given[name] = kinds[name](value)
        except (TypeError, ValueError):
            shown = "" if name == "key" else f", not {value!r}"
            rule = f"the setting {name} of openai is a {kinds[name].__name__}{shown}"
            raise MorelloError(rule, f"see {path}") from None
    return OpenAISettings(**given)


@attrs.define
class OpenAIModel(LanguageModel):
    """Sends conversations to an endpoint within rates and budgets. Errors never contain the key.

    A request begins only if it and those under way fit the budget at their maximum usage, with all retries. So the
    budget is never exceeded if the endpoint respects `max_tokens`.
    """

    settings: OpenAISettings
    _counts: Counter[str] = attrs.field(factory=Counter[str], init=False)
    _spent: Counter[str] = attrs.field(factory=Counter[str], init=False)
    _reserved: Counter[str] = attrs.field(factory=Counter[str], init=False)
    _next: float = attrs.field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self.parallel = self.settings.parallel

    def facts(self) -> Mapping[str, Any]:
        counts = {name: self._counts[name] for name in ("requests", "retries")}
        tokens = {f"tokens {way}": self._spent[way] for way in ("in", "out")}
        return {**counts, **tokens, "money": round(self._money(self._spent), 6)}

    async def answer(self, system: str, texts: Sequence[str]) -> str:
        made, roles = self.settings, ("user", "assistant")
        messages = [{"role": "system", "content": system}]
        messages += [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
        body = {"model": made.model, "messages": messages, "temperature": made.temperature}
        body |= {"max_tokens": made.max_tokens} if made.max_tokens else {}
        # A token has at least one byte.
        most = {"in": len(json.dumps(body).encode()), "out": made.max_tokens} if made.tokens or made.money else {}
        whole = Counter({way: (made.retries + 1) * count for way, count in most.items()})
        while not self._fits(self._spent + self._reserved + whole):
            if not self._reserved:
                need = f"a request may need {whole.total():,} tokens, more than are left"
                remedy = "raise tokens or money in the settings of openai, or lower max_tokens or retries"
                raise Spent(f"the budget of tokens or money is spent: {need}", remedy)
            await asyncio.sleep(_POLL)
        self._reserved += whole
        used = Counter[str]()
        try:
            return self._redacted(await self._answer(body, most, used))
        finally:
            self._reserved -= whole
            self._spent += used

    async def _answer(self, body: Mapping[str, Any], most: Mapping[str, int], used: Counter[str]) -> str:
        """Return the answer. Add the usage to `used`: `most` for each try whose usage the endpoint does not report."""
        import openai

        made, tries = self.settings, 0

        async def sent(_: object) -> None:
            nonlocal tries
            limit.reschedule((limit.when() or 0.0) + await self._turn())
            self._counts.update(requests=1, retries=min(1, tries))
            used.update(most)
            tries += 1

        async def answered(response: Any) -> None:
            if not response.is_success:
                used.subtract(most)
            read = bytearray()
            async for part in response.aiter_bytes():
                read += part
                if len(read) > LARGEST:
                    raise Unanswered(f"the endpoint sent more than {LARGEST >> 10} KiB", "check base_url")
            # The client would read any number of bytes; it does not read those that it has.
            response._content = bytes(read)

        client = openai.AsyncOpenAI(
            api_key=made.key or "none",
            base_url=made.base_url,
            max_retries=made.retries,
            timeout=made.timeout,
            # The key is sent to base_url alone.
            http_client=openai.DefaultAsyncHttpxClient(
                follow_redirects=False, event_hooks={"request": [sent], "response": [answered]}
            ),
        )
        headers = {} if made.key else {"Authorization": openai.Omit()}
        try:
            # The client limits the pauses between bytes only.
            async with client, asyncio.timeout(made.timeout * (made.retries + 1)) as limit:
                response = await client.chat.completions.create(**body, extra_headers=cast(Any, headers))
            text, usage = _content(response)
            if usage:
                used.subtract(most)
                used.update({"in": usage.prompt_tokens or 0, "out": usage.completion_tokens or 0})
            if text.strip():
                return text
            raise Unanswered("the model answered nothing", "raise max_tokens, or use another model")
        except openai.APIStatusError as error:
            text = self._redacted(" ".join(error.response.text.split()))
            text = "".join(filter(str.isprintable, text))[:_SHOWN]
            message = f"the endpoint answered {error.status_code}{text and f': {text}'}"
            if error.status_code < 500 and error.status_code not in (408, 409, 429):
                raise MorelloError(message, "check base_url, model and key") from None
        except (TimeoutError, openai.APITimeoutError):
            message = "no answer: timed out"
        except (openai.APIError, OSError, ValueError) as error:
            cause = error.__cause__ or error
            message = self._redacted(f"no answer: {str(cause) or type(cause).__name__}")
            if type(cause).__name__ == "ConnectError":
                used.clear()  # nothing was sent
        raise Unanswered(f"{message}; tried {tries} times", "try again later")

    async def _turn(self) -> float:
        """Wait until one more try may begin by `per_minute`; return the seconds."""
        now = time.monotonic()
        start = max(now, self._next)
        self._next = start + (60 / self.settings.per_minute if self.settings.per_minute else 0.0)
        await asyncio.sleep(start - now)
        return start - now

    def _fits(self, usage: Counter[str]) -> bool:
        within = not self.settings.tokens or usage.total() <= self.settings.tokens
        return within and (not self.settings.money or self._money(usage) <= self.settings.money)

    def _money(self, usage: Counter[str]) -> float:
        return (usage["in"] * self.settings.price_in + usage["out"] * self.settings.price_out) / 1e6

    def _redacted(self, text: str) -> str:
        return text.replace(self.settings.key, "***") if self.settings.key else text


def _content(response: Any) -> tuple[str, Any]:
    """Return the text of a completion and its usage, None if the endpoint does not report that."""
    try:
        text, usage = response.choices[0].message.content, response.usage
    except (AttributeError, IndexError, TypeError):
        raise Unanswered("the endpoint's answer is not a chat completion", "check base_url") from None
    return text if isinstance(text, str) else "", usage


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
