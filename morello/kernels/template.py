"""Lines of C with operands by name, for microkernels that are one line per vector."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from string import Formatter

from morello.kernels.site import KernelSite, OperandSite

#: `{out_type}` is the C type of `{out}`.
_TYPE = "_type"

Template = str | Callable[[KernelSite], str]


def fault(text: str, operands: Iterable[str]) -> str | None:
    """Return the rule that a template breaks, for operands of these names; None if it breaks none."""
    try:
        fields = [field for field in Formatter().parse(text) if field[1] is not None]
    except ValueError as error:
        return f"its template {text!r} is none ({error}): braces of C are written twice"
    names = tuple(operands)
    for _, name, spec, conversion in fields:
        if str(name).removesuffix(_TYPE) not in names or spec or conversion:
            known = ", ".join(f"{{{one}}}" for one in names)
            hint = f"there are {known}, each also with {_TYPE} for its C type; braces of C are written twice"
            return f"its template has {{{name}}}: {hint}"
    return None


def print_lines(template: Template, site: KernelSite) -> None:
    """Print a template once for each vector register of the tile, or once if there are none.

    In turn i of n, the name of an operand stands for the i-th n-th of its values: a register, a vector loaded from
    memory, or one value. An operand of one value is the same in all turns. A function is given the site and returns
    the template. Raises ValueError for names that stand for nothing.
    """
    text = template if isinstance(template, str) else template(site)
    wrong = fault(text, site.operands)
    if wrong:
        raise ValueError(wrong)
    turns = max((len(one.vectors()) for one in site.operands.values() if one.tensor.state.vector), default=1)
    names = [name for _, name, _, _ in Formatter().parse(text) if name]
    for turn in range(turns):
        site.line(text.format(**{name: _spelled(site, name, turn, turns) for name in names}))


def _spelled(site: KernelSite, name: str, turn: int, turns: int) -> str:
    """Return the C that a name stands for in one turn."""
    operand = site.operands[name.removesuffix(_TYPE)]
    dtype, each = operand.tensor.state.dtype, _values(name, operand, turns)
    if name.endswith(_TYPE):
        return site.vector_type(dtype, each) if each > 1 else dtype.c_name
    if operand.tensor.volume == 1:
        return operand.scalar()
    if operand.in_registers:
        return operand.register(turn * each)
    if each == 1:
        return operand.scalar(turn)
    if any(declared.name == name and declared.writes for declared in site.spec.declared):
        raise ValueError(f"the line writes {{{name}}}, which is {each} values in memory: print it with `emit`")
    return f"{site.load(dtype, each)}({operand.pointer(turn * each)})"


def _values(name: str, operand: OperandSite, turns: int) -> int:
    """Return how many values of an operand a turn is for."""
    volume = int(operand.tensor.volume)
    each, rest = divmod(volume, turns)
    if volume > 1 and (rest or not each or (operand.in_registers and each != (operand.tensor.state.vector or 1))):
        raise ValueError(f"{name}: its {volume} values do not make {turns} vectors")
    return each or 1
