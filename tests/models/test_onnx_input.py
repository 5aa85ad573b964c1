"""Files that are no valid models, and models that are not supported, end in one error."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import morello
from morello.errors import MorelloError
from morello.models.graph import Graph
from morello.models.onnx_worker import Worker
from morello.models.passes import simplified
from morello.models.plan import plan_of

SMALL = "float[1, 4] x"


def parsed(body: str, inputs: str = SMALL, output: str = "float[1, 4] y") -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]>\nmodel ({inputs}) => ({output}) {{\n{body}\n}}'
    )


def read(folder: Path, model: onnx.ModelProto | bytes, **dims: int) -> Graph:
    path = folder / "model.onnx"
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return morello.from_onnx(path, dims)


def with_external(location: str) -> onnx.ModelProto:
    model = parsed("y = Add(x, w)")
    data = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    data.external_data.add(key="location", value=location)
    model.graph.initializer.append(data)
    return model


@pytest.mark.parametrize("location", ["../secret", "{}/secret", "link", "absent"])
def test_data_outside_of_the_folder(tmp_path, location):
    (tmp_path / "secret").write_bytes(bytes(16))
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(MorelloError, match="not a valid ONNX model"):
        read(folder, with_external(location.format(tmp_path)))


def declared(body: str, shape: Sequence[int | str], dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """Return a model of nodes on an input of this shape."""
    model = parsed(body)
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", dtype, shape))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", dtype, [f"d{n}" for n in range(len(shape))]))
    return model


SIZES = "s = Constant<value = int64[2] {1099511627776, 4}>()\n"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (b"", "ir_version"),
        (bytes(range(256)), "not a valid ONNX model"),
        (parsed("y = Relu(x)").SerializeToString()[:-9], "not a valid ONNX model"),
        (parsed("y = Relu(x)").SerializeToString().replace(b"Relu", b"\xff\xfe\xfd\xfc"), "not a valid ONNX model"),
        (parsed("a = Add(x, b)\nb = Relu(a)\ny = Relu(b)"), "topologically sorted"),
        (parsed("y = Relu(x)\ny = Abs(x)"), "multiple times"),
        (declared("y = Relu(x)", [2**40, 2**22]), "the tensor x has the shape"),
        (declared("y = Relu(x)", [-5]), "x has the size -5"),
        (declared("y = Relu(x)", ["n"]), "--dim n=1"),
        (declared("y = Relu(x)", [4], 999), "values of an unknown type"),
        (parsed(SIZES + "z = ConstantOfShape(s)\nr = ReduceSum(z)\ny = Add(x, r)"), "the tensor z has the shape"),
        (parsed("y = Transpose<perm = [5, -7]>(x)"), "contradict each other"),
        (parsed('y = Einsum<equation = "\x85,a->">(x, x)'), "contradict each other"),
        (parsed("y = Relu(x)", output="float[1, 4, 4] y"), "shape"),
        (parsed('y = Concat<axis = 0>(x, "")'), "a left out input"),
        (parsed("y = Gemm(x, x)"), "matrices of the shapes"),
        (parsed("y = Softmax(x)", output="float[4, 1] y"), "shape"),
        (parsed("y = Relu(x)", f"{SMALL}, optional(float[4]) z"), "the input z is no tensor"),
        (declared("y = Relu(x)", ["a $b"]), re.escape("--dim 'a $b=1'")),
    ],
)
def test_no_models(tmp_path, model, message):
    with pytest.raises(MorelloError, match=message):
        read(tmp_path, model)


def test_places_and_sizes_that_are_none(tmp_path):
    for path, message in ((tmp_path, "is a folder"), (tmp_path / "absent.onnx", "there is no such file")):
        with pytest.raises(MorelloError, match=message):
            morello.from_onnx(path)
    with pytest.raises(MorelloError, match="give a smaller size"):
        read(tmp_path, declared("y = Relu(x)", ["n"]), n=2**70)


def test_limits_of_time_and_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("morello.models.onnx._WORKER", Worker(1, 3 << 28))
    # ONNX's inference of shapes fills a list of this size.
    model = parsed("y = Slice(x, s, s)", f"{SMALL}, int64[9223372036854775807] s")
    with pytest.raises(MorelloError, match="takes too much memory"):
        read(tmp_path, model)
    model = parsed("p = MaxPool<kernel_shape = [99, 99]>(w)\ns = ReduceMax<keepdims = 0>(p)\ny = Add(x, s)")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((1, 1, 500, 500), np.float32), "w"))
    with pytest.raises(MorelloError, match="takes more than 1 seconds"):
        read(tmp_path, model)


def test_all_that_is_not_supported_at_once(tmp_path):
    body = "a = Acos(x)\nb = Relu(a)\n[two] c = Cosh(b)\ny = Round(c)"
    with pytest.raises(MorelloError) as error:
        read(tmp_path, parsed(body))
    assert [line.strip() for line in error.value.message.splitlines()[1:]] == [
        "a (Acos): no such operator",
        "two (Cosh): no such operator",
    ]


def test_a_type_that_an_operation_does_not_take_names_its_node(tmp_path):
    model = parsed("[one] r = Relu(x)\n[two] y = Softmax(r)", "int32[1, 4] x", "int32[1, 4] y")
    with pytest.raises(MorelloError, match=r"^two \(Softmax\): .* is defined for floats, not for i32"):
        morello.compile_model(read(tmp_path, model), target="reference_c", expansions=1)


def test_names_that_are_no_c(tmp_path):
    model = parsed("y = Relu(x)")
    for part in (model.graph.input[0], model.graph.node[0].input):
        if isinstance(part, onnx.ValueInfoProto):
            part.name = '*/ "x\n'
        else:
            part[0] = '*/ "x\n'
    graph = read(tmp_path, model)
    assert graph.inputs == ('*/ "x\n',)
    assert morello.compile_model(graph, target="x86_avx2", expansions=1)(np.full((1, 4), -1, np.float32)).tolist() == [
        [0] * 4
    ]


def test_branches_that_are_constant(tmp_path):
    relu, neg = (
        helper.make_graph([helper.make_node(op, ["x"], ["z"])], op, [], [helper.make_tensor_value_info("z", 1, [1, 4])])
        for op in ("Relu", "Neg")
    )
    body = "k = Constant<value = int64 {16000}>()\nb = Equal(rate, k)"
    model = parsed(body, f"{SMALL}, int64 rate", "float[1, 4] y")
    model.graph.node.append(helper.make_node("If", ["b"], ["y"], then_branch=relu, else_branch=neg))
    for rate, op in ((16000, "Relu"), (8000, "Neg")):
        graph = read(tmp_path, model, rate=rate)
        assert graph.inputs == ("x",)
        assert op in [node.op for node in graph.nodes]


BODY = (
    "w = Constant<value = float[2, 4] {1,2,3,4,5,6,7,8}>()\nm = Gemm<transB = 1>(x, w)\ns = Softmax<axis = 1>(m)\n"
    "k = Constant<value_ints = [1, 2]>()\nt = Tile(s, k)\nr = ReduceMean<axes = [1]>(t)\ny = Sub(x, r)"
)


def test_changed_bytes(tmp_path):
    """Changed bytes of a model give a model or one error."""
    valid = parsed(BODY).SerializeToString()
    rng = random.Random(0)

    def changed() -> bytes:
        data = bytearray(valid)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.choice([0, 255, rng.randrange(256)])
        return bytes(data)

    assert 0 < sum(ends_well(tmp_path, changed()) for _ in range(300)) < 300


def test_changed_numbers(tmp_path):
    """Changed sizes, types and attributes of a model give a model or one error."""
    body = "c = Conv<pads = [1, 1, 1, 1], group = 1>(x, w)\np = MaxPool<kernel_shape = [2, 2]>(c)\n"
    body += "i = Constant<value = int64[2] {0, 1}>()\ng = Gather<axis = 1>(p, i)\ny = Flatten<axis = 1>(g)"
    valid = parsed(body, "float[1, 2, 4, 4] x, float[2, 2, 3, 3] w", "float[1, 18] y").SerializeToString()
    rng = random.Random(0)

    def changed() -> bytes:
        model = onnx.ModelProto.FromString(valid)
        graph = model.graph
        sizes = [one.type.tensor_type.shape.dim for one in (*graph.input, *graph.output)]
        numbers = [one.ints for node in graph.node for one in node.attribute if one.ints]
        for _ in range(rng.randint(1, 2)):
            number = rng.choice([-1, 0, 1, 2, 3, 7, 2**31, 2**40, 2**63 - 1])
            where = rng.randrange(3)
            if where == 0:
                rng.choice(rng.choice(sizes)).dim_value = number
            elif where == 1:
                ints = rng.choice(numbers)
                ints[rng.randrange(len(ints))] = number
            else:
                rng.choice([one for node in graph.node for one in node.attribute]).i = number
        return model.SerializeToString()

    assert 0 < sum(ends_well(tmp_path, changed()) for _ in range(150)) < 150


def ends_well(folder: Path, data: bytes) -> bool:
    """Return whether a file is a model; anything but that or one error is raised."""
    try:
        plan_of(simplified(read(folder, data)))
    except MorelloError:
        return False
    return True
