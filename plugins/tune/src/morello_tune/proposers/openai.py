"""openai: asks any endpoint for chat completions as OpenAI's API has them."""

from __future__ import annotations

import email.utils
import http
import http.client
import json
import math
import os
import queue
import threading
import time
import tomllib
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from morello.errors import MorelloError
from morello.paths import config_file
from morello_tune.interface import Proposer, Session, Task
from morello_tune.proposers.budget import Budget, Tokens
from morello_tune.proposers.language import Language, Model, Unanswered

#: The file beside the user's configuration, and how environment variables begin that take precedence over it.
FILE, PREFIX = "openai.toml", "MORELLO_OPENAI_"
#: Bytes of an answer that are read at most, and characters of an error that are told.
_LARGEST, _TOLD, _PIECE = 1 << 20, 300, 1 << 16
_AGAIN = (408, 409, 425, 429, 500, 502, 503, 504, 529)
#: Seconds to wait for one more try at most.
_LONGEST = 60.0


@attrs.frozen(kw_only=True)
class Settings:
    """The endpoint, how it is asked, and what may be spent: tokens in all, or money by prices per million tokens.

    A request takes at most `timeout` seconds in all. `parallel` requests are under way at a time, at most `per_minute`
    begin in a minute, and one that fails is tried `retries` more times, after `backoff` seconds, then twice as many,
    and so on, or as long as the endpoint says.
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


def settings(model: str = "") -> Settings:
    """Return what file and environment say. Raises MorelloError for what is wrong, or missing; it never tells a key."""
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
    kinds = {field.name: type(field.default) for field in attrs.fields(Settings)}
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
            told = "" if name == "key" else f", not {value!r}"
            raise MorelloError(
                f"the setting {name} of openai is a {kinds[name].__name__}{told}", f"see {path}"
            ) from None
    return _checked(Settings(**found))


def _checked(made: Settings) -> Settings:
    if not made.model:
        what = "the proposer openai needs the name of a model"
        raise MorelloError(
            what, f"set {PREFIX}MODEL, or model in {config_file().with_name(FILE)}, or write openai:NAME"
        )
    if not made.base_url.startswith(("http://", "https://")):
        raise MorelloError(f"base_url is {made.base_url!r}", "it begins with http:// or https://")
    if made.parallel < 1 or made.retries < 0 or not 0 < made.timeout < math.inf:
        raise MorelloError("openai asks with parallel of at least 1, and some timeout", "correct its settings")
    for name in ("max_tokens", "tokens", "money", "price_in", "price_out"):
        if not 0 <= getattr(made, name) < math.inf:
            raise MorelloError(f"{name} of openai is {getattr(made, name)}", "it is a number, and not negative")
    if any(not one.isprintable() or not one.isascii() for one in made.key):
        raise MorelloError("the key of openai has characters that no header may have", "set it again")
    if made.money and not (made.price_in or made.price_out):
        raise MorelloError("a limit of money needs prices", "set price_in and price_out, per million tokens")
    if (made.tokens or made.money) and not made.max_tokens:
        what = "a limit of tokens or money needs max_tokens: nobody knows else what an answer may come to"
        raise MorelloError(what, "set max_tokens in the settings of openai")
    return made


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: the key is for one place alone."""

    def redirect_request(self, *_args: Any, **_more: Any) -> None:
        return None


@attrs.frozen
class _Response:
    """The answer to a request over HTTP."""

    status: int
    retry_after: str | None
    body: bytes


_Responses = queue.SimpleQueue[_Response | Exception]


@attrs.define
class Endpoint(Model):
    """Sends conversations to an endpoint, and keeps within rates and budgets. Errors never tell the key."""

    settings: Settings
    _budget: Budget = attrs.field(init=False)
    _counts: Counter[str] = attrs.field(factory=Counter[str], init=False)
    _next: float = attrs.field(default=0.0, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)
    #: Where the responses to requests under way go, and whether nobody waits for them any more.
    _responses: set[_Responses] = attrs.field(factory=set[_Responses], init=False)
    _stopped: threading.Event = attrs.field(factory=threading.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.parallel = self.settings.parallel
        made = self.settings
        self._budget = Budget(made.tokens, made.money, made.max_tokens, made.price_in, made.price_out)
        self._opener = urllib.request.build_opener(_Stay())

    def stop(self) -> None:
        super().stop()
        self._stopped.set()
        with self._lock:
            for waiting in self._responses:
                waiting.put(TimeoutError("stopped"))

    def facts(self) -> Mapping[str, Any]:
        spent = self._budget.spent
        counts = {name: self._counts[name] for name in ("requests", "retries")}
        money = round(self._budget.money(spent), 6)
        return {**counts, "tokens in": spent.prompt, "tokens out": spent.answer, "money": money}

    def answer(self, system: str, texts: Sequence[str]) -> str:
        roles = ("user", "assistant")
        messages = [{"role": "system", "content": system}]
        messages += [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
        body: dict[str, Any] = {
            "model": self.settings.model,
            "messages": messages,
            "temperature": self.settings.temperature,
        }
        if self.settings.max_tokens:
            body["max_tokens"] = self.settings.max_tokens
        return self._sent(json.dumps(body).encode())

    def _sent(self, body: bytes) -> str:
        """Return the answer, after some tries. Raises Unanswered, or MorelloError for what no try will mend."""
        told, most = "", self._budget.most(body)
        for attempt in range(self.settings.retries + 1):
            self._budget.reserve(most)
            used, seconds = Tokens(), None
            try:
                self._wait()
                # What nobody tells of counts in full.
                used = most
                response = self._once(body)
                if response.status == http.HTTPStatus.OK:
                    content, used = _content(response.body, most)
                    if not content.strip():
                        raise Unanswered("the model answered nothing", "raise max_tokens, or ask another model")
                    return self._redacted(content)
                used, told = Tokens(), self._failure(response)
                if response.status not in _AGAIN:
                    raise MorelloError(told, "check base_url, model and key")
                seconds = _retry_after(response.retry_after)
            except (OSError, http.client.HTTPException, ValueError) as error:
                # Of a timeout too. The reason may name the URL, but no header.
                told = self._redacted(f"no answer: {error or type(error).__name__}")
                # It was not even sent.
                used = Tokens() if isinstance(error, urllib.error.URLError) else used
            finally:
                self._budget.settle(most, used)
            if attempt < self.settings.retries:
                with self._lock:
                    self._counts["retries"] += 1
                self._sleep(min(_LONGEST, self.settings.backoff * 2**attempt if seconds is None else seconds))
        raise Unanswered(f"{told}; tried {self.settings.retries + 1} times", "try again later") from None

    def _once(self, body: bytes) -> _Response:
        """Return the response to one request, within the timeout in all. Raises what the connection raises.

        Sockets limit the time of each read alone, so a thread reads, which is left behind if bytes come too slowly.
        """
        got = _Responses()
        with self._lock:
            self._counts["requests"] += 1
            self._responses.add(got)
        began = time.monotonic()
        until = min(began + self.settings.timeout, self.until)

        def ask() -> None:
            try:
                got.put(self._exchanged(body, until))
            except Exception as error:
                got.put(error)

        threading.Thread(target=ask, daemon=True).start()
        try:
            found = got.get(timeout=max(0.0, until - began))
        except queue.Empty:
            raise TimeoutError("timed out") from None
        finally:
            with self._lock:
                self._responses.remove(got)
        if isinstance(found, Exception):
            raise found
        return found

    def _exchanged(self, body: bytes, until: float) -> _Response:
        made = self.settings
        headers = {"Content-Type": "application/json"}
        if made.key:
            headers["Authorization"] = f"Bearer {made.key}"
        request = urllib.request.Request(f"{made.base_url.rstrip('/')}/chat/completions", body, headers)
        opened: Any
        try:
            opened = self._opener.open(request, timeout=made.timeout)
        except urllib.error.HTTPError as error:
            opened = error
        with opened as response:
            return _Response(response.status, response.headers.get("Retry-After"), _read(response, until))

    def _wait(self) -> None:
        """Wait for the turn of one more request."""
        made = self.settings
        with self._lock:
            now = time.monotonic()
            start = max(now, self._next)
            self._next = start + (60 / made.per_minute if made.per_minute else 0.0)
        self._sleep(start - now)

    def _sleep(self, seconds: float) -> None:
        """Wait. Raises Unanswered where no time is left then."""
        left = self.until - time.monotonic()
        if self._stopped.wait(max(0.0, min(seconds, left))) or seconds >= left:
            raise Unanswered("no time is left", "give a larger budget")

    def _failure(self, response: _Response) -> str:
        said = self._redacted(" ".join(response.body.decode("utf-8", "replace").split()))
        said = "".join(one for one in said if one.isprintable())[:_TOLD]
        return f"the endpoint answered {response.status}{said and f': {said}'}"

    def _redacted(self, text: str) -> str:
        return text.replace(self.settings.key, "***") if self.settings.key else text


def _content(response: bytes, most: Tokens) -> tuple[str, Tokens]:
    """Return the text of a response, and the tokens it took: the most that may be where it does not tell."""
    try:
        told = json.loads(response)
        content = told["choices"][0]["message"]["content"]
        usage = told.get("usage") or {}
        used = Tokens(*(int(usage.get(name) or 0) for name in ("prompt_tokens", "completion_tokens")))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        raise Unanswered("the endpoint's answer is no chat completion", "check base_url") from None
    return content if isinstance(content, str) else "", used if usage else most


def _read(response: Any, until: float) -> bytes:
    """Return what comes of a response, as much of it as is read at most. Raises TimeoutError when it takes too long."""
    found = bytearray()
    while len(found) < _LARGEST and (piece := response.read1(_PIECE)):
        found += piece
        if time.monotonic() >= until:
            raise TimeoutError("timed out")
    return bytes(found)


def _retry_after(value: str | None) -> float | None:
    """Return the seconds that a header says to wait, or the time until its date; None without one."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        date = email.utils.parsedate_tz(value)
        return max(0.0, email.utils.mktime_tz(date) - time.time()) if date else None


def openai(model: str = "") -> Proposer:
    """Return the proposer that asks a model, by default the one in the settings."""

    def start(task: Task) -> Session:
        return Language(task, Endpoint(settings(model)))

    return Proposer(
        name=f"openai:{model}" if model else "openai",
        start=start,
        description=f"a language model behind an endpoint for chat completions: {PREFIX}MODEL, or openai:NAME",
    )
