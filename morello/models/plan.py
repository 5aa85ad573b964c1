"""The plan of a program: the buffer of each tensor, and the calls of kernels on places in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from math import prod

import attrs

from morello.models.graph import Graph, Node, Step, Tensor, View
from morello.models.passes.fuse import is_elementwise
from morello.models.places import Buffer, Image, Place
from morello.models.specs import WINDOWS, NeedsCopy, Written, spec_of

#: Operations whose images have channels last.
_IMAGES = {*WINDOWS, "ConvTranspose", "Resize", "LocalResponseNorm"}
_PADDED = ("Conv", "Conv1d", "Conv3d")
#: The dimensions of an image from the outermost on, by its layout, as a function of their number.
ORDERS: Mapping[str, Callable[[int], Sequence[int]]] = {
    "first": lambda rank: range(rank),
    "last": lambda rank: (0, *range(2, rank), 1),
}


@attrs.frozen(eq=False)
class Call:
    """A kernel's Spec with the places of its operands, and the step that it computes."""

    step: Step
    written: Written


@attrs.frozen(eq=False)
class Plan:
    """Calls of kernels in the order in which they run, and the graph that they compute."""

    graph: Graph
    calls: tuple[Call, ...]

    @property
    def buffers(self) -> Mapping[Buffer, tuple[int, int]]:
        """Return the buffers of the arena, with the first and the last call that uses each."""
        found: dict[Buffer, tuple[int, int]] = {}
        for number, call in enumerate(self.calls):
            for place in call.written.places:
                if not place.buffer.kind:
                    found[place.buffer] = (found.get(place.buffer, (number, 0))[0], number)
        return found


@attrs.frozen
class Layouts:
    """The layouts of images: those in which they are made, and those of copies that steps read.

    The key of a copy is the first output of the step and the image.
    """

    made: Mapping[str, str]
    read: Mapping[tuple[str, str], str] = attrs.field(factory=dict[tuple[str, str], str])
    #: Whether a convolution without padding copies an input of the model to channels last.
    copies_inputs: bool = True


def plan_of(graph: Graph, layouts: Layouts | None = None) -> Plan:
    """Return the plan of a graph of steps and views; images have channels last unless `layouts` says otherwise."""
    return Planner.of(graph, layouts or Layouts(dict.fromkeys(images_of(graph) - {*graph.outputs}, "last"))).plan()


@attrs.define
class Planner:
    """The plan of a graph in the making."""

    graph: Graph
    layouts: Layouts
    borders: dict[str, tuple[int, ...]]
    parts: dict[str, tuple[str, int]]
    #: Tensors that are computed in a view of them.
    results: dict[str, View]
    #: The place of each tensor so far.
    places: dict[str, Place] = attrs.field(factory=dict[str, Place])
    calls: list[Call] = attrs.field(factory=list[Call])
    #: Copies of images with borders, by tensor and border, and those in other layouts, by tensor and layout.
    images: dict[tuple[str, tuple[int, ...] | str], Place] = attrs.field(factory=dict)

    @classmethod
    def of(cls, graph: Graph, layouts: Layouts) -> Planner:
        """Return a plan without calls."""
        places: dict[str, Place] = {}
        for name, tensor in graph.tensors.items():
            kind = "constant" if tensor.value is not None else "input" if name in graph.inputs else ""
            if kind:
                places[name] = _in_order(Buffer(name, tensor.dtype, tensor.size, kind), tensor)
        parts = parts_of_concats(graph)
        return cls(graph, layouts, borders_of(graph), parts, _results(graph, parts), places)

    def plan(self) -> Plan:
        """Return the whole plan."""
        graph = self.graph
        for part in graph.parts:
            if isinstance(part, View):
                self.view(part)
            elif isinstance(part, Step):
                if part.nodes[0].op == "Concat":
                    for number in range(len(part.nodes[0].inputs)):
                        self.concat(part.nodes[0], number)
                else:
                    self.step(part)
        for name in graph.outputs:
            self.finish(name)
        return Plan(graph, tuple(self.calls))

    def finish(self, name: str) -> None:
        """Copy an output of the model that is elsewhere."""
        place = self._made(name)
        if place.buffer.kind != "output" or place.buffer.name != name:
            self._move(name, place, self._output(name))

    def view(self, view: View) -> None:
        """Add the place of a view, with a copy if it needs one."""
        name, source = view.output, self._made(view.source)
        try:
            self.places[name] = source.seen(view.of)
        except ValueError:
            # Only a reshape needs a copy: one in the layout of its output, if that is possible.
            try:
                self._move(view.source, source, self._source(view, self._made(name)))
            except ValueError:
                self.places[name] = self._copy(view.source).seen(view.of)

    def _source(self, view: View, place: Place) -> Place:
        """Return the place of a view's source, where the view has this place. Raises ValueError without one."""
        if view.kind == "transpose":
            order = sorted(range(len(view.given)), key=view.given.__getitem__)
            return place.seen(lambda array: array.transpose(order))
        return place.reshaped(self.graph.tensors[view.source].shape)

    def concat(self, node: Node, number: int) -> None:
        """Copy an input of a Concat that is not computed in its part of the output."""
        name = node.inputs[number]
        place, target = self._made(name), self._part(node.outputs[0], number)
        if _memory(place) != _memory(target):
            self._move(name, place, target)

    def _part(self, output: str, number: int) -> Place:
        """Return the place of an input of a Concat in its output."""
        step = self.graph.makers[output]
        assert isinstance(step, Step)
        (node,), place = step.nodes, self._made(output)
        dim = node.parameters["dim"]
        assert isinstance(dim, int)
        sizes = [self.graph.tensors[name].shape[dim] for name in node.inputs]
        start = sum(sizes[:number])
        given = tuple(
            slice(start, start + sizes[number]) if each == dim else slice(None) for each in range(len(place.shape))
        )
        return place.seen(lambda array: array[given])

    def step(self, step: Step) -> None:
        """Add the call of a step, with copies of operands where its operation or the layouts need them."""
        read = self.layouts.read
        self._step(step, {name: read[key] for name in step.inputs if (key := (step.outputs[0], name)) in read})

    def _step(self, step: Step, copies: Mapping[str, str]) -> None:
        """Add the call of a step that reads copies of these inputs in these layouts."""
        step = self._distinct(step)
        places = {name: self.copied(name, layout) for name, layout in copies.items()}
        for node in step.nodes:
            if node.op in _PADDED and node.inputs[0] in step.inputs and node.inputs[0] not in copies:
                places[node.inputs[0]] = self._image(node)

        def place_of(name: str) -> Place:
            return places.get(name) or self._made(name)

        moved: tuple[Place, Place] | None = None
        while True:
            try:
                written = spec_of(self.graph, step, place_of)
                break
            except NeedsCopy as error:
                if (
                    error.tensor in places and places[error.tensor].buffer.name.endswith(".copy")
                ) or error.tensor in step.outputs:
                    if len(step.nodes) > 1 or moved:
                        self._split(step, copies)
                        return
                    # The output's place does not fit: it is computed in a buffer of its own.
                    tensor = self.graph.tensors[error.tensor]
                    made = _in_order(Buffer(f"{error.tensor}.made", tensor.dtype, tensor.size), tensor)
                    moved, places[error.tensor] = (made, self._made(error.tensor)), made
                    continue
                places[error.tensor] = self._copy(error.tensor, error.shape)
        self.calls.append(Call(step, written))
        if moved:
            self._move(step.outputs[0], *moved)

    def _distinct(self, step: Step) -> Step:
        """Return a step with another name for what it reads twice, where an operand cannot be both."""
        first, used = step.nodes[0], set[str]()
        nodes: list[Node] = []
        for node in step.nodes:
            if node is first or first.op in WINDOWS:
                taken = used if node is first else {first.inputs[0]}
                inputs: list[str] = []
                for name in node.inputs:
                    inputs.append(self._again(name) if name in taken else name)
                    used.add(name)
                node = attrs.evolve(node, inputs=tuple(inputs))
            nodes.append(node)
        return Step.of(*nodes, outputs=step.outputs)

    def _again(self, name: str) -> str:
        """Return another name of a tensor."""
        again = f"{name}.again"
        tensors = self.graph.tensors
        self.graph = attrs.evolve(self.graph, tensors={**tensors, again: attrs.evolve(tensors[name], name=again)})
        self.places[again] = self._made(name)
        return again

    def _split(self, step: Step, copies: Mapping[str, str]) -> None:
        """Add a call for each node of a step."""
        if len(step.nodes) == 1:
            raise AssertionError(f"no places for {step.name}")
        for node in step.nodes:
            one = Step.of(node)
            self._step(one, {name: layout for name, layout in copies.items() if name in one.inputs})

    def _image(self, node: Node) -> Place:
        """Return the place of the image of a convolution, with zeros around it where it is padded."""
        name, padding = node.inputs[0], _padding(node)
        place = self._made(name)
        if _fits(place, padding) or (
            not any(padding) and not (place.buffer.kind == "input" and self.layouts.copies_inputs)
        ):
            return place
        key = name, padding
        if key not in self.images:
            tensor = self.graph.tensors[name]
            target = _with_border(f"{name}.image", tensor, padding, "last")
            self._move(name, place, target)
            self.images[key] = target
        return self.images[key]

    def copied(self, name: str, layout: str) -> Place:
        """Return the place of the copy of an image in another layout."""
        key = name, layout
        if key not in self.images:
            self.images[key] = self._bordered(f"{name}.{layout}", name, layout)
            self._move(name, self._made(name), self.images[key])
        return self.images[key]

    def _bordered(self, made: str, name: str, layout: str) -> Place:
        """Return a new place of an image, with the border that its readers need."""
        tensor = self.graph.tensors[name]
        return _with_border(made, tensor, self.borders.get(name, (0,) * 2 * (len(tensor.shape) - 2)), layout)

    def _made(self, name: str) -> Place:
        """Return the place of a tensor, which gets a buffer if it has none."""
        if name not in self.places:
            self.places[name] = self._new(name)
        return self.places[name]

    def _new(self, name: str) -> Place:
        tensor = self.graph.tensors[name]
        if name in self.parts:
            return self._part(*self.parts[name])
        layout = self.layouts.made.get(name)
        if name in self.graph.outputs and not layout:
            return self._output(name)
        if name in self.results:
            view = self.results[name]
            with suppress(ValueError):
                return self._source(view, self._made(view.output))
        if layout:
            return self._bordered(name, name, layout)
        return _in_order(Buffer(name, tensor.dtype, tensor.size), tensor)

    def _output(self, name: str) -> Place:
        tensor = self.graph.tensors[name]
        return _in_order(Buffer(name, tensor.dtype, tensor.size, "output"), tensor)

    def _copy(self, name: str, shape: tuple[int, ...] | None = None) -> Place:
        """Return a contiguous copy of a tensor, repeated to a shape."""
        place, tensor = self._made(name), self.graph.tensors[name]
        if shape and shape != place.shape:
            place = place.seen_as(shape)
        target = _in_order(
            Buffer(f"{name}.copy", tensor.dtype, prod(place.shape)), attrs.evolve(tensor, shape=place.shape)
        )
        self._move(name, place, target)
        return target

    def _move(self, name: str, source: Place, target: Place) -> None:
        """Add the call of a copy."""
        copy = f"{name}.moved"
        step = Step.of(Node(name, "Move", (name,), (copy,)))
        tensors = {**self.graph.tensors, copy: attrs.evolve(self.graph.tensors[name], name=copy)}
        graph, places = attrs.evolve(self.graph, tensors=tensors), {name: source, copy: target}
        self.calls.append(Call(step, spec_of(graph, step, places.__getitem__)))


def _in_order(buffer: Buffer, tensor: Tensor) -> Place:
    return Place.in_order(buffer, tensor.shape, range(len(tensor.shape)))


def _memory(place: Place) -> tuple[Buffer, int, list[int]]:
    """Return what is equal for places of the same values in memory, of one shape."""
    return place.buffer, place.start, [step for size, step in zip(place.shape, place.strides, strict=True) if size > 1]


def _padding(node: Node) -> tuple[int, ...]:
    padding = node.parameters["padding"]
    assert isinstance(padding, tuple)
    return padding


def _fits(place: Place, padding: tuple[int, ...]) -> bool:
    """Return whether a place is all of an image with a border of at least these sizes."""
    image, count = place.buffer.image, len(padding) // 2
    if image is None or count > 2:
        return False
    need = (0, *padding[:1], 0, *padding[1:]) if count == 1 else padding
    rows, columns = image.rows - image.top - image.bottom, image.columns - image.left - image.right
    return (
        place.shape[-count:] == (rows, columns)[-count:]
        and place.strides[-count:] == (image.columns * image.pixel, image.pixel)[-count:]
        and all(has >= one for has, one in zip((image.top, image.left, image.bottom, image.right), need, strict=True))
    )


def _with_border(name: str, tensor: Tensor, padding: tuple[int, ...], layout: str) -> Place:
    """Return a new place of an image with a border of these sizes."""
    rank = len(tensor.shape)
    order = ORDERS[layout](rank)
    count = len(padding) // 2
    shape = list(tensor.shape)
    for number in range(count):
        shape[rank - count + number] += padding[number] + padding[count + number]
    low, high = padding[:count], padding[count:]
    if count == 3:
        # All of it is border: cleared before the image is stored.
        return Place.in_order(
            Buffer(name, tensor.dtype, prod(shape), image=Image(1, prod(shape), 1, 1, prod(shape), 0, 0, 0)),
            shape,
            order,
        ).grown([0, 0, *(-one for one in low)], [0, 0, *(-one for one in high)])
    top, bottom = (low[-2], high[-2]) if count > 1 else (0, 0)
    rows, columns = (shape[-2], shape[-1]) if count > 1 else (1, shape[-1])
    pixel = shape[1] if order[-1] == 1 else 1
    image = Image(prod(shape) // (rows * columns * pixel), rows, columns, pixel, top, low[-1], bottom, high[-1])
    buffer = Buffer(name, tensor.dtype, prod(shape), image=image)
    whole = Place.in_order(buffer, shape, order)
    return whole.grown([0] * (rank - count) + [-one for one in low], [0] * (rank - count) + [-one for one in high])


def borders_of(graph: Graph) -> dict[str, tuple[int, ...]]:
    """Return the largest padding that readers of each image need; a part of a Concat gives its to the whole."""
    found: dict[str, tuple[int, ...]] = {}
    for node in graph.nodes:
        if node.op in _PADDED:
            padding, name = _padding(node), node.inputs[0]
            found[name] = tuple(map(max, padding, found.get(name, (0,) * len(padding))))
    wholes = {name: output for name, (output, _) in parts_of_concats(graph).items()}
    for name, padding in [*found.items()]:
        while name in wholes:
            name = wholes[name]
            found[name] = tuple(map(max, padding, found.get(name, (0,) * len(padding))))
    return found


def images_of(graph: Graph) -> set[str]:
    """Return the images: tensors that a convolution or the like uses, and those of their functions."""
    groups: dict[str, str] = {}

    def find(name: str) -> str:
        while groups.setdefault(name, name) != name:
            name = groups[name]
        return name

    images: set[str] = set()
    for step in graph.parts:
        if not isinstance(step, Step):
            continue
        ranked = [name for name in (*step.inputs, *step.outputs) if not graph.is_constant(name)]
        if any(node.op in _IMAGES for node in step.nodes):
            images.update(ranked)
        elif not (is_elementwise(step.nodes[0].op) or step.nodes[0].op in ("Concat", "Move")):
            continue
        rank = len(graph.tensors[step.outputs[0]].shape)
        alike = [name for name in ranked if len(graph.tensors[name].shape) == rank]
        for name in alike:
            groups[find(name)] = find(alike[0])
    roots = {find(name) for name in images}
    return {name for name in groups if find(name) in roots and len(graph.tensors[name].shape) in (3, 4)}


def _results(graph: Graph, parts: Collection[str]) -> dict[str, View]:
    """Return the tensors that are computed in a view of them, with that view.

    It is an output of the model, a part of a Concat, or one like that of the heads of attention, which are transposed
    and then reshaped to rows.
    """
    found: dict[str, View] = {}
    reshaped = [one.output for one in graph.parts if isinstance(one, View) and one.kind == "reshape"]
    rows = [name for name in reshaped if _is_transposed(graph, graph.makers[name].inputs[0])]
    for name in (*graph.outputs, *parts, *rows):
        while isinstance(view := graph.makers.get(name), View) and view.kind in ("reshape", "transpose"):
            name = view.source
            if name in (*graph.outputs, *found, *parts) or name not in graph.makers:
                break
            found[name] = view
    return found


def _is_transposed(graph: Graph, name: str) -> bool:
    view = graph.makers.get(name)
    return isinstance(view, View) and view.kind == "transpose"


def parts_of_concats(graph: Graph) -> dict[str, tuple[str, int]]:
    """Return the tensors that are computed in the output of a Concat, with that and their number there."""
    found: dict[str, tuple[str, int]] = {}
    for step in graph.parts:
        if isinstance(step, Step) and step.nodes[0].op == "Concat":
            (node,) = step.nodes
            for number, name in enumerate(node.inputs):
                inside = node.parameters["dim"] == 1 or len(graph.tensors[name].shape) not in (3, 4)
                if inside and name not in found and name not in graph.outputs and name in graph.makers:
                    found[name] = node.outputs[0], number
    return found
