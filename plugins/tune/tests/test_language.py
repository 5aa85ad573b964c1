"""A3: models behind a local server that answers well, badly, illegally, slowly, with rate limits and garbage."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attrs
import pytest
from morello_tune import TuningOptions
from morello_tune import tune as tune_goal
from morello_tune.proposers.language import Spent, Unanswered
from morello_tune.proposers.openai import OpenAIModel, OpenAISettings, settings
from morello_tune.proposers.prompts import chosen_item, schedule_in
from morello_tune.tuner import TuningResult

from morello import api
from morello.api.goals import Goal
from morello.errors import MorelloError
from morello.host import missing_features

from .conftest import SPECS

pytestmark = pytest.mark.skipif(
    bool(missing_features(("avx2", "fma"))), reason="this machine cannot run programs for x86_avx2"
)
KEY = "sk-secret-of-mine-123"
GOOD = "Here it is:\n```\nmove 0 to L1\nmove 1 to L1\nselect VectorRelu\n```"
PLAN = "item: kernel\nUse the vector kernel in L1."


@attrs.define
class Server:
    """Answers each prompt by `script`, which is given its texts and returns a status, headers and a body, or pieces of
    a response that are sent as they are, with a pause before each."""

    script: Callable[[list[str]], Any]
    prompts: list[list[str]] = attrs.field(factory=list[list[str]])
    headers: list[dict[str, str]] = attrs.field(factory=list[dict[str, str]])
    at_once: int = 0
    most: int = 0
    lock: threading.Lock = attrs.field(factory=threading.Lock)


def completion(text: str, tokens: int = 10) -> tuple[int, dict[str, str], bytes]:
    usage = {"prompt_tokens": tokens, "completion_tokens": 2 * tokens}
    body = {"choices": [{"message": {"role": "assistant", "content": text}}], "usage": usage}
    return 200, {}, json.dumps(body).encode()


def is_plan(texts: list[str]) -> bool:
    return "Select exactly one optimization" in texts[-1]


def answering(edit: str, repaired: str | None = None, tokens: int = 10) -> Callable[[list[str]], Any]:
    def script(texts: list[str]) -> Any:
        if is_plan(texts):
            return completion(PLAN, tokens)
        return completion(edit if len(texts) == 2 else repaired or edit, tokens)

    return script


@pytest.fixture(autouse=True)
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure noise by one comparison, which is enough here."""
    monkeypatch.setattr("morello_tune.evaluate._SELVES", 1)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    running: list[ThreadingHTTPServer] = []

    def start(script: Callable[[list[str]], Any], **options: Any) -> Server:
        state = Server(script)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                texts = [one["content"] for one in body["messages"]]
                with state.lock:
                    state.prompts.append(texts)
                    state.headers.append({name.lower(): value for name, value in self.headers.items()})
                    state.at_once += 1
                    state.most = max(state.most, state.at_once)
                try:
                    made = state.script(texts)
                finally:
                    with state.lock:
                        state.at_once -= 1
                try:
                    if isinstance(made, list):
                        for piece in made:
                            time.sleep(0.02)
                            self.wfile.write(piece)
                        return
                    code, headers, answer = made
                    self.send_response(code)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(answer)
                except OSError:
                    pass  # the client has gone

            def log_message(self, format: str, *args: Any) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        running.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        given = {"base_url": f"http://127.0.0.1:{server.server_port}/v1", "model": "stub", "key": KEY}
        for name, value in {**given, "timeout": 5, **options}.items():
            monkeypatch.setenv(f"MORELLO_OPENAI_{name.upper()}", str(value))
        return state

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def slow() -> Goal:
    goal = api.goal(SPECS["relu"], target="x86_avx2", profile="base")
    text = "move 0 to GL as col_major\nmove 1 to GL as col_major"
    return goal.apply(text).synthesize(db=False, progress=False)


def tune(goal: Goal, trace: Path | None = None, name: str = "openai", **sizes: Any) -> TuningResult:
    given = {"plans": 1, "implementations": 1, "iterations": 1, "dropout": 0.0, **sizes}
    return tune_goal(goal, TuningOptions(proposer=name, trace=trace, **given), db=False)


@pytest.mark.slow
def test_a_good_answer_is_measured(serve: Callable[..., Server], slow: Goal, tmp_path: Path) -> None:
    server, trace = serve(answering(GOOD)), tmp_path / "trace.jsonl"
    done = tune(slow, trace)
    assert done.verdicts == {"accepted": 1}
    assert done.samples[0].proposal.item == "kernel"
    assert done.gain > 1.1
    assert done.facts == {"requests": 2, "retries": 0, "tokens in": 20, "tokens out": 40, "money": 0}
    plan, edit = server.prompts
    for words in (
        "AVX2",
        "Relu(64×64",
        "Schedule:",
        "move 0 to GL as col_major",
        "Measured:",
        "ns per call",
        "- kernel: ",
    ):
        assert words in plan[1]
    for words in ("- kernel: ", "Rules:", "L1 32768 bytes", "shares: ", "iteration 1 of 1", "costs of the model"):
        assert words in plan[1]
    for words in ("- tile [SIZES, ...] [parallel]", "Plan:", "Use the vector kernel", "whole new schedule"):
        assert words in edit[1]
    assert all(one["authorization"] == f"Bearer {KEY}" for one in server.headers)
    assert KEY not in trace.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edit", "repaired", "verdict", "reason", "prompts"),
    [
        # Illegal at first, and corrected after the error.
        ("```\nselect Nothing\n```", GOOD, "accepted", "", 3),
        # Malformed twice: there is one repair.
        ("```\ntile [1,\n```", None, "refused", "asked again for", 3),
        ("```\ntile [128, 128]\n```", None, "refused", "larger than 64", 3),
        # Text that is not a schedule.
        ("import os; os.system('true')", None, "refused", "error: ", 3),
        ("\x00\x1b[2J…" * 5, None, "refused", "error: ", 3),
    ],
)
def test_answers_are_refused_as_schedules_of_people_are(
    serve: Callable[..., Server], slow: Goal, edit: str, repaired: str | None, verdict: str, reason: str, prompts: int
) -> None:
    server = serve(answering(edit, repaired))
    done = tune(slow)
    assert [one.verdict for one in done.samples] == [verdict]
    assert reason in done.samples[0].reason
    assert len(server.prompts) == prompts
    repair = server.prompts[2]
    # The conversation, and the message that a person gets.
    assert repair[2] == edit
    assert "refused:\n<answer>:" in repair[3] or "refused:\n" in repair[3]
    assert "hint: " in repair[3]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "options", "reason"),
    [
        (lambda texts: (200, {}, b"<html>"), {}, "not a chat completion"),
        (lambda texts: (200, {}, b'{"choices": []}'), {}, "not a chat completion"),
        (lambda texts: (200, {}, b"[" * 100000), {}, "not a chat completion"),
        (lambda texts: completion("  "), {}, "answered nothing"),
        (lambda texts: (500, {}, b"out of order"), {"retries": 1}, "answered 500: out of order; tried 2 times"),
        (lambda texts: (time.sleep(0.5), completion(PLAN))[1], {"timeout": 0.1, "retries": 0}, "timed out; tried 1"),
        (lambda texts: completion("I would rather not."), {}, "names no single item of the menu"),
    ],
)
def test_models_that_fail_cost_a_sample_and_no_more(
    serve: Callable[..., Server], slow: Goal, script: Any, options: dict[str, Any], reason: str
) -> None:
    serve(script, **options)
    done = tune(slow)
    assert [one.verdict for one in done.samples] == ["refused"]
    assert reason in done.samples[0].reason


@pytest.mark.slow
def test_rate_limits_are_waited_for(serve: Callable[..., Server], slow: Goal) -> None:
    tries: list[float] = []

    def script(texts: list[str]) -> Any:
        tries.append(time.monotonic())
        if len(tries) == 1:
            return 429, {"Retry-After": "0.2"}, b"slowly"
        return completion(PLAN if is_plan(texts) else GOOD)

    serve(script)
    done = tune(slow)
    assert done.verdicts == {"accepted": 1}
    assert tries[1] - tries[0] >= 0.2
    assert done.facts["retries"] == 1


@pytest.mark.slow
def test_requests_are_parallel_and_no_more_than_may_be(serve: Callable[..., Server], slow: Goal) -> None:
    def script(texts: list[str]) -> Any:
        time.sleep(0.05)
        return completion(PLAN if is_plan(texts) else GOOD)

    server = serve(script, parallel=3)
    done = tune(slow, plans=6)
    assert server.most == 3
    assert done.verdicts == {"duplicate": 5, "accepted": 1}
    server = serve(answering(GOOD), per_minute=600)
    start = time.monotonic()
    tune(slow, plans=2)
    assert time.monotonic() - start >= 0.3


def billed(texts: list[str], most: int = 50) -> Any:
    """Return an answer that takes as many tokens as it may: each byte of the prompt is one."""
    usage = {"prompt_tokens": sum(len(one.encode()) for one in texts) + len("SYSTEM"), "completion_tokens": most}
    return 200, {}, json.dumps({"choices": [{"message": {"content": "yes"}}], "usage": usage}).encode()


def answer_of(endpoint: OpenAIModel) -> str:
    return asyncio.run(endpoint.answer("SYSTEM", ["x"]))


def answers_of(endpoint: OpenAIModel, count: int) -> list[str]:
    """Request `count` answers in parallel; return those that were given."""

    async def asked() -> list[str | BaseException]:
        texts = ["x" * (300 + number % 7) for number in range(count)]
        slots = asyncio.Semaphore(8)

        async def one(text: str) -> str:
            async with slots:
                return await endpoint.answer("SYSTEM", [text])

        return await asyncio.gather(*map(one, texts), return_exceptions=True)

    found = asyncio.run(asked())
    assert all(isinstance(one, str | Spent) for one in found)
    return [one for one in found if isinstance(one, str)]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [{"tokens": 4000}, {"money": 0.008, "price_in": 1, "price_out": 10}])
def test_parallel_requests_keep_to_the_budget_exactly(serve: Callable[..., Server], limit: dict[str, Any]) -> None:
    def script(texts: list[str]) -> Any:
        time.sleep(0.005)
        return billed(texts)

    server = serve(script, parallel=8, max_tokens=50, retries=0, **limit)
    endpoint = OpenAIModel(settings())
    answers, facts = answers_of(endpoint, 40), endpoint.facts()
    assert len(answers) == len(server.prompts) == facts["requests"]
    assert server.most > 1
    spent = facts["money"] if "money" in limit else facts["tokens in"] + facts["tokens out"]
    most, one = (0.008, 0.0011) if "money" in limit else (4000, 500)
    # The budget is used up to one request, and not exceeded.
    assert most - one < spent <= most


@pytest.mark.slow
def test_unreported_usage_counts_in_full_and_refused_requests_do_not(serve: Callable[..., Server]) -> None:
    scripts: list[Any] = [
        (200, {}, b"<html>"),
        (500, {}, b"out of order"),
        completion("yes"),
        (200, {}, json.dumps({"choices": [{"message": {"content": "yes"}}]}).encode()),
    ]
    serve(lambda texts: scripts.pop(0), retries=0, tokens=100_000, max_tokens=50)
    endpoint = OpenAIModel(settings())
    spent: list[int] = []
    for _ in range(4):
        with suppress(Unanswered):
            answer_of(endpoint)
        spent.append(endpoint.facts()["tokens in"] + endpoint.facts()["tokens out"])
    assert spent[0] > 50
    assert spent == [spent[0], spent[0], spent[0] + 30, 2 * spent[0] + 30]


@pytest.mark.slow
def test_budgets_end_the_search(serve: Callable[..., Server], slow: Goal) -> None:
    server = serve(answering(GOOD, tokens=300), parallel=1, tokens=10_500, max_tokens=600, retries=0)
    done = tune(slow, plans=2, iterations=9)
    # Requests reserve less than 10,000 tokens, and use 900.
    assert 10_500 - 10_000 <= 900 * len(server.prompts) <= 10_500
    assert done.verdicts["accepted"] == 1
    # Not even one request.
    serve(answering(GOOD), tokens=100, max_tokens=50)
    with pytest.raises(MorelloError, match="the budget of tokens or money is spent: a request may need"):
        tune(slow)


HEAD = [b"HTTP/1.0 200 OK\r\n", b"Content-Type: application/json\r\n", b"\r\n"]


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [[*HEAD, *[b" "] * 400], [*HEAD[:1], *[b"A: b\r\n"] * 90, *[b"A"] * 300]])
def test_servers_that_drip_bytes_are_not_waited_for(serve: Callable[..., Server], pieces: list[bytes]) -> None:
    serve(lambda texts: pieces, timeout=0.2, retries=1)
    began = time.monotonic()
    with pytest.raises(Unanswered, match="timed out"):
        answer_of(OpenAIModel(settings()))
    # The whole answer takes 8 s, and is asked for twice.
    assert 0.4 <= time.monotonic() - began < 8


@pytest.mark.slow
@pytest.mark.parametrize("code", [200, 400])
def test_answers_have_a_largest_size(serve: Callable[..., Server], code: int) -> None:
    sent: list[int] = []

    def pieces() -> Iterator[bytes]:
        for _ in range(400):
            sent.append(1)
            yield b" " * (1 << 16)

    class Endless(list[bytes]):
        def __iter__(self) -> Iterator[bytes]:
            yield f"HTTP/1.1 {code} OK\r\nContent-Type: application/json\r\n\r\n".encode()
            yield from pieces()

    serve(lambda texts: Endless(), retries=0, timeout=30)
    with pytest.raises(Unanswered, match="sent more than 256 KiB"):
        answer_of(OpenAIModel(settings()))
    assert len(sent) < 200


@pytest.mark.slow
@pytest.mark.parametrize("name", ["openai", "command"])
def test_answers_are_waited_for_as_long_as_there_is_time(
    serve: Callable[..., Server], slow: Goal, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    serve(lambda texts: (time.sleep(20), completion(PLAN))[1])
    monkeypatch.setenv("MORELLO_TUNE_COMMAND", "sleep 60")
    began = time.monotonic()
    done = tune(slow, name=name, seconds=1.0)
    assert not done.samples
    assert time.monotonic() - began < 18


@pytest.mark.parametrize("name", [pytest.param("openai", marks=pytest.mark.slow), "command"])
def test_an_interrupt_does_not_wait_for_answers(
    serve: Callable[..., Server], slow: Goal, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def interrupts(texts: list[str]) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(20)
        return completion(PLAN)

    serve(interrupts, timeout=60)
    monkeypatch.setenv("MORELLO_TUNE_COMMAND", "sh -c 'kill -INT $PPID; sleep 60'")
    began = time.monotonic()
    assert tune(slow, name=name).interrupted
    assert time.monotonic() - began < 18


@pytest.mark.slow
def test_keys_are_printed_nowhere(serve: Callable[..., Server], slow: Goal, capsys: Any) -> None:
    serve(lambda texts: (401, {}, f"wrong key {KEY}".encode()))
    with pytest.raises(MorelloError, match=r"answered 401: wrong key \*\*\*") as caught:
        tune(slow)
    assert KEY not in str(caught.value) + repr(caught.value.__dict__)
    assert KEY not in repr(OpenAISettings(model="stub", key=KEY))
    # Redirections do not get it either.
    other = serve(answering(GOOD))
    serve(lambda texts: (302, {"Location": "http://127.0.0.1:1/"}, b""))
    with pytest.raises(MorelloError, match="answered 302"):
        tune(slow)
    assert not other.prompts
    assert KEY not in "".join(capsys.readouterr())


def test_settings_are_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(MorelloError, match="needs the name of a model"):
        settings()
    (tmp_path / "morello").mkdir()
    file = tmp_path / "morello" / "openai.toml"
    file.write_text('model = "one"\nparallel = 2\n')
    assert (settings().model, settings().parallel, settings("two").model) == ("one", 2, "two")
    monkeypatch.setenv("MORELLO_OPENAI_PARALLEL", "7")
    assert settings().parallel == 7
    for text, word in (
        ('model = "one"\nkex = "a"', "has 'kex'"),
        ('model = "one"\nbase_url = "file:///etc"', "begins with http"),
        ('model = "one"\nkey = "a\\nb"', "characters that no header may have"),
        ('model = "one"\nmoney = 1', "needs prices"),
        ('model = "one"\ntokens = 1', "needs max_tokens"),
        ('model = "one"\nmax_tokens = -1', "max_tokens of openai is -1"),
        ('model = "one"\ntimeout = inf', "timeout of openai is inf"),
        ('model = "one"\ntokens = "many"', "the setting tokens of openai is a int"),
        ("model =", "cannot read"),
    ):
        file.write_text(text)
        with pytest.raises(MorelloError, match=word):
            settings()


@pytest.mark.slow
def test_a_command_answers_too(slow: Goal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    script.write_text(
        f"import sys\ntext = sys.stdin.read()\nprint({PLAN!r} if text.endswith('to what.') else {GOOD!r})\n"
    )
    monkeypatch.setenv("MORELLO_TUNE_COMMAND", f"python {script}")
    done = tune(slow, name="command")
    assert done.verdicts == {"accepted": 1}
    assert done.facts == {"runs": 2}
    monkeypatch.setenv("MORELLO_TUNE_COMMAND", "python -c 'import sys; sys.exit(\"no\")'")
    assert "ended with exit code 1: no" in tune(slow, name="command").samples[0].reason
    monkeypatch.setenv("MORELLO_TUNE_COMMAND", "sleep 60")
    monkeypatch.setenv("MORELLO_TUNE_TIMEOUT", "0.2")
    assert "ran for 0.2 s" in tune(slow, name="command").samples[0].reason
    for command, word in (("", "needs a command"), ("/missing/model", "cannot be started"), ("'", "No closing")):
        monkeypatch.setenv("MORELLO_TUNE_COMMAND", command)
        with pytest.raises(MorelloError, match=word):
            tune(slow, name="command")


@pytest.mark.parametrize("seconds", ["soon", "0", "nan"])
def test_a_wrong_time_limit_of_a_command(seconds: str, slow: Goal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORELLO_TUNE_COMMAND", "cat")
    monkeypatch.setenv("MORELLO_TUNE_TIMEOUT", seconds)
    with pytest.raises(MorelloError, match=f"MORELLO_TUNE_TIMEOUT is '{seconds}'"):
        tune(slow, name="command")


@pytest.mark.slow
def test_an_ensemble_divides_requests(serve: Callable[..., Server], slow: Goal) -> None:
    server = serve(answering(GOOD))
    done = tune(slow, name="ensemble:offline,openai:stub", plans=4)
    assert sum(map(is_plan, server.prompts)) == 2
    assert len(done.samples) == 4
    assert done.facts["openai:stub"]["requests"] == 4


def test_plans_and_schedules_are_found_in_answers() -> None:
    from morello_tune.menu import STANDARD

    for answer in ("item: tile\nMake it 128.", "**Item:** `tile`", "I choose register_tile? No."):
        item = chosen_item(answer, STANDARD)
        assert item is not None
        assert item.name in ("tile", "register_tile")
    assert chosen_item("tile, then reorder", STANDARD) is None
    assert schedule_in("```\na\n```\nthen\n```spec\nschedule x for y {\n  b\n}\n```").strip() == "b"


def test_no_header_is_sent_without_a_key(serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(answering(GOOD), key="")
    monkeypatch.setenv("OPENAI_API_KEY", "")
    assert answer_of(OpenAIModel(settings())) == GOOD
    assert "authorization" not in server.headers[0]


@pytest.mark.slow
def test_the_client_is_an_extra(serve: Callable[..., Server], slow: Goal, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(answering(GOOD))
    monkeypatch.setattr(sys.modules[OpenAIModel.__module__], "find_spec", lambda name: None)
    with pytest.raises(MorelloError, match=r"pip install 'morello-tune\[openai\]'"):
        tune(slow)
