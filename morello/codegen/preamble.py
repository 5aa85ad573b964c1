"""The top of emitted C: what it is, how it is compiled, what a compiler must be told of, and what the code uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from morello.codegen.interface import Interface
from morello.codegen.threads import OWN_STORES, RUNTIME
from morello.ir.impl import Node, cost_and_peak
from morello.kernels.target import Target
from morello.schedule import lines, schedule_of


def preamble(
    impl: Node,
    target: Target,
    interface: Interface,
    macros: Mapping[str, str],
    flags: Sequence[str],
    includes: Iterable[str],
    definitions: Iterable[str],
) -> list[str]:
    """Return what comes before the code, in parts with a line between them.

    `macros` tell a compiler's CPU features, `flags` let it have them, and `definitions` are types and functions.
    """
    top = f"{_banner(impl, target, interface, flags)}\n{requirements(interface.name, macros, flags)}"
    before, runtime = ([OWN_STORES], [RUNTIME]) if interface.parallel else ([], [])
    included = "".join(f"#include <{header}>\n" for header in includes)
    return [top, *before, included, interface.declarations, *runtime, *(f"{text}\n" for text in definitions)]


def _banner(impl: Node, target: Target, interface: Interface, flags: Sequence[str]) -> str:
    totals = cost_and_peak(impl)
    peaks = ", ".join(f"{level.name} {peak}" for level, peak in zip(target.levels, totals.peak, strict=True) if peak)
    implied = impl.spec.logical.implied
    rows = [
        f"{interface.summary}, made by Morello.",
        *([f"Sizes: {implied}."] if implied else []),
        interface.command(flags),
        "",
        f"Cost {totals.cost}; memory in bytes: {peaks or 'none'}. Schedule:",
        *(f"    {row}" for row in lines(schedule_of(impl))),
    ]
    return "/*\n" + "\n".join(f" * {row}".rstrip() for row in rows) + "\n */"


def requirements(name: str, macros: Mapping[str, str], flags: Sequence[str]) -> str:
    """Return the lines that stop a compiler which may not use all CPU features: those with macros that say so.

    `macros` are by feature; `flags` are the compiler's for all of them.
    """
    if not macros:
        return ""
    lacks = " || ".join(f"!defined({macro})" for macro in macros.values())
    needs = f"{name} needs {', '.join(macros)}: compile it with {' '.join(flags)}"
    return f'#if {lacks}\n#error "{needs}"\n#endif\n'
