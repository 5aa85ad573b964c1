"""Measure models compared with ONNX Runtime and torch.

    python benchmarks/models.py [MODEL]... [--target NAME] [--threads N] [--seconds S] [--time-limit S]
                                [--expansions N] [--jobs N] [--db FILE] [--runner NAME]... [--json]

MODEL is a file, or the name of a light model of the package onnx, which gets random weights, or of a network in
convnets.py; all light models by default.
Each runner is a process of its own; they run in turn until the time is up. With one thread, all are timed by the CPU
time of their thread; else by wall-clock time. Reported are the least times of a call, and the ratios of the others'
times to ours. A runner that is not installed, or cannot run a model, is left out with a line. The peak is at most that
of our process, and with --jobs N, N times that of the largest process it started: one that searches, or reads the file.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import click
import numpy as np
from rich.console import Console
from rich.table import Table

from harness.commands import run
from harness.files import file_of
from harness.light import NAMES
from morello.cli.common import as_group

Call: TypeAlias = Callable[[], np.ndarray]
#: How often each runner is measured at least.
_ROUNDS = 7
#: Seconds until threads of another runner no longer spin, and of calls one upon another.
_PAUSE, _TURN = 0.3, 0.1
_MIB = 1 << 20


@attrs.frozen
class Options:
    """The options of the runners."""

    target: str
    threads: int
    expansions: int
    time_limit: float | None
    jobs: int
    db: str


def _inputs(graph: Any) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    tensors = (graph.tensors[name] for name in graph.inputs)
    return {one.name: random.standard_normal(one.shape).astype(one.dtype.numpy) for one in tensors}


def _ours(path: str, options: Options) -> tuple[Call, dict[str, float]]:
    from morello.models import CompiledModel, PlannedModel, from_onnx, targets_of
    from morello.models.model import default_budget

    begin = time.process_time()
    limit, planned = options.time_limit, PlannedModel.of(from_onnx(path), targets_of([options.target]))
    budget = attrs.evolve(default_budget(), expansions=None if limit else options.expansions, seconds=limit)
    solved = planned.solved(options.db or None, budget, options.jobs)
    own, others = (resource.getrusage(one).ru_maxrss << 10 for one in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    model = CompiledModel(solved.program(threads=options.threads))
    seconds = time.process_time() - begin
    program, work = model.program, os.times()
    arrays = [*_inputs(program.plan.graph).values()]
    costs = [(kernel.cost, kernel.low >= kernel.cost) for kernel in program.kernels]
    facts = {
        "search_seconds": seconds + work.children_user,
        "proven": sum(cost for cost, proven in costs if proven) / sum(cost for cost, _ in costs),
        "arena": program.arena.size,
        "least_arena": program.arena.least,
        "weights": len(program.weights),
        "peak": own + options.jobs * others * (options.jobs > 1),
    }
    return lambda: model(*arrays), facts


def _onnxruntime(path: str, options: Options) -> tuple[Call, dict[str, float]]:
    import onnxruntime  # pyright: ignore[reportMissingImports]

    from morello.models.onnx import from_onnx

    given = onnxruntime.SessionOptions()
    given.intra_op_num_threads, given.inter_op_num_threads = options.threads, 1
    given.log_severity_level = 3
    given.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(path, given, providers=["CPUExecutionProvider"])
    arrays = _inputs(from_onnx(path))

    def call() -> np.ndarray:
        return np.asarray(session.run(None, arrays)[0])

    return call, {}


def _torch(path: str, options: Options, compiled: bool = False) -> tuple[Call, dict[str, float]]:
    import torch  # pyright: ignore[reportMissingImports]

    from harness.light import torch_function
    from morello.models.onnx import from_onnx

    torch.set_num_threads(options.threads)
    graph = from_onnx(path)
    function = torch_function(graph)
    function = torch.compile(function) if compiled else function
    arrays = [torch.from_numpy(one) for one in _inputs(graph).values()]

    def call() -> np.ndarray:
        with torch.inference_mode():
            return function(*arrays).numpy()

    return call, {}


def _inductor(path: str, options: Options) -> tuple[Call, dict[str, float]]:
    return _torch(path, options, compiled=True)


RUNNERS: Mapping[str, Callable[[str, Options], tuple[Call, dict[str, float]]]] = {
    "Morello": _ours,
    "ONNX Runtime": _onnxruntime,
    "torch": _torch,
    "inductor": _inductor,
}


def _work(pipe: Connection, runner: str, path: str, options: Options) -> None:
    """Prepare a runner, and return the least time of a call at each request."""
    try:
        call, facts = RUNNERS[runner](path, options)
        pipe.send((call(), facts))
    except ImportError as error:
        pipe.send((None, f"not installed: {error}"))
        return
    except Exception as error:  # any that a library may raise
        pipe.send((None, f"cannot run it: {type(error).__name__}: {error}"))
        return
    clock = time.thread_time if options.threads == 1 else time.perf_counter
    while pipe.recv():
        call()
        times: list[float] = []
        end = time.perf_counter() + _TURN
        while not times or time.perf_counter() < end:
            begin = clock()
            call()
            times.append(clock() - begin)
        pipe.send(min(times))


@attrs.frozen
class Result:
    """One runner on one model: seconds of calls, or why there are none."""

    model: str
    runner: str
    seconds: tuple[float, ...] = ()
    why: str = ""
    #: The largest difference to the result of ONNX Runtime, as a part of the largest value.
    error: float = 0.0
    facts: Mapping[str, float] = attrs.field(factory=dict[str, float])

    @property
    def best(self) -> float:
        return min(self.seconds)


def measure(model: str, path: str, options: Options, seconds: float, runners: Iterable[str] = RUNNERS) -> list[Result]:
    """Time runners in turn for about `seconds` in total."""
    context = multiprocessing.get_context("spawn")
    os.environ |= {f"{one}_NUM_THREADS": str(options.threads) for one in ("OMP", "MKL", "OPENBLAS")}
    pipes: dict[str, Connection] = {}
    answers: dict[str, Any] = {}
    for runner in runners:
        pipes[runner], other = context.Pipe()
        context.Process(target=_work, args=(other, runner, path, options), daemon=False).start()
        other.close()
        try:
            answers[runner] = pipes[runner].recv()
        except EOFError:
            answers[runner] = None, "failed"
    ready = [runner for runner in pipes if answers[runner][0] is not None]
    times: dict[str, list[float]] = {runner: [] for runner in pipes}
    end = time.monotonic() + seconds
    while ready and (len(times[ready[0]]) < _ROUNDS or time.monotonic() < end):
        for runner in ready:
            if options.threads > 1:
                time.sleep(_PAUSE)
            pipes[runner].send(True)
            times[runner].append(pipes[runner].recv())
    for runner in ready:
        pipes[runner].send(False)
    peer = answers.get("ONNX Runtime", (None, ""))[0]
    found = []
    for runner, (output, facts) in answers.items():
        if output is None:
            found.append(Result(model, runner, why=facts))
        else:
            error = 0.0 if peer is None else float(np.abs(output - peer).max() / np.abs(peer).max())
            found.append(Result(model, runner, tuple(times[runner]), "", error, facts))
    return found


def table(results: Iterable[Result], runners: Iterable[str] = RUNNERS) -> Table:
    """Return the table of models, those with the least ratio to ONNX Runtime first."""
    models: dict[str, dict[str, Result]] = {}
    for one in results:
        models.setdefault(one.model, {})[one.runner] = one
    runners = [one for one in runners if any(one in found and found[one].seconds for found in models.values())]
    peers = [one for one in runners if one != "Morello"]
    titles = ["search", "peak", "proven", "arena (least)", "weights", "difference"]
    shown = Table("model", *[f"{one}, ms" for one in runners], *[f"{one} / ours" for one in peers], *titles)

    def milliseconds(one: Result | None) -> str:
        return f"{1e3 * one.best:,.2f}" if one and one.seconds else "-"

    for name, found in sorted(models.items(), key=lambda item: ratio(item[1])):
        ours = found.get("Morello")
        row = [name, *(milliseconds(found.get(one)) for one in runners)]
        row += [f"{ratio(found, one):.2f}" for one in peers]
        if ours and (facts := ours.facts):
            row += [f"{facts['search_seconds']:.0f} s", f"{facts['peak'] / _MIB:,.0f} MiB"]
            row += [f"{100 * facts['proven']:.0f} %"]
            row += [f"{facts['arena'] / _MIB:.2f} ({facts['least_arena'] / _MIB:.2f}) MiB"]
            row += [f"{facts['weights'] / _MIB:.1f} MiB", f"{ours.error:.0e}"]
        shown.add_row(*row)
    means = [[one for found in models.values() if not math.isnan(one := ratio(found, peer))] for peer in peers]
    words = [f"{statistics.geometric_mean(one):.2f} ({len(one)})" if one else "-" for one in means]
    shown.add_row("geometric mean (models)", *[""] * len(runners), *words)
    return shown


def ratio(found: Mapping[str, Result], runner: str = "ONNX Runtime") -> float:
    """Return the time of a runner divided by ours; NaN without one of them."""
    ours, peer = found.get("Morello"), found.get(runner)
    return peer.best / ours.best if ours and peer and ours.seconds and peer.seconds else math.nan


@click.command()
@click.argument("model", nargs=-1)
@click.option("--target", metavar="NAME", default="x86_avx512", show_default=True)
@click.option("--threads", metavar="N", type=click.IntRange(1), default=1, show_default=True, help="Of each.")
@click.option("--seconds", metavar="S", type=click.FloatRange(0), default=10.0, show_default=True, help="A model.")
@click.option("--expansions", metavar="N", type=click.IntRange(1), default=12_000_000, show_default=True)
@click.option("--time-limit", metavar="S", type=click.FloatRange(0, min_open=True), help="Of searches, not expansions.")
@click.option("--jobs", metavar="N", type=click.IntRange(1), default=1, show_default=True, help="Searches at once.")
@click.option("--db", metavar="FILE", default="", help="Database for solved Specs.  [default: none]")
@click.option("--runner", metavar="NAME", multiple=True, type=click.Choice([*RUNNERS]), help="Only this; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@as_group(Options, "options")
def main(model: tuple[str, ...], options: Options, seconds: float, runner: tuple[str, ...], as_json: bool) -> None:
    """Time models in turn with other runners."""
    console = Console(stderr=as_json, width=160)
    results: list[Result] = []
    for one in model or NAMES:
        results += measure(Path(one).stem, str(file_of(one)), options, seconds, runner or RUNNERS)
    console.print(table(results, runner or RUNNERS))
    for each in results:
        if each.why:
            console.print(f"{each.model}, {each.runner}: {each.why}")
    if as_json:
        print(json.dumps([attrs.asdict(one) for one in results]))


if __name__ == "__main__":
    run(main)
