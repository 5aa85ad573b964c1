"""The problems of the benchmark, by suite."""

from __future__ import annotations

from collections.abc import Iterable

from morello_baselines.native.problems import Problem

_F32 = ("f32",) * 3
#: Layouts of packed weights of bytes, by type of the sums; the cheapest is used. The values of one multiply-add along k
#: are adjacent, in rows or in panels of columns.
_PACKED = {
    "i32": ("layout[0, 1, 2, 1p4]", "layout[0, 2, 1, 2p64, 1p4]"),
    "i16": ("layout[0, 1, 2, 1p2]", "layout[0, 2, 1, 2p64, 1p2]"),
}


def _matmul(
    suite: str,
    batch: int,
    m: int,
    k: int,
    n: int,
    types: tuple[str, ...] = _F32,
    name: str = "",
    layouts: Iterable[str] = ("row_major",),
    packed: bool = False,
) -> Problem:
    x, w, y = types
    op = "Matmul[saturating]" if y == "i16" else "Matmul"
    layouts = tuple(layouts)
    specs = tuple(f"{op}({batch}×{m}×{k}×{n}, ({x}, GL), ({w}, GL, {b}), ({y}, GL), serial)" for b in layouts)
    sizes = f"{m}³" if m == k == n else f"{m}×{k}×{n}"
    return Problem(
        name or (f"{batch}×{sizes}" if batch > 1 else sizes),
        suite,
        "matmul",
        specs,
        ((batch, m, k), (batch, k, n)),
        (batch, m, n),
        types,
        2 * batch * m * k * n,
        columns=layouts == ("col_major",),
        packed=packed,
    )


def _dense(m: int, k: int, n: int) -> Problem:
    """Return a product with constant weights, which all may pack beforehand."""
    sizes = f"{m}³" if m == k == n else f"{m}×{k}×{n}"
    return _matmul("constants", 1, m, k, n, name=f"constant {sizes}", layouts=["row_major, constant"], packed=True)


def _low() -> Iterable[Problem]:
    """Yield products of other types than f32."""
    bf16 = ("bf16", "bf16", "f32")
    yield _matmul("bf16", 1, 512, 512, 512, bf16, "bf16 512³")
    yield _matmul("bf16", 1, 1, 2048, 16384, bf16, "bf16 1×2048×16384")
    yield _matmul("bf16", 1, 1, 2048, 16384, bf16, "bf16 1×2048×16384 columns", ["col_major"])
    for total in ("i32", "i16"):
        for size in (256, 512):
            types, name = ("u8", "i8", total), f"u8·i8→{total} {size}³"
            yield _matmul("bytes", 1, size, size, size, types, name)
            yield _matmul("bytes", 1, size, size, size, types, f"{name} packed", _PACKED[total], packed=True)


def _chain(m: int, k: int, n: int, o: int) -> Problem:
    shapes = ((1, n, o), (1, m, k), (1, k, n))
    operands = ", ".join(f"({'×'.join(map(str, shape))}, f32, GL)" for shape in (*shapes, (1, m, o)))
    spec = f"Compose([Matmul, Matmul], [{operands}], serial)"
    flops = 2 * m * k * n + 2 * m * n * o
    return Problem(f"chain {m}×{k}×{n}×{o}", "fused", "chain", (spec,), shapes, (1, m, o), ("f32",) * 4, flops)


def _linear_gelu(m: int, k: int, n: int) -> Problem:
    spec = (
        "Compose([y = Gelu(c), c = Add[over=[0, 1]](h, b), h = Matmul(x, w)], "
        f"[x: (1×{m}×{k}, f32, GL), w: (1×{k}×{n}, f32, GL), b: (1×1×{n}, f32, GL), y: (1×{m}×{n}, f32, GL)], serial)"
    )
    shapes = ((1, 1, n), (1, m, k), (1, k, n))
    name = f"matmul+bias+gelu {m}×{k}×{n}"
    return Problem(name, "fused", "linear gelu", (spec,), shapes, (1, m, n), ("f32",) * 4, 2 * m * k * n)


def _attention(tokens: int, width: int) -> Problem:
    shapes = ((1, tokens, width), (1, tokens, width), (1, width, tokens))
    operands = ", ".join(f"({'×'.join(map(str, shape))}, f32, GL)" for shape in (*shapes, shapes[0]))
    spec = f"Compose([Matmul, Softmax, Scale[by={width**-0.5}], Matmul], [{operands}], serial)"
    name, flops = f"attention {tokens}×{width}", 4 * tokens * tokens * width
    return Problem(name, "fused", "attention", (spec,), shapes, shapes[0], ("f32",) * 4, flops)


def _rows(what: str, op: str, m: int, n: int, suite: str = "rows", columns: int | None = None) -> Problem:
    """Return an operation on rows; its result has `columns` columns, by default as many as the input."""
    spec = f"{op}({m}×{n}, (f32, GL), (f32, GL), serial)"
    return Problem(f"{what} {m}×{n}", suite, what, (spec,), ((m, n),), (m, columns or n), ("f32",) * 2)


def _add(size: int) -> Problem:
    spec = f"Add({size}×{size}, (f32, GL), (f32, GL), (f32, GL), serial)"
    shape = (size, size)
    return Problem(f"add {size}²", "values", "add", (spec,), (shape,) * 2, shape, ("f32",) * 3)


def _layer_norm(m: int, n: int) -> Problem:
    spec = f"LayerNorm(1×{m}×{n}, (f32, GL), (f32, GL), (f32, GL), (f32, GL), serial)"
    shapes = ((1, 1, n), (1, 1, n), (1, m, n))
    return Problem(f"LayerNorm {m}×{n}", "rows", "layer norm", (spec,), shapes, (1, m, n), ("f32",) * 4)


def _conv(filters: int, channels: int, size: int, side: int) -> Problem:
    around = f"[padding={side // 2}]" if side > 1 else ""
    spec = f"Conv{around}(1×{filters}×{channels}×{size}×{size}×{side}×{side}, (f32, GL), (f32, GL), (f32, GL), serial)"
    shapes, shape = ((1, channels, size, size), (filters, channels, side, side)), (1, filters, size, size)
    name, flops = f"conv {filters},{channels},{size},{side}", 2 * filters * channels * (size * side) ** 2
    return Problem(name, "convolutions", "conv", (spec,), shapes, shape, ("f32",) * 3, flops)


def _breadth() -> Iterable[Problem]:
    """Yield pools, norms, attention, products of other weights and moves of data."""

    def one(name: str, what: str, spec: str, flops: int = 0) -> Problem:
        return Problem.of_spec(name, "breadth", what, spec, flops=flops)

    two, three = "(f32, GL), (f32, GL), serial)", "(f32, GL), (f32, GL), (f32, GL), serial)"
    yield one("max pool 64,112,3/2", "pool", f"MaxPool[stride=2, padding=1, image=112](1×64×56×56×3×3, {two}")
    yield one("average pool 64,56,2/2", "pool", f"AvgPool[stride=2](1×64×28×28×2×2, {two}")
    yield one("global pool 2048,7", "pool", f"AvgPool(1×2048×1×1×7×7, {two}")
    yield one("RMSNorm 512×4096", "norm", f"RMSNorm(1×512×4096, {three}")
    yield one("GroupNorm 32,10,32", "norm", f"GroupNorm(1×32×10×32×32, (f32, GL), (f32, GL), {two}")
    heads = "(12×1×64, f32, GL), (12×64×2048, f32, GL), (12×1×64, f32, GL)"
    decode = f"Compose([Matmul, Softmax, Scale[by=0.125], Matmul], [(12×2048×64, f32, GL), {heads}], serial)"
    yield one("attention 12×1×2048", "attention", decode, 4 * 12 * 2048 * 64)
    four = "(f32, GL), (u8, GL), (f32, GL), (u8, GL), (f32, GL), serial)"
    yield one("int4 1×4096×4096", "quantized", f"QMatmul[bits=4, group=32](1×1×128×4096, {four}", 2 * 4096 * 4096)
    yield one("f16 512³", "matmul", "Matmul(1×512×512×512, (f16, GL), (f16, GL), (f16, GL), serial)", 2 * 512**3)
    yield one("concat 2×1024×512", "moves", f"Concat[dim=1, sizes=[512, 512]](1024×1024, {three}")
    yield one("slice 1024×512", "moves", f"Slice[start=[0, 256], rest=[0, 256]](1024×512, {two}")
    yield one("transpose 12×512×64", "moves", f"Transpose[order=[1, 0, 2]](512×12×64, {two}")
    yield one("gather 4096×256", "moves", "Gather(4096×256×32768, (f32, GL), (i32, GL), (f32, GL), serial)")
    for name in ("Erf", "Sin", "Mish", "HardSwish"):
        yield one(f"{name} 1024×1024", "functions", f"{name}(1024×1024, {two}")


def _transpose(size: int) -> Problem:
    spec = f"Move({size}×{size}, (f32, GL, row_major), (f32, GL, col_major), serial)"
    shape = (size, size)
    return Problem(f"transpose {size}²", "rows", "transpose", (spec,), (shape,), shape, ("f32",) * 2)


_ALL = [
    *(_matmul("squares", 1, size, size, size) for size in (16, 32, 64, 128, 256, 512, 1024, 1536, 2048)),
    *(_matmul("odd", 1, size, size, size) for size in (17, 100, 1000)),
    _matmul("odd", 1, 197, 768, 768),
    _matmul("odd", 1, 128, 768, 3072),
    _matmul("odd", 1, 49, 2048, 512),
    _matmul("odd", 1, 3, 1000, 7),
    _matmul("odd", 1, 37, 101, 53),
    _matmul("odd", 1, 127, 255, 63),
    _matmul("thin", 1, 1, 1024, 1024),
    _matmul("thin", 1, 8, 2048, 2048),
    _matmul("thin", 1, 2048, 2048, 8),
    _matmul("thin", 1, 32, 784, 128),
    _matmul("memory", 1, 1, 4096, 4096),
    _matmul("memory", 1, 32, 4096, 4096),
    _matmul("memory", 1, 64, 256, 3136),
    _matmul("batches", 16, 64, 64, 64),
    _matmul("batches", 12, 197, 197, 64),
    *_low(),
    *(_dense(size, size, size) for size in (128, 512, 1024)),
    *(_dense(m, 768, n) for m in (32, 128, 197) for n in (768, 3072)),
    *(_dense(m, 4096, 4096) for m in (1, 32)),
    _rows("softmax", "Softmax", 1024, 1024),
    _rows("softmax", "Softmax", 64, 16384),
    _transpose(1024),
    _transpose(2048),
    _layer_norm(8, 768),
    _layer_norm(4096, 768),
    _rows("gelu", "Gelu", 8, 3072),
    _rows("sums", "Sum", 1024, 1024, columns=1),
    _rows("relu", "Relu", 1024, 1024, "values"),
    _rows("relu", "Relu", 4096, 4096, "values"),
    _rows("copy", "Move", 4096, 4096, "values"),
    _add(2048),
    _chain(64, 1024, 32, 128),
    _linear_gelu(128, 768, 3072),
    _attention(128, 64),
    _attention(512, 64),
    _conv(128, 128, 28, 3),
    _conv(512, 128, 28, 1),
    *_breadth(),
]
PROBLEMS = {problem.name: problem for problem in _ALL}
SUITES = tuple(dict.fromkeys(problem.suite for problem in _ALL))
