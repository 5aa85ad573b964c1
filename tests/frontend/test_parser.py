"""Parse the examples of the paper and of the design, with all optional parts left out."""

import attrs
import pytest

from morello.frontend import parse, parse_schedule, parse_spec
from morello.ir.dtypes import BF16, F32, U8
from morello.ir.layout import Dynamic, Layout, Packed, col_major, row_major
from morello.ir.ops import Compose, by_name
from morello.ir.ops.base import Operand, Operation, operand
from morello.ir.ops.compare import Where
from morello.ir.ops.views import Concat
from morello.ir.spec import LogicalSpec
from morello.plugins import TargetPlugin, hookimpl
from morello.plugins.registry import Registry
from morello.rewrites import Rewrite, Word, argument
from morello.rewrites.move import MoveStep
from morello.rewrites.select import Select
from morello.rewrites.split import Split
from morello.rewrites.tile import Tile
from morello.schedule import Subschedule, Synthesize, schedule_text


def test_paper_matmul_accum_with_limits(target):
    spec = parse_spec(
        """(MatmulAccum(
 1×4×128×16,
 (bf16, L1, row_major),
 (bf16, L1, col_major, ua, c0),
 (f32, VRF, row_major, v8),
 serial),
[64, 512, 32768, 1073741824])""",
        target,
    )
    lhs, rhs, out = spec.operands
    assert spec.op == by_name("MatmulAccum")
    assert spec.shape == (1, 4, 128, 16)
    assert spec.logical.serial
    assert spec.limits == (64, 512, 32768, 1073741824)
    # Dimensions of size 1 are left out of the normal form.
    assert lhs.state == target.state("L1", BF16, Layout((Dynamic(1), Dynamic(2))))
    assert rhs.state == target.state("L1", BF16, Layout((Dynamic(2), Dynamic(1))), contig=0, aligned=False)
    assert out.state == target.state("VRF", F32, Layout((Dynamic(1), Dynamic(2))), vector=8)


@pytest.mark.parametrize(
    ("limits", "read"),
    [
        ("[32, 64]", {"RF": 32, "VRF": 64}),
        ("[L1=1024]", {"L1": 1024}),
        ("[32, GL=1024, L1=64]", {"RF": 32, "GL": 1024, "L1": 64}),
    ],
)
def test_levels_without_a_limit_have_their_capacity(target, limits, read):
    spec = parse_spec(f"(FillZero(4, GL), {limits})", target)
    assert spec.limits == target.limits([read.get(level.name, level.capacity) for level in target.levels])
    assert parse_spec(str(spec), target) == spec


def test_paper_move_into_registers_with_all_memory(target):
    spec = parse_spec("(Move(4×4, (u8, L1, row_major), (u8, RF, row_major), serial), ...)", target)
    assert spec == target.spec(
        LogicalSpec(
            by_name("Move"),
            (4, 4),
            (target.state("L1", U8, row_major(2)), target.state("RF", U8, row_major(2))),
        )
    )
    assert spec.operands[1].state.layout is None


@pytest.mark.parametrize(
    "text",
    [
        "(Move(4×4, (u8, L1, row_major), (u8, L1, col_major), serial), ...)",
        "(Move(4×4, (bf16, RF, row_major), (f32, RF, row_major), serial), ...)",
        "(MatmulAccum(1×4×4×16, RF, VRF, L1), ..)",
        "MatmulAccum(1×1×1×16, RF, VRF, VRF)(tlhs, trhs, vout)",
        "Move(1×1×16, L1, VRF)(tout, vout) # load from L1 into vector registers",
    ],
)
def test_other_examples_of_the_paper(target, text):
    assert parse_spec(text, target).limits == target.full_limits()


def test_short_form_defaults(target):
    spec = parse_spec("MatmulAccum(1×4×4×16, RF, VRF, L1)", target)
    assert [one.state.level for one in spec.operands] == ["RF", "VRF", "L1"]
    assert [one.state.dtype for one in spec.operands] == [F32] * 3
    assert [one.state.vector for one in spec.operands] == [None, 8, None]
    assert spec.operands[2].state.layout == Layout((Dynamic(1), Dynamic(2)))
    assert all(one.state.aligned and one.state.contiguous for one in spec.operands)
    assert not spec.logical.serial
    assert spec.limits == target.full_limits()


@pytest.mark.parametrize(("shape", "vector"), [("4×4", 8), ("4×3", 4), ("16", 8), ("1×12", 4)])
def test_default_vector_is_the_widest_that_divides(target, shape, vector):
    assert parse_spec(f"Move({shape}, VRF, GL)", target).operands[0].state.vector == vector


def test_default_vector_divides_the_contiguous_run(target):
    spec = parse_spec("Move(4×4, (VRF, c1), GL)", target)
    assert spec.operands[0].state.vector == 4


@pytest.mark.parametrize(
    "text", ["Move(1x4 x 8,GL,L1)", "Move( 1×4×8 ,\n GL , # here\n L1\n)\n", "(Move(1×4×8, GL, L1),…)"]
)
def test_spelling_does_not_matter(target, text):
    assert parse_spec(text, target) == parse_spec("Move(1×4×8, GL, L1)", target)


def test_properties_come_in_any_order(target):
    plain = parse_spec("Move(8×8, (bf16, VRF, col_major, ua, c1, v8), GL)", target)
    assert plain == parse_spec("Move(8×8, (v8, c1, ua, col_major, VRF, bf16), GL)", target)
    assert plain.operands[0].state == target.state("VRF", BF16, col_major(2), contig=1, aligned=False, vector=8)


@pytest.mark.parametrize(
    ("shape", "layout", "dims", "contig"),
    [
        ("1×128×16", "col_major, c0", (Dynamic(2), Dynamic(1)), 0),
        ("1×128×16", "row_major, c1", (Dynamic(1), Dynamic(2)), 1),
        ("8×16", "layout[0, 1, 0p4], c2", (Dynamic(0), Dynamic(1), Packed(0, 4)), 2),
        # Strips without a declared contiguity may have gaps between them.
        ("8×16", "layout[0, 0p4, 1], c1", (Dynamic(0), Packed(0, 4), Dynamic(1)), 1),
        ("8×16", "layout[0, 0p4, 1], c2", (Dynamic(0), Packed(0, 4), Dynamic(1)), 2),
        ("8×16", "layout[0, 0p4, 1], c3", (Dynamic(0), Dynamic(1)), 2),
        ("1×2×3×4", "nhwc", (Dynamic(2), Dynamic(3), Dynamic(1)), 3),
        ("2×16×3×4", "nchw8c", (Dynamic(0), Dynamic(1), Dynamic(2), Dynamic(3), Packed(1, 8)), 5),
        ("1×8×3×4", "nchw8c", (Dynamic(2), Dynamic(3), Dynamic(1)), 3),
        ("1×1", "row_major", (), 0),
    ],
)
def test_layouts_and_contiguity(target, shape, layout, dims, contig):
    state = parse_spec(f"FillZero({shape}, (GL, {layout}))", target).operands[0].state
    assert (state.layout, state.contig) == (Layout(dims), contig)


def test_limits_come_out_in_normal_form(target):
    assert parse_spec("(FillZero(4, GL), [63, 99999, 100, 7])", target).limits == (60, 512, 64, 0)


COMPOSE = "Compose([Matmul, Matmul], [(1×32×128, GL), (1×64×1024, GL), (1×1024×32, GL), (1×64×128, GL)])"


@pytest.mark.parametrize("suffix", ["", "(a, b, c, out)"])
def test_paper_compose(target, suffix):
    spec = parse_spec(COMPOSE + suffix, target)
    assert spec.op == Compose.chain([by_name("Matmul"), by_name("Matmul")])
    assert spec.shape == (1, 64, 32, 128, 1024)
    assert [one.shape for one in spec.operands] == [(1, 32, 128), (1, 64, 1024), (1, 1024, 32), (1, 64, 128)]
    assert not spec.logical.serial


def test_compose_of_three_serial(target):
    operands = "(1×4×5, GL), (1×3×4, L1), (1×7×2, GL), (1×2×3, GL), (1×7×5, GL)"
    spec = parse_spec(f"Compose([MatmulAccum, Matmul, Matmul], [{operands}], serial)", target)
    assert spec.shape == (1, 7, 4, 5, 3, 2)
    assert spec.logical.serial
    assert spec.operands[1].state.level == "L1"


@pytest.mark.parametrize("sizes", [(3,), (1, 2, 3)])
def test_concat_in_a_chain_has_an_input_for_each_size(target, sizes):
    operands = ", ".join(f"(2×{size}, GL)" for size in (*sizes[1:], sizes[0], sum(sizes)))
    spec = parse_spec(f"Compose([Concat[sizes={list(sizes)}], Relu], [{operands}])", target)
    assert spec.op == Compose.chain([Concat(sizes=sizes), by_name("Relu")], [2, 2])


@attrs.frozen
class Blur(Operation):
    """out[i] = Σ_w image[2·i + w]: an operand dimension made of two iteration dimensions."""

    @property
    def name(self):
        return "Blur"

    @property
    def rank(self):
        return 2

    def dims(self, rank):
        return ("i", "w")

    def operands(self, rank):
        image = Operand("image", (((0, 2), (1, 1)),))
        return (image, operand("weights", (1,)), operand("out", (0,), reads=False, writes=True))

    def evaluate(self, shape, inputs, dtypes):
        raise AssertionError

    def flops(self, shape):
        return 0


class Blurring:
    @hookimpl
    def morello_operations(self):
        return [Blur()]


#: Operands of the graph y = Where(Less(Relu(a), z), a, b), and the dimensions along which these are repeated.
BROADCAST = [
    ("a: (4×8, GL), b: (4×8, GL), z: (4×8, GL)", ((), (), ()), ((), ())),
    ("a: (4×8, GL), b: (8, GL), z: (4×1, GL)", ((), (), (0,)), ((), (1,))),
    ("a: (4×1, GL), b: (1×8, GL), z: (8, GL)", ((), (1,), (0,)), ((1,), (0,))),
    ("a: (4×1, GL), b: (4×8, GL), z: (1, GL)", ((1,), (1,), ()), ((), (0,))),
]


@pytest.mark.parametrize(("operands", "where", "less"), BROADCAST)
def test_operands_are_repeated_as_in_numpy(target, operands, where, less):
    graph = "y = Where(c, a, b), c = Less(r, z), r = Relu(a)"
    spec = parse_spec(f"Compose([{graph}], [{operands}, y: (4×8, GL)])", target)
    assert isinstance(spec.op, Compose)
    chosen, compared, _ = (stage.op for stage in spec.op.stages)
    assert chosen == Where(over_condition=where[0], over_lhs=where[1], over=where[2])
    assert compared == by_name("Less").configured({"over_lhs": less[0], "over": less[1]})
    assert parse_spec(str(spec), target) == spec


@pytest.fixture
def blurring(plugin):
    return Registry.of(tiny=plugin, blurring=Blurring()).target("tiny")


def test_compose_infers_through_strides(blurring):
    # Outer: 5 outputs of windows of 3 need 11 inputs; inner: 11 outputs of windows of 4 need 24.
    spec = parse_spec("Compose([Blur, Blur], [(3, GL), (24, GL), (4, GL), (5, GL)])", blurring)
    assert spec.shape == (5, 3, 4)


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        ("(3, GL), (24, GL), (4, GL), (‹6›, GL)", "operand 3 (out) is 6, but 5 was expected"),
        ("(3, GL), (‹24›, GL), (5, GL), (5, GL)", "operand 1 (image1) is 24, which does not fit"),
    ],
)
def test_compose_contradicts_through_strides(blurring, fails, operands, message):
    error = fails(f"Compose([Blur, Blur], [{operands}])", lambda text: parse_spec(text, blurring))
    assert error.message.startswith(message)


FILE = """\
# gemm.spec
target tiny

spec gemm = Matmul(1×512×512×512,            # batch × m × k × n
    (f32, GL, row_major),
    (f32, GL, row_major),
    (f32, GL, row_major), serial)

schedule gemm {
    tile [1, 64,
          64]
    move 1 to L1 as layout[0, 2, 1, 2p16] # packed

    move 0 to VRF as col_major v8; split 4
    subschedule [0, 1] { select VectorMove }
    subschedule 2 {
        synthesize;
    }
}

spec other = Move(4, GL, L1)
"""


def test_file(registry, target):
    file = parse(FILE, registry=registry)
    assert file.target is target
    assert [goal.name for goal in file.goals] == ["gemm", "other"]
    assert file.goals[0].spec == parse_spec("Matmul(1×512×512×512, (f32, GL), (f32, GL), (f32, GL), serial)", target)
    assert file.goals[0].schedule == (
        Tile((1, 64, 64)),
        MoveStep(1, "L1", Layout((Dynamic(0), Dynamic(2), Dynamic(1), Packed(2, 16)))),
        MoveStep(0, "VRF", "col_major", 8),
        Split(4),
        Subschedule((0, 1), (Select("VectorMove"),)),
        Subschedule((2,), (Synthesize(),)),
    )
    assert file.goals[1].schedule == ()


@pytest.mark.parametrize("change", [lambda text: text.replace("\n", "\r\n"), lambda text: "\ufeff" + text])
def test_line_ends_and_byte_order_mark(registry, change):
    assert parse(change(FILE), registry=registry) == parse(FILE, registry=registry)


def test_target_argument_overrides_the_file(registry, target):
    assert parse("target other\nspec a = Move(4, GL, L1)", target="tiny", registry=registry).target is target
    assert parse("spec a = Move(4, GL, L1)", target="tiny", registry=registry).target is target


def test_words_of_the_language_are_names_elsewhere(registry):
    file = parse(
        "spec spec = Move(4, GL, L1)\nspec target = Move(4, GL, L1)\nspec layout = Move(4, GL, L1) "
        "schedule spec { synthesize }",
        target="tiny",
        registry=registry,
    )
    assert [goal.name for goal in file.goals] == ["spec", "target", "layout"]


@attrs.frozen
class Unroll(Rewrite):
    """A rewrite the frontend has never heard of."""

    keyword = "unroll"
    times: int = argument(int)
    axes: tuple[int, ...] = argument(tuple, default=())
    fully: bool = argument(bool, keyword="fully", default=False)
    via: str | None = argument(Word, keyword="via", default=None)

    @classmethod
    def steps(cls, logical, target):
        yield from ()

    def cases(self, logical, target):
        yield from ()


def test_new_rewrites_need_no_grammar(plugin):
    target = Registry.of(tiny=plugin, extension=TargetPlugin(extends="tiny", rewrites=[Unroll])).target("tiny")
    steps = parse_schedule("unroll 4 [1, 2] fully via somewhere; unroll 2", target)
    assert steps == (Unroll(4, (1, 2), True, "somewhere"), Unroll(2))
    assert parse_schedule(schedule_text(steps), target) == steps
