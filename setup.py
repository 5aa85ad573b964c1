"""Build the compiled part of search. Without a C compiler, it is built when search is first used."""

from pathlib import Path
from runpy import run_path

import cffi
from setuptools import setup

root = Path(__file__).parent.absolute()
facts = run_path(str(root / "morello" / "search" / "library.py"))
files = [path.relative_to(root) for path in facts["sources"]()]
declared = [path.relative_to(root) for path in facts["declarations"]()]

ffi = cffi.FFI()
for header in declared:
    ffi.cdef((root / header).read_text(encoding="utf-8"))
ffi.set_source(
    "morello.search.solve._engine",
    "\n".join(["#include <stdint.h>", *(f'#include "{header.as_posix()}"' for header in declared)]),
    sources=[file.as_posix() for file in files if file.suffix == ".c"],
    include_dirs=[".", *(folder.relative_to(root).as_posix() for folder in facts["FOLDERS"])],
    # The digest is defined below.
    depends=[file.as_posix() for file in files if file.suffix == ".h"] + ["setup.py"],
    define_macros=[("MORELLO_SOURCES", f'"{facts["digest"]()}"')],
    extra_compile_args=["-O3"],
    optional=True,
)
# cffi runs this file again, as another module, to find `ffi`.
if __name__ == "__main__":
    setup(cffi_modules=["setup.py:ffi"])
