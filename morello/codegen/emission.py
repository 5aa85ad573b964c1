"""Prints one implementation as a C function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import cached_property
from types import MappingProxyType

import attrs

from morello.codegen.interface import (
    Interface,
    parameters_of,
    preamble,
    setter_name,
    workspace_macro,
)
from morello.codegen.loops import (
    Jammed,
    Outer,
    arguments,
    calls,
    copies,
    declares,
    goes_on,
    jam_of,
    jammed,
    printed,
    repeated,
    through_views,
    tiles,
    unrolled,
    until,
)
from morello.codegen.masks import scores_used, with_masks
from morello.codegen.memories import transfers
from morello.codegen.outline import RepeatedParts, as_parameters, can_be_parameters, static_function
from morello.codegen.parallel import Captured, FunctionCode, ParallelLoops, Range, surroundings
from morello.codegen.storage import Storage
from morello.codegen.strips import along_strips
from morello.codegen.style import CStyle
from morello.codegen.threads import SET_RUNNER
from morello.codegen.workspace import shared_places
from morello.codegen.writer import CWriter, Names, names_in
from morello.errors import EmitError, MorelloError
from morello.ir.impl import Alloc, Impl, KernelCall, Leaf, Loop, Node, Part
from morello.ir.in_place import hazard
from morello.ir.index import IndexExpr, Symbol, as_index
from morello.ir.program import Parameter, Program, of_operands
from morello.ir.signature import Signature
from morello.ir.spec import LogicalSpec
from morello.kernels.buffers import Buffer, View, strides_of
from morello.kernels.microkernel import Microkernel
from morello.kernels.site import KernelSite
from morello.kernels.target import Target


class Emission(Storage):
    """The state of printing one program."""

    def __init__(
        self,
        emitter: CStyle,
        impl: Impl,
        target: Target,
        name: str,
        signature: Signature,
        taken: Iterable[str] = (),
        packs: Mapping[int, Emission] = MappingProxyType({}),
    ):
        super().__init__(emitter, target, [*taken, name, setter_name(name), workspace_macro(name)])
        self.impl, self.name, self.signature = impl, name, signature
        #: The functions that pack constants, by operand.
        self.packs = packs
        #: Names in the code other than its variables.
        self.names_of_others: set[str] = set()
        self.threads_name = self.names.fresh("threads")
        self._parallel = ParallelLoops(self.workspace_name, self.threads_name)
        self._features: dict[str, None] = {}
        self._quiet = 0
        #: The functions of repeated parts, by the text after their names; whether one is printed.
        self._outlined: dict[str, str] = {}
        self._in_part = False
        #: Whether a test skips masked scores.
        self._guarded = False

    @cached_property
    def program(self) -> Program:
        """Return the program, with the functions that pack its constants."""
        parameters, views = self._parameters()
        self._check_order()
        operands, declared = of_operands(parameters), self.impl.spec.logical.declared
        with ExitStack() as stack:
            loaded = [
                self._enter(view, one.name, each.reads, stack)
                for view, one, each in zip(views, operands, declared, strict=True)
            ]
            registers = [name for view in loaded for name in view.buffer.variables or ()]
            strides = [name for one in of_operands(parameters) for name in one.stride_names]
            stack.enter_context(self.writer.variables([*registers, *strides]))
            self._node(self.impl, loaded)
            for view, one, inside in zip(views, declared, loaded, strict=True):
                if inside is not view and one.writes:
                    self._lines(transfers(inside, view, self, store=True))
        if self.name in self._vectors or self.name in self._helpers:
            raise EmitError(f"{self.name!r} is the name of a type or function that the code uses", "rename the Spec")
        packs = tuple(one.program for one in self.packs.values())
        interface = self.interface = self._interface(parameters)
        setter = [f"{interface.setter} {{\n    {SET_RUNNER}\n}}\n"] if self._parallel else []
        beside = [one.code for one in self.packs.values()]
        code = self.code = "\n".join([*self._parallel.functions, self._text(interface).text(), *setter, *beside])
        for one in self.packs.values():
            self._helpers |= one._helpers
            self._vectors |= one._vectors
            self._features |= one._features
        self.names_of_others = {*self._helpers, *self._vectors, *(names_in(code) - self.names.handed_out)}
        flags = self.emitter.flags_for(self._features)
        return Program(
            name=self.name,
            source="\n".join([*self._preamble(interface, flags), code]),
            header=interface.header,
            prototype=interface.prototype,
            parameters=parameters,
            workspace=self._function.workspace,
            flags=flags,
            parallel=bool(self._parallel),
            thread_workspace=self._parallel.workspace,
            cpu_features=tuple(self._features),
            declarations=interface.declarations,
            cpu_tests=self._cpu_tests(),
            implicit_dims=self.signature.implicit_dims,
            packs=packs,
        )

    def _text(self, interface: Interface) -> CWriter:
        """Return the text of the function."""
        function = CWriter()
        with function.block(interface.prototype), function.around(self._function.around):
            function.add(self.writer)
        return function

    # Parameters and the head of the file.

    def _check_order(self) -> None:
        """Raise EmitError if the program may read an overwritten input after it wrote the output there."""
        over = self.signature.overwritten
        found = [] if over is None else [hazard(one, over, self.target.in_place) for one in self.implementations]
        if late := next(filter(None, found), None):
            hint = "leave out `overwritten`, or schedule it so that each value is read before it is overwritten"
            raise EmitError(f"{self.name}: {late.message}", hint)

    @property
    def implementations(self) -> Sequence[Impl]:
        """Return the programs that are printed: one, or one for each size of parts."""
        return (self.impl,)

    def _parameters(self) -> tuple[tuple[Parameter, ...], list[View]]:
        """Return the parameters in call order, and the operands that they point to in the Spec's order."""
        packs = {operand: one.name for operand, one in self.packs.items()}
        parameters = parameters_of(self.impl.spec.logical, self.signature, self.names, packs)
        views: list[View] = []
        for one in of_operands(parameters):
            runtime = [as_index(Symbol(name)) for name in one.stride_names]
            views.append(View.whole(Buffer(one.name, one.tensor, (*runtime, *strides_of(one.tensor)[one.strides :]))))
        return parameters, views

    def _interface(self, parameters: tuple[Parameter, ...]) -> Interface:
        return Interface(
            name=self.name,
            summary=f"{self.impl.spec.logical.short(self.signature.implicit_dims)} for {self.target.name}",
            parameters=parameters,
            workspace=self._function.workspace,
            thread_workspace=self._parallel.workspace,
            parallel=bool(self._parallel),
            workspace_name=self.workspace_name,
            threads_name=self.threads_name,
            implicit_dims=self.signature.implicit_dims,
            packs=tuple(one.interface for one in self.packs.values()),
        )

    def _needed(self) -> tuple[str, ...]:
        """Return all CPU features that the code needs."""
        return (*self.target.info.cpu_features, *self._features)

    def _cpu_tests(self) -> tuple[str, ...] | None:
        tests = [self.emitter.feature_test(feature) for feature in self._needed()]
        known = tuple(test for test in tests if test)
        return known if len(known) == len(tests) else None

    def _preamble(self, interface: Interface, flags: Sequence[str]) -> list[str]:
        macros = {feature: macro for feature in self._needed() if (macro := self.emitter.feature_macro(feature))}
        definitions = (*self._vectors.values(), *self._helpers.values())
        includes = self.emitter.includes
        return preamble(self.impl, self.target, interface, macros, flags, includes, definitions, self._about())

    def _about(self) -> Sequence[str]:
        """Return the lines in place of cost and schedule, of a program of several."""
        return ()

    def _enter(self, view: View, name: str, reads: bool, stack: ExitStack) -> View:
        """Return a parameter as the Spec's operand, loaded first if that is in registers or managed memory."""
        level = view.tensor.state.level
        if level in self._memories:
            inside = stack.enter_context(self._placed(view.tensor, name))
        elif self.target.level(level).is_register:
            inside = View.whole(self._registers(view.tensor, name))
        else:
            return view
        if reads:
            self._lines(transfers(inside, view, self, store=False))
        return inside

    def _lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.writer.line(line)

    # The program tree.

    @cached_property
    def _repeated(self) -> RepeatedParts:
        return RepeatedParts(self.implementations, self._on_stack)

    def _node(self, impl: Impl, views: list[View], outer: Outer | None = None) -> None:
        impl, views = through_views(impl, views)
        if outer is None and not self._guarded and (used := scores_used(impl, views, self)):
            with self.names.scope(), self.writer.block(f"if ({used})"):
                self._guarded = True
                self._node(impl, views)
                self._guarded = False
        elif outer is None and not self._in_part and impl in self._repeated and can_be_parameters(views):
            self._call_function(impl, views)
        else:
            self._print_node(impl, views, outer)

    def _call_function(self, impl: Impl, views: list[View]) -> None:
        """Print a repeated part as a call of its function."""
        names, quiet = self.names, self._quiet
        # Equal parts have equal texts: these do not depend on names taken so far.
        self.names, self._quiet, self._in_part = Names([self.name]), 0, True
        inside, head = as_parameters(impl.spec.logical, views, self.names.fresh)
        body = self._aside(lambda: self._print_node(impl, inside, None))
        names.handed_out |= self.names.handed_out
        self.names, self._quiet, self._in_part = names, quiet, False
        self._function.around |= body.around
        if (text := static_function(head, body.writer)) not in self._outlined:
            name = self._outlined[text] = f"{self.name}_tile{len(self._outlined) + 1}"
            self.helper(name, f"static void {name}{text}")
        places = (one.pointer() for one in KernelSite(impl.spec.logical, views, self).operands.values())
        self.writer.line(f"{self._outlined[text]}({', '.join(places)});")

    def _print_node(self, impl: Impl, views: list[View], outer: Outer | None) -> None:
        if isinstance(impl, Leaf):
            operands = KernelSite(impl.spec.logical, views, self).operands.values()
            places = [f"{{{', '.join(one.vectors())}}}" if one.in_registers else one.pointer() for one in operands]
            self.writer.line(f"/* hole: {impl.spec}({', '.join(places)}) */")
            return
        expansion, logical = impl.expansion, impl.spec.logical
        comment = f"{logical.short()}: {expansion.step}"
        if isinstance(expansion, KernelCall):
            self._comment(f"{logical.short()}: {expansion.kernel}")
            kernel = self.target.kernels_by_name[expansion.kernel]
            self._call(kernel, lambda: kernel.print(KernelSite(logical, views, self)))
        elif isinstance(expansion, Loop):
            for number, (part, child) in enumerate(zip(expansion.parts, impl.children, strict=True)):
                if expansion.parallel and part.tiles > 1 and part.role == "body":
                    self._comment(comment)
                    self._share(part, child, logical, views)
                else:
                    self._loop(impl, number, views, outer)
        elif isinstance(expansion, Alloc):
            self._comment(comment)
            # New tensors are named after the operand they stand in for: `lhs` of `lhs_l1`.
            (tensor,) = expansion.tensors
            name = views[expansion.operand].buffer.name
            with self._storage(tensor, self._stems.get(name, name)) as fresh:
                self._children(impl, [*views, fresh])
        else:
            self._comment(comment)
            self._pipeline(impl, views)

    def _pipeline(self, impl: Node, views: list[View]) -> None:
        """Print parts one after another. Intermediates that no part needs together share memory of the workspace."""
        tensors = dict(enumerate(impl.expansion.tensors))
        large = [number for number, one in tensors.items() if self._in_workspace(one)]
        shared = shared_places(impl, large, self.target.in_place)
        with ExitStack() as stack:
            if shared is None:
                made = [stack.enter_context(self._storage(one, "between")) for one in tensors.values()]
                self._children(impl, with_masks(impl.expansion, [*views, *made], len(views)))
                return
            stack.enter_context(self.names.scope())
            fresh = {one: self._fresh(tensors[one], "between") for one in shared.starts}
            for number, one in tensors.items():
                place = shared.same.get(number)
                fresh[number] = stack.enter_context(self._storage(one, "between")) if place is None else fresh[place]
            operands = with_masks(impl.expansion, [*views, *(fresh[number] for number in tensors)], len(views))
            parts = zip(impl.expansion.parts, impl.children, shared.used, shared.held, strict=True)
            for part, child, used, size in parts:
                # A `restrict` pointer is valid in its block: other blocks have other tensors there.
                with self.writer.block(), self._function.holding(size) as held:
                    for number in used:
                        self._point(fresh[number], held + shared.starts[number])
                    self._node(child, arguments(part, operands))

    def _children(self, impl: Node, tensors: list[View]) -> None:
        for part, child in zip(impl.expansion.parts, impl.children, strict=True):
            self._node(child, arguments(part, tensors))

    def _loop(self, impl: Node, number: int, views: list[View], outer: Outer | None) -> None:
        """Print counted loops, and inside them the unrolled copies of a body that names single registers."""
        part, child, logical = impl.expansion.parts[number], impl.children[number], impl.spec.logical
        assert part.ranges is not None
        copied = unrolled(part, logical, views)
        counted = [dim for dim in repeated(part) if dim not in copied]
        trips = [(outer.trips if outer else 1) * int(part.ranges[dim].trips) for dim in counted]
        tail = f"{' (boundary)' if part.role == 'boundary' else ''}{', unrolled' if copied else ''}"
        first = outer or Outer(f"{logical.short()}: {impl.expansion.step}{tail}", impl.expansion.step, 1)
        if counted and not copied and goes_on(part, printed(child)):
            self._node(child, tiles(part, logical, views, {}), attrs.evolve(first, trips=trips[0]))
            return
        self._comment(first.comment + (until(first.step, impl.expansion.step) if outer else ""))
        jam = jam_of(child, self.target, trips[-1]) if counted and not copied else None
        if jam:
            trips[-1] //= jam.count
        if not counted and self._copies_together(part, child, logical, views, copied):
            return
        with self.names.scope() if counted else nullcontext():
            named = {
                dim: Symbol(self.names.fresh(logical.dims[dim]), count)
                for dim, count in zip(counted, trips, strict=True)
                if count > 1
            }

            def offsets(tile: Mapping[int, IndexExpr]) -> list[IndexExpr]:
                first = {**tile, counted[-1]: tile[counted[-1]] * jam.count} if jam and counted[-1] in tile else tile
                inner = tiles(part, logical, views, first)
                return [view.offset() for view in inner if not view.buffer.in_registers]

            split = along_strips(named, offsets, lambda dim: self.names.fresh(logical.dims[dim]))
            counters = split.tiles
            heads = [f"for (ptrdiff_t {one} = 0; {one} < {one.extent}; ++{one})" for one in split.loops]
            if jam:
                self._nest(heads, lambda: self._together(jam, part, child, logical, views, counters, counted[-1]))
            else:
                self._nest(heads, lambda: self._bodies(part, child, logical, views, counters, copied))

    def _together(
        self,
        jam: Jammed,
        part: Part,
        child: Impl,
        logical: LogicalSpec,
        views: list[View],
        counters: Mapping[int, IndexExpr],
        dim: int,
    ) -> None:
        """Print calls of a microkernel for neighbouring tiles along a dimension."""
        sites: list[KernelSite] = []
        for number in range(jam.count):
            at = {**counters, dim: counters.get(dim, as_index(0)) * jam.count + number}
            call, inner = through_views(child, tiles(part, logical, views, at))
            sites.append(KernelSite(call.spec.logical, inner, self))
        self._comment(f"{sites[0].spec.short()}: {jam.kernel.name}, {jam.count} at once")
        self._call(jam.kernel, lambda: jam.emit(sites))

    def _copies_together(
        self, part: Part, child: Impl, logical: LogicalSpec, views: list[View], dims: list[int]
    ) -> bool:
        """Print the calls of unrolled loops jammed, if all call one microkernel; return whether they do."""
        calls_found = (call for within in copies(part, logical, views, {}, dims) for call in calls(child, within))
        first, operands = next(calls_found)
        same = jammed(first, self.target)
        if same is None:
            return False
        sites = [KernelSite(first.spec.logical, operands, self)]
        for impl, operands in calls_found:
            if impl != first:
                return False
            sites.append(KernelSite(impl.spec.logical, operands, self))
        kernel, jam = same
        for start in range(0, len(sites), jam.most):
            some = sites[start : start + jam.most]
            with self.names.scope():
                self._comment(f"{first.spec.logical.short()}: {kernel.name}, {len(some)} at once")
                self._call(kernel, lambda some=some: jam.emit(some))
        return True

    def _call(self, kernel: Microkernel, emit: Callable[[], None]) -> None:
        self._features.update(dict.fromkeys(kernel.cpu_features))
        try:
            emit()
        except MorelloError:
            raise
        except Exception as error:
            printing = "`emit`" if kernel.template is None else "template"
            raise self.target.fault(kernel, f"its {printing} failed: {type(error).__name__}: {error}") from error

    def _share(self, part: Part, child: Impl, logical: LogicalSpec, views: list[View]) -> None:
        """Print a parallel loop's main body as a function, and its call."""
        assert part.ranges is not None
        trips = {dim: int(tile_range.trips) for dim, tile_range in enumerate(part.ranges) if tile_range.trips > 1}
        with self.names.scope():
            names = Range(*map(self.names.fresh, ("given", "loop", "thread", "from", "to", "tile")))
            counters = {dim: Symbol(self.names.fresh(logical.dims[dim]), count) for dim, count in trips.items()}
            indices = {dim: as_index(counter) for dim, counter in counters.items()}
            body = self._aside(lambda: self._bodies(part, child, logical, views, indices, []))
        held = f" + {self._function.held}" if self._function.held else ""
        workspace = Captured(self.workspace_name, "char *restrict ", f"(char *){self.workspace_name}{held}")
        around = surroundings(logical, views, workspace)
        with self.writer.block():
            for line in self._parallel.add(self.name, names, around, [*counters.values()], body):
                self.writer.line(line)

    def _aside(self, emit: Callable[[], None]) -> FunctionCode:
        """Return the code that `emit` prints, with its own workspace counted from 0."""
        outer, self._function = self._function, FunctionCode()
        emit()
        body, self._function = self._function, outer
        return body

    def _nest(self, heads: Sequence[str], body: Callable[[], None]) -> None:
        with ExitStack() as stack:
            for head in heads:
                stack.enter_context(self.writer.block(head))
            body()

    def _bodies(
        self,
        part: Part,
        child: Impl,
        logical: LogicalSpec,
        views: list[View],
        counters: Mapping[int, IndexExpr],
        copied: list[int],
    ) -> None:
        """Print the body, once for each combination of unrolled tiles."""
        self._quiet += bool(copied)
        for within in copies(part, logical, views, counters, copied):
            if copied and declares(child):
                with self.names.scope(), self.writer.block():
                    self._node(child, within)
            else:
                self._node(child, within)
        self._quiet -= bool(copied)

    def _comment(self, text: str) -> None:
        if not self._quiet:
            self.writer.line(f"/* {text} */")
