"""Highlight the Spec language with Pygments: `pygmentize -l morello examples/matmul.spec`."""

from __future__ import annotations

from typing import ClassVar

from pygments.lexer import RegexLexer, bygroups, words
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, Text

from morello.ir.dtypes import BY_NAME

__all__ = ["SpecLexer"]


class SpecLexer(RegexLexer):
    """A Pygments lexer for `.spec` files; an entry point of the group `pygments.lexers`."""

    name = "Morello Spec"
    # Pygments has a lexer `spec` of its own, for RPM.
    aliases: ClassVar = ["morello"]
    filenames: ClassVar = ["*.spec"]
    tokens: ClassVar = {
        "root": [
            (r"\s+", Text),
            (r"#[^\n]*", Comment.Single),
            (r"(target)(\s+)(\w+(?:\s*\+\s*\w+)*)", bygroups(Keyword.Declaration, Text, Name.Namespace)),
            (r"(let|spec|schedule)(\s+)(\w+)", bygroups(Keyword.Declaration, Text, Name.Function)),
            (
                words(("for", "in", "as", "to", "parallel", "serial", "layout", "using", "without"), suffix=r"\b"),
                Keyword,
            ),
            (words(tuple(BY_NAME), suffix=r"\b"), Keyword.Type),
            (r"[0-9]+(?:p|oe)[0-9]+", Number.Integer),
            (r"-?[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|-?[0-9]+(?:\.(?!\.)[0-9]*)?(?:[eE][+-]?[0-9]+)?", Number),
            (r"-?\binf\b", Number),
            (r"[^\W\d]\w*(?=\s*[\[(])", Name.Class),
            (r"[^\W\d]\w*", Name),
            (r"[×x=:]", Operator),
            (r"[()\[\]{},;.…]+", Punctuation),
        ]
    }
