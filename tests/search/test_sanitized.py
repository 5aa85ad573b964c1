"""The engine of search runs without reports of the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from math import inf
from pathlib import Path

import pytest

from morello.errors import NoImplementation, Undecided
from morello.frontend.parser import parse_spec
from morello.plugins.registry import installed
from morello.search import library
from morello.search.budget import SearchBudget
from morello.search.library import FOLDERS, sources

#: Specs with all kinds of steps, each searched with this budget; some have no program.
SEARCHES = [
    ("x86_avx2", "(Matmul(1×3×5×7, L1, L1, L1, serial), [8, 64, 0, 0, 0, 0])"),
    ("x86_avx2", "(Move(3×5, (bf16, GL), (f32, GL, col_major), serial), [8, 32, 256, 0, 0, 0])"),
    ("x86_avx2", "(Softmax(1×3, L1, L1), [12, 0, 128, 0, 0, 0])"),
    ("x86_avx2", "(Compose([Relu, Matmul], [(1×2×2, L1), (1×2×3, L1), (1×2×3, L1)], serial), [12, 0, 128, 0, 0, 0])"),
    ("x86_avx2", "(Conv[padding=1](1×1×1×2×2×2×2, L1, L1, L1, serial), [12, 0, 64, 0, 0, 0])"),
    ("x86_avx2", "Matmul(1×4×4×4, GL, GL, GL)"),
    ("x86_avx512", "(Maximum(1×1×7×1, (u8, L2), (u8, L2), (u32, L2)), [64, 2048, 0, 524288, 0, 2147483648])"),
]
BUDGET = 200
FLAGS = ("-g", "-O1", "-fPIC", "-shared", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


def search_all(database: str) -> None:
    """Search for each Spec with a database, twice, so that answers are recalled; then take all steps on some Specs."""
    from morello.db.database_cache import DatabaseCache
    from morello.db.store import SpecStore
    from morello.search.session import SearchSession
    from morello.search.solve.engine import Engine

    # With bounds by layout at once, and after a little without.
    for refine_after in (0, 100):
        store = SpecStore(database)
        for name, text in SEARCHES:
            target = installed().target(name)
            try:
                found = SearchSession(target, cache=DatabaseCache(store), refine_after=refine_after).search_within(
                    parse_spec(text, target), SearchBudget(expansions=BUDGET)
                )
                print(text, found.low, found.cost, flush=True)
            except (NoImplementation, Undecided) as error:
                print(text, error.message, flush=True)
    # Without a limit on the cost, steps that do not apply are tried, too.
    for name, text in SEARCHES:
        spec = parse_spec(text, installed().target(name))
        engine = Engine([spec.logical], installed().target(name), prune=False)
        for below in {
            part for edge in engine.core.hyperedges(engine.directory.nodes_of([spec])[0], inf) for part in edge.parts
        }:
            engine.core.hyperedges(below, inf)


@pytest.mark.slow
def test_the_sanitizers_report_nothing(tmp_path: Path) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs gcc")
    runtime = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    if not Path(runtime.stdout.strip()).is_absolute():
        pytest.skip("needs the runtime library of gcc's address sanitizer")
    units = [str(path) for path in sources() if path.suffix == ".c"]
    built = tmp_path / "engine.so"
    included = [f"-I{folder}" for folder in FOLDERS]
    subprocess.run([compiler, *FLAGS, *included, "-o", str(built), *units, "-lm"], check=True)
    # Python itself leaks.
    environment = {**os.environ, "LD_PRELOAD": runtime.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0"}
    command = [sys.executable, __file__, str(built), str(tmp_path / "specs.db")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr[:10_000]
    assert len(done.stdout.splitlines()) == 2 * len(SEARCHES)


if __name__ == "__main__":
    library.installed, library.library_path = lambda: None, lambda: Path(sys.argv[1])
    search_all(sys.argv[2])
