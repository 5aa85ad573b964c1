"""Check every type and range of rows, as checksums say nothing of a file that was made to deceive.

Each check names the rule that a row breaks, or gives None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from morello.db.block import LARGEST_COST, AnswerKind, Ints
from morello.db.coordinates import OTHERS, to_sizes, volumes
from morello.ir.limits import LimitGrid, grid_rule

#: Numbers of rows, so that the next one is a number, too.
_MOST_ROWS = 1 << 53
_CRC = 1 << 32
#: No text is printed of which a terminal would understand more than letters; longer steps take ages to read.
_LONGEST_STEP = 1 << 16
_MOST_LEVELS, _MOST_SIZES = 64, 1 << 16
#: 2^47 is the largest size there is.
_LARGEST = OTHERS + (1 << 47)

_LEVEL = re.compile(r"\w+:([1-9][0-9]{0,18})/([1-9][0-9]{0,18})/([1-9][0-9]{0,18})")
_RANK = re.compile(r".+? ([0-9]{1,6})( serial)?: .*")


def print_fault(row: Sequence[Any]) -> str | None:
    """Check id, hash, target, levels and crc of a fingerprint."""
    number, hashed, target, levels, crc = row
    words = levels.split(" ") if isinstance(levels, str) else []
    return _first(
        {
            "its number is none": _is_number(number),
            "its hash is no word": _is_line(hashed) and len(hashed) <= 200,
            "its target is no name": _is_line(target) and len(target) <= 1000,
            "its levels are none": 0 < len(words) <= _MOST_LEVELS and all(map(_is_level, words)),
            "its checksum is none": _is_crc(crc),
        }
    )


def _is_level(word: str) -> bool:
    found = _LEVEL.fullmatch(word)
    return found is not None and grid_rule(LimitGrid(*map(int, found.groups()))) is None


def header_fault(row: Sequence[Any]) -> str | None:
    """Check id, labels, boxes, checksum and crc of a table."""
    number, labels, boxes, checksum, crc = row
    return _first(
        {
            "its number is none": _is_number(number),
            "its labels are none": _is_line(labels) and rank_of(labels) is not None,
            "it has no number of boxes": type(boxes) is int and 0 <= boxes < _MOST_ROWS,
            "its checksums are none": _is_crc(checksum) and _is_crc(crc),
        }
    )


def step_fault(row: Sequence[Any]) -> str | None:
    """Check id and text of a step, as far as that is the same for all targets."""
    number, text = row
    return _first(
        {
            "its number is none": _is_number(number),
            "its text is no line": _is_line(text) and text.strip() == text,
            f"it has more than {_LONGEST_STEP} letters": isinstance(text, str) and len(text) <= _LONGEST_STEP,
        }
    )


def rank_of(labels: str) -> int | None:
    """Return the number of sizes that the Specs of a table have; None for text that is no labels."""
    found = _RANK.fullmatch(labels)
    return int(found[1]) if found and int(found[1]) <= _MOST_SIZES else None


def row_fault(columns: Sequence[Sequence[Any]], axes: int, steps: Mapping[int, str]) -> str | None:
    """Check columns of rectangles: id, kind, box, numerator, denominator, step, foreign and crc."""
    numbers, kinds, boxes, numerators, denominators, chosen, foreign, crcs = columns
    lengths = {1 + 2 * axes * width: width for width in (1, 2, 4, 8)}
    return _first(
        {
            "its number is none": _types(numbers) == {int} and min(numbers) > 0 and max(numbers) < _MOST_ROWS,
            "its kind is not known": _types(kinds) == {int} and set(kinds) <= set(AnswerKind),
            f"its box has not {axes} sides": _types(boxes) == {bytes}
            and all(length in lengths for length in set(map(len, boxes)))
            and {(one[0], len(one)) for one in boxes} <= {(width, length) for length, width in lengths.items()},
            "its cost is no number": _types(numerators) | _types(denominators) == {int} and min(numerators) >= 0,
            "its mark is none": _types(foreign) == {int} and set(foreign) <= {0, 1},
            "its checksum is none": _types(crcs) == {int} and min(crcs) >= 0 and max(crcs) < _CRC,
            "its step is missing": {type(one) for one in set(chosen)} <= {int, type(None)}
            and all(one is None or one in steps for one in set(chosen)),
            "what has a program has a step, and nothing else": all(
                (kind == AnswerKind.EXACT) == (step is not None) for kind, step in set(zip(kinds, chosen, strict=True))
            ),
        }
    )


def box_fault(
    corners: tuple[Ints, Ints], kinds: npt.NDArray[np.int8], cost: tuple[Ints, Ints], grids: Sequence[LimitGrid]
) -> str | None:
    """Check N rectangles: corners [N, A] in order and where Specs are, and costs that are whole and in lowest terms."""
    low, high = corners
    rank = low.shape[1] - len(grids)
    numerator, denominator = cost
    least, most = (volumes(to_sizes(corner[:, :rank])) for corner in corners)
    none = kinds == AnswerKind.NONE
    return _first(
        {
            "its box ends before it begins": lambda: (low <= high).all(),
            "its box has sizes that do not exist": lambda: _are_sizes(low[:, :rank], high[:, :rank]),
            "its box has limits that do not exist": lambda: _are_limits(low[:, rank:], high[:, rank:], grids),
            "what has no program holds from limit 0": lambda: not low[kinds != AnswerKind.EXACT, rank:].any(),
            "its cost is no fraction": lambda: (denominator >= 1).all(),
            "its cost is not in lowest terms": lambda: (np.gcd(numerator, denominator) == 1).all(),
            "what has no program has no cost": lambda: not numerator[none].any() and (denominator[none] == 1).all(),
            "its cost is not whole for its sizes": lambda: (
                not (least % denominator).any() and not (most % denominator).any()
            ),
            # Products are exact up to 2^53, and never round to less from there on.
            f"its cost is more than {LARGEST_COST:,}": lambda: (
                (numerator * (most // denominator).astype(np.float64)).max(initial=0) <= LARGEST_COST
            ),
        }
    )


def _first(rules: Mapping[str, Any]) -> str | None:
    """Return the first rule that does not hold, of values or of functions that are called in turn."""
    for rule, holds in rules.items():
        if not (holds() if isinstance(holds, Callable) else holds):
            return rule
    return None


def _types(column: Sequence[Any]) -> set[type]:
    return set(map(type, column))


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 < value < _MOST_ROWS


def _is_crc(value: Any) -> bool:
    return type(value) is int and 0 <= value < _CRC


def _is_line(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable() and value != ""


def _are_sizes(low: Ints, high: Ints) -> bool:
    """See that the ends of ranges, coordinates [N, rank], are sizes, and that no power of two lies among others."""
    if (low < 0).any() or (high > _LARGEST).any():
        return False
    power = high < OTHERS
    # Above 64, the sizes of one range lie between two powers of two, so that all of them have one exponent.
    exponents = [np.frexp(np.maximum(end - OTHERS, 1).astype(np.float64)) for end in (low, high)]
    odd = (exponents[0][0] != 0.5) & (exponents[1][0] != 0.5) & (exponents[0][1] == exponents[1][1])
    return bool(np.where(power, high <= 47, (low > OTHERS) & odd).all())


def _are_limits(low: Ints, high: Ints, grids: Sequence[LimitGrid]) -> bool:
    return bool((low >= 0).all() and (high < [len(grid.values) for grid in grids]).all())
