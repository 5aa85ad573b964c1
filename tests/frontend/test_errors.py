"""Every error in a text names its place and a remedy."""

import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morello.errors import MorelloError
from morello.frontend import SourceError, parse, parse_schedule, parse_spec

SPECS = [
    # Names
    ("‹Mtmul›(1×4×4×4, GL, GL, GL)", "unknown operation 'Mtmul'", "did you mean 'Matmul'? operations are Abs,"),
    ("‹conv2d›(1×1×1×1×1×1×1, GL, GL, GL)", "unknown operation 'conv2d'", "did you mean 'Conv'? operations are Abs,"),
    ("Compose([Matmul, ‹Fillzero›], [(4, GL)])", "unknown operation 'Fillzero'", "did you mean 'FillZero'?"),
    ("Compose([Matmul, ‹Compose›], [(4, GL)])", "unknown operation 'Compose'", "operations are Abs,"),
    ("Move(4, ‹L7›, GL)", "unknown memory level 'L7'", "tiny has the levels RF, VRF, L1, GL"),
    ("Move(4, (f32, ‹gl›), GL)", "unknown memory level 'gl'", "did you mean 'GL'? tiny has the levels"),
    ("Move(4, (‹f23›, GL), GL)", "unknown data type 'f23'", "did you mean 'f32'? data types are u8,"),
    ("Move(4, (‹double›, GL), GL)", "unknown data type 'double'", "data types are u8, i8,"),
    ("Move(4, (f32, GL, ‹rowmajor›), GL)", "unknown layout 'rowmajor'", "did you mean 'row_major'? layouts are"),
    ("Move(4, (f32, GL, ‹zigzag›), GL)", "unknown layout 'zigzag'", "layouts are row_major, col_major, nhwc"),
    ("Move(4, (f32, GL, row_major, ‹aligned›), GL)", "unknown property 'aligned'", "(DTYPE, LEVEL, LAYOUT,"),
    ("Move(4, (VRF, ‹v8x›), GL)", "unknown vector size 'v8x'", "v4, v8"),
    ("Move(4, (GL, ‹c0p›), GL)", "unknown contiguity 'c0p'", "c0, c1"),
    # Operands
    ("Move(4, GL‹)›", "Move has 2 operands (src, out), not 1", ""),
    ("Move(4, GL, L1, ‹(f32, RF)›, GL)", "Move has 2 operands (src, out), not 4", ""),
    ("FillZero(4‹)›", "FillZero has 1 operand (out), not 0", ""),
    ("Move(4, ‹(f32, row_major)›, GL)", "this operand has no memory level", "tiny has the levels"),
    ("Move(4, ‹f32›, GL)", "this operand has no memory level", "tiny has the levels"),
    ("Move(4, (GL, f32, ‹bf16›), GL)", "a second data type for this operand", "leave one of them out"),
    ("Move(4, (GL, ‹L1›), GL)", "a second memory level for this operand", "leave one of them out"),
    ("Move(4, ‹serial›, GL, L1)", "serial comes last", "after all operands"),
    ("Move(4, GL, L1)(‹a, b, c›)", "3 names for 2 operands", ""),
    # Layouts, contiguity, vectors
    ("Move(4×4, (GL, c1, ‹s1024›), GL)", "no s1024", "spacings are s2048, s4096"),
    ("Move(4×4, (GL, ‹s2048›), GL)", "s2048 of a tensor that is contiguous", "leave it out, or add cN"),
    ("Move(4×4, (GL, c1, s2048, ‹s4096›), GL)", "a second spacing for this operand", "leave one of them out"),
    ("Move(4×4, (GL, c1, ‹s4k›), GL)", "unknown spacing 's4k'", "spacings are s2048, s4096"),
    ("Move(4×4, (GL, ‹layout[1]›), GL)", "layout[1] does not describe a tensor of shape 4×4", "every dimension larger"),
    ("Move(4×4, (GL, ‹layout[0, 1, 0p3]›), GL)", "layout[0, 1, 0p3] does not describe", "strips divide"),
    ("Move(4×4, (GL, ‹layout[0, 2]›), GL)", "layout[0, 2] does not describe", "every dimension"),
    ("Move(4×4, (GL, ‹layout[0, 0]›), GL)", "layout layout[0, 0]: dimension 0", "a Dynamic part comes once"),
    ("Move(4×4, (GL, ‹layout[0, 1, 0oe3]›), GL)", "layout layout[0, 1, 0oe3]: an odd-even strip", ""),
    ("Move(4×4, (GL, layout[0, ‹-1›]), GL)", "dimensions of a layout count from 0", ""),
    ("Move(4×4, (GL, ‹nhwc›), GL)", "nhwc describes tensors of 4 dimensions, not 2", ""),
    ("Move(4×4, (GL, ‹nchw4c›), GL)", "nchw4c describes tensors of 4 dimensions, not 2", ""),
    ("Move(1×4×2×2, (GL, ‹nchw1c›), GL)", "layout layout[0, 1, 2, 3, 1p1]: a strip holds at least 2 values", ""),
    ("Move(4×4, (GL, ‹2oe16›), GL)", "unexpected '2oe16'", "layout[0, 1, 2oe16]"),
    ("Move(1×4×4, (GL, ‹c3›), GL)", "c3: a tensor of 1×4×4 has 2 physical dimensions", "write c0 to c2"),
    ("Move(4×4, (VRF, ‹v7›), GL)", "no v7 of f32 in VRF", "vectors are v4, v8"),
    ("Move(4×4, (VRF, ‹v8›, u8), GL)", "no v8 of u8 in VRF", "vectors are v16, v32"),
    ("Move(4×4, (GL, ‹v8›), GL)", "v8 in GL, which holds no vectors", "leave it out"),
    ("Move(4×4, (RF, ‹v8›), GL)", "v8 in RF, which holds no vectors", "leave it out"),
    ("Move(2×3, GL, ‹VRF›)", "6 adjacent values of f32 fill no vectors of VRF", "vectors are v4, v8"),
    ("Move(2×6, GL, ‹(VRF, v8)›)", "out: 12 adjacent values do not fill vectors of 8", "vectors are v4, v8"),
    # Sizes
    ("Move(4×‹0›, GL, L1)", "size 0 is not positive", "at least 1"),
    ("Move(‹-4›×4, GL, L1)", "size -4 is not positive", "at least 1"),
    (f"Move(4×‹{10**30}›, GL, L1)", f"'{10**30}' is too large", "2^63"),
    (f"Move(4×‹{2**63}›, GL, L1)", f"'{2**63}' is too large", "2^63"),
    (f"Move(4×{2**47}, ‹GL›, L1)", f"Move: src holds {2**51} bytes", ""),
    (f"Move(4×4, (GL, ‹c{10**30}›), L1)", f"'c{10**30}' is too large", "2^63"),
    (f"Move(4×4, (GL, layout[0, 1, ‹0p{10**30}›]), L1)", f"'0p{10**30}' is too large", "2^63"),
    ("Matmul(‹4×4›, GL, GL, GL)", "Matmul has the 4 dimensions b×m×k×n, not 2", "without b"),
    (f"Move(‹{'×'.join('1' * 33)}›, GL, L1)", "33 dimensions are more than", ""),
    # Errors of the operation and the target
    ("‹Matmul›(1×4×4×4, GL, GL, (i8, GL))", "Matmul: a product of f32 and f32 does not fit", ""),
    ("‹Move›(4, GL, (i8, GL))", "Move: a Move from f32 to i8", ""),
    ("(Move(4, GL, L1), ‹[1, 2, 3, 4, 5]›)", "5 memory limits for the 4 levels of tiny", "RF, VRF, L1, GL, in this"),
    ("(Move(4, GL, L1), [64, ‹-1›, 5, 5])", "memory limits are not negative", "give bytes"),
    ("(Move(4, GL, L1), [L1=‹-1›])", "memory limits are not negative", "give bytes"),
    ("(Move(4, GL, L1), [64, ‹L2›=1])", "unknown memory level 'L2'", "tiny has the levels RF, VRF, L1, GL"),
    ("(Move(4, GL, L1), [64, ‹RF›=1])", "a second limit of RF", "leave one of them out"),
    ("(Move(4, GL, L1), [L1=1, ‹L1›=1])", "a second limit of L1", "leave one of them out"),
    ("(Move(4, GL, L1), [L1=1, ‹64›])", "unexpected '64'", "expected a name"),
    (f"(Move(4, GL, L1), [64, 1, 5, ‹{10**30}›])", f"'{10**30}' is too large", "2^63"),
    # Compose
    ("Compose(‹4×4›, GL)", "Compose starts with its operations, not with a shape", "write Compose([Matmul"),
    ("Matmul([‹Matmul, Move›], [(4, GL)])", "Matmul takes a shape such as", "only Compose takes operations"),
    ("Compose([‹Matmul›], [(4, GL)])", "Compose needs at least two operations", "write the operation alone"),
    ("Compose([‹Matmul, FillZero›], [(4, GL)])", "Compose cannot contain FillZero", ""),
    ("Compose([‹Matmul, MatmulAccum›], [(4, GL)])", "Compose: MatmulAccum adds to its output", "runs last"),
    ("Compose([Matmul, Matmul], [(1×2×3, GL)]‹)›", "Compose([Matmul, Matmul]) has 4 operands (rhs0, lhs1,", ""),
    ("Compose([Matmul, Matmul], [(1×2×3, GL), (‹2×3›, GL), (1×2×3, GL), (1×2×3, GL)])",
     "operand 1 (lhs1) has the 3 dimensions b0×m0×k1, not 2", ""),
    ("Compose([Matmul, Matmul], [(1×32×8, GL), (1×64×4, GL), (1×‹5›×32, GL), (1×64×8, GL)])",
     "operand 2 (rhs1) is 1×5×32, but 1×4×32 was expected", "b0×k1×k0: b0 = 1 by rhs0, k1 = 4 by lhs1, k0 = 32"),
    ("Compose([Matmul, Matmul], [(1×32×8, GL), (1×64×4, GL), (1×4×32, GL), (1×64×‹9›, GL)])",
     "operand 3 (out) is 1×64×9, but 1×64×8 was expected", "n0 = 8 by rhs0"),
    ("Compose([Matmul, Matmul], [(1×32×8, GL), (‹2›×64×4, GL), (1×4×32, GL), (1×64×8, GL)])",
     "operand 1 (lhs1) is 2×64×4, but 1×64×4 was expected", "b0 = 1 by rhs0"),
    ("Compose([Matmul, Matmul], [(1×32×8, GL), (1×64×4, ‹L7›), (1×4×32, GL), (1×64×8, GL)])",
     "unknown memory level 'L7'", "tiny has the levels"),
    ("Compose([Matmul, Matmul], [(1×32×8, GL), (1×64×4, GL), (1×4×32, GL), (1×64×8, GL)], ‹seriel›)",
     "unexpected 'seriel'", "did you mean 'serial'?"),
    ("Compose([y = Relu(z), z = ‹Add›(a, b, c)], [a: (4×4, GL), b: (4×4, GL), c: (4×4, GL), y: (4×4, GL)])",
     "Add has 2 inputs (lhs, rhs), not 3", "give it one tensor for each"),
    # Parameters
    ("Softmax[‹dims›=1](4×4, GL, GL)", "Softmax has no parameter 'dims'", "did you mean 'dim'? Softmax takes dim"),
    ("Move[‹dim›=1](4×4, GL, GL)", "Move has no parameter 'dim'", "Move takes no parameters"),
    ("Softmax[dim=0, ‹dim›=1](4×4, GL, GL)", "a second dim", "leave one of them out"),
    ("‹Softmax[dim=1.5]›(4×4, GL, GL)", "Softmax: dim is a whole number, not 1.5", ""),
    ("‹Softmax[dim]›(4×4, GL, GL)", "Softmax: dim is a whole number, not True", ""),
    ("‹Softmax›[dim=2](4×4, GL, GL)", "Softmax[dim=2]: dimension 2 does not exist", ""),
    ("‹Gelu[form=sin]›(4, GL, GL)", "Gelu: unknown form=sin", "erf and tanh"),
    ("Scale[by=‹1e999›](4, GL, GL)", "'1e999' is too large", "at most 1.7e308"),
    ("‹Conv[padding=[1, 2]]›(1×1×1×1×1×1×1, GL, GL, GL)", "Conv: padding is a number", ""),
    ("‹Conv[image=0]›(1×1×1×1×1×1×1, GL, GL, GL)", "Conv: image is a number of at least 1, or two of them", "224"),
    ("‹Conv[image=[1, 1, 1]]›(1×1×1×1×1×1×1, GL, GL, GL)", "Conv: image is a number of at least 1, or two of", ""),
    ("‹Conv[image]›(1×1×1×1×1×1×1, GL, GL, GL)", "Conv: image is a number of at least 1, or two of them", ""),
    ("‹Conv[stride=2, padding=3, image=224]›(1×64×3×113×111×7×7, GL, GL, GL)",
     "Conv: an image of 224×224, filters of 7×7 and these parameters make an output of 112×112, not 113×111",
     "write the shape as 1×64×3×112×112×7×7"),
    ("‹Conv[stride=2, padding=1, image=8]›(1×1×1×8×8×3×3, GL, GL, GL)",
     "Conv: an image of 8×8, filters of 3×3 and these parameters make an output of 4×4, not 8×8",
     "if 8×8 are the sizes of the image, write the shape as 1×1×1×4×4×3×3; if of the output, write image=[15, 15]"),
    ("‹Conv[padding=some]›(1×1×1×1×1×1×1, GL, GL, GL)", "Conv: padding is 'some'", "write numbers, same or valid"),
    ("‹Conv[image=2]›(1×1×1×1×1×3×3, GL, GL, GL)",
     "Conv: an image of 2×2, filters of 3×3 and these parameters leave no output", "make the image or the padding"),
    ("‹Conv[stride=4, image=[56, 57]]›(1×1×1×14×15×1×1, GL, GL, GL)",
     "Conv: no filter reaches 3 rows at the end of an image of 56×57", "write image=[53, 57] and c1"),
    ("‹GroupedConv[stride=2, image=8]›(1×1×1×1×4×4×1×1, GL, GL, GL)",
     "GroupedConv: no filter reaches 1 row and 1 column at the end of an image of 8×8", "image[..., :7, :7]"),
    ("Conv[image=8](‹1×2×3›, GL, GL, GL)", "Conv has the 7 dimensions b×f×c×h×w×fh×fw, not 3", "write a size"),
    ("Compose([Relu, ‹Conv[image=2]›], [(1×1×2×2, GL), (1×1×3×3, GL), (1×1×1×1, GL)])",
     "Conv: an image of 2×2, filters of 3×3 and these parameters leave no output", "make the image or the padding"),
    ("Compose([Relu, ‹Conv[stride=2, image=8]›], [(1×1×8×8, GL), (1×1×1×1, GL), (1×1×4×4, GL)])",
     "Conv: no filter reaches 1 row and 1 column at the end of an image of 8×8", "write image=[7, 7] and c1"),
    ("Compose([Relu, ‹Conv[padding=1, image=9]›], [(1×1×8×9, GL), (1×1×3×3, GL), (1×1×9×9, GL)])",
     "Conv: its image is 1×1×8×9, not 9×9", "write image=[8, 9]"),
    ("Compose([y = ‹Conv[image=4]›(x, f), f = Broadcast(g)], [x: (1×1×4×4, GL), g: (1×1×1×1, GL), y: (1×1×4×4, GL)])",
     "Conv: image needs filters whose sizes an operand of the Compose gives", "padding=[top, left, bottom, right]"),
    ("Compose([Relu, Relu[‹image›=4]], [(4, GL), (4, GL)])", "Relu has no parameter 'image'", ""),
    ("Softmax[dim=‹(›4×4, GL, GL)", "unexpected '('", "expected a name, a number, a decimal number or `[`"),
    ("‹LayerNorm[eps=-1]›(4, GL, GL, GL, GL)", "LayerNorm: eps is a number of at least 0, not -1", ""),
    ("LayerNorm(4, GL, GL, GL‹)›", "LayerNorm has 4 operands (x, gamma, beta, out), not 3", ""),
    ("Compose([y = ‹LayerNorm›(h, g), h = Relu(x)], [x: (4, GL), g: (4, GL), y: (4, GL)])",
     "LayerNorm has 3 inputs (x, gamma, beta), not 2", "give it one tensor for each"),
    ("Compose([y = ‹LayerNrm›(h, g), h = Relu(x)], [x: (4, GL), g: (4, GL), y: (4, GL)])",
     "unknown operation 'LayerNrm'", "did you mean 'LayerNorm'?"),
    ("Compose([LayerNorm, Relu], [(4, GL), (4, GL)]‹)›",
     "Compose has 4 operands (gamma0, beta0, src1, out), not 2", ""),
    ("Attention(‹1×2×3›, GL, GL, GL, GL)", "Attention has the 5 dimensions b×m×n×e×d, not 3", "a size for each"),
    ("Compose([y = ‹Attention›(q, q, v), q = Broadcast(x)], [x: (1×4×1, GL), v: (1×4×4, GL), y: (1×4×4, GL)])",
     "Attention: scale is 1/√d, and no operand gives d", "for example scale=0.125"),
    ("Compose([y = ‹Relu›(h, x, h), h = Relu(x)], [x: (4, GL), y: (4, GL)])", "Relu has 1 input (src), not 3", ""),
    # Equations
    ("Compose([y = Relu(h), h = Relu(x)], [x: (4, GL), ‹z›: (4, GL)])",
     "'z' is not an operand of this Compose", "the operands are x, y"),
    ("Compose([‹y = Relu(h), h = Relu(x), z = Exp(y)›], [x: (4, GL), y: (4, GL), z: (4, GL)])",
     "Exp makes an output from that of Relu, which comes first", "let an operation whose output nothing uses"),
    ("Compose([‹Rotary, Relu›], [(4, GL)])",
     "Rotary has several outputs, so it is no operation of a Compose", "write its equations"),
    ("Compose([y = Relu(hide), ‹hidden› = Relu(x)], [x: (4, GL), y: (4, GL)])",
     "nothing uses 'hidden'", "where 'hide' is used?"),
    ("Compose([y = Add(h, ‹hh›), h = Relu(x)], [x: (4, GL), y: (4, GL)])",
     "'hh' is neither the result of an equation", "did you mean 'h'? list it: hh: (1×64×128"),
    ("Compose([‹y› = Relu(h), h = Relu(x)], [x: (4, GL)])", "the output 'y' is not an operand",
     "list it: y: (1×64×128"),
    ("Compose([y = Relu(h), h = Relu(x)], [x: (4, GL), y: (4, GL), ‹y›: (4, GL)])",
     "a second operand 'y'", "leave one"),
    ("Compose([y = Relu(h), h = Relu(x)], [x: (4, GL), ‹(4, GL)›])",
     "this operand has no name", "write NAME: (...); names are x, y"),
    ("Compose([y = Relu(h), ‹Relu›], [x: (4, GL)])", "an operation among equations", "NAME = Relu(...)"),
    ("Compose([Relu, Relu], [(4, GL), ‹y›: (4, GL)])", "the operands of a chain have no names", "equations"),
    ("Compose([y = Relu(h), h = Relu(x), ‹h› = Exp(x)], [x: (4, GL), y: (4, GL)])",
     "a second equation for 'h'", "name once"),
    ("Compose([y = Relu(h), ‹h› = Relu(g), g = Relu(h)], [x: (4, GL), y: (4, GL)])",
     "'h' depends on itself: h → g → h", ""),
    ("Compose([y = Relu(h), h = Relu(x), ‹g› = Relu(x)], [x: (4, GL), y: (4, GL)])",
     "nothing uses 'g'", "the first equation makes the output"),
    ("Compose([y = Relu(h), h = ‹Add›(x)], [x: (4, GL), y: (4, GL)])", "Add has 2 inputs (lhs, rhs), not 1", ""),
    ("Compose([y = Relu(h), h = ‹Rleu›(x)], [x: (4, GL), y: (4, GL)])",
     "unknown operation 'Rleu'", "did you mean 'Relu'?"),
    ("Compose([y = Add(h, x), h = Relu(x)], [x: (4×4, GL), y: (4×‹5›, GL)])",
     "operand 1 (y) is 4×5, but 4×4 was expected", "4 by x"),
    # Syntax
    ("Move‹(›4×4, GL, L1", "'(' is never closed", "expected `,` or `)`"),
    ("Move(4, ‹(›f32, GL", "'(' is never closed", "expected `,` or `)`"),
    ("‹(›Move(4, GL, L1), ...", "'(' is never closed", "expected `)`"),
    ("(Move(4, GL, L1), ‹[›4, 5", "'[' is never closed", "expected `,` or `]`"),
    ("Move(4, GL‹]›", "unexpected ']'", "expected `,` or `)`; '(' at 1:5 is not closed yet"),
    ("Move(4×‹,› GL, L1)", "unexpected ','", "expected a name or a number; '(' at 1:5"),
    ("Move ‹4›×4", "unexpected '4'", "expected `(`"),
    ("Move(‹GL›, L1)", "'GL' is not a size", "write a number, or `let GL = 1024` above"),
    ("Move(‹(›GL, L1)", "unexpected '('", "expected a shape such as 1×64×64×64"),
    ("(Move(4, GL, L1), ‹64›)", "unexpected '64'", "expected memory limits: `[64, 1024]` in bytes"),
    ("Move(4, (f32, ‹8›), L1)", "unexpected '8'", "expected a data type, memory level, layout, ua, cN or vN"),
    ("Move(4 ‹@› 4, GL, L1)", "unexpected '@'", "expected `×`, `,` or `)`"),
    ("Move(4, GL, L1) ‹extra›", "unexpected 'extra'", "expected `for ...`, `(` or the end of the text"),
    ("Move(n, GL, L1) ‹for n in 1..4›", "'n' is known at run time alone", "give a number here"),
]  # fmt: skip


@pytest.mark.parametrize(("marked", "message", "hint"), SPECS)
def test_errors_in_specs(target, fails, marked, message, hint):
    error = fails(marked, lambda text: parse_spec(text, target))
    assert error.message.startswith(message)
    assert hint in (error.hint or "")


@pytest.mark.parametrize(("text", "column"), [("", 1), ("Move", 5), ("Move \n", 5), ("Move # rest", 12)])
def test_a_text_that_ends_too_early(target, text, column):
    with pytest.raises(SourceError, match="the text ends too early") as caught:
        parse_spec(text, target)
    assert (caught.value.line, caught.value.column) == (1, column)


def test_characters_that_cannot_be_shown(target):
    with pytest.raises(SourceError) as caught:
        parse_spec("Move(4,\0GL)", target)
    assert caught.value.message == "unexpected '\\x00'"
    assert (caught.value.excerpt, caught.value.column) == ("Move(4,�GL)", 8)


def test_the_paper_misprinted_a_compose(target, fails):
    text = """Compose(
  [Matmul, Matmul],
  [(1×32×128, GL), (1×64×1024, GL), (1×1024×32, GL), ‹1›×64×128, GL)]
)(a, b, c, out)"""
    error = fails(text, lambda text: parse_spec(text, target))
    assert error.hint == "expected a name or `(`; '[' at 3:3 is not closed yet"


STEPS = [
    ("‹tlie› [1]", "unknown step 'tlie'", "did you mean 'tile'? tiny has the steps select, to_accum, to_move, "),
    ("‹synthesise›", "unknown step 'synthesise'", "did you mean 'synthesize'?"),
    ("‹tile 8›", "`tile` does not take `8` here", "write: tile [SIZES, ...]"),
    ("‹tile›", "`tile` needs sizes", "write: tile [SIZES, ...]"),
    ("to_accum\n‹move 1 to›\nto_accum", "`move`: a value is missing after `to`", "write: move OPERAND to LEVEL"),
    ("move 1 to ‹L7› as row_major", "unknown memory level 'L7'", "tiny has the levels RF, VRF, L1, GL"),
    ("move 1 to ‹to›", "unknown memory level 'to'", "tiny has the levels"),
    ("move 1 to ‹gl›", "unknown memory level 'gl'", "did you mean 'GL'?"),
    ("move 1 to L1 as ‹rowmajor›", "unknown layout 'rowmajor'", "did you mean 'row_major'?"),
    ("move 1 to L1 cast ‹f23›", "unknown data type 'f23'", "did you mean 'f32'?"),
    ("move 1 to L1 as ‹layout[0, 0]›", "layout layout[0, 0]:", "a Dynamic part"),
    ("select ‹VecMove›", "unknown microkernel 'VecMove'", "did you mean 'VectorMove'? tiny has the microkernels"),
    (f"tile [1, ‹{10**30}›]", f"'{10**30}' is too large", "2^63"),
    (f"split ‹{10**30}›", f"'{10**30}' is too large", "2^63"),
    ("tile ‹[›1, 2", "'[' is never closed", "expected `,` or `]`"),
    ("tile [1, ‹x›]", "'x' is not a size", "write a number, or"),
    (
        "synthesize ‹1›",
        "unexpected '1'",
        "expected `using [...]`, `without [...]`, `with all layouts`, the end of the line or",
    ),
    ("synthesize ‹witout› [tile]", "unexpected 'witout'", "did you mean 'without'?"),
    ("synthesize without [tile, ‹VecMove›]", "tiny has no microkernel or rewrite 'VecMove'", "mean 'VectorMove'? tiny"),
    ("synthesize using [‹tlie›]", "tiny has no microkernel or rewrite 'tlie'", "did you mean 'tile'?"),
    ("synthesize without ‹tile›", "unexpected 'tile'", "expected `[`"),
    ("synthesize without [‹]›", "unexpected ']'", "expected a name"),
    ("‹tile [1]› { }", "'tile' takes no block of statements", "write: subschedule [0]"),
    ("‹subschedule [0]›", "subschedule has no statements", "write: subschedule [0]"),
    ("‹subschedule› { }", "subschedule needs the number of a child", "write: subschedule [0]"),
    ("subschedule ‹first› { }", "subschedule needs the number of a child", "write: subschedule [0]"),
    ("subschedule ‹0 1› { }", "subschedule needs the number of a child", "write: subschedule [0]"),
    ("subschedule ‹[]› { }", "subschedule needs the number of a child", "write: subschedule [0]"),
    ("subschedule [0, ‹-1›] { }", "child -1 does not exist", "children count from 0"),
    ("subschedule 0 { ‹tlie› }", "unknown step 'tlie'", "did you mean 'tile'?"),
    ("subschedule 0 ‹{› tile [1]", "'{' is never closed", "expected `}`"),
    ("tile [1] ‹}›", "unexpected '}'", "expected the end of the text"),
    ("‹[›1]", "unexpected '['", "expected a name"),
]


@pytest.mark.parametrize(("marked", "message", "hint"), STEPS)
def test_errors_in_schedules(target, fails, marked, message, hint):
    error = fails(marked, lambda text: parse_schedule(text, target))
    assert error.message.startswith(message)
    assert hint in error.hint


A = "spec a = Move(4, GL, L1)\n"
FILES = [
    ("target ‹tinny›\n" + A, "unknown target 'tinny'", "did you mean 'tiny'? installed targets are tiny"),
    ("target tiny\ntarget ‹tiny›\n" + A, "a second target", "one target"),
    ("‹s›pec a = Move(4, GL, L1)", "no target", "start the file with `target NAME`; installed targets are tiny"),
    ("‹t›arget tiny\n", "no specs", "declare one: spec NAME ="),
    ("‹#› nothing", "no specs", "declare one: spec NAME ="),
    ("target tiny\n" + A + "spec ‹a› = Move(4, GL, L1)", "a second spec 'a'", "the first is on line 2"),
    ("target tiny\n" + A + "schedule ‹ab› { }", "a schedule for 'ab', which is not a spec of this file", "specs are a"),
    ("target tiny\n" + A + "schedule a { }\nschedule ‹a› { }", "a second schedule for 'a'", "one schedule"),
    (
        "target tiny\n" + A + "schedule a for tiny { }\nschedule a { }\nschedule a for ‹tiny› { }",
        "a second",
        "a target",
    ),
    ("target tiny\n" + A + "schedule a for ‹tinny› { }", "unknown target 'tinny'", "did you mean 'tiny'? installed"),
    ("target tiny\n" + A + "schedule a for tiny, ‹{› }", "unexpected '{'", "expected a name"),
    ("target tiny\n" + A + "schedule a ‹of› tiny { }", "unexpected 'of'", "expected `for TARGET` or `{`"),
    ("target tiny\n" + A + "schedule a {\n tile [‹x›]\n}", "'x' is not a size", "write a number, or"),
    ("target tiny\n" + A + "schedule a ‹{›\n tile [1]\n", "'{' is never closed", "`}`"),
    ("target tiny\n‹lett› n = 4\n" + A, "unexpected 'lett'", "did you mean 'let'?"),
    ("target tiny\n" + A + "‹sepc› b", "unexpected 'sepc'", "did you mean 'spec'? expected `target NAME`"),
    ("target tiny\nspec ‹=› Move(4, GL, L1)", "unexpected '='", "expected a name"),
    (
        "target tiny\n‹}›",
        "unexpected '}'",
        "expected `target NAME`, `let NAME = SIZE`, `spec NAME = ...`, `schedule NAME { ... }`, `+` or",
    ),
]


@pytest.mark.parametrize(("marked", "message", "hint"), FILES)
def test_errors_in_files(registry, fails, marked, message, hint):
    error = fails(marked, lambda text: parse(text, registry=registry))
    assert error.message.startswith(message)
    assert hint in error.hint


def test_an_empty_file(registry):
    with pytest.raises(SourceError, match="<text>:1:1: error: no specs"):
        parse("", registry=registry)


def test_an_unknown_target_argument_has_no_place(registry):
    with pytest.raises(MorelloError, match="unknown target 'other'") as caught:
        parse(A, target="other", registry=registry)
    assert not isinstance(caught.value, SourceError)


def test_how_an_error_reads(registry):
    text = "target tiny\nspec gemm = Matmul(1×4×4×4,\n    (f32, GL),\n    (f32, L7, row_major),\n    (f32, GL))\n"
    with pytest.raises(SourceError) as caught:
        parse(text, filename="gemm.spec", registry=registry)
    assert str(caught.value) == (
        "gemm.spec:4:11: error: unknown memory level 'L7'\n"
        "    (f32, L7, row_major),\n"
        "          ^~\n"
        "  hint: tiny has the levels RF, VRF, L1, GL"
    )


def test_the_caret_is_below_tabs(target):
    with pytest.raises(SourceError) as caught:
        parse_spec("Move(4,\n\t\tGL,\tL7)", target)
    assert (caught.value.excerpt, caught.value.caret) == ("\t\tGL,\tL7)", "\t\t   \t^~")


@pytest.mark.parametrize("before", [0, 40, 5000])
def test_long_lines_are_clipped_around_the_caret(target, before):
    with pytest.raises(SourceError) as caught:
        parse_spec(" " * before + "Move(4, GL, L7" + " " * 5000 + ")", target)
    error = caught.value
    assert error.column == before + 13
    assert len(error.excerpt) <= 122
    assert error.excerpt[error.caret.index("^") :].startswith("L7")
    assert error.excerpt.endswith("…")
    assert error.excerpt.startswith("…") == (before == 5000)


HUGE = 10**6


@pytest.mark.parametrize("before", ["", "spec a = ", "spec a = Move(", A + "schedule a {", A + "schedule a { tile "])
@pytest.mark.parametrize("bracket", "([{)]}")
def test_a_megabyte_of_brackets(registry, before, bracket):
    start = time.perf_counter()
    with pytest.raises(SourceError) as caught:
        parse(before + bracket * HUGE, target="tiny", registry=registry)
    assert time.perf_counter() - start < 10
    assert len(str(caught.value)) < 1000


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "}" * 50_001])
def test_a_megabyte_of_nesting(registry, end):
    text = A + "schedule a {" + "subschedule 0 {" * 50_000 + end
    with pytest.raises(SourceError, match="nest more than 64 deep" if end else "never closed"):
        parse(text, target="tiny", registry=registry)


@pytest.mark.parametrize("text", ["Move(4×{}, GL, L1)", "Move(4, (GL, c{}), L1)", "(Move(4, GL, L1), [{}])"])
def test_a_number_of_a_million_digits(target, text):
    with pytest.raises(SourceError, match="is too large") as caught:
        parse_spec(text.format("9" * HUGE), target)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("text", ["{}", "{}(4, GL)", "Move(4, {}, GL)", "Move(4, ({}, GL), GL)"])
def test_a_word_of_a_million_letters(target, text):
    with pytest.raises(SourceError) as caught:
        parse_spec(text.format("f" * HUGE), target)
    assert len(str(caught.value)) < 1000


TOKENS = [
    "target", "spec", "schedule", "tiny", "a", "=", "Move", "Matmul", "Compose", "(", ")", "[", "]", "{", "}", ",",
    "4", "1×4×4×4", "×", "GL", "VRF", "RF", "f32", "u8", "c0", "c9", "v8", "ua", "serial", "row_major", "...", "-1",
    "layout[0, 1]", "layout[", "0p2", "1oe3", "\n", ";", "tile", "move", "to", "as", "select", "subschedule", "0",
    "for", "synthesize", "# x", "@", "\ud800", "\u2028", "spec a = Move(4, GL, L1)\n", "schedule a {",
    "Matmul(1×4×4×4, ",
]  # fmt: skip


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(text=st.lists(st.sampled_from(TOKENS), max_size=30).map(" ".join) | st.text(max_size=40))
def test_any_text_parses_or_is_an_error_with_a_place(registry, text):
    target = registry.target("tiny")
    for error in (
        _failure(lambda: parse("target tiny\n" + text, registry=registry)),
        _failure(lambda: parse_spec(text, target)),
        _failure(lambda: parse_schedule(text, target)),
    ):
        if error is not None:
            assert 1 <= error.line <= text.count("\n") + 2
            assert error.caret.index("^") <= len(error.excerpt) + 1
            # No terminal of the grammar, such as RPAR, appears among the expected tokens.
            assert not re.search(r"\b(_END|[LR]PAR|[LR]SQB|[LR]BRACE|STRIP|INT|WORD|DOTS|FOR)\b", error.hint or "")


def _failure(read: Callable[[], object]) -> SourceError | None:
    """Return the error of an invalid text; other exceptions propagate."""
    try:
        read()
    except SourceError as error:
        return error
    return None
