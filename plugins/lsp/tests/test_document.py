"""The answers about a text, without a protocol."""

from __future__ import annotations

import pytest
from morello_lsp.document import definition, describe, error_place, find_error, words

TEXT = """\
target x86_avx2
spec sums = Add(4×8, L1, L1, L1, serial)
schedule sums {
    tile [1, 8]
}
"""


def test_errors_have_their_place() -> None:
    assert find_error(TEXT, "a.spec") is None
    error = find_error(TEXT.replace("Add", "Ad"), "a.spec")
    assert error is not None
    assert error_place(error) == (1, 12, 14)
    missing = find_error("spec a = Add(4×8, L1, L1, L1)\n", "a.spec")
    assert missing is not None
    assert error_place(missing)[0] == 0


def test_a_spec_is_described_with_its_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORELLO_DB", "off")
    said = describe(TEXT, "sums")
    assert "| `lhs` | 4×8 | f32 | L1 |" in said
    assert said.endswith("cost: not solved yet")


def test_a_solved_spec_has_a_cost(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    import morello

    monkeypatch.setenv("MORELLO_DB", str(tmp_path / "solved.db"))
    text = TEXT[: TEXT.index("schedule")]
    kernel = morello.compile(morello.parse(text)["sums"])
    assert describe(text, "sums").endswith(f"cost: {kernel.cost:,}")


@pytest.mark.parametrize(
    ("word", "part"),
    [
        ("Add", "lhs + rhs"),
        ("L1", "cache"),
        ("VectorAdd", "a kernel for Add"),
        ("VectorAbs", "a kernel for Abs"),
        ("Attention", "q, k, v"),
    ],
)
def test_words_of_the_target_are_described(word: str, part: str) -> None:
    assert part in describe(TEXT, word)


def test_other_words_are_not_described() -> None:
    assert describe(TEXT, "tile") == describe("", "Add") == ""


def test_words_depend_on_the_place() -> None:
    text = TEXT + "let rows = 4\n"
    inside, after = words(text, text.index("tile")), words(text, len(text))
    assert {"tile", "select", "synthesize", "VectorAdd", "L1", "rows"} <= {*inside}
    assert {"spec", "in", "constant", "Add", "Compose", "Attention", "f32", "row_major", "rows"} <= {*after}
    assert "VectorAdd" not in after
    assert "x86_avx2" in words("target x", len("target x"))


def test_names_lead_to_their_declaration() -> None:
    assert definition(TEXT, "sums") == TEXT.index("sums")
    assert definition(TEXT, "tile") is definition(TEXT, "") is None
