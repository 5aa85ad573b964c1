"""The C for AMX itself, and what refuses to run it: a CPU without AMX, and a system that does not grant tiles."""

from __future__ import annotations

import signal
import subprocess
import sys
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
needs_amx = pytest.mark.skipif(not HAS_AMX, reason="needs a CPU with AMX")
#: Starts a command to which the system refuses tiles: a filter has arch_prctl(ARCH_REQ_XCOMP_PERM) return EPERM.
REFUSE = """
import ctypes, os, struct, sys
allow, refuse, number, argument, same = 0x7FFF0000, 0x50001, 0, 16, 0x15
steps = (
    (0x20, 0, 0, number), (same, 0, 3, 158), (0x20, 0, 0, argument), (same, 0, 1, 0x1023),
    (6, 0, 0, refuse), (6, 0, 0, allow),
)
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
rules = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(code)))
prctl = ctypes.CDLL(None).prctl
assert prctl(38, 1, 0, 0, 0) == 0 and prctl(22, 2, rules, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""
CALL = f"""
from morello import api
kernel = api.compile(api.parse({PRODUCTS!r})["halves"])
try:
    kernel.check()
except api.MorelloError as error:
    print(error)
"""


def output(*command: str | Path, refused: bool = False, code: int = 0) -> str:
    """Return what a command prints; if `refused`, the system grants it no tiles."""
    words = [sys.executable, "-c", REFUSE, *command] if refused else [*command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("compiler", available_compilers()[:2], ids=lambda compiler: compiler.name)
def test_compilers_print_the_instructions(compiler: Compiler, tmp_path: Path) -> None:
    for name, goal in api.parse(PRODUCTS, registry=installed()).items():
        program = api.compile(goal).program
        (tmp_path / f"{name}.c").write_text(program.source)
        flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", *program.flags]
        # zig adds -c, which clang does not use with -S.
        flags.append("-Wno-unused-command-line-argument")
        command = [*compiler.command, *flags, "-S", f"{name}.c", "-o", f"{name}.s"]
        subprocess.run(command, cwd=tmp_path, check=True, timeout=100)
        text = (tmp_path / f"{name}.s").read_text()
        assert [one for one in INSTRUCTIONS[name] if one not in text] == []


@pytest.mark.skipif(HAS_AMX, reason="this machine grants tiles")
def test_calls_are_refused_where_the_system_grants_no_tiles() -> None:
    with pytest.raises(MorelloError, match=r"does not grant this process the tiles of AMX \(amx_tile\)"):
        check_granted(("amx_tile",))
    check_granted(WITHOUT_TILES)


@pytest.mark.slow
@needs_amx
def test_calls_are_refused_where_the_system_keeps_tiles_from_a_process() -> None:
    assert output(sys.executable, "-c", CALL) == ""
    message = output(sys.executable, "-c", CALL, refused=True)
    assert message.startswith("the system does not grant this process the tiles of AMX (amx_tile)")


@pytest.mark.skipif(HAS_AMX, reason="this machine has AMX")
def test_programs_do_not_run_without_amx() -> None:
    kernel = api.compile(api.parse(PRODUCTS, registry=installed())["halves"])
    with pytest.raises(MorelloError, match="this machine's CPU lacks amx_tile, amx_bf16, amx_int8"):
        kernel.check()


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_features(WITHOUT_TILES)), reason="the emulation needs AVX-512 with VNNI and BF16")
@pytest.mark.parametrize("emulate", [True, pytest.param(False, marks=needs_amx)])
def test_c_ends_with_a_message_where_the_system_grants_no_tiles(emulate: bool, tmp_path: Path) -> None:
    assert "MORELLO_ASK_FOR_TILES" in TILES
    program = api.compile(api.parse(PRODUCTS, registry=emulated() if emulate else installed())["halves"]).program
    call = "int main(void) { static uint16_t a[2048]; static float c[1024]; halves(a, a, c); return 0; }\n"
    (tmp_path / "halves.c").write_text(f"{program.source}{call}")
    flags = ["-std=gnu11", *program.flags, *(["-DMORELLO_ASK_FOR_TILES()=0"] if emulate else [])]
    compiler = available_compilers()[0]
    command = [*compiler.command, *flags, "halves.c", "-o", "halves", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=100)
    message = output(tmp_path / "halves", refused=not emulate, code=-signal.SIGABRT)
    assert message.startswith("the system does not grant this process the tiles of AMX")
    if not emulate:
        assert output(tmp_path / "halves") == ""


@pytest.mark.slow
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
        assert output(tmp_path / "asks", refused=HAS_AMX).strip() == "reference_c"
        # __builtin_cpu_supports of zig 0.17 returns 0 for all features.
        if HAS_AMX and "zig" not in compiler.name:
            assert output(tmp_path / "asks").strip() == "x86_amx"
