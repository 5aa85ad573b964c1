"""Normal forms of source text: without comments, docstrings and formatting."""

from __future__ import annotations

import ast
import re

#: Fields of a syntax tree without a meaning of their own.
_SKIPPED = {"ctx", "kind", "type_comment", "type_ignores"}
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
    tree, words, imports = ast.parse(text), list[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imports |= {f"{node.module}.{one.name}" for one in node.names}
    _collect(tree, words)
    return "\0".join(words), imports


def _collect(node: ast.AST, words: list[str]) -> None:
    """Append the words of a syntax tree; fields that are empty are left out, as versions of Python differ in them."""
    words += ["(", type(node).__name__]
    for name, value in ast.iter_fields(node):
        if name in _SKIPPED or value is None or value == []:
            continue
        words.append(name)
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, ast.AST):
                words.append(f"{type(one).__name__} {one!r}")
            elif not _has_no_effect(one):
                _collect(one, words)
    words.append(")")


def _has_no_effect(node: ast.AST) -> bool:
    """Return True for a docstring, and for `pass`."""
    return isinstance(node, ast.Pass) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )
