"""Lines of C with operands by name, for microkernels that are one line per vector."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from functools import cache
from string import Formatter

from morello.kernels.site import KernelSite, OperandSite

#: `{out_type}` is the C type of `{out}`.
_TYPE = "_type"
#: A call of a C function, and one of an operand alone; operators other than `=`.
_CALL, _CALL_OF_ONE = re.compile(r"\b[A-Za-z_]\w*\("), re.compile(r"\b[A-Za-z_]\w*\(\{(\w+)\}\)")
_OPERATOR = re.compile(r"[-+*/%&|^<>!?~=]+")
#: A line that sets one operand, which may be a vector in memory.
_SETTING = re.compile(r"\{(\w+)\} = (.*);")

Template = str | Callable[[KernelSite], str]


def fault(text: str, operands: Iterable[str]) -> str | None:
    """Return the rule that a template breaks, for operands of these names; None if it breaks none."""
    try:
        fields = [field for field in Formatter().parse(text) if field[1] is not None]
    except ValueError as error:
        return f"its template {text!r} is invalid ({error}): braces of C are doubled"
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
    for turn in range(turns):
        site.line(_line(site, text, turn, turns))


def setting(line: str) -> tuple[str, str] | None:
    """Return the operand that a line sets, and the expression that it is set to; None for a line of another form."""
    found = _SETTING.fullmatch(line)
    return (found[1], found[2]) if found else None


def names_in(text: str) -> list[str]:
    """Return the names that a template has in braces."""
    return [name for _, name, _, _ in Formatter().parse(text) if name]


@cache
def instructions(text: str) -> int:
    """Return the number of calls and operators in a template."""
    plain = re.sub(r"\{\w+\}", "x", text)
    return len(_CALL.findall(plain)) + sum(one != "=" for one in _OPERATOR.findall(plain))


@cache
def temporaries(text: str, held: Collection[str]) -> int:
    """Return the vector registers that suffice for one turn, besides those of the operands `held` in such registers.

    Each operand read from elsewhere takes one, and each result of a call or operator, but not of a call of such an
    operand alone, which replaces it, nor the last result, which goes to the output if that is held.
    """
    found = setting(text)
    name, value = found or ("", text)
    read = [one for one in names_in(value) if not one.endswith(_TYPE) and one not in held]
    replaced = sum(read.count(one) == 1 for one in _CALL_OF_ONE.findall(value))
    needed = instructions(value) + len(set(read)) - replaced
    to_output = name in held if found else bool(held)
    return max(0, needed - to_output)


def _line(site: KernelSite, text: str, turn: int, turns: int) -> str:
    """Return the line of one turn. A line that sets a vector in memory stores it."""
    found = setting(text)
    in_vectors = any(one.tensor.state.vector for one in site.operands.values())
    if found and in_vectors and _is_vector_in_memory(site, found[0], turns):
        out, each = site.operands[found[0]], _values(found[0], site.operands[found[0]], turns)
        value = _filled(site, found[1], turn, turns)
        return f"{site.store(out.tensor.state.dtype, each)}({out.pointer(turn * each)}, {value});"
    for name in (one.name for one in site.spec.declared if one.writes and one.name in names_in(text)):
        if _is_vector_in_memory(site, name, turns):
            count = site.operands[name].tensor.volume
            raise ValueError(f"the line writes {{{name}}}, which is {count} values in memory: print it with `emit`")
    return _filled(site, text, turn, turns)


def _is_vector_in_memory(site: KernelSite, name: str, turns: int) -> bool:
    operand = site.operands[name]
    return not operand.in_registers and _values(name, operand, turns) > 1


def _filled(site: KernelSite, text: str, turn: int, turns: int) -> str:
    return text.format(**{name: _spelled(site, name, turn, turns) for name in names_in(text)})


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
    return f"{site.load(dtype, each)}({operand.pointer(turn * each)})"


def _values(name: str, operand: OperandSite, turns: int) -> int:
    """Return how many values of an operand a turn is for."""
    volume = int(operand.tensor.volume)
    each, rest = divmod(volume, turns)
    if volume > 1 and (rest or not each or (operand.in_registers and each != (operand.tensor.state.vector or 1))):
        raise ValueError(f"{name}: its {volume} values do not make {turns} vectors")
    return each or 1
