"""The C for AMX itself: it is compiled, not run, where the CPU lacks it; and what refuses to run it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from morello_x86_amx.emitter import AmxEmitter
from morello_x86_amx.emulated import emulated
from morello_x86_amx.kernels import TILES
from morello_x86_amx.plugin import WITHOUT_TILES

from morello import api
from morello.build.toolchain import Compiler, available_compilers
from morello.errors import MorelloError
from morello.host import check_granted, missing_features
from morello.plugins import installed
from tools.fixtures import Cli, Write

PRODUCTS = """
target x86_amx

spec halves = Matmul(1×32×64×32, (bf16, L1), (bf16, L1, layout[0, 1, 2, 1p2]), (f32, L1))
schedule halves {
    select AmxTileBf16
}

spec signs = MatmulAccum(1×16×128×48, (u8, L1), (i8, L1, layout[0, 2, 1, 2p16, 1p4]), (i32, L1))
schedule signs {
    select AmxTileInt8Accum
}
"""
INSTRUCTIONS = {
    "halves": ["ldtilecfg", "tilerelease", "tilezero", "tileloadd", "tdpbf16ps", "tilestored"],
    "signs": ["ldtilecfg", "tilerelease", "tileloadd", "tdpbusd", "tilestored"],
}
HAS_AMX = not missing_features(installed().target("x86_amx").info.cpu_features)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", available_compilers()[:2], ids=lambda compiler: compiler.name)
def test_compilers_print_the_instructions(compiler: Compiler, tmp_path: Path) -> None:
    for name, goal in api.parse(PRODUCTS, registry=installed()).items():
        program = api.compile(goal).program
        (tmp_path / f"{name}.c").write_text(program.source)
        flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", *program.flags]
        command = [*compiler.command, *flags, "-S", f"{name}.c", "-o", f"{name}.s"]
        subprocess.run(command, cwd=tmp_path, check=True, timeout=100)
        text = (tmp_path / f"{name}.s").read_text()
        assert [one for one in INSTRUCTIONS[name] if one not in text] == []


@pytest.mark.skipif(HAS_AMX, reason="this machine grants tiles")
def test_calls_are_refused_where_the_system_grants_no_tiles() -> None:
    with pytest.raises(MorelloError, match=r"does not grant this process the tiles of AMX \(amx_tile\)"):
        check_granted(("amx_tile",))
    check_granted(WITHOUT_TILES)


@pytest.mark.skipif(HAS_AMX, reason="this machine has AMX")
def test_programs_do_not_run_without_amx() -> None:
    kernel = api.compile(api.parse(PRODUCTS, registry=installed())["halves"])
    with pytest.raises(MorelloError, match="this machine's CPU lacks amx_tile, amx_bf16, amx_int8"):
        kernel.check()


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_features(WITHOUT_TILES)), reason="the emulation needs AVX-512 with VNNI and BF16")
def test_c_ends_with_a_message_where_the_system_grants_no_tiles(tmp_path: Path) -> None:
    assert "MORELLO_ASK_FOR_TILES" in TILES
    program = api.compile(api.parse(PRODUCTS, registry=emulated())["halves"]).program
    call = "int main(void) { static uint16_t a[2048]; static float c[1024]; halves(a, a, c); return 0; }\n"
    (tmp_path / "halves.c").write_text(f"{program.source}{call}")
    flags = ["-std=gnu11", *program.flags, "-DMORELLO_ASK_FOR_TILES()=0"]
    compiler = available_compilers()[0]
    command = [*compiler.command, *flags, "halves.c", "-o", "halves", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=100)
    done = subprocess.run([tmp_path / "halves"], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode != 0
    assert "the system does not grant this process the tiles of AMX" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(HAS_AMX, reason="this machine has AMX")
def test_a_library_asks_for_tiles_when_it_chooses_a_target(cli: Cli, write: Write, tmp_path: Path) -> None:
    spec = write("spec halves = FillZero(32×32, (f32, GL))\n", name="tiled.spec")
    targets = [word for name in ("x86_amx", "reference_c") for word in ("--target", name)]
    made = cli("compile", spec, *targets, "-d", str(tmp_path / "out"))
    assert made.exit_code == 0, made.stderr
    asks = '#include "tiled.h"\n#include <stdio.h>\nint main(void) { return puts(halves_target()) < 0; }\n'
    (tmp_path / "asks.c").write_text(asks)
    for compiler in available_compilers()[:2]:
        sources = ["asks.c", "out/tiled_library.c", "out/halves_reference_c.c"]
        flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", *AmxEmitter().flags]
        command = [*compiler.command, *flags, "-Iout", *sources, "out/halves_x86_amx.c", "-o", "asks", "-lm"]
        subprocess.run(command, cwd=tmp_path, check=True, timeout=100)
        done = subprocess.run([tmp_path / "asks"], capture_output=True, text=True, timeout=100, check=True)
        assert done.stdout.strip() == "reference_c"
