"""Names of sizes: `let k = 1024`."""

from __future__ import annotations

import pytest

from morello.frontend import SourceError, parse
from morello.frontend.format import format_text

NAMED = """\
target x86_avx2
let rows = 8
let p = 1
spec a = Matmul(1×rows×rows×16, GL, GL, GL, serial)
spec b = Conv[stride=p, padding=[p, p, p, p]](1×2×2×rows×rows×3×3, GL, GL, GL, serial)
spec c = Compose([Relu, Relu], [(rows×4, f32, GL), (rows×4, f32, GL)], serial)
schedule a {
    tile [p, rows, 16]
    split rows
}
"""


def test_names_stand_for_numbers() -> None:
    plain = NAMED.replace("let rows = 8\nlet p = 1\n", "").replace("rows", "8").replace("p, p, p, p", "1, 1, 1, 1")
    plain = plain.replace("=p", "=1").replace("[p", "[1")
    assert parse(NAMED) == parse(plain)
    assert format_text(NAMED) == NAMED


def test_order_does_not_count() -> None:
    text = "target x86_avx2\nspec a = Relu(n, GL, GL)\nlet n = 4\n"
    assert parse(text) == parse("target x86_avx2\nspec a = Relu(4, GL, GL)\n")


def test_names_hide_no_words_of_schedules() -> None:
    text = "target x86_avx2\nspec a = Relu(4×16, GL, GL, serial)\nschedule a {\n    move 0 to L1\n}\n"
    assert parse(f"{text}let to = 4\nlet L1 = 4\n") == parse(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("spec a = Relu(n, GL, GL)", "'n' is not a size"),
        ("let n = 4\nlet n = 5\nspec a = Relu(n, GL, GL)", "a second size 'n'"),
        ("let n = 99999999999999999999\nspec a = Relu(n, GL, GL)", "is too large"),
        ("let n = 0\nspec a = Relu(n, GL, GL)", "0"),
        ("let n\nspec a = Relu(n, GL, GL)", "unexpected"),
    ],
)
def test_errors(text: str, said: str) -> None:
    with pytest.raises(SourceError, match=said):
        parse(f"target x86_avx2\n{text}\n")
