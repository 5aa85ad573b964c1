"""Run the test cases of ONNX's backends, and write their tables in docs/onnx.md.

    python -m tools.onnx_backend [--compile TARGET] [--cases PATTERN] [--part K/N] [--check]

A case is translated and planned. Its calls are computed by the reference semantics of their operations in numpy, on the
memory that the plan gives them; with `--compile` by its program in C, and the page stays. All of these take long:
processes may share them, each with its `--part`, such as 1/2. `--check` writes nothing, and fails if the page is
not up to date.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import ml_dtypes
import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests

from morello.errors import MorelloError
from morello.models.graph import Graph
from morello.models.model import compile_model
from morello.models.onnx import graph_of
from morello.models.passes import simplified
from morello.models.reference import evaluated

Runner = Callable[[Graph, Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


def by_reference(graph: Graph, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Return the tensors of a graph by the reference semantics of its operations."""
    with np.errstate(all="ignore"):
        return evaluated(graph, inputs)


def by_program(target: str) -> Runner:
    """Return what runs a graph as a program in C."""

    def run(graph: Graph, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        model = compile_model(graph, target=target, db=False, expansions=1)
        made = model(*(np.asarray(inputs[name]) for name in graph.inputs))
        return dict(zip(graph.outputs, made if isinstance(made, tuple) else (made,), strict=True))

    return run


@attrs.frozen
class Case:
    """A model with sets of inputs and the outputs that they give."""

    name: str
    model: onnx.ModelProto = attrs.field(repr=False)
    sets: Sequence[tuple[Sequence[Any], Sequence[Any]]] = attrs.field(repr=False)
    rtol: float
    atol: float

    @property
    def operator(self) -> str:
        """Return the operator that it is about; empty for a case of several."""
        used = {node.op_type for node in self.model.graph.node}
        return used.pop() if len(used) == 1 else ""


def cases() -> Iterator[Case]:
    """Yield the cases that the package onnx has: of single nodes, of simple models, and those that PyTorch made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nodes = load_model_tests(kind="node")
    for one in nodes:
        assert one.model
        sets = [([*map(_array, inputs)], [*map(_array, outputs)]) for inputs, outputs in one.data_sets or ()]
        yield Case(one.name, one.model, sets, one.rtol, one.atol)
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        for one in load_model_tests(kind=kind):
            folder = Path(one.model_dir or "")
            model = onnx.load(folder / "model.onnx")
            sets = [_arrays(model, each) for each in sorted(folder.glob("test_data_set_*"))]
            yield Case(f"{kind}:{one.name}", model, sets, one.rtol, one.atol)


def _array(given: Any) -> Any:
    return onnx.numpy_helper.to_array(given) if isinstance(given, onnx.TensorProto) else given


def _arrays(model: onnx.ModelProto, folder: Path) -> tuple[list[Any], list[Any]]:
    def read(stem: str, infos: Sequence[onnx.ValueInfoProto]) -> list[Any]:
        found: list[Any] = []
        for number, info in enumerate(infos):
            if not (path := folder / f"{stem}_{number}.pb").exists():
                continue
            if info.type.HasField("sequence_type"):
                found.append(onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes())))
            else:
                found.append(onnx.numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes())))
        return found

    return read("input", model.graph.input), read("output", model.graph.output)


def failure(case: Case, run: Runner = by_reference) -> str:
    """Return why a case fails: `wrong: …`, or the message with which the model is refused. Empty if it passes."""
    return next(filter(None, (_failure(case, run, *each) for each in case.sets)), "")


def _failure(case: Case, run: Runner, inputs: Sequence[Any], expected: Sequence[Any]) -> str:
    given = dict(zip((one.name for one in case.model.graph.input), inputs, strict=False))
    graph = _graph(case, given)
    if isinstance(graph, str):
        return graph
    try:
        found = run(simplified(graph), {name: given[name] for name in graph.inputs})
    except (MorelloError, AssertionError) as error:
        return f"wrong: {type(error).__name__}: {error}"
    for name, other in zip(graph.outputs, map(np.asarray, expected), strict=True):
        one, dtype = found[name], graph.tensors[name].dtype
        if one.shape != other.shape or dtype.numpy != other.dtype:
            return f"wrong: {dtype}{one.shape} for {other.dtype}{other.shape}"
        if other.dtype.kind in "iub":
            if not np.array_equal(one, other):
                return "wrong: integers"
            continue
        # Two units in the last place, of narrower types less.
        wide = other.dtype.kind == "f" or other.dtype == ml_dtypes.bfloat16
        rtol = max(case.rtol, 2.0 ** (1 - ml_dtypes.finfo(other.dtype).nmant) if wide else 2**-7)
        one, other = one.astype(np.float64), other.astype(np.float64)
        if not np.allclose(one, other, rtol=rtol, atol=max(case.atol, 1e-6), equal_nan=True):
            return f"wrong: off by {np.nanmax(np.abs(one - other))}"
    return ""


def _graph(case: Case, given: Mapping[str, Any]) -> Graph | str:
    """Return the graph of a case, or why there is none; inputs that have to be constants are."""
    names = [one.name for one in case.model.graph.input if one.name in given]
    small = tuple(name for name in names[1:] if getattr(given[name], "ndim", 2) < 2)
    first = ""
    for constants in ((), small, tuple(names[1:])):
        if first and not re.search("constant|without a size|no shape|is empty", first):
            break
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        kept = [one for one in model.graph.input if one.name not in constants]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        try:
            values = (onnx.numpy_helper.from_array(given[name], name) for name in constants)
            model.graph.initializer.extend(values)
            return graph_of(model, "case", {}, case.name)
        except MorelloError as error:
            first = first or error.message
        except (TypeError, AttributeError):
            return first  # inputs that are sequences
    return first


_BEGIN, _END = "<!-- tools/onnx_backend.py writes what follows -->", "<!-- tools/onnx_backend.py wrote this -->"
PAGE = Path("docs/onnx.md")


def _reasons(message: str) -> list[str]:
    """Return the reasons of a refusal, without the names of nodes and tensors."""
    lines = [line.strip() for line in message.splitlines()[1:]] or [message]
    # A tensor without a type that Specs have is the reason, not the nodes that use it.
    typed = [line for line in lines if "values of type" in line]
    found = (re.sub(r"^.*?(: |\) )", "", line) for line in typed or lines)
    return list(dict.fromkeys(re.sub(r"^(\S+) (has no shape|is empty)", r"a tensor \2", one) for one in found))


def table(outcomes: Mapping[str, tuple[str, str]]) -> str:
    """Return the tables for cases with the operator and the failure of each."""
    passed = sum(not failure for _, failure in outcomes.values())
    by_operator: dict[str, list[str]] = {}
    for operator, failure in outcomes.values():
        if operator:
            by_operator.setdefault(operator, []).append(failure)
    whole = [f"`{one}`" for one, failures in sorted(by_operator.items()) if not any(failures)]
    none: dict[str, list[str]] = {}
    rows: list[str] = []
    for operator, failures in sorted(by_operator.items()):
        reasons = dict.fromkeys(one for failure in failures if failure for one in _reasons(failure))
        if reasons and all(failures):
            none.setdefault("; ".join(reasons), []).append(f"`{operator}`")
        elif reasons:
            fine = sum(not one for one in failures)
            rows.append(f"| `{operator}` | {fine} of {len(failures)} | {'; '.join(reasons)} |")
    grouped = sorted(none.items(), key=lambda one: -len(one[1]))
    apart = [f"| {', '.join(names)} | {reason} |" for reason, names in grouped]
    return "\n".join(
        [
            f"{passed} of the {len(outcomes)} cases of onnx {onnx.__version__} pass.",
            "",
            "All cases of these operators pass: " + ", ".join(whole) + ".",
            "",
            "| operator | cases that pass | refused |",
            "|---|--:|---|",
            *rows,
            "",
            "No case of these passes:",
            "",
            "| operators | reason |",
            "|---|---|",
            *apart,
        ]
    )


def with_table(page: str, tables: str) -> str:
    """Return the page with these tables."""
    before, _, rest = page.partition(_BEGIN)
    return f"{before}{_BEGIN}\n\n{tables}\n\n{_END}{rest.partition(_END)[2]}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compile", metavar="TARGET")
    parser.add_argument("--cases", default="", help="a regular expression for their names")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="every Nth case, from the Kth on")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args(arguments)
    run = by_program(given.compile) if given.compile else by_reference
    outcomes: dict[str, tuple[str, str]] = {}
    wrong = 0
    part, parts = map(int, given.part.split("/"))
    chosen = [case for case in cases() if re.search(given.cases, case.name)][part - 1 :: parts]
    for number, case in enumerate(chosen, 1):
        found = outcomes[case.name] = case.operator, failure(case, run)
        if found[1].startswith("wrong"):
            wrong += 1
            print(f"{case.name}: {found[1]}", flush=True)
        if given.compile and number % 50 == 0:
            print(f"{number} of {len(chosen)} cases, {wrong} are wrong", flush=True)
    print(f"{sum(not one for _, one in outcomes.values())} of {len(outcomes)} cases pass, {wrong} are wrong")
    if given.compile or given.cases or parts > 1:
        return wrong > 0
    page = PAGE.read_text()
    made = with_table(page, table(outcomes))
    if not given.check:
        PAGE.write_text(made)
    return wrong > 0 or (given.check and made != page)


if __name__ == "__main__":
    sys.exit(main())
