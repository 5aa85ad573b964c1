"""From text to syntax nodes, each with its place, and syntax errors in plain words."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from math import isinf
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import attrs
import lark
from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken, v_args

from morello.errors import ToolchainError, suggestion
from morello.frontend.diagnostics import Source, SourceError, Span, quoted
from morello.paths import GRAMMAR, private_folder, user_folder

T = TypeVar("T")


@attrs.frozen
class Numbers:
    """A shape, in which names may stand for sizes, or a list."""

    span: Span
    numbers: tuple[Token, ...]


@attrs.frozen
class LayoutNode:
    """`layout[0, 2, 1, 2p16]`."""

    span: Span
    parts: tuple[Token, ...]


@attrs.frozen
class OperandNode:
    """The properties of an operand; in a Compose also its shape, and its name if equations use it."""

    span: Span
    properties: tuple[Token | LayoutNode, ...]
    shape: Numbers | None = None
    label: Token | None = None


@attrs.frozen
class ParameterNode:
    """`stride=2`, or just `saturating`."""

    span: Span
    name: Token
    value: Token | Numbers | None


@attrs.frozen
class OperationNode:
    """`Conv[stride=2]`: an operation and its parameters."""

    span: Span
    name: Token
    parameters: tuple[ParameterNode, ...]


@attrs.frozen
class EquationNode:
    """`y = Add(h, o)` in a Compose."""

    span: Span
    name: Token
    operation: OperationNode
    inputs: tuple[Token, ...]


@attrs.frozen
class CallNode:
    """An operation on operands. A Compose has `components` instead of a shape."""

    span: Span
    operation: OperationNode
    shape: Numbers | None
    components: tuple[OperationNode | EquationNode, ...]
    operands: tuple[Token | OperandNode, ...]
    close: Token
    names: tuple[Token, ...]

    @property
    def name(self) -> Token:
        return self.operation.name


@attrs.frozen
class FormulaNode:
    """An operation without its operands; a Compose with the names of its outputs besides the first."""

    operation: OperationNode
    components: tuple[OperationNode | EquationNode, ...]
    outputs: tuple[Token, ...] = ()


@attrs.frozen
class LimitNode:
    """`L1=16384`."""

    level: Token
    number: Token


@attrs.frozen
class LimitsNode:
    """`[64, 512, L1=16384]`; empty for `...`."""

    span: Span
    given: tuple[Token | LimitNode, ...]


@attrs.frozen
class SizesNode:
    """`for m in 1..4096`."""

    span: Span
    name: Token
    low: Token
    high: Token


@attrs.frozen
class SpecNode:
    span: Span
    call: CallNode
    limits: LimitsNode | None
    sizes: SizesNode | None = None


@attrs.frozen
class StatementNode:
    span: Span
    word: Token
    atoms: tuple[Token | Numbers | LayoutNode, ...]
    block: tuple[StatementNode, ...] | None


@attrs.frozen
class TargetNode:
    """`x86_avx2 + avx_vnni`."""

    name: Token
    features: tuple[Token, ...]


@attrs.frozen
class LetNode:
    """`let k = 1024`."""

    name: Token
    size: Token


@attrs.frozen
class DeclarationNode:
    name: Token
    spec: SpecNode


@attrs.frozen
class ScheduleNode:
    """The schedule of a Spec for these targets; none: for any."""

    name: Token
    targets: tuple[TargetNode, ...]
    block: tuple[StatementNode, ...]


FileNode: TypeAlias = tuple[TargetNode | LetNode | DeclarationNode | ScheduleNode, ...]


def span(first: Any, last: Any = None) -> Span:
    """Return the place of a token or node, or the range from one to another."""
    return _span(first)[0], _span(first if last is None else last)[1]


def _span(part: Any) -> Span:
    return (part.start_pos or 0, part.end_pos or 0) if isinstance(part, Token) else part.span


MAX_NUMBER = 2**63 - 1
_DIGITS = len(str(MAX_NUMBER))


def number_of(source: Source, token: Token, digits: str | None = None) -> int:
    """Return the number of a token, or of its part `digits`; of a name, that which the file gives it.

    Raises SourceError for a name without a number, and for one of more than 64 bits.
    """
    if token.type == "WORD" and digits is None:
        if str(token) not in source.sizes:
            hint = f"write a number, or `let {token} = 1024` above"
            hint += f"; if it is known at run time, `for {token} in 1..4096` after the Spec"
            raise source.error(span(token), f"{quoted(token)} is not a size", hint)
        return source.sizes[str(token)]
    text = (digits or str(token)).lstrip("0") or "0"
    # Check the length first: int() is slow for many digits, and rejects thousands.
    if len(text) > _DIGITS + 1 or abs(int(text)) > MAX_NUMBER:
        raise source.error(span(token), f"{quoted(token)} is too large", "numbers are at most 2^63 - 1")
    return int(text)


def float_of(source: Source, token: Token) -> float:
    """Return the number of a token with a decimal point or exponent, or inf. Raises SourceError for a larger one."""
    number = float(token)
    if isinf(number) and not token.endswith("inf"):
        raise source.error(span(token), f"{quoted(token)} is too large", "numbers are at most 1.7e308")
    return number


def _of_type(children: Iterable[Any], *kinds: str) -> tuple[Token, ...]:
    return tuple(one for one in children if isinstance(one, Token) and one.type in kinds)


@v_args(inline=True)
class _Nodes(Transformer):
    """Builds nodes while the parser runs, so that nothing recurses, however deep the text nests."""

    def file(self, *items: Any) -> FileNode:
        return items

    def target(self, _keyword: Token, named: TargetNode) -> TargetNode:
        return named

    def named(self, *parts: Token) -> TargetNode:
        name, *features = _of_type(parts, "WORD")
        return TargetNode(name, tuple(features))

    def let(self, _keyword: Token, name: Token, size: Token) -> LetNode:
        return LetNode(name, size)

    def declaration(self, _keyword: Token, name: Token, spec: SpecNode) -> DeclarationNode:
        return DeclarationNode(name, spec)

    def schedule(self, _keyword: Token, name: Token, *rest: Token | TargetNode | StatementNode) -> ScheduleNode:
        targets = tuple(one for one in rest if isinstance(one, TargetNode))
        return ScheduleNode(name, targets, tuple(one for one in rest if isinstance(one, StatementNode)))

    def spec(self, *parts: Any) -> SpecNode:
        sizes = parts[-1] if isinstance(parts[-1], SizesNode) else None
        whole = parts if sizes is None else parts[:-1]
        call, limits = (whole[0], None) if len(whole) == 1 else whole[1:3]
        return SpecNode(span(parts[0], parts[-1]), call, limits, sizes)

    def sizes(self, first: Token, name: Token, _in: Token, low: Token, _range: Token, high: Token) -> SizesNode:
        return SizesNode(span(first, high), name, low, high)

    def shape(self, *parts: Token) -> Numbers:
        return Numbers(span(parts[0], parts[-1]), _of_type(parts, "INT", "WORD"))

    list = list_atom = shape

    def limits(self, *parts: Any) -> LimitsNode:
        return LimitsNode(span(parts[0], parts[-1]), parts[1:-1])

    def limit(self, level: Token, number: Token) -> LimitNode:
        return LimitNode(level, number)

    def primitive(self, operation: OperationNode, _open: Token, shape: Numbers, *rest: Any) -> CallNode:
        end = next(i for i, one in enumerate(rest) if isinstance(one, Token) and one.type == "RPAR")
        names = _of_type(rest[end + 1] if rest[end + 1 :] else (), "WORD")
        return CallNode(span(operation, rest[end]), operation, shape, (), rest[:end], rest[end], names)

    def compose(
        self, operation: OperationNode, _open: Token, parts: tuple[OperationNode | EquationNode, ...], *rest: Any
    ) -> CallNode:
        end = next(i for i, one in enumerate(rest) if isinstance(one, Token) and one.type == "RPAR")
        names = _of_type(rest[end + 1] if rest[end + 1 :] else (), "WORD")
        operands = tuple(one for one in rest[:end] if isinstance(one, OperandNode) or one.type == "WORD")
        return CallNode(span(operation, rest[end]), operation, None, parts, operands, rest[end], names)

    def formula(self, operation: OperationNode, *rest: Any) -> FormulaNode:
        return FormulaNode(operation, rest[1] if rest else (), _of_type(rest[2:], "WORD"))

    def operation(self, name: Token, brackets: tuple[Any, ...] = ()) -> OperationNode:
        parameters = tuple(one for one in brackets if isinstance(one, ParameterNode))
        return OperationNode(span(name, brackets[-1] if brackets else name), name, parameters)

    def parameter(self, name: Token, value: Token | Numbers | None = None) -> ParameterNode:
        return ParameterNode(span(name, value), name, value)

    def components(self, *parts: Any) -> tuple[OperationNode | EquationNode, ...]:
        return parts[1:-1]

    def equation(self, name: Token, operation: OperationNode, inputs: tuple[Token, ...]) -> EquationNode:
        return EquationNode(span(name, inputs[-1]), name, operation, _of_type(inputs, "WORD"))

    def parameters(self, *parts: Any) -> tuple[Any, ...]:
        return parts

    application = parameters

    def group(self, *parts: Any) -> OperandNode:
        return OperandNode(span(parts[0], parts[-1]), parts[1:-1])

    def shaped(self, *parts: Any) -> OperandNode:
        label = parts[0] if parts[0].type == "WORD" else None
        shape, *properties = parts[1 if label is None else 2 : -1]
        return OperandNode(span(parts[0], parts[-1]), tuple(properties), shape, label)

    def layout(self, *parts: Token) -> LayoutNode:
        return LayoutNode(span(parts[0], parts[-1]), parts[2:-1])

    layout_atom = layout

    def block(self, *statements: StatementNode) -> tuple[StatementNode, ...]:
        return statements

    schedule_body = block

    def statement(self, word: Token, *rest: Any) -> StatementNode:
        block = rest[-1] if rest and isinstance(rest[-1], tuple) else None
        atoms = rest if block is None else rest[:-1]
        return StatementNode(span(word, atoms[-1] if atoms else word), word, atoms, block)


@cache
def _parser() -> Lark:
    """Return the parser. Its tables, which take 30 ms to make, stay in the cache; Lark ignores a damaged file."""
    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    key = hashlib.sha256(repr((grammar, lark.__version__, sys.version_info[:2])).encode()).hexdigest()
    try:
        kept: str | bool = str(private_folder(user_folder()) / f"{GRAMMAR}{key}")
    except (OSError, ToolchainError):
        kept = False
    return Lark(
        grammar,
        cache=kept,
        parser="lalr",
        start=["file", "spec", "schedule_body", "formula"],
        transformer=_Nodes(),
        maybe_placeholders=False,
    )


def parse_file(source: Source) -> FileNode:
    return _parse(source, "file")


def parse_spec(source: Source) -> SpecNode:
    return _parse(source, "spec")


def parse_statements(source: Source) -> tuple[StatementNode, ...]:
    return _parse(source, "schedule_body")


def parse_formula(source: Source) -> FormulaNode:
    return _parse(source, "formula")


def tokens(source: Source) -> list[Token]:
    """Return the tokens of a file, without spaces and comments. Raises SourceError."""

    def read() -> list[Token]:
        parser = _parser().parse_interactive(source.text, "file")
        found = [*parser.iter_parse()]
        parser.feed_eof()
        return found

    return _read(source, read)


def _parse(source: Source, start: str) -> Any:
    return _read(source, lambda: _parser().parse(source.text, start=start))


def _read(source: Source, read: Callable[[], T]) -> T:
    try:
        return read()
    except UnexpectedInput as unexpected:
        error = _syntax_error(source, unexpected)
    raise error  # without a context, which holds a parser: Dask pickles contexts


#: The name of each terminal in messages, in listing order.
WORDS = {
    "TARGET": "`target NAME`",
    "LET": "`let NAME = SIZE`",
    "SPEC": "`spec NAME = ...`",
    "SCHEDULE": "`schedule NAME { ... }`",
    "FOR": "`for ...`",
    "IN": "`in`",
    "RANGE": "`..`",
    "USING": "`using [...]`",
    "WITHOUT": "`without [...]`",
    "ALL_LAYOUTS": "`with all layouts`",
    "WORD": "a name",
    "INT": "a number",
    "FLOAT": "a decimal number",
    "STRIP": "a strip such as 0p8",
    "TIMES": "`×`",
    "LAYOUT": "`layout[...]`",
    "DOTS": "`...`",
    "EQUAL": "`=`",
    "COLON": "`:`",
    "PLUS": "`+`",
    "COMMA": "`,`",
    "LPAR": "`(`",
    "LSQB": "`[`",
    "LBRACE": "`{`",
    "RPAR": "`)`",
    "RSQB": "`]`",
    "RBRACE": "`}`",
    "_END": "the end of the line",
    "$END": "the end of the text",
}
#: Descriptions of exact sets of expected terminals.
_PHRASES = {
    frozenset({"INT", "WORD", "LSQB"}): "a shape such as 1×64×64×64",
    frozenset({"FOR", "LBRACE"}): "`for TARGET` or `{`",
    frozenset({"DOTS", "LSQB"}): "memory limits: `[64, 1024]` in bytes, fastest level first, `[L1=1024]` or `...`",
    frozenset({"WORD", "LAYOUT"}): "a data type, memory level, layout, ua, cN or vN",
}
_KEYWORDS = {
    "TARGET": "target",
    "LET": "let",
    "SPEC": "spec",
    "SCHEDULE": "schedule",
    "IN": "in",
    "USING": "using",
    "WITHOUT": "without",
}
_BRACKETS = {")": "(", "]": "[", "}": "{"}


def _syntax_error(source: Source, error: UnexpectedInput) -> SourceError:
    expected = _expected(error)
    words = _PHRASES.get(frozenset(expected)) or _either([word for term, word in WORDS.items() if term in expected])
    hint = f"expected {words}"
    place, token = _culprit(source, error)
    unclosed = _unclosed(source.text[: place[0]])
    if token == "$END":
        if unclosed is not None:
            return source.error((unclosed, unclosed + 1), f"{source.text[unclosed]!r} is never closed", hint)
        return source.error(place, "the text ends too early", hint)
    text = source.text[slice(*place)]
    hint = suggestion(text, [word for term, word in _KEYWORDS.items() if term in expected], hint)
    if token == "STRIP":
        hint = f"strips stand within a layout, such as layout[0, 1, {text}]"
    elif unclosed is not None:
        line, column = source.position(unclosed)
        hint += f"; {source.text[unclosed]!r} at {line}:{column} is not closed yet"
    return source.error(place, f"unexpected {quoted(text)}", hint)


def _culprit(source: Source, error: UnexpectedInput) -> tuple[Span, str]:
    """Return place and kind of the unexpected token; the kind is empty for a character that begins no token."""
    if not isinstance(error, UnexpectedToken):
        start = error.pos_in_stream or 0
        return (start, start + 1), ""
    if error.token.type == "$END":
        end = len(source.text.rstrip())
        return (end, end + 1), "$END"
    return span(error.token), error.token.type


def _expected(error: UnexpectedInput) -> set[str]:
    """Return the expected terminals."""
    exact = error.interactive_parser.accepts() if error.interactive_parser else set[str]()
    if isinstance(error, UnexpectedToken):
        return exact or set(error.expected)
    assert isinstance(error, UnexpectedCharacters)
    return exact or set(error.allowed)


def _either(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _unclosed(text: str) -> int | None:
    """Return the offset of the innermost bracket that is still open at the end of `text`."""
    stack: list[int] = []
    for match in re.finditer(r"#[^\n]*|[()\[\]{}]", text):
        char = match.group()
        if char in _BRACKETS.values():
            stack.append(match.start())
        elif stack and _BRACKETS.get(char) == text[stack[-1]]:
            stack.pop()
    return stack[-1] if stack else None
