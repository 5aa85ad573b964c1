"""Proofs as JSON, and their verification from the Spec and the target alone."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import attrs

from morello.errors import MorelloError
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello_bounds.certificate import Certificate, Cut, cut_of, sides
from morello_bounds.hbl import Exponents
from morello_bounds.nest import Nest
from morello_bounds.traffic import Segments, Traffic

_FRACTION = re.compile(r"-?[0-9]{1,100}(/[0-9]{1,100})?")


def segments_as_json(proof: Segments) -> dict[str, Any]:
    """Return a proof of traffic as JSON, with exact numbers as strings."""
    return {
        "loops": dict(zip(proof.nest.loops, proof.nest.sizes, strict=True)),
        "arrays": {array.name: str(s) for array, s in zip(proof.nest.arrays, proof.exponents.s, strict=True)},
        "zeta": {loop: str(z) for loop, z in zip(proof.nest.loops, proof.exponents.zeta, strict=True)},
        "loaded": proof.loaded,
        "share": str(proof.share),
    }


def prices_as_json(certified: Certificate, target: Target) -> dict[str, Any]:
    """Return the prices of a certificate as JSON."""
    required = certified.required
    return {
        "points": [
            {"operations": family, "points": count, "price": str(price)}
            for count, family, price in zip(required.points, required.families, certified.work, strict=True)
        ],
        "cuts": [
            {"behind": target.levels[cut.level - 1].name, "touch": str(touch), "again": str(again)}
            for cut, touch, again in zip(certified.cuts, certified.touch, certified.again, strict=True)
        ],
    }


def parse_cuts(boundaries: Sequence[Mapping[str, Any]], spec: Spec, target: Target) -> Iterator[Cut]:
    """Yield the cut of each boundary in JSON, with its proof, which is not verified."""
    numbers = {one.name: number for number, one in enumerate(target.levels)}
    bare = sides(spec, target)
    for one in boundaries:
        level = numbers[one["slow"]]
        claimed = attrs.evolve(bare[level], segments=_segments(one["segments"], bare[level]))
        yield cut_of(level, claimed, spec, target)


def parse_prices(prices: Mapping[str, Any], spec: Spec, target: Target, cuts: tuple[Cut, ...]) -> Certificate:
    """Return the certificate with these prices in JSON, which is not verified."""
    work, across = prices["points"], prices["cuts"]
    touch, again = (tuple(_fraction(one[name]) for one in across) for name in ("touch", "again"))
    return Certificate(spec, target, cuts, tuple(_fraction(one["price"]) for one in work), touch, again)


def _segments(entry: Mapping[str, Any] | None, side: Traffic) -> Segments | None:
    if entry is None:
        return None
    nest, loaded = _nest(entry["loops"], side.nest), entry["loaded"]
    if type(loaded) is not int:
        raise TypeError("the bytes that segments load are an integer")
    exponents = Exponents(
        tuple(_fraction(entry["arrays"][array.name]) for array in nest.arrays),
        tuple(_fraction(entry["zeta"][loop]) for loop in nest.loops),
    )
    return Segments(nest, side.memory, side.resident, loaded, exponents, _fraction(entry["share"]))


def _fraction(text: str) -> Fraction:
    if not _FRACTION.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a fraction such as 7/2")
    return Fraction(text)


def _nest(loops: Mapping[str, int], nest: Nest) -> Nest:
    """Return the nest of a proof: that of the Spec, or its lifted one."""
    for one in (nest, nest.lifted()):
        if dict(zip(one.loops, one.sizes, strict=True)) == loops:
            return one
    raise refused(f"it is about loops {', '.join(loops)} of other sizes")


def differences(claimed: Any, own: Any, place: str = "") -> Iterator[str]:
    """Yield each value of some JSON that differs from the right one, with its place."""
    if isinstance(claimed, dict) and isinstance(own, dict):
        for key in {**own, **claimed}:
            yield from differences(claimed.get(key), own.get(key), f"{place} {key}")
    elif isinstance(claimed, list) and isinstance(own, list) and len(claimed) == len(own):
        for number, (one, other) in enumerate(zip(claimed, own, strict=True)):
            yield from differences(one, other, f"{place} {number}")
    elif (type(claimed), claimed) != (type(own), own):
        yield f"{place.strip()} is {reprlib.repr(claimed)}, not {reprlib.repr(own)}"


def refused(why: str) -> MorelloError:
    """Return the error for a proof that is wrong."""
    return MorelloError(f"this bound is not proven: {why}", "compute a new one: `morello bound FILE`")
