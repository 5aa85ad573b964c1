"""Take the README's picture of a terminal, docs/images/run.svg: what `morello run` prints.

    python docs/picture.py

Times in it are those of the machine that it is taken on, which should have nothing else to do. A test runs the command
again, and holds all else against the picture.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from click.testing import CliRunner
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from morello.cli.app import main

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "run.svg"
COMMAND = "morello run examples/softmax.spec --spec softmax_512 --profile base"
WIDTH = 100
#: A terminal in any font of one width that the reader has: rich's own loads one from elsewhere.
FRAME = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def output() -> str:
    """Run COMMAND and return its output on a terminal, with paths of libraries as on Linux."""
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        with tempfile.TemporaryDirectory() as cache:
            settings = {"MORELLO_CACHE_DIR": cache, "MORELLO_DB": "off", "COLUMNS": str(WIDTH)}
            colours = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "NO_COLOR": None}
            done = CliRunner(catch_exceptions=False, env={**settings, **colours}).invoke(main, COMMAND.split()[1:])
            if done.exit_code:
                raise SystemExit(done.output)
            # Such as that the machine is busy.
            print(*re.findall("warning: .*", done.stderr), sep="\n", file=sys.stderr)
            return done.stdout.replace(os.path.realpath(cache), cache).replace(cache, "~/.cache/morello")
    finally:
        os.chdir(before)


def svg(printed: str) -> str:
    """Return a picture of the command and its output."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        screen = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        screen.print(Text(f"$ {COMMAND}\n", "bold"), Text.from_ansi(printed.rstrip()), sep="", overflow="fold")
        return screen.export_svg(title="morello", theme=DIMMED_MONOKAI, code_format=FRAME, unique_id="run")


def text(picture: str) -> str:
    """Return the text in a picture, a line a row."""
    rows: dict[float, str] = {}
    for group in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}g"):
        if group.get("class") == "run-matrix":
            for span in group.iter("{http://www.w3.org/2000/svg}text"):
                at, row = float(span.get("x", 0)), float(span.get("y", 0))
                # Rich leaves spaces between spans out.
                place = round(at / 12.2)
                rows[row] = rows.get(row, "").ljust(place) + (span.text or "")
    return "\n".join(rows[row].replace("\xa0", " ").rstrip() for row in sorted(rows))


def stable(shown: str) -> str:
    """Return the output without machine-dependent text: times, rounding errors, names of libraries."""
    joined = " ".join(shown.split())
    joined = re.sub(r"searched [\d,]+ Specs in [\d.]+ s", "searched", joined)
    joined = re.sub(r"\bC \S+/(\w+)-\w+\.c", r"C \1", joined)
    joined = re.sub(r"the largest error is .*? speed", "speed", joined)
    return re.sub(r"\bspeed .* proof", "speed proof", joined)


if __name__ == "__main__":
    PICTURE.write_text(svg(output()), encoding="utf-8")
