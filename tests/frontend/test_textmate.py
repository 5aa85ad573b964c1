"""The TextMate grammar in `editors/vscode` colours the parser's tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from morello.frontend.diagnostics import Source
from morello.frontend.syntax import tokens

ROOT = Path(__file__).parents[2]
GRAMMAR = json.loads((ROOT / "editors/vscode/syntaxes/morello.tmLanguage.json").read_text(encoding="utf-8"))
PATTERNS = [(re.compile(one["match"], re.MULTILINE), one) for one in GRAMMAR["patterns"]]
#: Terminals and how the scopes of their tokens begin; words have several.
SCOPES = {
    **dict.fromkeys(("TARGET", "LET", "SPEC", "SCHEDULE"), "keyword.declaration"),
    **dict.fromkeys(("FOR", "SYNTHESIZE", "USING", "WITHOUT", "ALL_LAYOUTS", "LAYOUT"), "keyword.control"),
    **dict.fromkeys(("INT", "FLOAT", "STRIP"), "constant.numeric"),
    **dict.fromkeys(("TIMES", "EQUAL", "COLON"), "keyword.operator"),
    **dict.fromkeys(("LPAR", "RPAR", "LSQB", "RSQB", "LBRACE", "RBRACE", "COMMA"), "punctuation"),
    "WORD": ("entity.name", "variable", "storage.type", "keyword.control"),
}
EXTRA = """\
target x86_avx2 + avx_vnni
let rows = 4
spec b = Pad[padding=[0, 1], value=-inf](2, GL, GL)
spec a = Scale[by=-1.5e-3](4x8×16, (bool, GL, layout[0, 1, 2p4]), GL, serial)
schedule a for x86_avx2 { synthesize using [Tile] without [Select] with all layouts }
"""


def scopes(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield ranges of a text and their scopes, as an editor finds them: the first pattern that matches soonest."""
    start = 0
    while found := min(
        ((match.start(), index) for index, (each, _) in enumerate(PATTERNS) if (match := each.search(text, start))),
        default=None,
    ):
        each, pattern = PATTERNS[found[1]]
        match = each.search(text, start)
        assert match
        named = pattern.get("captures", {"0": pattern})
        yield from ((*match.span(int(group)), scope["name"]) for group, scope in named.items())
        start = match.end()


@pytest.mark.parametrize("file", [*sorted(ROOT.glob("examples/*.spec")), None], ids=lambda file: file and file.stem)
def test_tokens_have_scopes(file: Path | None) -> None:
    text = EXTRA if file is None else file.read_text(encoding="utf-8")
    coloured = [*scopes(text)]
    for token in tokens(Source("", text)):
        if token.type in SCOPES:
            at = token.start_pos
            assert at is not None
            scope = next((name for start, end, name in coloured if start <= at < end), "none")
            assert scope.startswith(SCOPES[token.type]), (str(token), token.type, scope)
