"""Figures of matplotlib, an optional dependency: rooflines, calibrations, and tables of databases."""

from __future__ import annotations

import importlib
from typing import Any

from morello import api
from morello.errors import MorelloError

_COLOURS = {"exact": "tab:blue", "lower": "tab:orange", "none": "tab:gray"}


def figures() -> Any:
    """Return the module matplotlib.figure. Raises MorelloError if matplotlib is not installed."""
    try:
        # Not imported by name: it is optional. Text stays text, and equal figures are equal files.
        importlib.import_module("matplotlib").rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "morello"})
        return importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise MorelloError("plots need matplotlib, which is not installed", "pip install 'morello[plot]'") from error


def save(figure: Any, path: str) -> None:
    """Write a figure to a file. Raises MorelloError on failure."""
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise MorelloError(f"cannot write {path}: {reason}", "name a .png file in a folder that exists") from error


def draw_roofline(roof: api.Roofline, title: str, path: str) -> None:
    """Write a roofline: the bandwidth of each level, up to the fastest kernel, as the model has no peak of its own."""
    figure = figures().Figure(figsize=(10, 6), layout="constrained")
    plane = figure.add_subplot()
    peak = max(roof.points, key=lambda one: (one.is_kernel, one.rate))
    colours = {level: f"C{place}" for place, level in enumerate(roof.levels)}
    intensities = [one.intensity for one in roof.points] + [peak.rate / slope for slope in roof.slopes.values()]
    low, high = min(intensities) / 4, max(intensities) * 4
    for level, slope in roof.slopes.items():
        ends = [low, peak.rate / slope]
        plane.plot(ends, [roof.scale * slope * end for end in ends], color=colours[level], label=level)
    plane.plot([low, high], [roof.scale * peak.rate] * 2, color="gray", label=f"fastest kernel: {peak.name}")
    for number, one in enumerate(roof.points, 1):
        place, shape = (one.intensity, roof.scale * one.rate), "o" if one.is_kernel else "s"
        plane.plot(*place, shape, color=colours[one.level], label=f"{number} {one.name} ({one.level})")
        # Points often nearly coincide.
        plane.annotate(str(number), place, (5 + 9 * (number % 4), 5), textcoords="offset points", fontsize="x-small")
    plane.set(xscale="log", yscale="log", ylabel=roof.unit, title=title)
    plane.set_xlabel("FLOP per byte of operands in the slowest level that a part touches")
    figure.legend(loc="outside right upper", fontsize="small")
    save(figure, path)


def draw_calibration(calibration: api.Calibration, path: str) -> None:
    """Write times of runs of lines in each level with the fits, and the costs of tables, current and measured."""
    figure = figures().Figure(figsize=(11, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    for level in calibration.levels:
        lines, taken = zip(*level.points, strict=True)
        (drawn,) = left.plot(lines, [level.miss + level.hit * count for count in lines])
        label = f"{level.level}: {level.miss:.0f} + {level.hit:.1f} · n"
        left.plot(lines, taken, "o", color=drawn.get_color(), label=label)
    left.set(xscale="log", yscale="log", xlabel="lines of a run (n)", title="levels")
    left.set_ylabel(f"a run, in {calibration.unit}")
    left.legend()
    for table in calibration.tables:
        right.plot(table.measurement.totals(table.old), table.measurement.totals(table.rows), ".", label=table.name)
    if calibration.tables:
        right.axline((1, 1), slope=1, color="gray", linewidth=0.5)
        right.legend()
    right.set(xlabel="so far", ylabel="measured", title="tables")
    save(figure, path)


def draw_plane(found: api.TablePlane, number: int, path: str) -> None:
    """Write the rectangles of a table. Axes have only the values that occur, in order, so gaps are left out."""
    figure, patches = (
        figures().Figure(figsize=(8, 6), layout="constrained"),
        importlib.import_module("matplotlib.patches"),
    )
    plane = figure.add_subplot()
    for (left, right), (bottom, top), kind in found.shapes:
        corner, width, height = (left - 0.45, bottom - 0.45), right - left + 0.9, top - bottom + 0.9
        style = {"facecolor": (_COLOURS[kind], 0.15), "edgecolor": _COLOURS[kind]}
        plane.add_patch(patches.Rectangle(corner, width, height, **style))
    for letter, axis in (("x", found.x), ("y", found.y)):
        plane.set(**{f"{letter}label": axis.name, f"{letter}lim": (-0.7, len(axis.values) - 0.3)})
        plane.set(**{f"{letter}ticks": range(len(axis.values)), f"{letter}ticklabels": axis.values})
    plane.tick_params(axis="x", rotation=45)
    kinds = {kind for *_, kind in found.shapes}
    handles = [patches.Patch(color=colour, label=kind) for kind, colour in _COLOURS.items() if kind in kinds]
    plane.legend(handles=handles)
    title = found.labels.replace(": ", ":\n", 1)
    plane.set_title(f"table {number}: {found.rectangles} rectangles of\n{title}", fontsize=8, wrap=True)
    save(figure, path)
