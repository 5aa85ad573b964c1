"""Every rule that plugins must obey: breaking it raises PluginError, which names plugin, object and rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Self

import attrs
import numpy as np
import pytest

from morello.api.goals import Goal
from morello.codegen.emitter import CEmitter
from morello.errors import MorelloError, PluginError
from morello.ir.dtypes import F32
from morello.ir.impl import Part, Sequential
from morello.ir.layout import row_major
from morello.ir.ops.fill import FillZero
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.move import Move
from morello.ir.spec import LogicalSpec, Spec
from morello.ir.tensor import OperandState
from morello.plugins import (
    MemoryLevel,
    Metric,
    Microkernel,
    Multiple,
    OperandPattern,
    Target,
    TargetInfo,
    TargetPlugin,
    UnrollAndJam,
    Weights,
    derive,
    hookimpl,
)
from morello.plugins.registry import Registry
from morello.rewrites import STANDARD, Rewrite, argument
from morello.rewrites.base import RewriteCase
from morello.rewrites.select import Select
from morello.search.session import SearchSession
from morello.testing.textbook import Textbook

REGISTERS = MemoryLevel(name="R", kind="scalar", capacity=32, unit=4)
VECTORS = MemoryLevel(name="V", kind="vector", capacity=64, unit=16, vectors=(8, 16))
MEMORY = MemoryLevel(name="MEM", kind="memory", capacity=1024, unit=16, hit_cost=10, destinations=("R",))
LEVELS = (REGISTERS, MEMORY)
ANY = OperandPattern()
HALF: Any = 0.5
INFO = TargetInfo(name="tiny", description="for tests", layouts=lambda dtype, rank: [row_major(rank)])
KERNEL = Microkernel(
    name="Zero",
    op=FillZero(),
    operands=(ANY,),
    cost=lambda spec, target: 1,
    emit=lambda site: site.line(f"{site.operand(0).scalar()} = 0;"),
)
JAM = UnrollAndJam(most=2, emit=lambda sites: None, registers={"L9": 1})
MULT_ADD = attrs.evolve(KERNEL, name="MultAdd", op=Matmul(accumulate=True), operands=(ANY, ANY, ANY))


def plugin(**changes: Any) -> TargetPlugin:
    """A plugin that is fine but for `changes`."""
    fine: dict[str, Any] = {"levels": LEVELS, "rewrites": STANDARD, "kernels": (KERNEL,), "emitter": CEmitter()}
    return TargetPlugin(**{"info": INFO, **fine, **changes})


def kernel(**changes: Any) -> dict[str, Any]:
    return {"kernels": (attrs.evolve(KERNEL, **changes),)}


def pattern(**changes: Any) -> dict[str, Any]:
    return kernel(operands=(OperandPattern(**changes),))


def level(base: MemoryLevel, **changes: Any) -> dict[str, Any]:
    """The levels of a plugin, with a changed one."""
    changed = attrs.evolve(base, **changes)
    others = [each for each in LEVELS if each is not base]
    return {"levels": (changed, *others) if changed.is_register else (*others, changed)}


def error_of(registry: Registry) -> str:
    """Return the message on the target tiny, as one line."""
    with pytest.raises(PluginError) as raised:
        registry.target("tiny")
    return str(raised.value)


def test_valid_plugins_are_accepted() -> None:
    target = Registry.of(good=plugin(levels=(REGISTERS, VECTORS, MEMORY), kernels=(KERNEL, MULT_ADD))).target("tiny")
    assert target.origins["microkernel MultAdd"] == "good"
    assert [one.name for one in target.levels] == ["R", "V", "MEM"]


class Nameless(Select):
    keyword: ClassVar[str] = "two words"


#: Changes of a valid plugin, and the object and the rule in the message.
RULES: list[tuple[dict[str, Any], str, str]] = [
    # The target.
    ({"info": attrs.evolve(INFO, layouts=None)}, "layouts", "layouts is a function of data type and rank"),
    ({"info": attrs.evolve(INFO, offers=HALF)}, "offers", "offers is a function of a layout and a NewBuffer, or None"),
    ({"info": attrs.evolve(INFO, casts=frozenset({("f32", "f23")}))}, "casts", "unknown data type 'f23'"),
    ({"info": attrs.evolve(INFO, cost_unit=None)}, "target", "cost_unit names the unit of costs"),
    ({"info": attrs.evolve(INFO, units_per_cycle=0)}, "target", "units_per_cycle is an integer of at least 1, or None"),
    ({"levels": ()}, "target", "a target has at least one memory level"),
    ({"emitter": None}, "target", "a target has an emitter"),
    ({"emitter": "C"}, "emitter", "an emitter has a method emit(impl, target, name, signature)"),
    ({"weights": 7}, "weights", "weights are a morello.plugins.Weights"),
    ({"weights": Weights(threads=0)}, "weights", "threads are at least 1 and sync is not negative"),
    ({"weights": Weights(sync=-1)}, "weights", "threads are at least 1 and sync is not negative"),
    ({"weights": Weights(threads=HALF)}, "weights", "threads and sync are integers"),
    # Metrics.
    ({"metrics": ("heat",)}, "metric heat", "metrics are morello.plugins.Metric objects"),
    ({"metrics": (Metric(name="heat", unit="", symbol="heat"),)}, "metric heat", "it has a name and a unit"),
    ({"metrics": (Metric(name="heat", unit="K"),)}, "metric heat", "`symbol` is the name of a C function"),
    ({"metrics": (Metric(name="heat", unit="K", symbol="a b"),)}, "metric heat", "`symbol` is the name of a C"),
    ({"metrics": (Metric(name="heat", unit="K", symbol="a", measure=len),)}, "metric heat", "or a function `measure`"),
    ({"metrics": (Metric(name="heat", unit="K", measure=HALF),)}, "metric heat", "or a function `measure`"),
    # Levels.
    ({"levels": ("RAM",)}, "level RAM", "levels are morello.plugins.MemoryLevel"),
    ({"levels": (REGISTERS, "RAM")}, "level RAM", "levels are morello.plugins.MemoryLevel"),
    (level(MEMORY, name="M M"), "level M M", "a level's name is an identifier that no other level has"),
    (level(MEMORY, kind="disk"), "level MEM", "its kind is one of scalar, vector, temporaries, cache, memory"),
    (level(MEMORY, capacity="1k"), "level MEM", "capacity, unit, hit, miss and start cost and alignment are integers"),
    (level(MEMORY, miss_cost=1.5), "level MEM", "capacity, unit, hit, miss and start cost and alignment are integers"),
    (level(MEMORY, hit_cost=1.5), "level MEM", "capacity, unit, hit, miss and start cost and alignment are integers"),
    (level(MEMORY, capacity=8), "level MEM", "its capacity holds at least one unit"),
    (level(MEMORY, unit=0), "level MEM", "a unit at least one byte"),
    (level(REGISTERS, capacity=30), "level R", "its capacity is a multiple of its unit"),
    (level(MEMORY, capacity=1000), "level MEM", "its capacity is a multiple of its unit"),
    (level(MEMORY, capacity=1 << 63), "level MEM", "at most 2^62 bytes"),
    (level(MEMORY, divisions=0), "level MEM", "its divisions are from 1 to 65,536"),
    (level(MEMORY, divisions=1 << 17), "level MEM", "its divisions are from 1 to 65,536"),
    (level(MEMORY, divisions=HALF), "level MEM", "its divisions are an integer"),
    (level(REGISTERS, hit_cost=1), "level R", "registers have hit, miss and start cost 0"),
    (level(REGISTERS, miss_cost=1), "level R", "registers have hit, miss and start cost 0"),
    (level(MEMORY, hit_cost=-1), "level MEM", "its hit, miss and start cost are not negative"),
    (level(MEMORY, miss_cost=-1), "level MEM", "its hit, miss and start cost are not negative"),
    (level(MEMORY, alignment=0), "level MEM", "its alignment at least 1"),
    (level(MEMORY, alignment=24), "level MEM", "its alignment is a power of two, at most 64"),
    (level(MEMORY, alignment=128), "level MEM", "its alignment is a power of two, at most 64"),
    (level(MEMORY, vectors=(8,)), "level MEM", "vector levels, and no others, list vector sizes"),
    ({"levels": (attrs.evolve(VECTORS, vectors=()), MEMORY)}, "level V", "vector levels, and no others, list"),
    ({"levels": (attrs.evolve(VECTORS, vectors=(12,)), MEMORY)}, "level V", "vector sizes are powers of two"),
    ({"levels": (attrs.evolve(VECTORS, vectors=(32,)), MEMORY)}, "level V", "fit into a register"),
    (level(MEMORY, destinations=("L9",)), "level MEM", "its destination L9 is not a level for operands (R, MEM)"),
    (
        {"levels": (attrs.evolve(REGISTERS, kind="temporaries"), attrs.evolve(MEMORY, destinations=("R",)))},
        "level MEM",
        "its destination R is not a level for operands (MEM)",
    ),
    # Rewrites.
    ({"rewrites": (Matmul,)}, "rewrite", "a rewrite is a subclass of Rewrite"),
    ({"rewrites": (Select("Zero"),)}, "rewrite", "a rewrite is a subclass of Rewrite"),
    ({"rewrites": (Nameless,)}, "rewrite", "its keyword is an identifier"),
    # Microkernels.
    ({"kernels": ("Zero",)}, "microkernel Zero", "microkernels are morello.plugins.Microkernel"),
    (kernel(name="zero it"), "microkernel zero it", "its name is an identifier"),
    (kernel(op="FillZero"), "microkernel Zero", "its op is an operation"),
    (kernel(operands=("MEM",)), "microkernel Zero", "its operands are morello.plugins.OperandPattern"),
    (kernel(operands=(ANY, ANY)), "microkernel Zero", "FillZero has 1 operands, it lists 2"),
    (kernel(op=Matmul(), operands=(ANY,) * 3, shape=(1, 1)), "microkernel Zero", "Matmul has 4 dimensions"),
    (kernel(shape=("n",)), "microkernel Zero", "sizes in its shape are positive integers, Multiple or None"),
    (kernel(shape=(0,)), "microkernel Zero", "sizes in its shape are positive integers, Multiple or None"),
    (kernel(shape=(Multiple(of=0),)), "microkernel Zero", "sizes in its shape are positive integers, Multiple or None"),
    (pattern(levels=("L9",)), "microkernel Zero", "it names the level L9, not one of MEM, R"),
    (pattern(dtypes=("f23",)), "microkernel Zero", "unknown data type 'f23'"),
    (pattern(layout="diagonal"), "microkernel Zero", "an operand's layout is any, row_major or col_major"),
    (kernel(same=("size",)), "microkernel Zero", "`same` lists dtype, layout, vector or lanes"),
    (kernel(registers={"L9": 1}), "microkernel Zero", "it names the level L9, not one of MEM, R"),
    (kernel(registers={"R": -1}), "microkernel Zero", "register counts are not negative"),
    (kernel(jam=JAM), "microkernel Zero", "it names the level L9, not one of MEM, R"),
    (kernel(jam=attrs.evolve(JAM, registers={"R": -1})), "microkernel Zero", "register counts are not negative"),
    (
        kernel(jam=attrs.evolve(JAM, registers={}, most=1)),
        "microkernel Zero",
        "its jam is a morello.plugins.Unroll",
    ),
    (kernel(jam=8), "microkernel Zero", "its jam is a morello.plugins.Unroll"),
    (kernel(cpu_features="avx2"), "microkernel Zero", "its cpu_features are a tuple of names"),
    (kernel(cost=3), "microkernel Zero", "cost and emit are functions"),
    (kernel(emit="x = 0;"), "microkernel Zero", "cost and emit are functions"),
    (kernel(template="{out} = 0;"), "microkernel Zero", "it has either a template or an emit"),
    (kernel(emit=None), "microkernel Zero", "it has either a template or an emit"),
    (kernel(emit=None, template=7), "microkernel Zero", "its template is a line of C"),
    (kernel(emit=None, template="{dst} = 0;"), "microkernel Zero", "its template has {dst}: there are {out}"),
    (kernel(emit=None, template="{out.x} = 0;"), "microkernel Zero", "its template has {out.x}: there are {out}"),
    (kernel(emit=None, template="{out} = {0};"), "microkernel Zero", "its template has {0}: there are {out}"),
    (kernel(emit=None, template="{out} = {;"), "microkernel Zero", "braces of C are doubled"),
    (kernel(when=True), "microkernel Zero", "`when` is a function"),
]


@pytest.mark.parametrize(("changes", "thing", "rule"), RULES, ids=[f"{thing}: {rule}" for _, thing, rule in RULES])
def test_a_broken_rule_is_named(changes: dict[str, Any], thing: str, rule: str) -> None:
    message = error_of(Registry.of(faulty=plugin(**changes)))
    assert "plugin 'faulty'" in message
    assert thing in message
    assert "target tiny" in message
    assert rule in message


def test_a_targets_name_is_an_identifier() -> None:
    with pytest.raises(PluginError, match=r"plugin 'faulty', target my cpu: the name of a target is an identifier"):
        Registry.of(faulty=plugin(info=attrs.evolve(INFO, name="my cpu"))).target("my cpu")


def hooks(**implementations: Any) -> Any:
    """Return a plugin with these implementations of hooks."""
    marked = {name: staticmethod(hookimpl(function)) for name, function in implementations.items()}
    return type("Hooks", (), marked)()


def extension(**contributions: Any) -> TargetPlugin:
    return TargetPlugin(extends="tiny", **contributions)


@pytest.mark.parametrize("hook", ["morello_plugin", "morello_operations"])
def test_a_hook_that_raises_names_its_plugin(hook: str) -> None:
    def fails() -> list[Any]:
        raise ValueError("no CPU today")

    message = error_of(Registry.of(good=plugin(), faulty=hooks(**{hook: fails})))
    assert f"plugin 'faulty' failed in {hook}: ValueError: no CPU today" in message
    assert "uninstall" in message


@pytest.mark.parametrize("field", ["levels", "rewrites", "kernels", "tables", "measurements"])
def test_a_field_that_holds_no_sequence_names_its_plugin(field: str) -> None:
    message = error_of(Registry.of(good=plugin(), faulty=extension(**{field: 5})))
    assert f"plugin 'faulty', {field} of target tiny: several are expected, not 5" in message


@pytest.mark.parametrize(
    ("declaration", "rule"),
    [
        (TargetPlugin(), "has one of `info`, for its own target, `extends` and `derives`"),
        (TargetPlugin(info=INFO, extends="tiny"), "has one of `info`, for its own target, `extends` and `derives`"),
        (
            attrs.evolve(derive("tiny", name="small"), extends="tiny"),
            "has one of `info`, for its own target, `extends` and `derives`",
        ),
        (TargetPlugin(info="tiny"), "`info` is a morello.plugins.TargetInfo, not 'tiny'"),  # pyright: ignore
        ("tiny", "morello_plugin returns morello.plugins.TargetPlugin objects, not 't"),
    ],
    ids=["none", "two", "derived", "info", "text"],
)
def test_a_declaration_is_of_one_target(declaration: Any, rule: str) -> None:
    with pytest.raises(PluginError) as raised:
        _ = Registry.of(faulty=hooks(morello_plugin=lambda: declaration)).names
    assert f"plugin 'faulty': {rule}" in str(raised.value) or rule in str(raised.value)


def test_faults_of_an_extension_do_not_name_the_owner() -> None:
    broken = attrs.evolve(KERNEL, name="Broken", registers={"L9": 1})
    message = error_of(Registry.of(good=plugin(), faulty=extension(kernels=[broken])))
    assert "plugin 'faulty', microkernel Broken of target tiny" in message


@pytest.mark.parametrize(("field", "value"), [("emitter", "C"), ("weights", Weights(threads=0)), ("clock", 7)])
def test_a_single_contribution_is_blamed_on_its_plugin(field: str, value: Any) -> None:
    owner = plugin(emitter=None) if field == "emitter" else plugin()
    message = error_of(Registry.of(good=owner, faulty=extension(**{field: value})))
    assert f"plugin 'faulty', {field} of target tiny" in message


@pytest.mark.parametrize(
    ("field", "value", "label"),
    [
        ("levels", [MEMORY], "level MEM"),
        ("rewrites", [Select], "rewrite select"),
        ("kernels", [KERNEL], "microkernel Zero"),
        ("tables", {"cycles": ((1,),)}, "table cycles"),
        ("weights", Weights(), "weights"),
        ("emitter", CEmitter(), "emitter"),
    ],
)
@pytest.mark.parametrize("owner", ["first", "third"])
def test_contributions_are_unique_within_a_target(field: str, value: Any, label: str, owner: str) -> None:
    own = plugin(weights=Weights(), tables={"cycles": ((1,),)})
    with pytest.raises(PluginError) as raised:
        Registry.of(**{owner: own, "second": extension(**{field: value})}).target("tiny")
    assert f"target tiny: {label} is declared twice, by plugins {owner!r} and 'second'" in str(raised.value)
    assert raised.value.plugin == "second"


def test_names_are_unique_within_a_plugin() -> None:
    message = error_of(Registry.of(first=plugin(kernels=(KERNEL, KERNEL))))
    assert "target tiny: microkernel Zero is declared twice, by plugins 'first' and 'first'" in message


def test_a_target_has_one_owner() -> None:
    registry = Registry.of(first=plugin(), second=plugin())
    with pytest.raises(PluginError, match="'first' and 'second' both own a target 'tiny'"):
        _ = registry.names


def test_contributions_of_the_owner_come_first_then_those_by_name() -> None:
    def adding(*names: str) -> list[Microkernel]:
        return [attrs.evolve(KERNEL, name=name) for name in names]

    registry = Registry.of(
        c=hooks(
            morello_plugin=lambda: [extension(kernels=adding("Third", "Fourth")), extension(kernels=adding("Last"))]
        ),
        owner=plugin(),
        a=extension(kernels=adding("Second")),
    )
    assert [one.name for one in registry.target("tiny").kernels] == ["Zero", "Second", "Third", "Fourth", "Last"]


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        ("morello_kernels", r"plugin 'faulty' does not fit the hooks.*morello_kernels"),
        ("morello_plugins", r"did you mean 'morello_plugin'\?"),
    ],
)
def test_a_hook_that_does_not_exist(hook: str, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        Registry.of(faulty=hooks(**{hook: lambda: None}))


def test_a_hook_with_an_argument_that_does_not_exist() -> None:
    with pytest.raises(PluginError, match=r"plugin 'faulty'(?s:.*)morello_plugin(?s:.*)cpu"):
        Registry.of(faulty=hooks(morello_plugin=lambda cpu: None))


def test_one_object_under_two_names() -> None:
    twice = plugin()
    with pytest.raises(PluginError, match=r"plugin 'second'(?s:.*)registered"):
        Registry.of(first=twice, second=twice)


def test_an_unknown_target_lists_the_known_ones() -> None:
    with pytest.raises(MorelloError, match=r"unknown target 'tny'(?s:.*)did you mean 'tiny'\?"):
        Registry.of(good=plugin()).target("tny")


# Faults that appear only when a plugin's functions are called.


def logical(*shape: Any) -> LogicalSpec:
    """FillZero of a tensor in MEM; the sizes may be arrays."""
    layout = row_major(len(shape))
    return LogicalSpec(FillZero(), shape, (OperandState(F32, "MEM", layout, len(shape)),))


def target_of(**changes: Any) -> Target:
    return Registry.of(faulty=plugin(rewrites=(Select,), **changes)).target("tiny")


def divide(spec: LogicalSpec, target: Target) -> int:
    raise ZeroDivisionError("no bandwidth")


def uses(spec: Spec, target: Target) -> list[Callable[[], object]]:
    """Return all users of a microkernel's condition and cost: a schedule, the recursion, and search."""
    return [
        lambda: Goal.of(spec, target).select("Zero"),
        lambda: Textbook(target).solve(spec),
        lambda: SearchSession(target).synthesize(spec),
    ]


COSTS = [
    (divide, "its cost failed: ZeroDivisionError: no bandwidth"),
    (lambda spec, target: 0, "its cost is an integer of at least 1, not 0"),
    (lambda spec, target: -3, "its cost is an integer of at least 1, not -3"),
    (lambda spec, target: 1.5, "its cost is an integer of at least 1, not 1.5"),
    (lambda spec, target: None, "its cost is an integer of at least 1, not None"),
    (lambda spec, target: "cheap", "its cost is an integer of at least 1, not 'cheap'"),
]


@pytest.mark.parametrize(("cost", "rule"), COSTS, ids=[rule for _, rule in COSTS])
def test_a_kernels_cost_is_a_positive_integer(cost: Any, rule: str) -> None:
    target = target_of(**kernel(cost=cost))
    spec = target.spec(logical(2, 4))
    for use in uses(spec, target):
        with pytest.raises(PluginError) as raised:
            use()
        assert f"plugin 'faulty', microkernel Zero of target tiny: {rule}" in str(raised.value)


BATCH_COSTS = [
    (lambda spec, target: 3 if spec.shape[0] > 2 else 2, "its cost failed: ValueError"),
    (lambda spec, target: spec.shape[0] - 1, "its cost is an integer of at least 1, not 0"),
    (lambda spec, target: spec.shape[0] / 2, "its cost is an integer of at least 1, not 0.5"),
    (lambda spec, target: np.ones(7, np.int64), "its cost has one value per Spec"),
]


@pytest.mark.parametrize(("cost", "rule"), BATCH_COSTS, ids=[rule for _, rule in BATCH_COSTS])
def test_a_kernels_cost_works_on_arrays_of_sizes(cost: Any, rule: str) -> None:
    target = target_of(**kernel(cost=cost))
    with pytest.raises(PluginError) as raised:
        list(Select("Zero").cases(logical(np.array([1, 2, 4]), 4), target))
    assert f"plugin 'faulty', microkernel Zero of target tiny: {rule}" in str(raised.value)


def test_a_condition_that_raises_names_its_plugin() -> None:
    def when(spec: LogicalSpec) -> bool:
        raise KeyError("n")

    target = target_of(**kernel(when=when))
    spec = target.spec(logical(2, 4))
    for use in uses(spec, target):
        with pytest.raises(PluginError) as raised:
            use()
        assert "plugin 'faulty', microkernel Zero of target tiny: its `when` failed: KeyError: 'n'" in str(raised.value)


def test_printing_that_raises_names_its_plugin() -> None:
    def emit(site: Any) -> None:
        raise IndexError("operand 7")

    target = target_of(**kernel(emit=emit))
    done = Goal.of(target.spec(logical(2, 4)), target).select("Zero")
    with pytest.raises(PluginError) as raised:
        target.emitter.emit(done.impl, target, "zero")
    assert "plugin 'faulty', microkernel Zero of target tiny: its `emit` failed: IndexError: operand 7" in str(
        raised.value
    )


@attrs.frozen(cache_hash=True)
class Cheat(Rewrite):
    """Does nothing, and pretends to save work by it."""

    keyword: ClassVar[str] = "cheat"
    cost: int = argument(int, default=0)
    times: int = argument(int, default=1)

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        yield cls()

    def cases(self, logical: LogicalSpec, target: Target) -> Iterator[RewriteCase]:
        inner = LogicalSpec(Move(), logical.shape, logical.states * 2, logical.serial)
        yield RewriteCase(
            None, Sequential(self, self.cost, target.nothing(), (Part(inner, (0, 0), self.times, target.nothing()),))
        )


@pytest.mark.parametrize("step", [Cheat(cost=-1), Cheat(times=0)], ids=["cost", "times"])
def test_a_node_costs_at_least_as_much_as_its_children(step: Cheat) -> None:
    rewrites: Sequence[type[Rewrite]] = (Select, Cheat)
    target = Registry.of(faulty=plugin(rewrites=rewrites)).target("tiny")
    with pytest.raises(PluginError) as raised:
        Goal.of(target.spec(logical(2, 4)), target).apply((step,))
    assert "plugin 'faulty', rewrite cheat of target tiny" in str(raised.value)
    assert "a node costs at least as much as each of its children" in str(raised.value)
