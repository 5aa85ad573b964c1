"""Proofs as JSON, and their verification from the Spec and the target alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import attrs

from morello.errors import MorelloError
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello_bounds.certificate import Certificate, Cut, cut_of, sides, verify
from morello_bounds.hbl import Exponents
from morello_bounds.nest import Nest
from morello_bounds.randomized import random_products
from morello_bounds.traffic import Segments, Traffic, check


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


class VerifiedBounds(NamedTuple):
    """Verified bounds: the cut at each boundary, and the certified cost if there is one."""

    cuts: tuple[Cut, ...]
    cost: int | None


def verify_json(entry: Any, spec: Spec, target: Target) -> VerifiedBounds:
    """Verify the claims of a JSON entry exactly, from Spec and target alone. Raises MorelloError for a wrong one."""
    try:
        cuts = tuple(_cuts(entry["boundaries"], spec, target))
        _check_numbers(entry["numbers"], spec, target, cuts)
        # Prices are for all boundaries together.
        if entry["prices"] is None or len(cuts) != len(sides(spec, target)):
            return VerifiedBounds(cuts, None)
        made = _certificate(entry["prices"], spec, target, cuts)
        verify(made)
        if made.cost != int(entry["certified"]):
            raise _refused(f"its prices prove a cost of {made.cost:,}, not {int(entry['certified']):,}")
    except (KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError) as error:
        raise MorelloError(
            f"these are not proofs: {type(error).__name__}: {error}", "write some: `morello bound FILE --json`"
        ) from error
    return VerifiedBounds(cuts, made.cost)


def _cuts(boundaries: Sequence[Mapping[str, Any]], spec: Spec, target: Target) -> Iterator[Cut]:
    """Yield the verified cut of each boundary."""
    numbers = {one.name: number for number, one in enumerate(target.levels)}
    bare = sides(spec, target)
    for one in boundaries:
        level = numbers[one["slow"]]
        side = bare[level]
        claimed = attrs.evolve(side, compulsory=int(one["compulsory"]), segments=_segments(one["segments"], side))
        name = f"{one['slow']} ⇄ {one['fast']}"
        if int(one["memory"]) != side.memory:
            raise _refused(f"{name} has {side.memory:,} bytes of fast memory, not {int(one['memory']):,}")
        check(claimed)
        if claimed.bytes != int(one["bytes"]):
            raise _refused(f"the proof for {name} gives {claimed.bytes:,} bytes, not {int(one['bytes']):,}")
        yield cut_of(level, claimed, spec, target)


def _segments(entry: Mapping[str, Any] | None, side: Traffic) -> Segments | None:
    if entry is None:
        return None
    nest = _nest(entry["loops"], side.nest)
    exponents = Exponents(
        tuple(Fraction(entry["arrays"][array.name]) for array in nest.arrays),
        tuple(Fraction(entry["zeta"][loop]) for loop in nest.loops),
    )
    return Segments(nest, side.memory, side.resident, int(entry["loaded"]), exponents, Fraction(entry["share"]))


def _nest(loops: Mapping[str, int], nest: Nest) -> Nest:
    """Return the nest of a proof: that of the Spec, or its lifted one."""
    for one in (nest, nest.lifted()):
        if dict(zip(one.loops, one.sizes, strict=True)) == loops:
            return one
    raise _refused(f"it is about loops {', '.join(loops)} of other sizes")


def _certificate(prices: Mapping[str, Any], spec: Spec, target: Target, cuts: tuple[Cut, ...]) -> Certificate:
    """Return the certificate with these prices."""
    work, across = prices["points"], prices["cuts"]
    if [one["behind"] for one in across] != [target.levels[cut.level - 1].name for cut in cuts]:
        raise _refused("prices are for other boundaries")
    made = Certificate(
        spec,
        target,
        cuts,
        tuple(Fraction(one["price"]) for one in work),
        tuple(Fraction(one["touch"]) for one in across),
        tuple(Fraction(one["again"]) for one in across),
    )
    claimed = [(int(one["points"]), tuple(one["operations"])) for one in work]
    if claimed != [*zip(made.required.points, made.required.families, strict=True)]:
        raise _refused("programs compute other points")
    return made


def _check_numbers(entry: Sequence[Mapping[str, Any]], spec: Spec, target: Target, cuts: Sequence[Cut]) -> None:
    known = random_products(spec, target, cuts)
    by_name = {one.name: number for number, one in enumerate(target.levels)}
    for claimed in entry:
        one, most = known[by_name[claimed["slow"]]], int(claimed["bytes"])
        if most > one.bytes:
            raise _refused(f"moves and numbers are proven to cost as much as {one.bytes:,} bytes moved, not {most:,}")


def _refused(why: str) -> MorelloError:
    return MorelloError(f"this bound is not proven: {why}", "compute a new one: `morello bound FILE`")
