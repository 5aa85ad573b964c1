"""`morello compile -d DIR` and `-o x.o|x.a|x.so|x.s`: C, C++ and CMake projects build, link and call the output."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from morello.build.toolchain import Compiler, available_compilers, find_compiler, thread_flags
from morello.errors import ToolchainError
from morello.host import missing_features
from morello.plugins.registry import installed

STRICT = ("-Wall", "-Wextra", "-Werror")
CXX = [path for name in ("c++", "clang++") if (path := shutil.which(name))]
SPECS = """\
spec layer = Add(4×8, GL, GL, GL, serial)(x, bias, y)
spec rows = Move(4×8, (u8, GL, c1), (f32, GL), serial)(from, to)
"""
#: Calls both functions, checks the table, and returns 0 if all is right.
MAIN = """\
#include "ops.h"
#include <stdio.h>
#include <string.h>

int main(void) {
    float x[32], bias[32], y[32], to[32];
    uint8_t from[4 * 10];
    for (int i = 0; i < 32; ++i) {
        x[i] = (float)i, bias[i] = 1;
    }
    for (int i = 0; i < 40; ++i) {
        from[i] = (uint8_t)i;
    }
    layer(x, bias, y);
    rows(from, 10, to);
    int wrong = y[31] != 32 || to[31] != 37 || ops_functions_count != 2;
    const morello_function *const one = &ops_functions[1];
    const morello_operand *const first = &one->operand[0];
    wrong |= strcmp(one->name, "rows") || one->operands != 2 || one->workspace || one->parallel;
    wrong |= strcmp(first->name, "from") || strcmp(first->type, "u8") || strcmp(first->layout, "layout[0, 1]");
    wrong |= !first->reads || first->writes || first->rank != 2 || first->shape[1] != 8 || first->strides != 1;
    wrong |= first->alignment != 1 || one->operand[1].alignment != 4;
    return wrong;
}
"""

each_compiler = pytest.mark.parametrize("compiler", available_compilers(), ids=lambda compiler: compiler.name)


@pytest.fixture(scope="module")
def database(tmp_path_factory) -> str:
    return str(tmp_path_factory.mktemp("solved") / "specs.db")


@pytest.fixture
def cli(cli, database):
    """Run a command with a database that these tests share: each Spec is searched once."""
    return functools.partial(cli, MORELLO_DB=database)


@pytest.fixture
def ops(cli, write, tmp_path, runnable):
    """Makes a library of two Specs for these targets; gives its directory."""

    def make(*targets: str, spec: str = SPECS) -> Path:
        path = write(spec, target=(targets or (runnable,))[0], name="ops.spec")
        chosen = [word for target in targets for word in ("--target", target)]
        result = cli("compile", path, "-d", str(tmp_path / "ops"), *chosen)
        assert (result.exit_code, result.stdout) == (0, "")
        (tmp_path / "main.c").write_text(MAIN)
        (tmp_path / "main.cpp").write_text(MAIN)
        return tmp_path / "ops"

    return make


def run(folder: Path, *command: str | Path, **environment: str) -> str:
    own = {**os.environ, **environment}
    done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True, timeout=300, env=own)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def objects(compiler: Compiler, library: Path, *common: str) -> list[str]:
    """Compile each file with its own command; return the names of the objects."""
    made = []
    for file in sorted(library.glob("*.c")):
        said = re.search(r"Compile: cc -std=gnu11 (.*?) -c ", file.read_text(encoding="utf-8"))
        flags = said[1].split() if said else list(common)
        made.append(f"{file.stem}.o")
        run(library.parent, *compiler.command, "-std=c11", *STRICT, *flags, "-c", f"ops/{file.name}", "-o", made[-1])
    return made


def test_files(ops) -> None:
    library = ops("reference_c")
    assert sorted(one.name for one in library.iterdir()) == [
        "CMakeLists.txt",
        "layer.c",
        "ops.h",
        "ops.pc",
        "ops_library.c",
        "rows.c",
    ]
    assert '#include "ops.h"\n' in (library / "layer.c").read_text(encoding="utf-8")


@pytest.mark.slow
@each_compiler
def test_c_consumer(compiler, ops, tmp_path) -> None:
    made = objects(compiler, ops())
    command = [*compiler.command, "-std=c11", *STRICT, "-Iops", "main.c", *made, "-lm", "-o", "main"]
    run(tmp_path, *command)
    run(tmp_path, "./main")


@pytest.mark.slow
@pytest.mark.parametrize("cxx", CXX)
def test_cpp_consumer(cxx, ops, tmp_path) -> None:
    made = objects(find_compiler(), ops())
    run(tmp_path, cxx, "-std=c++17", *STRICT, "-pedantic", "-Iops", "main.cpp", *made, "-lm", "-o", "main")
    run(tmp_path, "./main")


@pytest.mark.slow
@each_compiler
def test_the_best_target_of_the_cpu_is_chosen(compiler, ops, tmp_path) -> None:
    """A CPU is a set of features in the variable KNOWN here, independent of this machine."""
    library = ops("x86_avx2", "reference_c", "x86_avx512")
    (tmp_path / "cpu.h").write_text(
        "#include <stdlib.h>\n#include <string.h>\n"
        '#define __builtin_cpu_supports(one) (strstr(getenv("KNOWN"), " " one " ") != NULL)\n'
    )
    made = objects(compiler, library, "-include", "cpu.h")
    asks = '#include "ops.h"\n#include <stdio.h>\nint main(void) { return puts(layer_target()) < 0; }\n'
    (tmp_path / "asks.c").write_text(asks)
    for name in ("asks", "main"):
        command = [*compiler.command, "-std=c11", *STRICT, "-Iops", f"{name}.c", *made, "-lm", "-o", name]
        run(tmp_path, *command)
    wanted = {"": "reference_c", "avx2": "reference_c", "avx2 fma": "x86_avx2"}
    for known, target in {**wanted, "avx512f avx512vl avx512bw fma avx2": "x86_avx512"}.items():
        if not missing_features(installed().target(target).info.cpu_features):
            assert run(tmp_path, "./asks", KNOWN=f" {known} ").strip() == target
            run(tmp_path, "./main", KNOWN=f" {known} ")


@pytest.mark.slow
def test_an_unsupported_cpu_is_reported(ops, tmp_path) -> None:
    library, compiler = ops("x86_avx2", "x86_avx512"), find_compiler()
    made = objects(compiler, library, "-D__builtin_cpu_supports(one)=0")
    text = '#include "ops.h"\nint main(int count, char **words) { (void)words; float x[32] = {0}, y[32];\n'
    text += "if (layer_target()) return 2; if (count > 1) layer(x, x, y); return 0; }\n"
    (tmp_path / "none.c").write_text(text)
    run(tmp_path, *compiler.command, "-Iops", "none.c", *made, "-o", "none")
    run(tmp_path, "./none")
    ended = subprocess.run(["./none", "call"], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode < 0
    said = "layer: no code for this CPU: x86_avx512 needs avx512f, avx512vl, avx512bw, fma; x86_avx2 needs avx2, fma\n"
    assert ended.stderr == said


@pytest.mark.slow
def test_a_graph_runs_on_any_cpu_where_plain_c_is_part_of_the_library(ops, tmp_path) -> None:
    """Plain C stores intermediates in the workspace, even if other targets do not."""
    graph = "spec graph = Compose([Relu, Sub, Scale[by=2]], [(40×32, GL), (40×32, GL), (40×32, GL)], serial)(b, a, y)\n"
    library, compiler = ops("x86_avx2", "reference_c", spec=graph), find_compiler()
    made = objects(compiler, library, "-D__builtin_cpu_supports(one)=0")
    text = """\
#include "ops.h"
#include <string.h>
int main(void) {
    static float a[1280], b[1280], y[1280];
    static _Alignas(64) char workspace[GRAPH_WORKSPACE];
    a[0] = 3, b[0] = 5, a[1279] = 5, b[1279] = 3;
    graph(b, a, y, workspace);
    return strcmp(graph_target(), "reference_c") || y[0] != 1 || y[1279] != 7;
}
"""
    (tmp_path / "main.c").write_text(text)
    run(tmp_path, *compiler.command, "-std=c11", *STRICT, "-Iops", "main.c", *made, "-lm", "-o", "main")
    run(tmp_path, "./main")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
@pytest.mark.parametrize("shared", ["OFF", "ON"])
def test_cmake_consumers(shared, ops, tmp_path) -> None:
    """One that adds the directory, and one that finds the library where it was installed."""
    ops("x86_avx2", "reference_c")
    target = "add_executable(main ../main.c)\ntarget_link_libraries(main ops::ops)\n"
    for name, found in (("adds", "add_subdirectory(../ops ops)"), ("finds", "find_package(ops REQUIRED)")):
        (tmp_path / name).mkdir()
        head = "cmake_minimum_required(VERSION 3.13)\nproject(user C)\n"
        (tmp_path / name / "CMakeLists.txt").write_text(f"{head}{found}\n{target}")
        prefix = tmp_path / "installed"
        definitions = [
            f"-DCMAKE_INSTALL_PREFIX={prefix}",
            f"-DCMAKE_PREFIX_PATH={prefix}",
            f"-DBUILD_SHARED_LIBS={shared}",
        ]
        run(tmp_path, "cmake", "-S", name, "-B", f"build_{name}", *definitions)
        run(tmp_path, "cmake", "--build", f"build_{name}")
        run(tmp_path, f"build_{name}/main")
        if name == "adds":
            run(tmp_path, "cmake", "--install", "build_adds")
    if shared == "OFF" and shutil.which("pkg-config"):
        search = {"PKG_CONFIG_PATH": str(tmp_path / "installed" / "lib" / "pkgconfig")}
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "ops"], env=search, capture_output=True, text=True)
        run(tmp_path, *find_compiler().command, "main.c", *flags.stdout.split(), "-o", "packaged")
        run(tmp_path, "./packaged")


@pytest.mark.slow
@each_compiler
def test_built_files_hold_a_whole_library(compiler, cli, write, tmp_path) -> None:
    path = write(SPECS, target="x86_avx2", name="ops.spec")
    options = "--target", "x86_avx2", "--target", "reference_c"
    assert cli("compile", path, "-o", str(tmp_path / "ops.h"), *options).exit_code == 0
    (tmp_path / "main.c").write_text(MAIN)
    for kind in ("o", "a", "so"):
        cc = shlex.join(compiler.command)
        made = cli("compile", path, "-o", str(tmp_path / f"libops.{kind}"), "--cc", cc, *options)
        assert (made.exit_code, made.output) == (0, "")
        command = [*compiler.command, "main.c", f"libops.{kind}", "-lm", f"-Wl,-rpath,{tmp_path}", "-o", "main"]
        run(tmp_path, *command)
        run(tmp_path, "./main")


@each_compiler
@pytest.mark.parametrize("kind", ["o", "s", "a"])
def test_built_files_of_one_spec_hold_its_function_alone(compiler, kind, cli, write, tmp_path) -> None:
    path = write("spec one = FillZero(4, GL)\n", target="reference_c")
    cc = shlex.join(compiler.command)
    assert cli("compile", path, "-o", str(tmp_path / f"one.{kind}"), "--cc", cc).exit_code == 0
    assert cli("compile", path, "-o", str(tmp_path / "one.h")).exit_code == 0
    text = '#include "one.h"\nint main(void) { float x[4] = {1, 2, 3, 4}; one(x); return x[3] != 0; }\n'
    (tmp_path / "main.c").write_text(text)
    run(tmp_path, *compiler.command, "main.c", f"one.{kind}", "-o", "main")
    run(tmp_path, "./main")
    if kind == "o":
        assert "functions" not in run(tmp_path, "nm", "one.o")


@pytest.mark.slow
def test_parallel_archives_link_with_any_compiler(cli, write, tmp_path, runnable) -> None:
    schedule = "schedule fill {\n    tile [1, 8] parallel\n    synthesize\n}\n"
    path = write(f"spec fill = FillZero(64×8, GL)\n{schedule}", target="x86_avx2")
    if runnable != "x86_avx2":
        pytest.skip("this machine lacks AVX2")
    text = '#include "fill.h"\nint main(void) { float x[512] = {0}; x[511] = 1; fill(x, 3); return x[511] != 0; }\n'
    (tmp_path / "main.c").write_text(text)
    assert cli("compile", path, "-o", str(tmp_path / "fill.h")).exit_code == 0
    for builder in available_compilers():
        assert cli("compile", path, "-o", str(tmp_path / "fill.a"), "--cc", shlex.join(builder.command)).exit_code == 0
        for linker in available_compilers():
            run(tmp_path, *linker.command, "main.c", "fill.a", "-pthread", "-o", "main")
            run(tmp_path, "./main")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["o", "so"])
@pytest.mark.parametrize("openmp", [False, True])
def test_threads_are_pthreads_unless_openmp_is_requested(openmp, kind, cli, refused, write, tmp_path) -> None:
    compiler = find_compiler("gcc")
    try:
        thread_flags(compiler, openmp=True)
    except ToolchainError as error:
        pytest.skip(error.message)
    schedule = "schedule fill {\n    tile [1, 8] parallel\n    synthesize\n}\n"
    path, options = write(f"spec fill = FillZero(64×8, GL)\n{schedule}", target="x86_avx2"), ["--openmp"] * openmp
    assert cli("compile", path, "-o", str(tmp_path / f"fill.{kind}"), "--cc", "gcc", *options).exit_code == 0
    names = run(tmp_path, "nm", "-D" if kind == "so" else "-g", f"fill.{kind}")
    assert ("GOMP_parallel" in names, "pthread_create" in names) == (openmp, not openmp)
    if openmp:
        refused(cli("compile", path, *options), "compile C with -fopenmp", code=2)


@pytest.mark.slow
@pytest.mark.parametrize("targets", [["x86_avx2"], ["x86_avx2", "x86_avx512"]])
def test_loops_of_a_library_run_on_threads_of_the_caller(targets, ops, tmp_path, runnable) -> None:
    if runnable != "x86_avx2":
        pytest.skip("this machine lacks AVX2")
    schedule = "schedule fill {\n    tile [1, 8] parallel\n    synthesize\n}\n"
    library = ops(*targets, spec=f"spec fill = FillZero(64×8, GL)\n{schedule}spec plain = FillZero(4, GL, serial)\n")
    text = """\
#include "ops.h"
static int shares;
static void run(void (*body)(void *, int), void *data, int count) {
    for (shares = 0; shares < count; ++shares) {
        body(data, shares);
    }
}
int main(void) {
    float x[512] = {[0] = 1, [511] = 1};
    SETTER(run);
    fill(x, 3);
    return x[0] != 0 || x[511] != 0 || shares != 3;
}
"""
    (tmp_path / "main.c").write_text(text)
    compiler = find_compiler()
    command = [*compiler.command, "-std=c11", *STRICT, "-Iops", "main.c", *objects(compiler, library), "-pthread"]
    for setter in ("ops_set_parallel", "fill_set_parallel"):
        run(tmp_path, *command, f"-DSETTER={setter}", "-o", "main")
        run(tmp_path, "./main")


def test_a_shared_object_of_several_specs_can_be_loaded(cli, write, tmp_path) -> None:
    path = write(SPECS, target="reference_c", name="two words.spec")
    assert cli("compile", path, "-o", str(tmp_path / "all.so")).exit_code == 0
    loaded = ctypes.CDLL(str(tmp_path / "all.so"))
    assert loaded.layer
    assert ctypes.c_size_t.in_dll(loaded, "two_words_functions_count").value == 2


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("spec f = FillZero(4, GL)\nspec f_target = FillZero(4, GL)", "a", "the library a defines 'f_target' twice"),
        ("spec f = FillZero(4, GL)\nspec f_x86_avx2 = FillZero(4, GL)", "a", "defines 'f_x86_avx2' twice"),
        ("spec a_functions = FillZero(4, GL)", "a", "defines 'a_functions' twice"),
        ("spec a_set_parallel = FillZero(4, GL)", "a", "defines 'a_set_parallel' twice"),
        ("spec f = FillZero(4, GL)", "math", "math.h is a header of the C library"),
        ("spec f = FillZero(4, GL)", "x" * 99, "longer than 100 letters"),
    ],
)
def test_names_that_c_cannot_distinguish(cli, refused, write, tmp_path, text, name, words) -> None:
    path = write(f"{text}\n", target="reference_c", name=f"{name}.spec")
    targets = "--target", "x86_avx2", "--target", "reference_c"
    refused(cli("compile", path, "-d", str(tmp_path / "lib"), *targets), words, "hint: ")


@pytest.mark.parametrize(
    ("options", "words", "code"),
    [
        (["--emit", "library"], "needs -d DIR", 2),
        (["-d", "lib", "--emit", "c"], "-d DIR is for libraries alone", 2),
        (["-d", "lib", "-o", "x.c"], "-o and -d exclude each other", 2),
        (["--emit", "a"], "--emit a needs -o OUT", 2),
        (["--target", "x86_avx2", "--target", "x86_avx2"], "name each once", 2),
        (["--target", "x86_avx2", "--target", "reference_c"], "there are 2 targets: x86_avx2, reference_c", 1),
        (["-o", "x.s"], "the file has 2 Specs: layer, rows", 1),
        (["-d", "ops.spec"], "cannot make ops.spec", 1),
        (["-d", "no/such/place"], "cannot make no/such/place", 1),
    ],
)
def test_mistakes(cli, refused, write, tmp_path, monkeypatch, options, words, code) -> None:
    write(SPECS, target="reference_c", name="ops.spec")
    monkeypatch.chdir(tmp_path)
    refused(cli("compile", "ops.spec", *options), words, code=code)


SCHEDULED = """\
spec copy = Move(4×8, GL, GL, serial)
schedule copy for x86_avx2 {
    tile [1, 8]
    synthesize
}
schedule copy for x86_avx512 {
    move 0 to L1
    synthesize
}
"""


def test_each_target_has_its_own_schedule(cli, write, tmp_path) -> None:
    path = write(SCHEDULED, name="ops.spec")
    targets = "--target", "x86_avx2", "--target", "reference_c", "--target", "x86_avx512"
    assert cli("compile", path, "-d", str(tmp_path / "ops"), *targets).exit_code == 0
    begins = {"x86_avx2": "Schedule:\n *     tile [1, 8]\n", "x86_avx512": "Schedule:\n *     move 0 to L1\n"}
    for name, words in {**begins, "reference_c": "in plain loops"}.items():
        assert words in (tmp_path / "ops" / f"copy_{name}.c").read_text(encoding="utf-8")


def test_whole_schedules_of_several_targets_are_one_file(cli, write, tmp_path) -> None:
    path = write(SCHEDULED, name="ops.spec")
    targets = "--target", "x86_avx2", "--target", "reference_c"
    assert cli("compile", path, "-o", str(tmp_path / "all.spec"), *targets).exit_code == 0
    again = cli("compile", str(tmp_path / "all.spec"), "--emit", "schedule", *targets)
    assert (tmp_path / "all.spec").read_text(encoding="utf-8") == again.stdout
    for name in ("x86_avx2", "reference_c"):
        both = [cli("compile", one, "--target", name).stdout for one in (path, str(tmp_path / "all.spec"))]
        assert both[0] == both[1] != ""


def test_a_schedule_that_suits_one_target_only_is_reported(cli, refused, write, tmp_path) -> None:
    text = "spec copy = Move(16×16, L1, L1)\nschedule copy {\n    move 0 to VRF v8\n}\n"
    path = write(text, target="x86_avx512", name="ops.spec")
    targets = "--target", "x86_avx512", "--target", "x86_avx2"
    result = cli("compile", path, "-d", str(tmp_path / "ops"), *targets)
    refused(result, "ops.spec:4:5: error: ", "schedule copy for x86_avx2 { ... }")


def test_a_target_that_has_no_program_is_named(cli, refused, write, tmp_path) -> None:
    path = write("spec none = Conv(1×1×2×4×1×1×1, VRF, L1, L1, serial)\n")
    targets = "--target", "x86_avx2", "--target", "x86_avx512"
    refused(cli("compile", path, "-d", str(tmp_path / "lib"), *targets), "none_x86_avx2: ", "hint: ")
