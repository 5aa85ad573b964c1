"""Reads schedules: the rewrite that the first word of a statement names parses the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set

import attrs
from lark import Token

from morello.errors import suggestion
from morello.frontend.diagnostics import Source, Span, quoted
from morello.frontend.operands import read_layout
from morello.frontend.syntax import LayoutNode, Numbers, StatementNode, number_of, span
from morello.ir.impl import ANY_STEPS, AllowedSteps
from morello.ir.layout import NAMED, named
from morello.kernels.target import Target
from morello.rewrites.allowed import check_names
from morello.rewrites.base import Atom, Rewrite, Vector, Word, rewrites_of
from morello.schedule import Schedule, Statement, Subschedule, Synthesize

_SYNTHESIZE, _SUBSCHEDULE = "synthesize", "subschedule"
_MAX_DEPTH = 64


def read_schedule(source: Source, target: Target, nodes: Sequence[StatementNode], depth: int = 0) -> Schedule:
    """Return the statements of a schedule. Raises SourceError at the faulty word, number or statement."""
    return tuple(_statement(source, target, node, depth) for node in nodes)


def places(schedule: Schedule, nodes: Sequence[StatementNode]) -> Iterator[tuple[int, Span]]:
    """Yield the identity and the place of each statement."""
    for statement, node in zip(schedule, nodes, strict=True):
        yield id(statement), node.span
        if isinstance(statement, Subschedule):
            yield from places(statement.body, node.block or ())


def _statement(source: Source, target: Target, node: StatementNode, depth: int) -> Statement:
    if node.word == _SUBSCHEDULE:
        return _subschedule(source, target, node, depth)
    if node.block is not None:
        raise source.error(
            node.span, f"{quoted(node.word)} takes no block of statements", "write: subschedule [0] { ... }"
        )
    if node.word == _SYNTHESIZE:
        return _synthesize(source, target, node)
    return _step(source, target, node)


def _synthesize(source: Source, target: Target, node: StatementNode) -> Synthesize:
    """Return the statement with its names and layouts. Raises SourceError at an unknown name."""
    allowed, field = ANY_STEPS, ""
    for token in node.atoms:
        assert isinstance(token, Token)
        if token.type in ("USING", "WITHOUT"):
            field = str(token)
        elif token.type == "ALL_LAYOUTS":
            allowed += AllowedSteps(all_layouts=True)
        elif token.type == "WORD":
            names = (str(token),)
            one = AllowedSteps(using=names) if field == "using" else AllowedSteps(without=names)
            with source.at(span(token)):
                check_names(target, one)
            allowed += one
    return Synthesize(allowed)


def _subschedule(source: Source, target: Target, node: StatementNode, depth: int) -> Subschedule:
    if depth >= _MAX_DEPTH:
        raise source.error(
            node.span, f"subschedules nest more than {_MAX_DEPTH} deep", "leave the innermost parts to `synthesize`"
        )
    path = _path(source, node)
    if node.block is None:
        raise source.error(node.span, "subschedule has no statements", "write: subschedule [0] { ... }")
    return Subschedule(path, read_schedule(source, target, node.block, depth + 1))


def _path(source: Source, node: StatementNode) -> tuple[int, ...]:
    """Return the child numbers, written as a list or a single number."""
    atom = node.atoms[0] if len(node.atoms) == 1 else None
    tokens = atom.numbers if isinstance(atom, Numbers) else (atom,) if isinstance(atom, Token) else ()
    if not tokens or any(token.type != "INT" for token in tokens):
        place = span(node.atoms[0], node.atoms[-1]) if node.atoms else node.span
        raise source.error(place, "subschedule needs the number of a child", "write: subschedule [0] { ... }")
    path = tuple(number_of(source, token) for token in tokens)
    for token, child in zip(tokens, path, strict=True):
        if child < 0:
            raise source.error(span(token), f"child {child} does not exist", "children count from 0")
    return path


def _step(source: Source, target: Target, node: StatementNode) -> Rewrite:
    rewrite = next((one for one in rewrites_of(target) if one.keyword == node.word), None)
    if rewrite is None:
        known = [*target.rewrites_by_name, _SUBSCHEDULE, _SYNTHESIZE]
        listing = f"{target.name} has the steps {', '.join(known)}"
        raise source.error(span(node.word), f"unknown step {quoted(node.word)}", suggestion(node.word, known, listing))
    # Names of sizes hide no words.
    words = {"to", "as", *NAMED, *target.dtypes, *target.kernels_by_name, *(level.name for level in target.levels)}
    atoms = [_atom(source, words, atom) for atom in node.atoms]
    with source.at(node.span):
        step = rewrite.parse(atoms)
    _check_words(source, target, step, node)
    return step


def _atom(source: Source, words: Set[str], node: Token | Numbers | LayoutNode) -> Atom:
    if isinstance(node, LayoutNode):
        return read_layout(source, node)
    if isinstance(node, Numbers):
        return tuple(number_of(source, token) for token in node.numbers)
    if node.type == "INT" or str(node) in source.sizes.keys() - words:
        return number_of(source, node)
    if re.fullmatch("v[0-9]+", node):
        return Vector(number_of(source, node, node[1:]))
    return Word(str(node))


def _check_words(source: Source, target: Target, step: Rewrite, node: StatementNode) -> None:
    """Raise SourceError for an unknown level, kernel, layout or data type in a field of that name."""
    vocabularies = {
        "level": ("memory level", [level.name for level in target.levels], f"{target.name} has the levels"),
        "kernel": ("microkernel", [kernel.name for kernel in target.kernels], f"{target.name} has the microkernels"),
        "layout": ("layout", [*NAMED, "layout[...]"], "layouts are"),
        "dtype": ("data type", [*target.dtypes], "data types are"),
    }
    for field in attrs.fields(type(step)):
        value = getattr(step, field.name)
        if field.name not in vocabularies or not isinstance(value, str):
            continue
        kind, known, intro = vocabularies[field.name]
        if value not in known and not (kind == "layout" and named(value)):
            # The last match: a keyword's value may follow an equal word.
            place = next((atom for atom in reversed(node.atoms) if atom == value), node)
            listing = f"{intro} {', '.join(known) or 'none'}"
            raise source.error(span(place), f"unknown {kind} {quoted(value)}", suggestion(value, known, listing))
