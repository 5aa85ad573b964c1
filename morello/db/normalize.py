"""Normal forms of source text: without comments, docstrings, formatting, and names of local variables."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

#: Names of a scope: the text that stands for each. None: a local variable that has not been met yet.
_Scope: TypeAlias = dict[str, str | None]

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (*_FUNCTIONS, ast.ClassDef)
_SKIPPED = {"ctx", "kind", "type_comment", "type_ignores"}
#: Functions to which names of local variables matter.
_REFLECTION = re.compile(r"\b(dir|eval|exec|locals|vars)\b")
#: In C: a literal, or a comment.
_LITERAL = re.compile(r"(\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')|//[^\n]*|/\*.*?\*/", re.DOTALL)
#: White space between a word and an operator, and around a delimiter.
_SPACE = re.compile(r"(?<=\w) (?=[^\w\s\"'.])|(?<=[^\w\s\"'.]) (?=\w)| (?=[;,(){}\[\]])|(?<=[;,(){}\[\]]) ")


def normal_c(text: str) -> str:
    """Return C source without comments and optional white space. Directives keep the lines that they are on."""
    literals: list[str] = []

    def stand_in(found: re.Match[str]) -> str:
        if found[1] is None:
            return " "
        literals.append(found[1])
        return f'"{len(literals) - 1}"'

    text = _LITERAL.sub(stand_in, text.replace("\\\n", " "))
    parts: list[str] = []
    for line in text.splitlines():
        words = " ".join(line.split())
        if words.startswith("#"):
            parts += [f"\n{words}\n"]
        elif words:
            parts += [words, " "]
    lines = "".join(parts).split("\n")
    short = "\n".join(line if line.startswith("#") else _SPACE.sub("", line.strip()) for line in lines)
    return re.sub(r'"(\d+)"', lambda found: literals[int(found[1])], short)


def normal_python(text: str) -> tuple[str, set[str]]:
    """Return a text that two Python sources share only if they do the same, and the dotted names that they import.

    Relative imports are left out. Raises SyntaxError; RecursionError for expressions that are nested too deeply.
    """
    normalizer = _Normalizer(renames=not _REFLECTION.search(text))
    normalizer.visit(ast.parse(text))
    return "\0".join(normalizer.words), normalizer.imports


class _Normalizer:
    """Collects the words of a syntax tree. Local variables become numbers, in the order in which they are met."""

    def __init__(self, renames: bool):
        self.words: list[str] = []
        self.imports: set[str] = set()
        self._renames = renames
        self._scopes: list[tuple[bool, _Scope]] = []
        self._count = 0

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name):
            self.words += ["Name", self._name(node.id)]
        elif isinstance(node, _FUNCTIONS):
            self._function(node)
        elif isinstance(node, _COMPREHENSIONS):
            self._comprehension(node)
        elif isinstance(node, ast.ClassDef):
            self._fields(node, _names_of(node), without={"body"})
            self._body(node.body, dict.fromkeys(_locals(node.body), ""), is_class=True)
        else:
            if isinstance(node, ast.Import):
                self.imports |= {one.name for one in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                self.imports |= {f"{node.module}.{one.name}" for one in node.names}
            self._fields(node, _names_of(node))

    def _fields(self, node: ast.AST, renamed: str = "", without: Collection[str] = ()) -> None:
        self.words += ["(", type(node).__name__]
        for name, value in ast.iter_fields(node):
            if name in _SKIPPED or name in without or value is None or value == []:
                continue
            self.words.append(name)
            values: Sequence[object] = value if isinstance(value, list) else [value]
            if name in ("body", "orelse", "finalbody") and isinstance(value, list):
                values = [one for one in values if not _has_no_effect(one)]
            for one in values:
                if isinstance(one, ast.AST):
                    self.visit(one)
                else:
                    self.words.append(self._name(str(one)) if name == renamed else f"{type(one).__name__} {one!r}")
        self.words.append(")")

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        self._fields(node, without={"body"})
        body = node.body if isinstance(node.body, list) else [node.body]
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        arguments += [one for one in (node.args.vararg, node.args.kwarg) if one]
        # Parameters are names that callers may use.
        self._body(body, _locals(body) | dict.fromkeys([one.arg for one in arguments], ""))

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        self.words += ["(", type(node).__name__]
        self.visit(node.generators[0].iter)
        self._scopes.append((False, dict.fromkeys(_stored(_own_nodes([one.target for one in node.generators])))))
        for i, one in enumerate(node.generators):
            self._fields(one, without={"iter"} if i == 0 else ())
        for element in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
            self.visit(element)
        self._scopes.pop()
        self.words.append(")")

    def _body(self, body: Sequence[ast.AST], names: _Scope, *, is_class: bool = False) -> None:
        self._scopes.append((is_class, names))
        self.words.append("[")
        for one in body:
            if not _has_no_effect(one):
                self.visit(one)
        self.words.append("]")
        self._scopes.pop()

    def _name(self, name: str) -> str:
        """Return what stands for a name: a number for a local variable, else the name."""
        for depth, (is_class, names) in enumerate(reversed(self._scopes)):
            # Functions do not see the names of the class that they are in.
            if name not in names or (is_class and depth):
                continue
            if names[name] is None and self._renames:
                self._count += 1
                names[name] = f"#{self._count}"
            return names[name] or name
        return name


def _has_no_effect(node: object) -> bool:
    """Return True for a docstring, and for `pass`."""
    return isinstance(node, ast.Pass) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )


def _names_of(node: ast.AST) -> str:
    """Return the field of a node that names variables which it binds or declares."""
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        return "name"
    return "rest" if isinstance(node, ast.MatchMapping) else "names" if isinstance(node, ast.Nonlocal) else ""


def _locals(body: Sequence[ast.AST]) -> _Scope:
    """Return the scope of a function. Imported, defined and global names are kept."""
    nodes = _own_nodes(body)
    names: _Scope = dict.fromkeys(_stored(nodes))
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= dict.fromkeys([(one.asname or one.name).partition(".")[0] for one in node.names], "")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names[node.name] = ""
        elif isinstance(node, ast.Global):
            names |= dict.fromkeys(node.names, "")
    outer = {name for node in nodes if isinstance(node, ast.Nonlocal) for name in node.names}
    return {name: one for name, one in names.items() if name not in outer}


def _stored(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Yield the names of variables that nodes assign."""
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.NamedExpr):
            yield node.target.id
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest


def _own_nodes(nodes: Sequence[ast.AST]) -> list[ast.AST]:
    """Return the nodes of one scope: not those inside of functions, classes and comprehensions."""
    found: list[ast.AST] = []
    waiting = [*nodes]
    while waiting:
        node = waiting.pop()
        found.append(node)
        if isinstance(node, _COMPREHENSIONS):
            # An assignment expression assigns to a variable outside of the comprehension.
            inner = _own_nodes([*ast.iter_child_nodes(node)])
            found += [one for one in inner if isinstance(one, ast.NamedExpr)]
        elif not isinstance(node, _SCOPES):
            waiting += ast.iter_child_nodes(node)
    return found
