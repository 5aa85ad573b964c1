"""The layouts of images under which kernels and conversions cost least, by an exact optimization over the graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain, product
from math import inf, prod
from typing import TypeAlias

import attrs

from morello.models.graph import Graph, Part, Step, View
from morello.models.passes.fuse import is_elementwise
from morello.models.plan import ORDERS, Call, Layouts, Plan, Planner, images_of, parts_of_concats, plan_of

#: The layout in which tied images are made: ("made", the first of them); whether an image has a copy: ("copy", image,
#: layout); or the layout in which a step reads an image: ("read", first output of the step, image).
Variable: TypeAlias = tuple[str, ...]
Value: TypeAlias = str | bool
#: Variables, and a number for each of their values; values without one are impossible.
Term: TypeAlias = tuple[Sequence[Variable], Mapping[tuple[Value, ...], float]]
#: The layout of an output of the model in its array, and that of an image which a step reads as it was made.
_ARRAY, _AS_MADE = "array", "made"


def cheapest(domains: Mapping[Variable, Sequence[Value]], terms: Sequence[Term]) -> tuple[float, dict[Variable, Value]]:
    """Return the least sum of terms, and values of the variables that have it; an infinite sum has no values.

    This is exact on every graph: variables are eliminated one by one, that with the smallest table first. The terms of
    one become a table of their least sum over its values. Tables are small where few images are alive at once.
    """
    left, eliminated = [*terms], list[tuple[Variable, list[Variable], dict[tuple[Value, ...], Value]]]()
    near: dict[Variable, set[Variable]] = {one: {one} for one in domains}
    for names, _ in terms:
        for one in names:
            near[one].update(names)
    while near:
        variable = min(near, key=lambda one: prod(len(domains[other]) for other in near[one]))
        scope = sorted(near.pop(variable) - {variable})
        own = [term for term in left if variable in term[0]]
        left = [term for term in left if variable not in term[0]]
        sums: dict[tuple[Value, ...], float] = {}
        best: dict[tuple[Value, ...], Value] = {}
        for values in product(*(domains[one] for one in scope)):
            found = dict(zip(scope, values, strict=True))
            for value in domains[variable]:
                found[variable] = value
                cost = sum(costs.get(tuple(found[one] for one in names), inf) for names, costs in own)
                if cost < sums.get(values, inf):
                    sums[values], best[values] = cost, value
        left.append((scope, sums))
        eliminated.append((variable, scope, best))
        for one in scope:
            near[one] = near[one] - {variable} | {*scope}
    total, chosen = sum(costs.get((), inf) for _, costs in left), dict[Variable, Value]()
    for variable, scope, best in reversed(eliminated) if total < inf else ():
        chosen[variable] = best[tuple(chosen[one] for one in scope)]
    return total, chosen


def cost_of(plan: Plan, costs: Mapping[str, int]) -> int:
    """Return the sum of the costs of a plan's calls, which are given by the text of Specs."""
    return sum(costs[call.written.text] for call in plan.calls)


@attrs.frozen
class LayoutReport:
    """The cost of the kernels under the layouts chosen and under the default, and a proven bound for all layouts."""

    cost: int
    default: int
    low: int

    def __str__(self) -> str:
        gap = "optimal" if self.low >= self.cost else f"within {100 * (self.cost / self.low - 1):.3g} % of the optimum"
        bound = f"no layouts cost less than {self.low:,}"
        return f"layouts: cost {self.cost:,}, by default {self.default:,}; {bound}: {gap} (proven)"


@attrs.frozen(eq=False)
class LayoutChoices:
    """The layouts that images of a graph may have, and the calls of kernels that follow from them.

    Images that a view or a Concat ties are made in one layout. All steps that read an image in another layout share a
    copy in that. A function of each value has all operands in one. Other tensors, and inputs and outputs of the model,
    have dimensions in order.
    """

    graph: Graph

    @cached_property
    def calls(self) -> Sequence[Call]:
        """Return a call of each Spec that any choice has, in the order of steps."""
        found: dict[str, Call] = {}
        for _, cells in self._terms:
            for call in chain.from_iterable(cells.values()):
                found.setdefault(call.written.text, call)
        return [*found.values()]

    def best(self, costs: Mapping[str, int]) -> tuple[int, Plan]:
        """Return the least sum of the costs of calls, given by the text of Specs, and the plan that has it."""
        terms = [
            (names, {values: sum(costs[call.written.text] for call in calls) for values, calls in cells.items()})
            for names, cells in self._terms
        ]
        total, chosen = cheapest(self._domains, terms)
        return int(total), plan_of(self.graph, self._layouts(chosen))

    @cached_property
    def _images(self) -> Collection[str]:
        return sorted(images_of(self.graph))

    @cached_property
    def _first(self) -> Mapping[str, str]:
        """Return for each tensor the first of those that are tied."""
        graph, above = self.graph, {name: name for name in self.graph.tensors}

        def find(name: str) -> str:
            while above[name] != name:
                name = above[name]
            return name

        views = [(part.output, part.source) for part in graph.parts if isinstance(part, View)]
        wholes = [(name, whole) for name, (whole, _) in parts_of_concats(graph).items()]
        for name, other in views + wholes:
            if other in graph.makers:
                above[find(name)] = find(other)
        return {name: find(name) for name in above}

    @cached_property
    def _tied(self) -> Mapping[str, Sequence[str]]:
        """Return the images that are tied, by the first of the tensors that are."""
        found: dict[str, list[str]] = {}
        for name in self._images:
            found.setdefault(self._first[name], []).append(name)
        return found

    @cached_property
    def _ends(self) -> Collection[str]:
        """Return the images that are outputs of the model and made by steps."""
        return [name for name in self._images if name in self.graph.outputs and isinstance(self._maker(name), Step)]

    @cached_property
    def _reads(self) -> Sequence[tuple[Step, str]]:
        """Return the steps and the images that they may read in a copy."""
        steps = (one for one in self.graph.parts if isinstance(one, Step) and one.nodes[0].op != "Concat")
        return [(step, name) for step in steps for name in step.inputs if name in self._images]

    @cached_property
    def _domains(self) -> Mapping[Variable, Sequence[Value]]:
        found: dict[Variable, Sequence[Value]] = {}
        for first, names in self._tied.items():
            ends = any(name in self._ends for name in names)
            # Without a border, an output of the model is in its array.
            free = [one for one in ORDERS if one != "first" or not ends or any(map(self._is_bordered, names))]
            found["made", first] = [_ARRAY] if first in self.graph.inputs else [_ARRAY] * ends + free
        for step, name in self._reads:
            found["read", step.outputs[0], name] = [_AS_MADE, *ORDERS]
            for layout in ORDERS:
                found["copy", name, layout] = [False, True]
        return found

    @cached_property
    def _terms(self) -> Sequence[tuple[Sequence[Variable], Mapping[tuple[Value, ...], Sequence[Call]]]]:
        """Return variables, and the calls for each of their values that is possible."""
        found = [self._term((name,), partial(Planner.finish, name=name)) for name in self.graph.outputs]
        for part in self.graph.parts:
            if isinstance(part, View):
                found.append(self._term((part.source, part.output), partial(Planner.view, view=part)))
            elif isinstance(part, Step) and part.nodes[0].op == "Concat":
                (node,) = part.nodes
                for number, name in enumerate(node.inputs):
                    act = partial(Planner.concat, node=node, number=number)
                    found.append(self._term((name, *node.outputs), act))
            elif isinstance(part, Step):
                reads = [("read", part.outputs[0], name) for step, name in self._reads if step is part]
                first, act = part.nodes[0], partial(Planner.step, step=part)
                apart = () if is_elementwise(first.op) else first.inputs
                alike = [name for name in (*part.inputs, *part.outputs) if name in self._images and name not in apart]
                found.append(self._term((*part.inputs, *part.outputs), act, reads, alike))
        for name, layout in product(dict.fromkeys(name for _, name in self._reads), ORDERS):
            made, copy = ("made", self._first[name]), ("copy", name, layout)
            act = partial(Planner.copied, name=name, layout=layout)
            cells: dict[tuple[Value, ...], Sequence[Call]] = {}
            for value in self._domains[made]:
                cells[value, False] = ()
                if self._is_useful(name, layout, value):
                    cells[value, True] = self._calls({made: value}, [name], act) or ()
            found.append(([made, copy], cells))
            for step in (step for step, one in self._reads if one == name):
                read = "read", step.outputs[0], name
                pairs = product((False, True), self._domains[read])
                found.append(([copy, read], {(has, value): () for has, value in pairs if has or value != layout}))
        return found

    def _term(
        self,
        tensors: Sequence[str],
        act: Callable[[Planner], object],
        reads: Sequence[Variable] = (),
        alike: Sequence[str] = (),
    ) -> tuple[Sequence[Variable], Mapping[tuple[Value, ...], Sequence[Call]]]:
        """Return the variables on which the places of tensors depend, and the calls that an act adds by values.

        All images `alike` that are in no array of the caller have one layout.
        """
        firsts = dict.fromkeys(self._first[name] for name in tensors)
        variables = [*(("made", one) for one in firsts if one in self._tied), *reads]
        cells: dict[tuple[Value, ...], Sequence[Call]] = {}
        for values in product(*(self._domains[one] for one in variables)):
            given = dict(zip(variables, values, strict=True))
            layouts = {name: given["made", self._first[name]] for name in alike}
            layouts |= {one[2]: given[one] for one in reads if one[2] in layouts and given[one] != _AS_MADE}
            calls = self._calls(given, tensors, act) if len({*layouts.values()} - {_ARRAY}) < 2 else None
            if calls is not None:
                cells[values] = calls
        return variables, cells

    def _calls(
        self, values: Mapping[Variable, Value], tensors: Sequence[str], act: Callable[[Planner], object]
    ) -> Sequence[Call] | None:
        """Return the calls that an act adds under these values; None if they are not possible."""
        layouts, empty = self._layouts(values), self._empty
        planner = attrs.evolve(empty, layouts=layouts, places=dict(empty.places), calls=[], images={})
        for name in tensors:
            self._see(planner, name)
        for (_, name), layout in layouts.read.items():
            if not self._is_useful(name, layout, values["made", self._first[name]]):
                return None
            planner.copied(name, layout)
        before = len(planner.calls)
        act(planner)
        # A convolution copies an image for its border where it cannot read it: only copies in a layout are shared.
        own = any(name in self._images and isinstance(border, tuple) for name, border in planner.images)
        return None if own else planner.calls[before:]

    @cached_property
    def _empty(self) -> Planner:
        return Planner.of(self.graph, Layouts({}))

    def _see(self, planner: Planner, name: str) -> None:
        """Add the place of a tensor that is a view."""
        view = self._maker(name)
        if isinstance(view, View):
            self._see(planner, view.source)
            planner.view(view)

    def _layouts(self, values: Mapping[Variable, Value]) -> Layouts:
        """Return the layouts for these values of variables."""
        made: dict[str, str] = {}
        for first, names in self._tied.items():
            layout = values.get(("made", first), "last")
            for name in names:
                if name not in self.graph.outputs:
                    made[name] = "first" if layout == _ARRAY else str(layout)
                elif name in self._ends and layout != _ARRAY:
                    made[name] = str(layout)
        read = {(one[1], one[2]): str(value) for one, value in values.items() if one[0] == "read" and value != _AS_MADE}
        return Layouts(made, read, copies_inputs=False)

    def _is_useful(self, name: str, layout: str, made: Value) -> bool:
        """Return whether a copy in a layout of an image that is made in another differs from that."""
        return layout != made and (made != _ARRAY or layout != "first" or self._is_bordered(name))

    def _is_bordered(self, name: str) -> bool:
        return any(self._empty.borders.get(name, ()))

    def _maker(self, name: str) -> Part | None:
        return self.graph.makers.get(name)
