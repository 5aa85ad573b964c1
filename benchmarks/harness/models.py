"""The Specs of public models, from the definitions of their architectures: layers and how often each occurs.

Products and convolutions are in the data types asked for; norms, softmax and activations are in f32. Biases, residual
sums and reshapes are left out: graphs fuse them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeAlias

import attrs

#: Layers of a model by their Specs as text, each with its number.
Layers: TypeAlias = Counter[str]
#: Data types of the operands of products.
TYPES = {"f32": ("f32", "f32", "f32"), "bf16": ("bf16", "bf16", "f32"), "u8": ("u8", "i8", "i32")}


def _spec(op: str, shape: tuple[int, ...], types: tuple[str, ...]) -> str:
    return f"{op}({'×'.join(map(str, shape))}, {', '.join(f'({one}, GL)' for one in types)}, serial)"


@attrs.frozen
class Builder:
    """Collects the layers of a model in a data type."""

    dtype: str
    layers: Layers = attrs.field(factory=Counter)

    def product(self, m: int, k: int, n: int, *, batch: int = 1, count: int = 1) -> None:
        self.layers[_spec("Matmul", (batch, m, k, n), TYPES[self.dtype])] += count

    def rows(self, op: str, shape: tuple[int, ...], operands: int = 2, count: int = 1) -> None:
        self.layers[_spec(op, shape, ("f32",) * operands)] += count

    def conv(
        self, batch: int, channels: int, filters: int, size: int, side: int, stride: int = 1, groups: int = 1
    ) -> int:
        """Add a convolution of a square image, padded to `size` / `stride`; return that size."""
        out, padding = -(-size // stride), (side - 1) // 2
        around = stride * (out - 1) + side - size - padding
        given = [f"stride={stride}"] if stride > 1 else []
        given += [f"padding=[{padding}, {padding}, {around}, {around}]"] if side > 1 else []
        parameters = f"[{', '.join(given)}]" if given else ""
        kinds = ("Conv", ()) if groups == 1 else ("GroupedConv", (groups,))
        shape = (batch, *kinds[1], filters // groups, channels // groups, out, out, side, side)
        self.layers[_spec(kinds[0] + parameters, shape, TYPES[self.dtype])] += 1
        return out

    def attention(
        self, batch: int, heads: int, width: int, queries: int, keys: int, count: int, shared: int = 1
    ) -> None:
        """Add attention of `heads`; each `shared` of them use the same keys."""
        groups, rows = batch * heads // shared, queries * shared
        self.product(rows, width, keys, batch=groups, count=count)
        self.rows("Softmax[dim=2]", (groups, rows, keys), count=count)
        self.product(rows, keys, width, batch=groups, count=count)


def resnet50(build: Builder, batch: int, size: int) -> None:
    size = build.conv(batch, 3, 64, size, 7, 2) // 2
    channels = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            step = stride if block == 0 else 1
            build.conv(batch, channels, width, size, 1)
            out = build.conv(batch, width, width, size, 3, step)
            build.conv(batch, width, 4 * width, out, 1)
            if block == 0:
                build.conv(batch, channels, 4 * width, size, 1, step)
            channels, size = 4 * width, out
    build.product(batch, channels, 1000)


def mobilenet_v2(build: Builder, batch: int, size: int) -> None:
    size = build.conv(batch, 3, 32, size, 3, 2)
    channels = 32
    table = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expansion, filters, blocks, stride in table:
        for block in range(blocks):
            inner = expansion * channels
            if expansion > 1:
                build.conv(batch, channels, inner, size, 1)
            size = build.conv(batch, inner, inner, size, 3, stride if block == 0 else 1, groups=inner)
            build.conv(batch, inner, filters, size, 1)
            channels = filters
    build.conv(batch, channels, 1280, size, 1)
    build.product(batch, 1280, 1000)


def squeezenet(build: Builder, batch: int, size: int) -> None:
    """Add the layers of SqueezeNet 1.1."""
    size = (build.conv(batch, 3, 64, size, 3, 2) - 1) // 2
    channels = 64
    for at, squeezed in enumerate((16, 16, 32, 32, 48, 48, 64, 64)):
        expanded = 4 * squeezed
        size = (size - 1) // 2 if at in (2, 4) else size
        build.conv(batch, channels, squeezed, size, 1)
        build.conv(batch, squeezed, expanded, size, 1)
        build.conv(batch, squeezed, expanded, size, 3)
        channels = 2 * expanded
    build.conv(batch, channels, 1000, size, 1)


def vgg(build: Builder, batch: int, size: int, blocks: tuple[int, ...]) -> None:
    channels = 3
    for width, layers in zip((64, 128, 256, 512, 512), blocks, strict=True):
        for _ in range(layers):
            build.conv(batch, channels, width, size, 3)
            channels = width
        size //= 2
    for k, n in ((channels * size * size, 4096), (4096, 4096), (4096, 1000)):
        build.product(batch, k, n)


@attrs.frozen(kw_only=True)
class Transformer:
    """A stack of blocks of attention and a product of two or, if `gated`, three layers.

    `decodes`: it makes one token at a time after the first pass.
    """

    layers: int
    width: int
    heads: int
    inner: int
    vocabulary: int = 0
    shared: int = 1
    gated: bool = False
    decodes: bool = False

    def __call__(self, build: Builder, batch: int, length: int) -> None:
        """Add the layers for sequences of a length."""
        self._pass(build, batch, length, length)
        if self.decodes:
            self._pass(build, batch, 1, length)

    def _pass(self, build: Builder, batch: int, queries: int, keys: int) -> None:
        rows, head = batch * queries, self.width // self.heads
        layers = self.layers
        build.product(rows, self.width, self.width + 2 * self.width // self.shared, count=layers)
        build.attention(batch, self.heads, head, queries, keys, layers, self.shared)
        build.product(rows, self.width, self.width, count=layers)
        build.product(rows, self.width, (2 if self.gated else 1) * self.inner, count=layers)
        build.product(rows, self.inner, self.width, count=layers)
        norm, operands = ("RMSNorm", 3) if self.gated else ("LayerNorm", 4)
        build.rows(norm, (1, rows, self.width), operands, 2 * layers)
        build.rows("Silu" if self.gated else "Gelu", (rows, self.inner), count=layers)
        if self.vocabulary:
            build.product(batch, self.width, self.vocabulary)


def whisper(build: Builder, batch: int, length: int, layers: int, width: int, heads: int) -> None:
    """Add the encoder of 30 seconds, and the decoder of `length` tokens with attention to these."""
    frames = 1500
    build.layers[_spec("Conv[padding=[0, 1, 0, 1]]", (batch, width, 80, 1, 2 * frames, 1, 3), TYPES[build.dtype])] += 1
    strided = "Conv[stride=[1, 2], padding=[0, 1, 0, 0]]"
    build.layers[_spec(strided, (batch, width, width, 1, frames, 1, 3), TYPES[build.dtype])] += 1
    Transformer(layers=layers, width=width, heads=heads, inner=4 * width)(build, batch, frames)
    decoder = Transformer(layers=layers, width=width, heads=heads, inner=4 * width, vocabulary=51865, decodes=True)
    decoder(build, batch, length)
    build.product(batch * frames, width, 2 * width, count=layers)
    build.product(batch, width, 2 * width, count=2 * layers)
    build.attention(batch, heads, width // heads, 1, frames, layers)


def lstm(build: Builder, batch: int, length: int, layers: int, width: int) -> None:
    """Add the products of steps, and of the inputs of all steps at once."""
    build.product(batch * length, width, 4 * width, count=layers)
    build.product(batch, width, 4 * width, count=layers * length)
    build.rows("Sigmoid", (batch, 3 * width), count=layers * length)
    build.rows("Tanh", (batch, width), count=2 * layers * length)


Model: TypeAlias = Callable[[Builder, int, int], None]


def _llama(layers: int, width: int, heads: int, shared: int, inner: int, vocabulary: int) -> Transformer:
    sizes = {"layers": layers, "width": width, "heads": heads, "shared": shared, "inner": inner}
    return Transformer(**sizes, vocabulary=vocabulary, gated=True, decodes=True)


def _gpt2(layers: int, width: int, heads: int) -> Transformer:
    return Transformer(layers=layers, width=width, heads=heads, inner=4 * width, vocabulary=50257, decodes=True)


#: Models of images, of a batch of square images.
IMAGES: Mapping[str, Model] = {
    "resnet50": resnet50,
    "mobilenet_v2": mobilenet_v2,
    "squeezenet": squeezenet,
    "vgg16": lambda build, batch, size: vgg(build, batch, size, (2, 2, 3, 3, 3)),
    "vgg19": lambda build, batch, size: vgg(build, batch, size, (2, 2, 4, 4, 4)),
    # A patch of 16×16 pixels is a token; one more is for the class.
    "vit_b16": lambda build, batch, size: Transformer(layers=12, width=768, heads=12, inner=3072)(
        build, batch, (size // 16) ** 2 + 1
    ),
    "vit_l16": lambda build, batch, size: Transformer(layers=24, width=1024, heads=16, inner=4096)(
        build, batch, (size // 16) ** 2 + 1
    ),
}
#: Models of sequences, of a batch of sequences of a length.
SEQUENCES: Mapping[str, Model] = {
    "bert_base": Transformer(layers=12, width=768, heads=12, inner=3072),
    "bert_large": Transformer(layers=24, width=1024, heads=16, inner=4096),
    "gpt2": _gpt2(12, 768, 12),
    "gpt2_medium": _gpt2(24, 1024, 16),
    "gpt2_large": _gpt2(36, 1280, 20),
    "gpt2_xl": _gpt2(48, 1600, 25),
    "llama3_1b": _llama(16, 2048, 32, 4, 8192, 128256),
    "llama3_3b": _llama(28, 3072, 24, 3, 8192, 128256),
    "llama2_7b": _llama(32, 4096, 32, 1, 11008, 32000),
    "llama3_8b": _llama(32, 4096, 32, 4, 14336, 128256),
    "llama2_13b": _llama(40, 5120, 40, 1, 13824, 32000),
    "llama3_70b": _llama(80, 8192, 64, 8, 28672, 128256),
    "whisper_base": lambda build, batch, length: whisper(build, batch, length, 6, 512, 8),
    "whisper_small": lambda build, batch, length: whisper(build, batch, length, 12, 768, 12),
    "whisper_large": lambda build, batch, length: whisper(build, batch, length, 32, 1280, 20),
    "lstm_512": lambda build, batch, length: lstm(build, batch, length, 2, 512),
    "lstm_1024": lambda build, batch, length: lstm(build, batch, length, 2, 1024),
}
MODELS: Mapping[str, Model] = {**IMAGES, **SEQUENCES}


def layers_of(model: str, batch: int, size: int, dtype: str) -> Layers:
    """Return the layers of a model for a batch of images or sequences of a size, in a data type."""
    build = Builder(dtype)
    MODELS[model](build, batch, size)
    return build.layers
