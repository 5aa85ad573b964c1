"""Convolutional networks of torchvision as plain torch modules with random weights, to measure and to test models."""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]


def conv(
    channels: int,
    filters: int,
    window: int = 1,
    stride: int = 1,
    act: Callable[[], nn.Module] | None = None,
    groups: int = 1,
    eps: float = 1e-5,
) -> nn.Sequential:
    """Return a convolution that keeps sizes or divides them by the stride, its norm, and an activation."""
    made = [
        nn.Conv2d(channels, filters, window, stride, window // 2, groups=groups, bias=False),
        nn.BatchNorm2d(filters, eps),
    ]
    return nn.Sequential(*made, *([act()] if act else []))


class Squeeze(nn.Module):
    """Multiplies channels by a function of their means."""

    def __init__(self, channels: int, inner: int, act: Callable[[], nn.Module], gate: Callable[[], nn.Module]):
        super().__init__()
        layers = nn.Conv2d(channels, inner, 1), act(), nn.Conv2d(inner, channels, 1), gate()
        self.factors = nn.Sequential(nn.AdaptiveAvgPool2d(1), *layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factors(x) * x


class Residual(nn.Module):
    """Adds its input, or a convolution of it, to what its layers compute."""

    def __init__(self, layers: nn.Module, short: nn.Module | None = None, act: nn.Module | None = None):
        super().__init__()
        self.layers, self.short, self.act = layers, short or nn.Identity(), act or nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.layers(x) + self.short(x))


def inverted(
    channels: int,
    inner: int,
    filters: int,
    window: int,
    stride: int,
    act: Callable[[], nn.Module],
    squeeze: nn.Module | None = None,
    eps: float = 1e-5,
) -> nn.Module:
    """Return an inverted residual block: expand to `inner` channels, convolve each, squeeze, project."""
    layers = [conv(channels, inner, act=act, eps=eps)] if inner != channels else []
    layers += [conv(inner, inner, window, stride, act, inner, eps), *([squeeze] if squeeze else [])]
    found = nn.Sequential(*layers, conv(inner, filters, eps=eps))
    return Residual(found) if stride == 1 and channels == filters else found


def classifier(features: Iterable[nn.Module], *head: nn.Module) -> nn.Sequential:
    return nn.Sequential(*features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), *head)


def resnet18() -> nn.Module:
    layers: list[nn.Module] = [conv(3, 64, 7, 2, nn.ReLU), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for filters in (64, 128, 256, 512):
        for stride in (1 if filters == channels else 2, 1):
            both = nn.Sequential(conv(channels, filters, 3, stride, nn.ReLU), conv(filters, filters, 3))
            short = conv(channels, filters, 1, stride) if filters != channels else None
            layers.append(Residual(both, short, nn.ReLU()))
            channels = filters
    return classifier(layers, nn.Linear(channels, 1000))


def mobilenet_v2() -> nn.Module:
    layers: list[nn.Module] = [conv(3, 32, 3, 2, nn.ReLU6)]
    channels = 32
    # Factors of the expansion, filters, blocks, strides of the first ones.
    table = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for factor, filters, blocks, stride in table:
        for block in range(blocks):
            layers.append(inverted(channels, factor * channels, filters, 3, 1 if block else stride, nn.ReLU6))
            channels = filters
    return classifier([*layers, conv(channels, 1280, act=nn.ReLU6)], nn.Linear(1280, 1000))


def mobilenet_v3() -> nn.Module:
    """Return MobileNetV3-Large."""
    eps = 1e-3
    layers: list[nn.Module] = [conv(3, 16, 3, 2, nn.Hardswish, eps=eps)]
    channels = 16
    # Window, expanded channels, filters, those of the squeeze, activation, stride.
    table = (
        (3, 16, 16, 0, nn.ReLU, 1),
        (3, 64, 24, 0, nn.ReLU, 2),
        (3, 72, 24, 0, nn.ReLU, 1),
        (5, 72, 40, 24, nn.ReLU, 2),
        (5, 120, 40, 32, nn.ReLU, 1),
        (5, 120, 40, 32, nn.ReLU, 1),
        (3, 240, 80, 0, nn.Hardswish, 2),
        (3, 200, 80, 0, nn.Hardswish, 1),
        (3, 184, 80, 0, nn.Hardswish, 1),
        (3, 184, 80, 0, nn.Hardswish, 1),
        (3, 480, 112, 120, nn.Hardswish, 1),
        (3, 672, 112, 168, nn.Hardswish, 1),
        (5, 672, 160, 168, nn.Hardswish, 2),
        (5, 960, 160, 240, nn.Hardswish, 1),
        (5, 960, 160, 240, nn.Hardswish, 1),
    )
    for window, inner, filters, squeezed, act, stride in table:
        squeeze = Squeeze(inner, squeezed, nn.ReLU, nn.Hardsigmoid) if squeezed else None
        layers.append(inverted(channels, inner, filters, window, stride, act, squeeze, eps))
        channels = filters
    last = conv(channels, 960, act=nn.Hardswish, eps=eps)
    return classifier([*layers, last], nn.Linear(960, 1280), nn.Hardswish(), nn.Linear(1280, 1000))


def efficientnet_b0() -> nn.Module:
    layers: list[nn.Module] = [conv(3, 32, 3, 2, nn.SiLU)]
    channels = 32
    # Factors of the expansion, windows, filters, blocks, strides of the first ones.
    table = (
        (1, 3, 16, 1, 1),
        (6, 3, 24, 2, 2),
        (6, 5, 40, 2, 2),
        (6, 3, 80, 3, 2),
        (6, 5, 112, 3, 1),
        (6, 5, 192, 4, 2),
        (6, 3, 320, 1, 1),
    )
    for factor, window, filters, blocks, stride in table:
        for block in range(blocks):
            inner = factor * channels
            squeeze = Squeeze(inner, channels // 4, nn.SiLU, nn.Sigmoid)
            layers.append(inverted(channels, inner, filters, window, 1 if block else stride, nn.SiLU, squeeze))
            channels = filters
    return classifier([*layers, conv(channels, 1280, act=nn.SiLU)], nn.Linear(1280, 1000))


MODELS: Mapping[str, Callable[[], nn.Module]] = {
    "resnet18": resnet18,
    "mobilenet_v2": mobilenet_v2,
    "mobilenet_v3": mobilenet_v3,
    "efficientnet_b0": efficientnet_b0,
}


def settled(module: nn.Module, images: torch.Tensor) -> nn.Module:
    """Return a module in evaluation mode; its norms have random parameters, and the statistics of these images."""
    for one in module.modules():
        if isinstance(one, nn.BatchNorm2d):
            nn.init.uniform_(one.weight, 0.5, 1.5)
            nn.init.uniform_(one.bias, -0.2, 0.2)
            one.momentum = None
    with torch.no_grad():
        module.train()(images)
    return module.eval()


def network(name: str) -> nn.Module:
    """Return a network with random weights for images of 224×224 pixels."""
    torch.manual_seed(0)
    return settled(MODELS[name](), torch.randn(2, 3, 224, 224))
