"""Specs that differ in nothing but their sizes: one as text, and others made of it."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from morello.frontend import syntax
from morello.frontend.diagnostics import Source
from morello.frontend.parser import parse
from morello.frontend.specs import read_signed, read_spec
from morello.frontend.syntax import DeclarationNode, SpecNode
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.plugins.choice import ProfileLike


@attrs.frozen
class Family:
    """A Spec with replaceable sizes; `spec` has those of the text, which omits the first `implicit_dims` dimensions."""

    name: str
    target: Target
    spec: Spec
    _source: Source
    _node: SpecNode
    implicit_dims: int = 0

    def at(self, shape: Sequence[int]) -> Spec:
        """Return the Spec that the text would mean with these sizes. Raises SourceError where there is none."""
        return read_spec(self._source, self.target, self._node, tuple(shape))


def families(
    text: str, *, filename: str = "<text>", target: str | None = None, profile: ProfileLike | None = None
) -> list[Family]:
    """Return the Specs of a file, in order. Raises what `parse` raises."""
    file = parse(text, filename=filename, target=target, profile=profile)
    source = Source(filename, text)
    nodes = [node for node in syntax.parse_file(source) if isinstance(node, DeclarationNode)]
    return [_family(str(node.name), file.target, source, node.spec) for node in nodes]


def family(text: str, target: Target, filename: str = "<text>") -> Family:
    """Return a single Spec, such as `Matmul(1×64×64×64, GL, GL, GL)`. Raises SourceError."""
    source = Source(filename, text)
    return _family("kernel", target, source, syntax.parse_spec(source))


def _family(name: str, target: Target, source: Source, node: SpecNode) -> Family:
    spec, signature = read_signed(source, target, node)
    return Family(name, target, spec, source, node, signature.implicit_dims if signature else 0)
