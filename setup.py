"""Builds the compiled part of search. Where there is no C compiler, it is built when search is first used."""

from pathlib import Path
from runpy import run_path

from setuptools import Extension, setup

root = Path(__file__).parent.absolute()
facts = run_path(str(root / "morello" / "search" / "sources.py"))
files = [path.relative_to(root).as_posix() for path in facts["sources"]()]
engine = Extension(
    "morello.search.solve._engine",
    sources=[file for file in files if file.endswith(".c")],
    # It depends on how it is built too: the digest comes from here.
    depends=[file for file in files if file.endswith(".h")] + ["setup.py"],
    define_macros=[("MORELLO_SOURCES", f'"{facts["digest"]()}"')],
    extra_compile_args=["-O3"],
    optional=True,
)
setup(ext_modules=[engine])
