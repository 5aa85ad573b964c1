"""The optional CPU features of a goal: in the language, by `cpu=` and `--cpu`, in databases, pickles and libraries."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import morello
from morello.build.toolchain import find_compiler
from morello.db.fingerprint import fingerprint
from morello.errors import MorelloError
from morello.frontend.diagnostics import SourceError
from morello.frontend.parser import parse
from morello.frontend.specfile import show_file
from morello.host import missing_features
from morello.plugins.registry import installed

BYTES = "Matmul(1×6×64×16, (u8, L1), (i8, L1, layout[0, 1, 2, 1p4]), (i32, L1), serial)"
VNNI = "RegisterTileVpdpbusd"
AVX512 = "x86_avx512 + avx512_bf16 + avx512_vnni"


def names(target: str, **options: str) -> set[str]:
    return {*installed().target(target, **options).kernels_by_name}


def test_kernels_beyond_the_baseline_are_used_only_if_asked_for() -> None:
    every = names("x86_avx2 + avx_vnni")
    assert VNNI in every
    assert VNNI not in names("x86_avx2")
    assert names("x86_avx2", cpu="alderlake") == names("x86_avx2", cpu="+avx_vnni") == every
    assert names("x86_avx2 + avx_vnni", cpu="haswell") == names("x86_avx2")
    assert installed().target("x86_avx512", cpu="zen4").features == ("avx512_bf16", "avx512_vnni")
    native = installed().target("reference_c", cpu="native")
    assert (native.features, native.full_name) == ((), "reference_c")


def test_a_feature_of_two_asked_for_leaves_the_kernels_of_the_other_out() -> None:
    one = installed().target("x86_avx512+avx512_vnni")
    assert one.optional_features == ("avx512_bf16", "avx512_vnni")
    assert {feature for kernel in one.unavailable for feature in one.lacking(kernel)} == {"avx512_bf16"}


@pytest.mark.parametrize(
    ("target", "cpu", "words"),
    [
        ("x86_avx2", "zen44", "unknown CPU 'zen44'"),
        ("x86_avx2", "+avx_vnnj", "x86_avx2 has no kernels for the CPU feature 'avx_vnnj'"),
        ("x86_avx2", "+avx_vnni avx", r"unknown CPU '\+avx_vnni avx'"),
        ("x86_avx512", "haswell", "haswell lacks avx512f, avx512vl, avx512bw, which x86_avx512 needs"),
        ("reference_c + avx2", None, "reference_c has no kernels for the CPU feature 'avx2'"),
    ],
)
def test_cpus_and_features_that_are_refused(target: str, cpu: str | None, words: str) -> None:
    with pytest.raises(MorelloError, match=words):
        installed().target(target, cpu=cpu)


def test_files_name_features() -> None:
    text = f"""\
target x86_avx512 + avx512_vnni + avx512_bf16

spec one = {BYTES}

schedule one for {AVX512} {{
    select {VNNI}
}}

schedule one for x86_avx512 {{
    to_accum
}}
"""
    file = parse(text)
    assert file.target is installed().target(AVX512)
    assert [str(one) for one in file.goals[0].schedule] == [f"select {VNNI}"]
    for override in ("x86_avx512", "x86_avx512+avx512_vnni"):
        other = parse(text, target=override)
        assert [str(one) for one in other.goals[0].schedule] == ["to_accum"]
        assert parse(show_file(other)) == other
    assert parse(text, cpu="skylake_avx512").target is installed().target("x86_avx512")
    assert show_file(file).startswith(f"target {AVX512}\n")
    assert parse(show_file(file)) == file
    both = show_file(file, parse(text, target="x86_avx512"))
    assert f"schedule one for {AVX512} {{" in both
    assert parse(both) == file


def test_unknown_features_of_a_file_are_refused_at_their_place() -> None:
    with pytest.raises(
        SourceError, match=r"1:19: error: x86_avx2 has no kernels for the CPU feature 'avx_vnnj'"
    ) as raised:
        parse(f"target x86_avx2 + avx_vnnj\nspec one = {BYTES}")
    assert raised.value.hint is not None
    assert "avx_vnni" in raised.value.hint


@pytest.mark.slow
def test_steps_name_the_missing_features_of_a_kernel() -> None:
    with pytest.raises(MorelloError, match=r"RegisterTileVpdpbusd needs avx_vnni, which x86_avx2 lacks") as raised:
        morello.goal(BYTES, target="x86_avx2").select(VNNI)
    assert raised.value.hint == "write `target x86_avx2 + avx_vnni`, or compile with --cpu"
    goal = morello.goal(BYTES, target="x86_avx2", cpu="+avx_vnni").select(VNNI)
    program = morello.compile(goal).program
    assert program.cpu_features == ("avx_vnni",)
    assert "-mavxvnni" in program.flags
    plain = morello.compile(BYTES, target="x86_avx2", db=False, measured=False).program
    assert (plain.cpu_features, "-mavxvnni" in plain.flags) == ((), False)
    with pytest.raises(MorelloError, match="cpu= cannot change"):
        morello.compile(goal, cpu="native")


def test_databases_and_pickles_separate_features() -> None:
    registry = installed()
    targets = [registry.target(name, "base") for name in ("x86_avx2", "x86_avx2 + avx_vnni")]
    assert len({*map(fingerprint, targets)}) == 2
    assert {*targets} <= {*registry.variants("x86_avx2")}
    assert len({one.full_name for one in registry.variants("x86_avx512")}) == 4
    assert [pickle.loads(pickle.dumps(one)) for one in targets] == targets


def test_targets_list_their_optional_features(cli) -> None:
    text = cli("targets", "x86_avx2", COLUMNS="200").stdout
    assert "avx_vnni     no    " in text
    assert "RegisterTileVpdpbusdAccum, RegisterTileVpdpbusd" in text
    found = json.loads(cli("targets", "x86_avx2+avx_vnni", "--json").stdout)
    assert found["name"] == "x86_avx2 + avx_vnni"
    assert found["optional_features"]["avx_vnni"] == {
        "used": True,
        "on_this_machine": not missing_features(["avx_vnni"]),
        "kernels": ["RegisterTileVpdpbusdAccum", "RegisterTileVpdpbusd", "ConvImageVpdpbusd"],
    }


#: Entries of a library, widest first, and the CPUs of qemu that run each. It emulates neither AVX-512 nor VNNI.
ENTRIES = ("x86_avx512+avx512_vnni", "x86_avx512", "x86_avx2+avx_vnni", "x86_avx2", "reference_c")
CPUS = {
    "Haswell": "x86_avx2",
    "EPYC-Rome": "x86_avx2",
    "Skylake-Server": "x86_avx2",
    "Westmere": "reference_c",
}
ASKS = """\
#include "ops.h"
#include <stdint.h>
#include <stdio.h>
int main(void) {
    static _Alignas(64) uint8_t a[8 * 16];
    static _Alignas(64) int8_t b[16 * 16];
    static _Alignas(64) int32_t c[8 * 16];
    for (int i = 0; i < 8 * 16; ++i) a[i] = (uint8_t)(i * 7 + 200);
    for (int i = 0; i < 16 * 16; ++i) b[i] = (int8_t)(i * 5 - 100);
    static _Alignas(64) char workspace[1 << 16];
    CALL;
    int wrong = 0;
    for (int i = 0; i < 8; ++i)
        for (int j = 0; j < 16; ++j) {
            int32_t sum = 0;
            for (int k = 0; k < 16; ++k) sum += a[i * 16 + k] * b[k * 16 + j];
            wrong |= sum != c[i * 16 + j];
        }
    puts(bytes_target());
    return wrong;
}
"""


@pytest.fixture(scope="module")
def asks(tmp_path_factory) -> Path:
    """A program that calls a product of bytes through a library of all entries, and prints the one that ran."""
    folder = tmp_path_factory.mktemp("ops")
    (folder / "ops.spec").write_text(
        "target x86_avx2\nspec bytes = Matmul(1×8×16×16, (u8, GL), (i8, GL), (i32, GL), serial)(a, b, c)\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "morello", "compile", "ops.spec", "-d", "ops", "--no-db", "--effort", "20000"]
    for entry in ENTRIES:
        command += ["--target", entry]
    subprocess.run(command, cwd=folder, check=True, env={**os.environ, "MORELLO_DB": "off"})
    header = (folder / "ops" / "ops.h").read_text(encoding="utf-8")
    call = "bytes(a, b, c, workspace)" if "BYTES_WORKSPACE" in header else "bytes(a, b, c); (void)workspace"
    (folder / "asks.c").write_text(ASKS.replace("CALL", call), encoding="utf-8")
    compiler = find_compiler()
    made = []
    for file in sorted((folder / "ops").glob("*.c")):
        text = file.read_text(encoding="utf-8")
        flags = text.partition("Compile: cc -std=gnu11 ")[2].partition(" -c ")[0].split()
        made.append(f"{file.stem}.o")
        subprocess.run([*compiler.command, "-std=gnu11", *flags, "-c", file, "-o", made[-1]], cwd=folder, check=True)
    subprocess.run(
        [*compiler.command, "-std=gnu11", "-Iops", "asks.c", *made, "-lm", "-o", "asks"], cwd=folder, check=True
    )
    return folder / "asks"


@pytest.mark.slow
def test_each_entry_of_a_library_has_its_own_program(asks: Path) -> None:
    programs = {one.stem for one in (asks.parent / "ops").glob("bytes_*.c")}
    assert programs == {f"bytes_{entry.replace('+', '_')}" for entry in ENTRIES}
    common = (asks.parent / "ops" / "ops_library.c").read_text(encoding="utf-8")
    listed = ", ".join(json.dumps(entry.replace("+", " + ")) for entry in ENTRIES)
    assert f"names[] = {{{listed}, NULL}}" in common
    done = subprocess.run([asks], capture_output=True, text=True)
    assert done.returncode == 0
    wanted = [
        entry
        for entry in ENTRIES
        if not missing_features((*installed().target(entry).info.cpu_features, *installed().target(entry).features))
    ]
    assert done.stdout.strip() == wanted[0].replace("+", " + ")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("qemu-x86_64"), reason="there is no qemu-user")
@pytest.mark.parametrize(("cpu", "entry"), CPUS.items())
def test_emulated_cpus_take_the_widest_entry_that_they_run(cpu: str, entry: str, asks: Path) -> None:
    done = subprocess.run(["qemu-x86_64", "-cpu", cpu, asks], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, entry), done.stderr
