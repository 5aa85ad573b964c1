"""Each call that docs/python.md shows is taken, with operands and options by place and by name."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morello
from morello.api.functions import calls
from morello.host import missing_features
from morello.plugins.registry import installed

from .conftest import PLAIN, values

SECTION = Path("docs/python.md").read_text(encoding="utf-8").split("## Functions on arrays")[1].split("\n## ")[0]
CALLS = dict[str, ast.Call]()
for text in re.findall(r"^\| `(\w+\(.*?\))` \|", SECTION, re.M):
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    CALLS[call.func.id] = call
OPTIONS: dict[str, Any] = {
    "cpu": "native",
    "target": PLAIN["target"],
    "time_limit": 30,
    "budget": morello.SearchBudget(seconds=30),
    "progress": False,
    "threads": 1,
    "copy": True,
}
OPERANDS = {
    "matmul": [values(2, 3), values(3, 2)],
    "einsum": [values(1, 2, 3), values(1, 3, 2)],
    "softmax": [values(2, 3)],
    "gelu": [values(2, 3)],
    "layer_norm": [values(2, 3), values(3), values(3)],
    "conv2d": [values(1, 1, 3, 3), values(1, 1, 2, 2)],
    "qmatmul": [values(2, 64), *morello.quantize_weights(values(64, 3))],
    "attention": [values(2, 2), values(2, 2), values(2, 2)],
}
#: The reference implements no graphs: a search for them takes seconds.
GRAPHS = {"layer_norm", "attention"}


def given(name: str) -> tuple[list[Any], list[str], dict[str, Any]]:
    """Return the text before the operands, the operands' names, and the parameters, as the page shows them."""
    call = CALLS[name]
    first = [one.value for one in call.args if isinstance(one, ast.Constant)]
    names = [one.id for one in call.args if isinstance(one, ast.Name)]
    return first, names, {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}


def ways(name: str) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Yield calls: more and more operands by name, with each parameter, and with all."""
    first, names, parameters = given(name)
    arrays = OPERANDS[name]
    for place in range(len(names) + 1) if name != "einsum" else (len(names),):
        yield [*first, *arrays[:place]], dict(zip(names[place:], arrays[place:], strict=True))
    for parameter, value in parameters.items():
        yield [*first, *arrays], {parameter: value}
    yield [*first, *arrays], parameters


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.slow] * (one in GRAPHS)) for one in CALLS])
def test_calls_of_the_page(name: str) -> None:
    plain = dict(PLAIN)
    if name in GRAPHS:
        plain |= {"target": "x86_avx2", "threads": 1}
        if missing_features(installed().target("x86_avx2").info.cpu_features):
            pytest.skip("this machine lacks AVX2")
    function: Any = getattr(morello, name)
    made = [function(*arrays, **named, **plain) for arrays, named in ways(name)]
    assert all(np.array_equal(one, made[0]) for one in made)
    for option, value in OPTIONS.items():
        others = {} if option == "budget" else {"time_limit": 30}
        arrays, _ = next(reversed([*ways(name)]))
        assert np.array_equal(function(*arrays, **{**plain, **others, option: plain.get(option, value)}), made[0])


def test_the_page_shows_all_functions_and_options() -> None:
    assert set(CALLS) == set(OPERANDS)
    assert set(re.findall(r"^\| `(\w+)` \|", SECTION, re.M)) == set(OPTIONS) == {*calls.FunctionOptions.__annotations__}
    for name in CALLS:
        _, names, parameters = given(name)
        taken = inspect.signature(getattr(morello, name)).parameters
        defaults = {one: taken[one].default for one in parameters}
        assert defaults == parameters
        assert name == "einsum" or [*taken][: len(names)] == names
