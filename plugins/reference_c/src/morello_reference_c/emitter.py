"""Prints an operation as nested loops over the points of its output. Shares no code with optimising emitters."""

from __future__ import annotations

import re
from collections.abc import Sequence

from morello.codegen.reserved import check_name
from morello.errors import EmitError
from morello.ir.dtypes import BF16
from morello.ir.impl import Impl, KernelCall, Node
from morello.ir.program import Parameter, Program
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

    def emit(self, impl: Impl, target: Target, name: str) -> Program:
        """Print `impl`, a single microkernel, as the C function `name`. Raises EmitError for anything else."""
        if not isinstance(impl, Node) or not isinstance(impl.expansion, KernelCall):
            raise EmitError(f"{target.name} prints whole operations only", "implement the Spec with one `select`")
        check_name(name)
        logical = impl.spec.logical
        if meaning(logical.op) is None:
            raise EmitError(
                f"{target.name} does not know what {logical.op} means", f"install a version of {target.name} that does"
            )
        declared = logical.op.operands(len(logical.shape))
        values: list[Value] = []
        parameters: list[Parameter] = []
        for operand, tensor in zip(declared, logical.operands, strict=True):
            layout = tensor.state.layout
            strides = 0 if layout is None else len(layout.dims) - tensor.state.contig
            values.append(Value(operand.name, tensor, strides))
            parameters.append(Parameter(operand.name, tensor, operand.reads, operand.writes, strides))
        arguments = ", ".join(value.parameters(one.writes) for value, one in zip(values, declared, strict=True))
        prototype = f"void {name}({arguments})"
        source = _source(logical, values, prototype)
        return Program(name, source, _header(name, prototype), prototype, tuple(parameters), 0, FLAGS)


def _source(logical: LogicalSpec, values: Sequence[Value], prototype: str) -> str:
    shape = "×".join(map(str, logical.shape))
    body = _loops(logical, values)
    has_bf16 = any(value.dtype == BF16 for value in values)
    used = "\n".join(body)
    includes = [*_INCLUDES, *(["#include <string.h>"] if has_bf16 else [])]
    if _MATH.search(used):
        includes.insert(0, "#include <math.h>")
    parts = [f"/* {logical.op}({shape}): what it means, in plain loops. */", "", *includes, ""]
    for helper, text in HELPERS.items():
        if f"{helper}(" in used:
            parts.append(text)
    parts += [value.index_function() for value in values]
    return "\n".join([*parts, f"{prototype} {{", *body, "}", ""])


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


def _header(name: str, prototype: str) -> str:
    guard = f"{name.upper()}_H"
    return f"""\
#ifndef {guard}
#define {guard}

{chr(10).join(_INCLUDES)}

#ifdef __cplusplus
#define restrict __restrict
extern "C" {{
#endif

{prototype};

#ifdef __cplusplus
}}
#undef restrict
#endif

#endif
"""
