"""The commands of docs/cluster.md, in one shell: a PostgreSQL server in a folder, and a cluster of two workers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from tests.docs.test_blocks import agree, blocks, commands
from tools.postgres import free_port, programs, server_user, temporary_folder

PAGE = "docs/cluster.md"
#: Ends what the page leaves running.
END = "trap 'kill $(jobs -p); pg_ctl stop -s -m immediate -D server; wait' EXIT\n"


def _as_user(folder: Path) -> None:
    """Write scripts that run PostgreSQL's programs as another user, because root may not run them."""
    source, user = programs(), server_user()
    assert source
    for program in source.iterdir():
        name = f"--reuid={user['user']} --regid={user['group']} --clear-groups"
        script = f'#!/bin/sh\nexec setpriv {name} {program} "$@"\n' if user else f'#!/bin/sh\nexec {program} "$@"\n'
        (folder / program.name).write_text(script)
        (folder / program.name).chmod(0o755)


@pytest.mark.slow
@pytest.mark.xdist_group("postgres")
def test_the_page_works_as_it_is_read(tmp_path: Path, runs_avx2: None) -> None:
    if not programs():
        pytest.skip("PostgreSQL is not installed")
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    if not shutil.which("dask", path=path):
        pytest.skip("dask is not installed")
    _as_user(tmp_path)
    ports = {port: str(free_port()) for port in ("5433", "8786")}
    lines: list[tuple[str, str]] = []
    with temporary_folder() as folder:
        for block in blocks(PAGE):
            text = re.sub("|".join(ports), lambda found: ports[found[0]], block.text)
            if file := re.match(r"(?:#|--) ([\w.]+)\n", text):
                (folder / file[1]).write_text(text, encoding="utf-8")
            elif block.language == "console":
                lines += commands(attrs.evolve(block, text=text))
        script = END + "".join(f"{line}\necho '<end>'\n" for line, _ in lines)
        environment = {**os.environ, "PATH": path, "MORELLO_CACHE_DIR": str(tmp_path / "cache")}
        # The scheduler takes long to start on a busy machine.
        environment["DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT"] = "300s"
        environment.pop("MORELLO_DB")
        done = subprocess.run(
            ["bash", "-c", f"exec 2>&1\n{script}"],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=600,
        )
        # Shown if the test fails.
        log = folder / "precompute.log"
        print(log.read_text(encoding="utf-8") if log.exists() else "")
    said = done.stdout.split("<end>\n")
    assert len(said) == len(lines) + 1, done.stdout
    for (_, expected), got in zip(lines, said, strict=False):
        agree(expected, got)
