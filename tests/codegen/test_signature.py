"""Emitted functions and kernels in Python take the operands of the text, in its order."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import morello
from morello.api.kernel import Kernel
from morello.build.toolchain import find_compiler
from morello.codegen.writer import names_in
from morello.db.store import SpecStore
from morello.errors import ArgumentError
from morello.frontend import show_file
from morello.frontend.parser import parse, parse_signed
from morello.host import missing_features
from morello.ir.signature import Signature
from morello.plugins.registry import installed

GOLDEN = Path(__file__).parent.parent / "golden"
LAYER = """
target x86_avx2
spec layer = Compose([y = Relu(a), a = Add[over=[0, 1]](h, b), h = Matmul(x, w)],
    [x: (1×4×8, GL), w: (1×8×16, GL), b: (1×1×16, GL), y: (1×4×16, GL)], serial)
"""


def parameters(kernel: Kernel) -> list[str]:
    """Return the names of the function's parameters, as C has them."""
    found = re.search(rf"^void {kernel.program.name}\((.*)\);$", kernel.header, re.MULTILINE)
    assert found
    return [one.split()[-1].lstrip("*") for one in found[1].split(", ")]


def compiled(spec: str, target: str = "x86_avx2") -> Kernel:
    return morello.compile(morello.goal(spec, target=target))


@pytest.fixture
def runs() -> None:
    if missing := missing_features(installed().target("x86_avx2").info.cpu_features):
        pytest.skip(f"this machine lacks {', '.join(missing)}")


@pytest.mark.slow
def test_a_graph_has_the_names_and_the_order_of_its_list(runs: None) -> None:
    kernel = morello.compile(LAYER)
    assert parameters(kernel) == ["x", "w", "b", "y"]
    rng = np.random.default_rng(0)
    x, w, b = (rng.normal(size=shape).astype(np.float32) for shape in ((1, 4, 8), (1, 8, 16), (1, 1, 16)))
    assert np.allclose(kernel(x, w, b), np.maximum(x @ w + b, 0), atol=1e-5)
    y = np.empty((1, 4, 16), np.float32)
    kernel(x, w, b, y)
    assert np.array_equal(y, kernel(x, w, b))
    kernel.check()
    assert kernel.bench(min_time=0.001, repeats=1).median > 0


@pytest.mark.slow
def test_a_product_without_a_batch_is_one_of_matrices_in_headers_and_calls(runs: None) -> None:
    text = "Matmul(3×4×8, (f32, GL, col_major), (f32, GL, c1), GL, serial)(a, b, c)"
    for target in ("x86_avx2", "reference_c"):
        kernel = compiled(text, target)
        assert kernel.spec.shape == (1, 3, 4, 8)
        head, *_ = kernel.header.splitlines()
        assert "Matmul(3×4×8" in head
        for line in ("a: 3×4 f32, layout[1, 0]", "b: 4×8 f32, layout[0, 1]", "c: 3×8 f32, layout[0, 1]"):
            assert f"/* {line} */" in kernel.header
        a, b = np.arange(12, dtype=np.float32).reshape(4, 3).T, np.ones((4, 9), np.float32)[:, :8]
        assert np.array_equal(kernel(a, b), a @ b)
        assert kernel(a, b).shape == (3, 8)
        with pytest.raises(ArgumentError, match=r"a\): expected shape \(3, 4\), got shape \(4, 3\)"):
            kernel(a.T, b)
        with pytest.raises(ArgumentError, match=r"layout\[1, 0\]: strides \(4, 12\) in bytes, got strides \(16, 4\)"):
            kernel(a.copy(), b)
        kernel.check()
    assert "Matmul(3×4×8, (f32, GL, col_major)" in repr(morello.goal(text, target="x86_avx2"))
    assert kernel.program.signature == Signature(("a", "b", "c"), (0, 1, 2), implicit_dims=1)


def test_errors_have_the_names_of_the_text(runs: None) -> None:
    kernel = morello.compile(LAYER)
    x, w, b = (np.zeros(shape, np.float32) for shape in ((1, 4, 8), (1, 8, 16), (1, 1, 16)))
    with pytest.raises(
        ArgumentError, match=r"operand 2 \(b\): expected shape \(1, 1, 16\), got shape \(1, 16, 1\)"
    ) as at:
        kernel(x, w, b.reshape(1, 16, 1))
    # The hint's number is that of the Spec.
    number = re.search(r"operands\[(\d)\]", at.value.hint or "")
    assert number
    assert kernel.spec.operands[int(number[1])].shape == (1, 1, 16)
    with pytest.raises(ArgumentError, match="takes 4 arrays, or 3 without outputs, got 1") as at:
        kernel(x)
    assert at.value.hint == "its operands are x, w, b, y"
    buffer = np.zeros(200, np.float32)
    with pytest.raises(ArgumentError, match=r"operand 3 \(y\): .* overlaps operand 0 \(x\)"):
        kernel(buffer[:32].reshape(1, 4, 8), w, b, buffer[16:80].reshape(1, 4, 16))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ("Matmul(1×2×2×2, GL, GL, GL, serial)", ["lhs", "rhs", "out"]),
        ("Matmul(1×2×2×2, GL, GL, GL, serial)(a, b, c)", ["a", "b", "c"]),
        ("Compose([Relu, Exp], [(4, GL), (4, GL)], serial)(here, there)", ["here", "there"]),
        ("Compose([y = Relu(h), h = Sub(p, q)], [q: (4, GL), y: (4, GL), p: (4, GL)], serial)", ["q", "y", "p"]),
        ("Compose([y = Relu(h), h = Sub(p, q)], [q: (4, GL), y: (4, GL), p: (4, GL)], serial)(i, j, k)", list("ijk")),
        ("LayerNorm(2×8, GL, GL, GL, GL, serial)", ["x", "gamma", "beta", "out"]),
        ("RMSNorm(2×8, GL, GL, GL, serial)(q, r, s)", ["q", "r", "s"]),
        # Names that C has other uses for, of no letters of C, and twice the same.
        ("Add(4, GL, GL, GL, serial)(int, restrict, memcpy)", ["int2", "restrict2", "memcpy2"]),
        ("Add(4, GL, GL, GL, serial)(β, _x, __AVX2__)", ["u03b2", "my_x", "my_AVX2__"]),
        ("Add(4, GL, GL, GL, serial)(x, x, kernel)", ["x", "x2", "kernel2"]),
        ("Add(4, GL, GL, GL, serial)(morello_x, threads, workspace)", ["my_morello_x", "threads2", "workspace2"]),
        ("Move(4×4, (f32, GL, c1), GL, serial)(x, x_stride0)", ["x", "x_stride0", "x_stride0_2"]),
    ],
)
def test_names(spec: str, names: list[str]) -> None:
    assert parameters(compiled(spec)) == names


def test_the_reference_has_them_too() -> None:
    kernel = compiled("Matmul(1×2×3×2, GL, GL, GL, serial)(b, sum, lhs)", "reference_c")
    assert parameters(kernel) == ["b", "sum", "lhs"]
    lhs, rhs = np.arange(6, dtype=np.float32).reshape(1, 2, 3), np.ones((1, 3, 2), np.float32)
    assert np.array_equal(kernel(lhs, rhs), lhs @ rhs)


def test_specs_and_answers_do_not_depend_on_names(tmp_path: Path) -> None:
    target = installed().target("x86_avx2")
    texts = [
        "Compose([y = Add(h, b), h = Relu(x)], [b: (4, GL), x: (4, GL), y: (4, GL)], serial)",
        "Compose([z = Add(g, c), g = Relu(a)], [z: (4, GL), a: (4, GL), c: (4, GL)], serial)",
    ]
    (one, first), (other, second) = (parse_signed(text, target) for text in texts)
    assert one == other
    assert first == Signature(("b", "x", "y"), (0, 1, 2))
    assert second == Signature(("z", "a", "c"), (2, 1, 0))
    store = SpecStore(tmp_path / "solved.db")
    morello.compile(morello.goal(texts[0], target="x86_avx2"), db=store)
    found = store.program(target, other)
    assert found is not None
    assert morello.compile(morello.goal(texts[1], target="x86_avx2"), db=store).impl == found


@pytest.mark.parametrize(
    "spec",
    [
        "Add(4, GL, GL, GL, serial)(a, b, c)",
        "Compose([y = Relu(h), h = Sub(p, q)], [q: (4, GL), y: (4, GL), p: (4, GL)], serial)",
        "Compose([y = Add(h, x), h = Relu(x)], [y: (4, GL), x: (4, GL)], serial)(out, lhs1)",
        "LayerNorm(2×8, GL, GL, GL, GL, serial)",
        "Compose([Relu, Exp], [(4, GL), (4, GL)], serial)",
    ],
)
def test_printed_specs_have_the_names(spec: str) -> None:
    file = parse(f"target x86_avx2\nspec one = {spec}")
    assert parse(show_file(file)) == file


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["bf16_avx2", "buffers", "conv_avx2", "packed", "softmax_avx2", "strides", "threads_avx2"]
)
def test_no_name_hides_what_the_code_uses(name: str, tmp_path: Path) -> None:
    """Operands that are named as anything in the code is: nothing is declared twice, or in place of another."""
    goal = morello.parse((GOLDEN / f"{name}.spec").read_text(encoding="utf-8"))[name]
    done = morello.compile(goal)
    plain = done.program.signature
    words, count = sorted(names_in(done.program.source)), len(plain.names)
    files = []
    for start in range(0, len(words), count):
        signature = Signature(tuple([*words[start:], *words][:count]), plain.operands)
        files.append(f"{start}.c")
        (tmp_path / files[-1]).write_text(goal.target.emitter.emit(done.impl, goal.target, name, signature).source)
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Wshadow", "-Werror", *done.program.flags]
    # Most of the time goes to headers, which are read once.
    includes = [line for line in done.program.source.splitlines() if line.startswith("#include <")]
    (tmp_path / "all.h").write_text("\n".join([*includes, ""]))
    warnings = ""
    for command in (["-x", "c-header", "all.h", "-o", "all.h.gch"], ["-include", "all.h", "-fsyntax-only", *files]):
        line = [*find_compiler().command, *flags, *command]
        warnings += subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=300).stderr
    assert not warnings, warnings[:2000]
