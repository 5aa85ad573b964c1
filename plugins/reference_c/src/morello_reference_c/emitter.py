"""Prints an operation as nested loops over the points of its output. Shares no code with optimising emitters."""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from morello.codegen.interface import Interface, parameters_of, workspace_macro
from morello.codegen.reserved import check_name
from morello.codegen.writer import Names
from morello.errors import EmitError
from morello.ir.dtypes import BF16
from morello.ir.impl import Impl, KernelCall, Node
from morello.ir.program import Program
from morello.ir.signature import Signature
from morello.ir.spec import LogicalSpec
from morello.plugins import Target
from morello_reference_c.meanings import HELPERS, looped, meaning
from morello_reference_c.values import Value

#: A fused multiply-add would round once where the meaning rounds twice.
FLAGS = ("-ffp-contract=off",)

#: What needs math.h.
_MATH = re.compile(r"\bINFINITY\b|\b(exp|exp_below|tanh|erf|sqrt)\(")

_INCLUDES = ("#include <stddef.h>", "#include <stdint.h>")


class ReferenceEmitter:
    """The emitter of reference_c."""

    def emit(self, impl: Impl, target: Target, name: str, signature: Signature | None = None) -> Program:
        """Print `impl`, a single microkernel, as the C function `name`, with these parameters if they are given.

        Raises EmitError for anything else.
        """
        if not isinstance(impl, Node) or not isinstance(impl.expansion, KernelCall):
            raise EmitError(f"{target.name} prints whole operations only", "implement the Spec with one `select`")
        check_name(name)
        logical = impl.spec.logical
        if meaning(logical.op) is None:
            raise EmitError(
                f"{target.name} does not know what {logical.op} means", f"install a version of {target.name} that does"
            )
        plain = Signature.of(logical)
        signature = signature or plain
        plain = attrs.evolve(plain, lacking=signature.lacking)
        shown = meant = _function(name, logical, plain, Names([name]))
        values = [Value(one.name, one.tensor, one.strides) for one in meant.parameters]
        if signature != plain:
            # The loops have names of their own: a function around them has those that were asked for.
            names = Names([name, workspace_macro(name)])
            shown = _function(name, logical, signature, names)
            meant = attrs.evolve(meant, name=names.fresh(f"{name}_meaning"))
        source = _source(logical, values, meant, shown)
        return Program(
            name=name,
            source=source,
            header=shown.header,
            prototype=shown.prototype,
            parameters=shown.parameters,
            workspace=0,
            flags=FLAGS,
            declarations=shown.declarations,
            cpu_tests=(),
            lacking=signature.lacking,
        )


def _function(name: str, logical: LogicalSpec, signature: Signature, names: Names) -> Interface:
    summary = f"{logical.op}({'×'.join(map(str, logical.shape[signature.lacking :]))})"
    parameters = parameters_of(logical, signature, names)
    return Interface(name=name, summary=summary, parameters=parameters, lacking=signature.lacking)


def _source(logical: LogicalSpec, values: Sequence[Value], meant: Interface, shown: Interface) -> str:
    """Return the C of a function, `meant`, and of the one that calls it, `shown`, if that is another."""
    body = _loops(logical, values)
    has_bf16 = any(value.dtype == BF16 for value in values)
    used = "\n".join(body)
    includes = [*_INCLUDES, *(["#include <string.h>"] if has_bf16 else [])]
    if _MATH.search(used):
        includes.insert(0, "#include <math.h>")
    parts = [f"/* {shown.summary}: what it means, in plain loops.", f"   {shown.command(FLAGS)} */", "", *includes]
    parts += ["", shown.declarations]
    for helper, text in HELPERS.items():
        if f"{helper}(" in used:
            parts.append(text)
    parts += [value.index_function() for value in values]
    if meant is shown:
        return "\n".join([*parts, f"{shown.prototype} {{", *body, "}", ""])
    parts += [f"static {meant.prototype} {{", *body, "}\n"]
    by_operand = sorted(shown.parameters, key=lambda one: one.operand)
    given = ", ".join(name for one in by_operand for name in (one.name, *one.stride_names))
    return "\n".join([*parts, f"{shown.prototype} {{", f"    {meant.name}({given});", "}", ""])


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
