"""Errors of users give one message each, and an exit status other than 0."""

import importlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from morello.cli.app import main
from morello.plugins.registry import Registry

TWO = "spec one = Matmul(1×1×1×1, GL, GL, GL)\nspec zero = FillZero(4×4, GL)\n"
COMMANDS = ["run", "compile", "check", "bench", "explain"]


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_file(cli, refused, tmp_path, command):
    refused(cli(command, str(tmp_path / "none.spec")), "error: cannot read", "none.spec")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", ["bad.spec:1:1: error: no specs"]),
        (b"\x7fELF\0\1", ["error:", "not a text file"]),
        (b"target x86_avx2\nspec a = Matmul(1\xff)", ["error:", "not UTF-8"]),
        (b"target x86_avx2\nspec a = Matmul(1x2", ["bad.spec:2:", "error:"]),
        (b"target x68_avx2\nspec a = FillZero(4, GL)", ["bad.spec:1:8: error: unknown target 'x68_avx2'", "x86_avx2"]),
    ],
)
def test_bad_file(cli, refused, tmp_path, command, data, words):
    path = tmp_path / "bad.spec"
    path.write_bytes(data)
    refused(cli(command, str(path)), *words)


def test_directory(cli, refused, tmp_path):
    refused(cli("run", str(tmp_path)), "error: cannot read", "directory")


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_spec(cli, refused, write, command):
    refused(cli(command, write(TWO), "--spec", "zeor"), "no Spec 'zeor'", "did you mean 'zero'?", "one, zero", code=2)


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_target(cli, refused, write, command):
    refused(cli(command, write(), "--target", "z80"), "unknown target 'z80'", "x86_avx2", code=2)


@pytest.mark.parametrize("command", COMMANDS)
def test_step_that_does_not_apply(cli, refused, write, command):
    path = write("spec a = FillZero(4×4, GL)\nschedule a {\n    tile [8, 8]\n}\n")
    refused(cli(command, path), path, "tile size 8 of i0 is larger than 4")


@pytest.mark.parametrize("command", ["compile", "explain"])
def test_limits_too_small(cli, refused, write, command):
    path = write("spec small = (Matmul(1×1×1×1, GL, GL, GL, serial), [0, 0, 64, 0, 0, 0])\n")
    refused(cli(command, path), "error: small: no implementation exists for Matmul", "hint:")


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        ("complie", "no such command 'complie'", "did you mean 'compile'? `morello --help` lists the commands"),
        ("db stat", "no such command 'stat'", "did you mean 'stats'? `morello db --help` lists the commands"),
        ("run --sead 1", "no such option '--sead'", "did you mean '--seed'? `morello run --help` lists the options"),
        ("run", "missing argument 'FILE'", "`morello run --help` lists arguments and options"),
        ("bench a.spec --min-time nan", "invalid value for '--min-time': 'nan' is not a finite number", "bench --help"),
        ("run a.spec --gap inf", "invalid value for '--gap': 'inf' is not a finite number", "`morello run --help`"),
        ("run --seed", "option '--seed' requires an argument", "`morello COMMAND --help` lists arguments and options"),
        ("compile a.spec -o b.c -d c", "-o and -d exclude each other", "`morello compile --help` lists"),
    ],
)
def test_errors_of_the_command_line_look_like_others(cli, refused, write, monkeypatch, arguments, message, hint):
    monkeypatch.chdir(Path(write(name="a.spec")).parent)
    result = cli(*arguments.split())
    refused(result, hint, code=2)
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 2


def test_a_command_without_arguments_shows_its_help(cli):
    result = cli()
    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: morello [OPTIONS] COMMAND")


@pytest.mark.parametrize("command", ["run", "check", "bench"])
def test_unknown_compiler(cli, refused, write, command):
    refused(cli(command, write(), "--cc", "no-such-cc"), "error: the C compiler 'no-such-cc'")


@pytest.mark.parametrize(
    "command",
    [["run"], ["check"], ["bench"], *(["compile", "-o", f"one.{kind}"] for kind in ("o", "a", "so", "s"))],
    ids=" ".join,
)
def test_a_missing_compiler_is_reported_before_the_search(cli, refused, write, command, monkeypatch):
    monkeypatch.setenv("PATH", "/none")
    monkeypatch.setattr("morello.build.toolchain.importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("morello.api.goals.Goal.synthesize", lambda *_: pytest.fail("it searched"))
    refused(cli(*command, write(), "--no-db", MORELLO_CC=""), "no working C compiler", "pip install ziglang")


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_missing_reference_is_reported_before_the_search(cli, refused, write, command, monkeypatch):
    only = Registry.of(x86_avx2=importlib.import_module("morello_x86_avx2.plugin").PLUGIN)
    monkeypatch.setattr("morello.verify.reference.installed", lambda: only)
    monkeypatch.setattr("morello.api.goals.Goal.synthesize", lambda *_: pytest.fail("it searched"))
    refused(cli(command, write(), "--no-db"), "target reference_c", "pip install morello-reference-c")


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_may_be_standard_input(write, command):
    text = Path(write(target="reference_c")).read_text(encoding="utf-8")
    result = CliRunner(catch_exceptions=False).invoke(main, [command, "-"], input=text)
    assert result.exit_code == 0, result.output
    assert "one" in result.stdout
    wrong = CliRunner(catch_exceptions=False).invoke(main, [command, "-"], input="target reference_c\nspec\n")
    assert wrong.exit_code == 1
    assert wrong.stderr.startswith("-:2:")


@pytest.mark.parametrize("command", COMMANDS)
def test_unusable_database(cli, refused, write, tmp_path, command):
    refused(cli(command, write(), "--db", str(tmp_path / "none" / "db")), "error: database")
    refused(cli(command, write(), "--db", write(name="other.spec")), "error: database")


def test_output_that_cannot_be_written(cli, refused, write, tmp_path):
    path = write()
    before = Path(path).read_bytes()
    refused(cli("compile", path, "-o", str(tmp_path / "none" / "out.c")), "error: cannot write", "does not exist")
    refused(cli("compile", path, "-o", str(tmp_path)), "error: cannot write", "a directory")
    refused(cli("compile", path, "-o", path), "error: cannot write", "the Spec file itself")
    refused(cli("compile", path, "-o", "/dev/full", "--emit", "c"), "error: cannot write /dev/full")
    assert Path(path).read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["test.spec"]


def test_several_specs_for_one_c_file(cli, refused, write):
    refused(cli("compile", write(TWO)), "2 Specs: one, zero", "--spec NAME")


def test_shared_object_needs_a_file(cli, refused, write):
    refused(cli("compile", write(), "--emit", "so"), "-o OUT", code=2)


def test_out_of_memory(cli, refused, write, monkeypatch):
    def exhaust(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("morello.search.session.SearchSession.programs", exhaust)
    refused(cli("explain", write()), "error: out of memory")
