"""Prints an operation as nested loops over the points of its output. Shares no code with optimising emitters."""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from morello.codegen.float_bits import bits_to_float, float_to_bits
from morello.codegen.interface import Interface, parameters_of, workspace_macro
from morello.codegen.reserved import check_name
from morello.codegen.writer import Names
from morello.errors import EmitError
from morello.ir.impl import Impl, KernelCall, Node, Pipeline, Sequential
from morello.ir.program import Parameter, Program
from morello.ir.signature import Signature
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import TensorSpec
from morello.plugins import Target
from morello_reference_c.meanings import HELPERS, looped, meaning
from morello_reference_c.values import Value

#: A fused multiply-add would round once where the meaning rounds twice.
FLAGS = ("-ffp-contract=off",)

#: What needs math.h.
_MATH = re.compile(r"\bINFINITY\b|\b(ceil|cos|erf|exp|exp_below|expm1|fabs|floor|log|log1p|pow|rint|sin|sqrt|tanh)\(")

_INCLUDES = ("#include <stddef.h>", "#include <stdint.h>")


#: Of new tensors. Larger ones than this are in the workspace, as in programs of other targets.
_ALIGNMENT, _MAX_STACK_BYTES = 64, 4096


class ReferenceEmitter:
    """The emitter of reference_c."""

    def emit(self, impl: Impl, target: Target, name: str, signature: Signature | None = None) -> Program:
        """Print `impl`, a microkernel or a pipeline of them, as the C function `name`, with these parameters if given.

        Raises EmitError for anything else.
        """
        check_name(name)
        names = Names([name, workspace_macro(name)])
        logical = impl.spec.logical
        plain = Signature.of(logical)
        signature = signature or plain
        if signature.overwritten is not None:
            raise EmitError(f"{target.name} computes values from whole inputs, not in place", "leave out `overwritten`")
        plain = attrs.evolve(plain, implicit_dims=signature.implicit_dims)
        parameters = parameters_of(logical, plain, names)
        body = Body(target.name, names, [Value(one.name, one.tensor, one.strides) for one in parameters])
        body.print(impl, body.values)
        shown = meant = _function(name, logical, parameters, body, signature.implicit_dims)
        if signature != plain:
            # The loops have names of their own: a function around them has those that were asked for.
            names = Names([name, workspace_macro(name), body.workspace])
            shown = _function(name, logical, parameters_of(logical, signature, names), body, signature.implicit_dims)
            meant = attrs.evolve(meant, name=names.fresh(f"{name}_meaning"))
        return Program(
            name=name,
            source=_source(body, meant, shown),
            header=shown.header,
            prototype=shown.prototype,
            parameters=shown.parameters,
            workspace=body.bytes,
            flags=FLAGS,
            declarations=shown.declarations,
            cpu_tests=(),
            implicit_dims=signature.implicit_dims,
        )


class Body:
    """The inside of a function: `lines` over `values`, and how many `bytes` of its workspace new tensors take."""

    def __init__(self, target: str, names: Names, values: Sequence[Value]):
        self._target, self._names = target, names
        self.values, self.lines = [*values], list[str]()
        self.workspace, self.bytes = names.fresh("workspace"), 0

    def print(self, impl: Impl, operands: Sequence[Value], margin: str = "") -> None:
        """Add the code of a program on these operands. Raises EmitError for a program of another target."""
        logical = impl.spec.logical
        if isinstance(impl, Node) and isinstance(impl.expansion, KernelCall):
            if meaning(logical.op) is None:
                hint = f"install a version of {self._target} that does"
                raise EmitError(f"{self._target} does not know what {logical.op} means", hint)
            self.lines += [margin + line for line in _loops(logical, operands)]
        elif isinstance(impl, Node) and isinstance(impl.expansion, (Pipeline, Sequential)):
            fresh = impl.expansion.tensors if isinstance(impl.expansion, Pipeline) else ()
            tensors = [*operands, *(self._fresh(tensor, margin) for tensor in fresh)]
            for part, child in zip(impl.expansion.parts, impl.children, strict=True):
                self.lines += [f"{margin}    /* {_summary(part.logical)} */", f"{margin}    {{"]
                self.print(child, [tensors[arg] for arg in part.args], f"{margin}    ")
                self.lines.append(f"{margin}    }}")
        else:
            raise EmitError(f"{self._target} prints whole operations only", "implement the Spec with one `select`")

    def _fresh(self, tensor: TensorSpec, margin: str) -> Value:
        """Declare a new tensor, on the stack or in the workspace."""
        value = Value(self._names.fresh("between"), tensor, 0)
        kind, size = value.dtype.c_name, int(tensor.bytes)
        if size <= _MAX_STACK_BYTES:
            self.lines.append(f"{margin}    {kind} {value.name}[{tensor.volume}];")
        else:
            place = f"(char *){self.workspace} + {self.bytes}"
            self.lines.append(f"{margin}    {kind} *const {value.name} = ({kind} *)({place});")
            self.bytes += -(-size // _ALIGNMENT) * _ALIGNMENT
        self.values.append(value)
        return value


def _summary(logical: LogicalSpec, implicit_dims: int = 0) -> str:
    return f"{logical.op}({'×'.join(map(str, logical.shape[implicit_dims:]))})"


def _function(
    name: str, logical: LogicalSpec, parameters: tuple[Parameter, ...], body: Body, implicit_dims: int
) -> Interface:
    return Interface(
        name=name,
        summary=_summary(logical, implicit_dims),
        parameters=parameters,
        implicit_dims=implicit_dims,
        workspace=body.bytes,
        workspace_name=body.workspace,
    )


def _source(body: Body, meant: Interface, shown: Interface) -> str:
    """Return the C of a function, `meant`, and of the one that calls it, `shown`, if that is another."""
    in_bits = {value.dtype.name: value.dtype for value in body.values if value.dtype.is_bits}
    used = "\n".join(body.lines)
    includes = [*_INCLUDES, *(["#include <string.h>"] if in_bits else [])]
    if _MATH.search(used):
        includes.insert(0, "#include <math.h>")
    parts = [f"/* {shown.summary}: its meaning, in plain loops.", f"   {shown.command(FLAGS)} */", "", *includes]
    parts += ["", shown.declarations]
    helpers = {f"{name}_to_float": bits_to_float(dtype) for name, dtype in in_bits.items()}
    helpers |= {f"float_to_{name}": float_to_bits(dtype) for name, dtype in in_bits.items()}
    for helper, text in {**helpers, **HELPERS}.items():
        if re.search(rf"\b{helper}\(", used):
            parts.append(text)
    parts += [value.index_function() for value in body.values]
    if meant is shown:
        return "\n".join([*parts, f"{shown.prototype} {{", *body.lines, "}", ""])
    parts += [f"static {meant.prototype} {{", *body.lines, "}\n"]
    by_operand = sorted(shown.parameters, key=lambda one: one.operand)
    given = [name for one in by_operand for name in (one.name, *one.stride_names)]
    given += [body.workspace] if body.bytes else []
    return "\n".join([*parts, f"{shown.prototype} {{", f"    {meant.name}({', '.join(given)});", "}", ""])


def _loops(logical: LogicalSpec, values: Sequence[Value]) -> list[str]:
    """Return loops over the output's dimensions with the meaning inside, indented as a function's body."""
    op, dims = logical.op, logical.dims
    shape = [int(size) for size in logical.shape]
    printer, inner = meaning(op), looped(op, len(shape))
    assert printer is not None
    outer = [dim for dim in range(len(shape)) if dim not in inner]
    lines: list[str] = []
    for depth, dim in enumerate(outer, start=1):
        name = dims[dim]
        lines.append(f"{'    ' * depth}for (ptrdiff_t {name} = 0; {name} < {shape[dim]}; {name}++) {{")
    margin = "    " * (len(outer) + 1)
    lines += [margin + line for line in printer(op, values, dims, shape)]
    lines += ["    " * depth + "}" for depth in range(len(outer), 0, -1)]
    return lines
