"""Programs are built together, with any names defined in each."""

from __future__ import annotations

from morello import api
from morello.build.library import build
from morello.build.toolchain import Compiler
from morello.testing.batch import translation_unit

PARALLEL = """\
spec {name} = Move({rows}×16, GL, GL)
schedule {name} {{
    tile [8, 0] parallel
    move 0 to L1
    move 1 to L1
    tile [1, 1]
    select Assign
}}
"""


def test_parallel_programs_share_a_file(compiler: Compiler) -> None:
    """Each has its own threads."""
    text = "".join(PARALLEL.format(name=name, rows=rows) for name, rows in (("first", 16), ("second", 32)))
    programs = [api.compile(goal).program for goal in api.parse(f"target x86_avx2\n{text}").values()]
    assert all(program.parallel for program in programs)
    build({"programs.c": translation_unit(programs)}, (*programs[0].flags, "-Wall", "-Wextra", "-Werror"), compiler)
