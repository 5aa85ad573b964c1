"""Transformers and an MLP as plain torch modules with random weights, to measure and to test models."""

# pyright: reportMissingImports=false

from __future__ import annotations

from itertools import pairwise

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]


class Attention(nn.Module):
    """Attention of several heads; with a cache, returns the keys and values of all rows."""

    def __init__(self, width: int, heads: int, causal: bool = False):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(
        self, x: torch.Tensor, cache: tuple[torch.Tensor, torch.Tensor] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        batch, rows, width = x.shape
        parts = self.qkv(x).view(batch, rows, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        scores = q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5
        if self.causal:
            columns = k.shape[2]
            hidden = torch.ones(rows, columns, dtype=torch.bool).triu(1 + columns - rows)
            scores = scores + torch.zeros(rows, columns).masked_fill(hidden, -1e9)
        mixed = torch.softmax(scores, -1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, rows, width)), k, v


class Block(nn.Module):
    """A layer of a transformer; norms come before (GPT-2, ViT) or after (BERT) its two parts."""

    def __init__(self, width: int, heads: int, before: bool, causal: bool = False, form: str = "none"):
        super().__init__()
        self.before, self.attention = before, Attention(width, heads, causal)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate=form), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.before:
            x = x + self.attention(self.first(x))[0]
            return x + self.mlp(self.second(x))
        x = self.first(x + self.attention(x)[0])
        return self.second(x + self.mlp(x))


class Bert(nn.Module):
    """BERT-small's encoder with token and position embeddings."""

    def __init__(self, layers: int = 4, width: int = 512, heads: int = 8, rows: int = 128, words: int = 30522):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.randn(rows, width))
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.Sequential(*(Block(width, heads, before=False) for _ in range(layers)))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.blocks(self.norm(self.words(tokens) + self.places))


class ViT(nn.Module):
    """A vision transformer."""

    def __init__(
        self, layers: int = 12, width: int = 768, heads: int = 12, size: int = 224, patch: int = 16, classes: int = 1000
    ):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Block(width, heads, before=True) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class Gpt(nn.Module):
    """A block of GPT-2 with a cache of keys and values."""

    def __init__(self, width: int = 768, heads: int = 12):
        super().__init__()
        self.block = Block(width, heads, before=True, causal=True, form="tanh")

    def forward(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        mixed, k, v = self.block.attention(self.block.first(x), (keys, values))
        x = x + mixed
        return x + self.block.mlp(self.block.second(x)), k, v


def mlp(sizes: tuple[int, ...] = (784, 512, 256, 10)) -> nn.Module:
    """Return a classifier of fully connected layers."""
    layers: list[nn.Module] = []
    for number, (one, other) in enumerate(pairwise(sizes)):
        layers += [nn.Linear(one, other), nn.ReLU() if number < len(sizes) - 2 else nn.Softmax(-1)]
    return nn.Sequential(*layers)
