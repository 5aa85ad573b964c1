"""C that compares positions of rows and keys: products with keys that no row uses are left out."""

from __future__ import annotations

from typing import Protocol

import attrs

from morello.ir.index import as_index
from morello.kernels.site import OperandSite, SiteMask


class _Helpers(Protocol):
    def helper(self, name: str, text: str) -> str:
        """Define the static function `name` as `text` in the file; return its name."""
        ...


@attrs.frozen
class Span:
    """Statements of C, and the variables that they set: the first value along a dimension that counts, and the end."""

    lines: tuple[str, ...]
    first: str
    end: str


def uses_keys(mask: SiteMask, printer: _Helpers) -> str | None:
    """Return the C condition that a row may use a key; None if keys do not lie side by side."""
    given = _arguments(mask)
    if given is None:
        return None
    name, keys = f"uses_keys{mask.window or ''}", int(mask.columns.tensor.volume)
    text = f"""static inline int {name}({_ROWS}, const int32_t *columns, ptrdiff_t n) {{
{_LOW_AND_HIGH}    return {_among_keys(mask.window, printer)}(low, high, columns, n);
}}"""
    return f"{printer.helper(name, text)}({given}, {keys})"


def keys_used(weights: OperandSite, keys: int, printer: _Helpers, first: str, end: str) -> Span | None:
    """Return what finds the keys, among the first `keys`, whose `weights`, rows × keys, are not all 0.

    Both ends are apart from 0 and from `keys` by multiples of 16. The result is None without a mask, or if keys do not
    lie side by side.
    """
    mask = weights.mask
    given = mask and _arguments(mask)
    if mask is None or given is None:
        return None
    window, among = mask.window, _among_keys(mask.window, printer)
    dtype = weights.tensor.state.dtype
    name = f"keys_used{window or ''}_{dtype}"
    before = f"""    while (*end - *first >= 16 && !{among}(low, high, columns + *first, 16)) {{
        *first += 16;
    }}
"""
    results = f"const {dtype.c_name} *weights, ptrdiff_t apart, ptrdiff_t *first, ptrdiff_t *end"
    text = f"""static void {name}({_ROWS}, const int32_t *columns, ptrdiff_t n, {results}) {{
{_LOW_AND_HIGH}    *first = 0;
    *end = n;
    while (*end >= 16 && !{among}(low, high, columns + *end - 16, 16)) {{
        *end -= 16;
    }}
{before if window else ""}    for (ptrdiff_t i = 0; *first == *end && i < m; ++i) {{
        if (weights[i * apart] != 0) {{ /* Weights of a row without keys are NaN. */
            *first = 0;
            *end = n;
        }}
    }}
}}"""
    call = f"{printer.helper(name, text)}({given}, {keys}, {weights.pointer()}, {weights.stride(1)}, &{first}, &{end});"
    return Span((f"ptrdiff_t {first}, {end};", call), first, end)


_ROWS = "const int32_t *rows, ptrdiff_t m, ptrdiff_t stride"
_LOW_AND_HIGH = """    int32_t low = rows[0], high = rows[0];
    for (ptrdiff_t i = 1; i < m; ++i) {
        const int32_t row = rows[i * stride];
        low = row < low ? row : low;
        high = row > high ? row : high;
    }
"""


def _among_keys(window: int, printer: _Helpers) -> str:
    """Return the C function that compares keys with the lowest and the highest position of rows."""
    name = f"among_keys{window or ''}"
    recent = f" & ((int64_t)columns[j] + {window} > low)" if window else ""
    unused = "" if window else "    (void)low;\n"
    text = f"""static inline int {name}(int32_t low, int32_t high, const int32_t *columns, ptrdiff_t n) {{
{unused}    int some = 0;
    for (ptrdiff_t j = 0; j < n; ++j) {{
        some |= (columns[j] <= high){recent};
    }}
    return some;
}}"""
    return printer.helper(name, text)


def _arguments(mask: SiteMask) -> str | None:
    """Return the rows and the first key as C arguments; None for keys that do not lie side by side."""
    rows, columns = mask.rows, mask.columns
    if columns.tensor.volume > 1 and columns.stride(2) != as_index(1):
        return None
    return f"{rows.pointer()}, {rows.tensor.volume}, {rows.stride(1)}, {columns.pointer()}"
