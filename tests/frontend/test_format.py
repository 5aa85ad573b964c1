"""`morello fmt` writes files in one form, which means the same and keeps comments."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morello.frontend import SourceError, parse
from morello.frontend.format import WIDTH, format_text

ROOT = Path(__file__).parents[2]
FILES = sorted([*ROOT.glob("examples/*.spec"), *ROOT.glob("tests/golden/*.spec")])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_usual_form_means_the_same_and_stays(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    usual = format_text(text)
    assert parse(usual) == parse(text)
    assert format_text(usual) == usual
    assert comments(usual) == comments(text)


def comments(text: str) -> list[str]:
    return [line.partition("#")[2].strip() for line in text.splitlines() if "#" in line]


def test_the_usual_form() -> None:
    text = """\
# a comment
target   x86_avx2+avx_vnni


spec a=Conv[stride = 2,padding=[1,1,0,0]](1x64x3x16x16x3x3,GL,GL , (f32,GL,layout[0,1 ,2,3]))   # behind
spec  b = ( Relu( 4×4, (f32 , L1), (f32, L1),serial )( x,y ) , [64 , L1 = 16384] )
spec c = Compose( [y=Add[over=[0]](h , o),h=Relu(x), o = Relu(z)],[x:(4×4,f32,GL), z: (1×4, f32, GL), y:(4×4, f32, GL)])
schedule a for x86_avx2,x86_avx512 { tile [1,1]  ;  # of the first
   # above
   subschedule[0]{select  VectorMove;synthesize using[ Tile ]}

 }
schedule b {tile [1,1]; synthesize }
"""
    assert (
        format_text(text)
        == """\
# a comment
target x86_avx2 + avx_vnni

spec a = Conv[stride=2, padding=[1, 1, 0, 0]](1×64×3×16×16×3×3, GL, GL, (f32, GL, layout[0, 1, 2, 3]))  # behind
spec b = (Relu(4×4, (f32, L1), (f32, L1), serial)(x, y), [64, L1=16384])
spec c = Compose([y = Add[over=[0]](h, o), h = Relu(x), o = Relu(z)],
    [x: (4×4, f32, GL), z: (1×4, f32, GL), y: (4×4, f32, GL)])
schedule a for x86_avx2, x86_avx512 {
    tile [1, 1]  # of the first
    # above
    subschedule [0] { select VectorMove; synthesize using [Tile] }

}
schedule b { tile [1, 1]; synthesize }
"""
    )


def test_lines_with_a_comment_inside_keep_their_breaks() -> None:
    text = "target x86_avx2\nspec a = Relu(4×4,  # rows and columns\n  GL,\n\n  GL)\n"
    text += "schedule a {\n tile [1, # c\n  4]\n}\n"
    usual = format_text(text)
    assert usual == text.replace("  GL", "    GL").replace(" tile", "    tile").replace("  4]", "        4]")
    assert format_text(usual) == usual


def test_lines_end_as_before() -> None:
    text = "target x86_avx2  # c\r\nspec a = Relu(4×4,  # rows\r\n    GL,\r\n    GL)\r\n"
    assert format_text(text) == text


@given(st.lists(st.sampled_from([" ", "\n", "# note\n", "\t", ""]), min_size=20, max_size=20))
def test_spaces_do_not_count(spaces: list[str]) -> None:
    words = "target x86_avx2\n|spec| a| =| Matmul|(|1×4×4×4|,| (|f32|,| GL|, layout[0, 1, 2]|)|,| GL|,| GL|)"
    text = "".join(word + space for word, space in zip(words.split("|"), spaces, strict=False))
    usual = format_text(text)
    assert parse(usual) == parse(words.replace("|", ""))
    assert format_text(usual) == usual
    assert max(map(len, usual.splitlines())) <= WIDTH


def test_errors_have_their_place() -> None:
    with pytest.raises(SourceError, match="1:1"):
        format_text("spek a = Relu(4, GL, GL)")
