"""Reads operands: `(f32, L1, row_major, ua, c1, v8)`, or a bare level, as the state of a tensor of known shape."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import attrs
from lark import Token

from morello.errors import SpecError, closest, suggestion
from morello.frontend.diagnostics import Source, SourceError, Span, quoted
from morello.frontend.syntax import LayoutNode, OperandNode, number_of, span
from morello.ir import dtypes
from morello.ir.layout import NAMED, Dynamic, Layout, OddEven, Packed, PhysicalDim, TileCode, named
from morello.ir.tensor import SPACINGS, OperandState, TensorSpec
from morello.kernels.machine import MemoryLevel, widest_vector
from morello.kernels.target import Target
from morello.rewrites.pack import constant_level

CONSTANT, OVERWRITTEN = "constant", "overwritten"
_MAX_LAYOUT = 64
_COUNTS = {"c": "contiguity", "s": "spacing", "v": "vector size"}


@attrs.frozen
class _Property:
    value: Any
    span: Span


def read_layout(source: Source, node: LayoutNode) -> Layout:
    """Return the layout that `layout[...]` writes out."""
    if len(node.parts) > _MAX_LAYOUT:
        raise source.error(node.span, f"a layout has at most {_MAX_LAYOUT} physical dimensions", "leave out strips")
    dims = tuple(_physical(source, part) for part in node.parts)
    with source.at(node.span):
        return Layout(dims)


def _physical(source: Source, token: Token) -> PhysicalDim:
    dim, kind, size = re.split(r"(p|oe|$)", token, maxsplit=1)
    number = number_of(source, token, dim)
    if number < 0:
        raise source.error(span(token), "dimensions of a layout count from 0", "write it as in layout[0, 1]")
    if not kind:
        return Dynamic(number)
    return (Packed if kind == "p" else OddEven)(number, number_of(source, token, size))


def read_state(source: Source, target: Target, node: Token | OperandNode, shape: tuple[int, ...]) -> OperandState:
    """Return the state of an operand of this shape, with defaults for omitted properties.

    `cN` counts physical dimensions without those of size 1. Scalar registers have neither layout nor alignment:
    these properties are ignored.
    """
    properties = _properties(source, target, node)
    if "memory level" not in properties:
        raise source.error(span(node), "this operand has no memory level", _levels(target))
    level: MemoryLevel = properties["memory level"].value
    if "constant" in properties:
        _check_constant(source, target, level, properties)
    dtype = properties["data type"].value if "data type" in properties else dtypes.F32
    if "vector size" in properties:
        _check_vector(source, target, level, dtype, properties["vector size"])
    if level.kind == "scalar":
        return target.state(level.name, dtype, Layout(()))
    layout, contig = _layout(source, properties, shape, span(node))
    state = target.state(level.name, dtype, layout, contig=contig, aligned="ua" not in properties)
    if "spacing" in properties:
        state = attrs.evolve(state, spacing=_spacing(source, properties["spacing"], state))
    if level.kind != "vector":
        return state
    vector = properties["vector size"].value if "vector size" in properties else None
    return attrs.evolve(state, vector=vector or _widest(source, target, TensorSpec(shape, state), span(node)))


def _properties(source: Source, target: Target, node: Token | OperandNode) -> dict[str, _Property]:
    """Return the properties of an operand by their kind."""
    parts = node.properties if isinstance(node, OperandNode) else (node,)
    properties: dict[str, _Property] = {}
    unknown: list[Token] = []
    for part in parts:
        known = _property(source, target, part)
        if known is None:
            assert isinstance(part, Token)
            unknown.append(part)
            continue
        kind, value = known
        if kind in properties:
            raise source.error(span(part), f"a second {kind} for this operand", "leave one of them out")
        properties[kind] = _Property(value, span(part))
    if unknown:
        first = isinstance(node, OperandNode) and len(parts) > 1 and unknown[0] is parts[0]
        raise _unknown(source, target, unknown[0], set(properties), first)
    return properties


def _property(source: Source, target: Target, part: Token | LayoutNode) -> tuple[str, Any] | None:
    """Return the kind and value of the property that a word denotes; None for an unknown word."""
    if isinstance(part, LayoutNode):
        layout = read_layout(source, part)
        return "layout", lambda rank: layout
    for level in target.operand_levels:
        if level.name == part:
            return "memory level", level
    if part in target.dtypes:
        return "data type", target.dtypes[part]
    if build := named(part):
        return "layout", build
    if part in ("ua", CONSTANT, OVERWRITTEN):
        return str(part), True
    if re.fullmatch("[csv][0-9]+", part):
        return _COUNTS[part[0]], number_of(source, part, part[1:])
    return None


def _unknown(source: Source, target: Target, word: Token, kinds_given: set[str], first: bool) -> SourceError:
    """Return the error for an unknown property, as the kind that was probably meant."""
    kinds: dict[str, tuple[list[str], str]] = {
        "memory level": ([level.name for level in target.operand_levels], _levels(target)),
        "data type": ([*target.dtypes], f"data types are {', '.join(target.dtypes)}"),
        "layout": ([*NAMED, "layout"], f"layouts are {', '.join(NAMED)}, layout[...]"),
        "vector size": ([], "vector sizes are written v4, v8, ..."),
        "contiguity": ([], "contiguity is written c0, c1, ...: how many physical dimensions lie contiguously"),
        "spacing": ([], f"spacings are {_listed(SPACINGS)}"),
    }
    missing = [kind for kind in kinds if kind not in kinds_given]
    likely = [kind for kind in missing if closest(word, kinds[kind][0])]
    if re.match("[csv][0-9]", word):
        likely = [_COUNTS[word[0]]]
    elif not likely and first and "data type" in missing and re.match("[a-z]", word):
        likely = ["data type"]
    kind = likely[0] if likely else missing[0] if missing[0] in ("memory level", "layout") else "property"
    names, listing = kinds.get(
        kind, ([], "an operand is written (DTYPE, LEVEL, LAYOUT, ua, cN, sN, vN, constant, overwritten), or just LEVEL")
    )
    return source.error(span(word), f"unknown {kind} {quoted(word)}", suggestion(word, names, listing))


def says(word: str, node: Token | OperandNode) -> bool:
    """Return whether the text of an operand has a word: `constant` or `overwritten`."""
    return isinstance(node, OperandNode) and word in node.properties


def _check_constant(source: Source, target: Target, level: MemoryLevel, properties: dict[str, _Property]) -> None:
    """Raise SourceError for a constant outside of the main memory, or with properties that packing changes."""
    if level.name != constant_level(target):
        message, hint = f"a constant in {level.name}", f"constants are in {constant_level(target)} before a call"
        raise source.error(properties["memory level"].span, message, hint)
    for kind in ("ua", *_COUNTS.values()):
        if kind in properties:
            message = f"{kind if kind == 'ua' else f'a {kind}'} of a constant, which is packed from contiguous values"
            raise source.error(properties[kind].span, message, "leave it out")


def _levels(target: Target) -> str:
    return f"{target.name} has the levels {', '.join(level.name for level in target.operand_levels)}"


def _layout(
    source: Source, properties: dict[str, _Property], shape: tuple[int, ...], place: Span
) -> tuple[Layout, int | None]:
    """Return the layout without dimensions of size 1, and the number of contiguous ones; None for all."""
    build: Callable[[int], Layout] = properties["layout"].value if "layout" in properties else NAMED["row_major"]
    with source.at(properties["layout"].span if "layout" in properties else place):
        layout = build(len(shape))
        # Raises if the layout does not describe this shape.
        TensorSpec(shape, OperandState(dtypes.U8, "", layout, len(layout.dims))).canonical()
    codes = layout.tile_codes(shape, shape)
    dims = tuple(physical for physical, code in zip(layout.dims, codes, strict=True) if code != TileCode.UNIT)
    if "contiguity" not in properties:
        return Layout(dims), None
    contig = properties["contiguity"]
    if contig.value > len(dims):
        size = "×".join(map(str, shape))
        raise source.error(
            contig.span,
            f"c{contig.value}: a tensor of {size} has {len(dims)} physical dimensions here",
            f"write c0 to c{len(dims)}; dimensions of size 1 do not count",
        )
    return Layout(dims), contig.value


def _spacing(source: Source, spacing: _Property, state: OperandState) -> int:
    """Return the spacing of an operand. Raises SourceError for an invalid one."""
    if spacing.value not in SPACINGS:
        raise source.error(spacing.span, f"no s{spacing.value}", f"spacings are {_listed(SPACINGS)}")
    if state.contiguous:
        raise source.error(spacing.span, f"s{spacing.value} of a tensor that is contiguous", "leave it out, or add cN")
    return spacing.value


def _listed(spacings: Sequence[int]) -> str:
    return ", ".join(f"s{spacing}" for spacing in spacings)


def _check_vector(source: Source, target: Target, level: MemoryLevel, dtype: dtypes.DType, vector: _Property) -> None:
    if level.kind != "vector":
        raise source.error(vector.span, f"v{vector.value} in {level.name}, which holds no vectors", "leave it out")
    sizes = target.vector_sizes(level, dtype)
    if vector.value not in sizes:
        raise source.error(vector.span, f"no v{vector.value} of {dtype} in {level.name}", _vectors(sizes))


def _vectors(sizes: tuple[int, ...]) -> str:
    return f"vectors are {', '.join(f'v{size}' for size in sizes)}"


def _widest(source: Source, target: Target, tensor: TensorSpec, place: Span) -> int:
    """Return the default vector size: the widest that divides the contiguous run."""
    level, dtype = target.level(tensor.state.level), tensor.state.dtype
    with source.at(place):
        run = int(tensor.canonical().run)
        vector = widest_vector(target, level, dtype, run)
        if vector is None:
            sizes = target.vector_sizes(level, dtype)
            raise SpecError(f"{run} adjacent values of {dtype} fill no vectors of {level.name}", _vectors(sizes))
    return vector
