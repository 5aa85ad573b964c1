"""--verbose prints details of the search, and names rewrites that made it slow."""

from __future__ import annotations

import attrs
import pytest

from morello.rewrites import Rewrite
from morello.search.solve.generic_rewrites import GenericRewrites


def test_verbose_prints_details_of_the_search(cli, write) -> None:
    result = cli("compile", write(), "--no-db", "--verbose")
    assert "one: " in result.stderr
    assert "Specs met in" in result.stderr
    assert "has no tables" not in result.stderr
    assert "Specs met in" not in cli("compile", write(), "--no-db").stderr


def test_rewrites_unknown_to_search_are_named(cli, write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewrite that is not declared structural is generic, with the same answer."""
    from morello.rewrites.tile import Tile

    expected = cli("compile", write(), "--no-db").stdout
    monkeypatch.setattr(Tile, "structural", False)
    result = cli("compile", write(), "--no-db", "--verbose")
    assert "`tile` has no tables" in result.stderr
    assert result.stdout == expected


def test_no_rewrites_are_singles_by_default(avx2) -> None:
    assert not GenericRewrites(avx2)
    assert GenericRewrites(attrs.evolve(avx2, rewrites=(*avx2.rewrites, type("Other", (Rewrite,), {}))))
