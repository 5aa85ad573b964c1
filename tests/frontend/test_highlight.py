"""The Pygments lexer colours every Spec file without an error token."""

from __future__ import annotations

from pathlib import Path

import pytest
from pygments.lexers import get_lexer_by_name
from pygments.token import Error, Keyword, Name

FILES = sorted(
    [*(Path(__file__).parents[2] / "examples").glob("*.spec"), *Path(__file__).parents[1].glob("golden/*.spec")]
)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_file_is_highlighted(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    tokens = list(get_lexer_by_name("morello").get_tokens(text))
    assert "".join(word for _, word in tokens).strip() == text.strip()
    assert Error not in {kind for kind, _ in tokens}
    assert Keyword.Declaration in {kind for kind, _ in tokens}


def test_kinds_of_words() -> None:
    text = "schedule one { synthesize without [a] }\nspec one = Matmul(1×2×2×8, (f32, GL), (f32, GL), GL, serial)"
    kinds = {word: kind for kind, word in get_lexer_by_name("morello").get_tokens(text)}
    assert (kinds["spec"], kinds["one"], kinds["Matmul"]) == (Keyword.Declaration, Name.Function, Name.Class)
    assert kinds["without"] == Keyword
    assert (kinds["f32"], kinds["serial"], kinds["GL"]) == (Keyword.Type, Keyword, Name)
