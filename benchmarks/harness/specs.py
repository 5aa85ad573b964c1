"""The Specs that search is measured on: every problem and example, and shapes that search finds hard."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import attrs

from harness.layers import Layer, depthwise, layer, ttile_layers
from harness.suite import PROBLEMS
from morello.frontend.parser import parse
from morello.ir.spec import Spec
from morello.kernels.target import Target

_EXAMPLES = Path(__file__).parents[2] / "examples"
_F32 = ("f32",) * 3
_BF16 = ("bf16", "bf16", "f32")
_BYTES = ("u8", "i8", "i32")


@attrs.frozen
class Searched:
    """A Spec to search a program for: the one called `spec` in a Spec file's text, whose schedule does not count."""

    name: str
    suite: str
    text: str
    spec: str = "searched"

    def for_target(self, target: str) -> tuple[Spec, Target]:
        """Return the Spec as it is for a target, and the target."""
        file = parse(self.text, filename=self.name, target=target, cpu="native")
        return next(one.spec for one in file.goals if one.name == self.spec), file.target


def _one(suite: str, name: str, spec: str) -> Searched:
    return Searched(name, suite, f"target x86_avx2\nspec searched = {spec}\n")


def _products(suite: str, sizes: Iterable[tuple[int, ...]], types: tuple[str, ...] = _F32) -> Iterable[Searched]:
    """Yield products of sizes m, k, n, or batch, m, k, n."""
    operands = ", ".join(f"({one}, GL)" for one in types)
    of = {_F32: "", _BF16: "bf16 ", _BYTES: "u8·i8→i32 "}[types]
    for *batch, m, k, n in sizes:
        shown = f"{m}³" if m == k == n else f"{m}×{k}×{n}"
        name = of + "×".join([*map(str, batch), shown])
        yield _one(suite, name, f"Matmul({batch[0] if batch else 1}×{m}×{k}×{n}, {operands}, serial)")


def _cubes(*sizes: int) -> list[tuple[int, ...]]:
    return [(size,) * 3 for size in sizes]


def _layer(one: Layer) -> Searched:
    return _one(one.suite, one.name, one.spec)


def _convolutions() -> Iterable[Searched]:
    """Yield the layers of Yolo-9000 and ResNet-18 in [Tollenaere2021]."""
    return map(_layer, ttile_layers())


def _networks() -> Iterable[Searched]:
    """Yield layers of ResNet-50 and MobileNetV2."""
    for filters, channels, size, stride in (
        (256, 64, 56, 1),
        (64, 256, 56, 1),
        (512, 256, 56, 2),
        (512, 128, 28, 1),
        (256, 1024, 14, 1),
        (2048, 512, 7, 1),
    ):
        yield _layer(layer("resnet50", "ResNet50", filters, channels, size, 1, stride))
    yield _layer(layer("resnet50", "ResNet50 strided", 128, 128, 56, 3, 2))
    yield _layer(layer("mobilenet", "first of MobileNetV2", 32, 3, 224, 3, 2))
    yield _layer(depthwise("mobilenet", "depthwise", 32, 112))
    yield _layer(depthwise("mobilenet", "depthwise strided", 96, 112, 2))
    yield _layer(depthwise("mobilenet", "depthwise", 960, 7))
    for filters, channels, size in ((96, 16, 112), (24, 96, 56), (1280, 320, 7)):
        yield _layer(layer("mobilenet", "pointwise", filters, channels, size, 1))
    nhwc = ", ".join(["(f32, GL, nhwc)"] * 3)
    yield _one("mobilenet", "pointwise nhwc 24,96,56", f"Conv(1×24×96×56×56×1×1, {nhwc}, serial)")


def _others() -> Iterable[Searched]:
    """Yield norms, softmax and moves."""
    yield _one("rows", "RMSNorm 8×768", "RMSNorm(1×8×768, (f32, GL), (f32, GL), (f32, GL), serial)")
    yield _one("rows", "softmax 8×128", "Softmax(8×128, (f32, GL), (f32, GL), serial)")
    yield _one("rows", "transpose 100×37", "Move(100×37, (f32, GL), (f32, GL, col_major), serial)")
    yield _one("rows", "transpose u8 512²", "Move(512×512, (u8, GL), (u8, GL, col_major), serial)")
    packed = "(f32, GL), (f32, GL, layout[0, 2, 1, 2p16])"
    yield _one("rows", "pack 2048² 2p16", f"Move(1×2048×2048, {packed}, serial)")


def _suites() -> Iterable[Searched]:
    """Yield the problems that programs are timed on; of those in several layouts the last, which is in strips."""
    for problem in PROBLEMS.values():
        yield _one(problem.suite, problem.name, problem.specs[-1])


def _examples() -> Iterable[Searched]:
    for path in sorted(_EXAMPLES.glob("*.spec")):
        text = path.read_text(encoding="utf-8")
        for one in parse(text, filename=path.name).goals:
            yield Searched(f"example {one.name}", "examples", text, one.name)


def _all() -> Iterable[Searched]:
    yield from _products("squares", _cubes(1, 2, 4, 8, 4096))
    yield from _suites()
    yield from _products("odd", [(17, 19, 23), *_cubes(31, 97), (101, 103, 107), (113, 127, 131), *_cubes(509)])
    yield from _products("small", [*_cubes(3), (1, 7, 1), (5, 3, 9), (4, 6, 16)])
    yield from _products("bytes", [*_cubes(64), (64, 256, 64), *_cubes(100, 1024)], _BYTES)
    yield from _products("bf16", _cubes(64, 100), _BF16)
    yield from _products("batches", [(8, 33, 65, 17)])
    yield from _others()
    yield from _convolutions()
    yield from _networks()
    yield from _examples()


def _distinct(every: Iterable[Searched]) -> Iterable[Searched]:
    """Yield each Spec once, under its first name."""
    seen: set[Spec] = set()
    for one in every:
        spec, _ = one.for_target("x86_avx2")
        if spec not in seen:
            seen.add(spec)
            yield one


SPECS = {one.name: one for one in _distinct(_all())}
SUITES = tuple(dict.fromkeys(one.suite for one in SPECS.values()))
