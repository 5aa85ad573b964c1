"""Measure the overhead of a call from Python, compared with numpy, torch and numba on the same arrays.

    python benchmarks/call.py [--only NAME]... [--target NAME] [--seconds S] [--json]

The operands are so small that the call dominates. All run in turn in one process, pinned to a core, on one thread. Each
result is compared with numpy first. A library that is not installed is reported in a line.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import timeit
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import click
import numpy as np
from morello_baselines.native.base import NotInstalled
from rich.console import Console
from rich.table import Table

import morello
from harness.commands import run
from harness.report import duration
from morello import api
from morello.errors import VerificationError
from morello.host import missing_features
from morello.plugins.registry import installed

#: The shortest time that is measured, in seconds, and how often each call is measured at least.
_SHORTEST, _ROUNDS = 0.002, 7
_TARGETS = ("x86_avx512", "x86_avx2")
Call = Callable[[], Any]


@attrs.frozen
class Problem:
    """Something to compute of two square matrices: a function's name, Morello's operation, and a loop for numba."""

    function: str
    size: int
    operation: str
    loop: Callable[..., None]

    @property
    def name(self) -> str:
        return f"{self.function} {self.size}"

    def spec(self, target: str) -> str:
        sizes = f"{self.size}×{self.size}" if self.function == "add" else f"1×{self.size}×{self.size}×{self.size}"
        return f"target {target}\nspec call = {self.operation}({sizes}, (f32, GL), (f32, GL), (f32, GL), serial)\n"


def _add(a: Any, b: Any, out: Any) -> None:
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = a[i, j] + b[i, j]


def _matmul(a: Any, b: Any, out: Any) -> None:
    for i in range(out.shape[0]):
        out[i, :] = 0
        for k in range(b.shape[0]):
            for j in range(out.shape[1]):
                out[i, j] += a[i, k] * b[k, j]


_ALL = [
    *(Problem("add", size, "Add", _add) for size in (4, 16)),
    *(Problem("matmul", size, "Matmul", _matmul) for size in (4, 16)),
]
PROBLEMS = {problem.name: problem for problem in _ALL}


@attrs.frozen
class Calls:
    """A call into memory that is there, whose result is `out`, and one that returns its result, if there is such."""

    given: Call
    out: Any
    made: Call | None = None


def _ours(problem: Problem, a: np.ndarray, b: np.ndarray, target: str, library: str) -> Calls:
    kernel = api.compile(problem.spec(target), db=False)
    arrays = [a, b, np.empty_like(a)]
    if library == "torch":
        arrays = [_import("torch").from_numpy(each) for each in arrays]
    x, y, out = arrays
    return Calls(lambda: kernel(x, y, out), out, lambda: kernel(x, y))


def _function(problem: Problem, a: np.ndarray, b: np.ndarray) -> Calls:
    function, out = getattr(morello, problem.function, None), np.empty_like(a)
    if function is None:
        raise NotInstalled(f"there is no morello.{problem.function}")
    return Calls(lambda: function(a, b, out=out), out, lambda: function(a, b))


def _numpy(problem: Problem, a: np.ndarray, b: np.ndarray) -> Calls:
    function, out = getattr(np, problem.function), np.empty_like(a)
    return Calls(lambda: function(a, b, out=out), out, lambda: function(a, b))


def _torch(problem: Problem, a: np.ndarray, b: np.ndarray) -> Calls:
    torch = _import("torch")
    torch.set_num_threads(1)
    function = getattr(torch, problem.function)
    x, y, out = (torch.from_numpy(each) for each in (a, b, np.empty_like(a)))
    return Calls(lambda: function(x, y, out=out), out, lambda: function(x, y))


def _numba(problem: Problem, a: np.ndarray, b: np.ndarray) -> Calls:
    function, out = _import("numba").njit(fastmath=True)(problem.loop), np.empty_like(a)
    return Calls(lambda: function(a, b, out), out)


def _import(name: str) -> Any:
    """Return a library that need not be there. Raises NotInstalled."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise NotInstalled(f"{name} is not installed") from error


def runners(target: str) -> dict[str, Callable[[Problem, np.ndarray, np.ndarray], Calls]]:
    """Return what prepares calls, by name."""
    return {
        "Morello": lambda problem, a, b: _ours(problem, a, b, target, "numpy"),
        "Morello on tensors": lambda problem, a, b: _ours(problem, a, b, target, "torch"),
        "Morello's function": _function,
        "numpy": _numpy,
        "torch": _torch,
        "numba": _numba,
    }


def prepared(problem: Problem, target: str) -> tuple[dict[str, Calls], dict[str, str]]:
    """Return the calls of each runner, and for others why there are none. Raises VerificationError if one is wrong."""
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, (problem.size, problem.size)).astype(np.float32) for _ in range(2))
    expected, found, missing = getattr(np, problem.function)(a, b), dict[str, Calls](), dict[str, str]()
    for name, prepare in runners(target).items():
        try:
            calls = prepare(problem, a, b)
        except NotInstalled as error:
            missing[name] = str(error)
            continue
        calls.given()
        results = [calls.out, *([calls.made()] if calls.made else [])]
        if not all(np.allclose(result, expected, atol=1e-5) for result in results):
            raise VerificationError(
                f"{name} is wrong on {problem.name}", "report it with the versions of the libraries"
            )
        found[name] = calls
    return found, missing


def measured(calls: Mapping[str, Call], seconds: float) -> dict[str, list[float]]:
    """Return the seconds of a call in several rounds, in which all run in turn, for `seconds` in total."""
    timers = {name: timeit.Timer(call) for name, call in calls.items()}
    counts = {name: max(1, int(_SHORTEST / (timer.timeit(100) / 100))) for name, timer in timers.items()}
    times: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(max(_ROUNDS, int(seconds / (_SHORTEST * max(1, len(timers)))))):
        for name, timer in timers.items():
            times[name].append(timer.timeit(counts[name]) / counts[name])
    return times


def shown(problem: Problem, given: Mapping[str, list[float]], made: Mapping[str, list[float]]) -> Table:
    """Return a table of the times of calls."""
    table = Table(problem.name, box=None, pad_edge=False, header_style="bold")
    for heading in ("output given", "median", "output made", "median"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name in given:
        times = [given[name], *([made[name]] if name in made else [])]
        table.add_row(name, *(duration(each(some)) for some in times for each in (min, statistics.median)))
    return table


@click.command()
@click.option("--only", metavar="NAME", multiple=True, type=click.Choice(list(PROBLEMS)), help="Only this problem.")
@click.option("--target", metavar="NAME", help="The target of ours.  [default: x86_avx512, else x86_avx2]")
@click.option("--seconds", metavar="S", type=click.FloatRange(0), default=4.0, show_default=True, help="A problem.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(only: tuple[str, ...], target: str | None, seconds: float, as_json: bool) -> None:
    """Time calls from Python of Morello and of libraries in turn."""
    console, results, absent = Console(stderr=as_json, width=120), list[dict[str, Any]](), dict[str, str]()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for name in only or PROBLEMS:
        problem = PROBLEMS[name]
        with console.status(name):
            calls, missing = prepared(problem, target or _default_target())
            given = measured({name: each.given for name, each in calls.items()}, seconds / 2)
            made = measured({name: each.made for name, each in calls.items() if each.made}, seconds / 2)
        absent |= missing
        console.print(shown(problem, given, made), "")
        results += [
            {"problem": name, "runner": one, "output_given": given[one], "output_made": made.get(one)} for one in given
        ]
    for name, why in absent.items():
        console.print(f"{name}: {why}")
    if as_json:
        print(json.dumps({"missing": absent, "results": results}))


def _default_target() -> str:
    """Return the widest target that this machine can run."""
    able = [name for name in _TARGETS if not missing_features(installed().target(name).info.cpu_features)]
    return able[0] if able else _TARGETS[-1]


if __name__ == "__main__":
    run(main)
