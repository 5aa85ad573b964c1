"""The program as a process: version, help, targets, progress, Ctrl-C, pipes."""

import inspect
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from morello_reference_c import plugin

from morello import api, models, progress
from morello.cli import kernels
from morello.cli.app import DISTRIBUTIONS, core_commands
from morello.commands import GROUPS
from morello.ir.ops import by_name
from morello.plugins import Microkernel, TargetPlugin, derive
from morello.plugins.registry import Registry

from .conftest import BYTES

MORELLO = [sys.executable, "-m", "morello"]
#: Takes search minutes to prove.
LONG = "spec large = Conv[stride=2, padding=[1, 1, 0, 0]](1×128×64×28×28×3×3, GL, GL, GL, serial)\n"


def test_version(cli):
    assert cli("--version").stdout.split()[-1] == version("morello")


@pytest.mark.parametrize("command", ["run", "compile", "check", "bench", "explain", "targets"])
def test_help(cli, command):
    assert command in cli("--help").stdout
    assert cli(command, "--help").exit_code == 0


def test_targets(cli):
    shown = cli("targets", "x86_avx2").stdout
    assert "x86_avx2: " in shown
    assert f"plugin x86_avx2 (morello-x86-avx2 {version('morello-x86-avx2')})" in shown
    assert "BroadcastVecMultAdd" in shown
    assert "VRF" in shown
    assert "costs are in tenths of a cycle" in shown
    listed = json.loads(cli("targets", "x86_avx2", "--json").stdout)
    assert set(listed["microkernels"]) <= set(re.findall(r"\w+", shown))


def test_targets_are_listed_on_a_screen(cli):
    lines = cli("targets", COLUMNS="80").stdout.splitlines()
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 80
    heading, *rows = lines
    assert heading.split() == ["target", "description", "profile", "kernels", "runs"]
    for name in ("reference_c", "x86_avx2", "x86_avx512"):
        assert any(row.startswith(f"{name} ") for row in rows)


def test_targets_of_an_unknown_name(cli, refused):
    refused(cli("targets", "x68_avx2"), "unknown target 'x68_avx2'", "installed targets are", code=2)


def test_targets_json(cli):
    printed = json.loads(cli("targets", "--json").stdout)
    by_name = {one["name"]: one for one in printed["targets"]}
    avx2 = by_name["x86_avx2"]
    assert avx2["plugin"]["distribution"] == "morello-x86-avx2"
    assert [level["name"] for level in avx2["levels"]] == ["RF", "VRF", "L1", "L2", "L3", "GL"]
    assert avx2["levels"][1]["vectors"] == [16, 32]
    assert "tile" in avx2["rewrites"]
    assert avx2["extended_by"] == []
    assert {one["name"] for one in printed["plugins"]} >= {"x86_avx2", "reference_c"}


def extension(level):
    """Return a plugin that adds a microkernel to another's target; a faulty one for an unknown level."""
    kernel = Microkernel(
        name="Clear", op=by_name("FillZero"), takes=f"n, {level}", cost=lambda *_: 1, emit=lambda _: None
    )
    return TargetPlugin(extends="reference_c", kernels=[kernel])


def test_targets_names_plugins_that_extend_one(cli, monkeypatch):
    registry = Registry.of(reference_c=plugin, extra=extension("GL"))
    monkeypatch.setattr("morello.api.targets.installed", lambda: registry)
    assert "extended by plugin extra" in cli("targets", "reference_c").stdout
    (target,) = json.loads(cli("targets", "--json").stdout)["targets"]
    assert [(one["name"], one["contributes"]) for one in target["extended_by"]] == [("extra", {"microkernel": 1})]


@pytest.mark.parametrize(("command", "runs", "missing"), [("env", "env", []), ("no_such_runner", "no", ["mips"])])
def test_targets_of_another_architecture(cli, monkeypatch, command, runs, missing):
    far = derive("reference_c", name="far", triple="mips-linux-musl", runners=(command,))
    registry = Registry.of(reference_c=plugin, far=far)
    monkeypatch.setattr("morello.api.targets.installed", lambda: registry)
    (row,) = [line for line in cli("targets").stdout.splitlines() if line.startswith("far ")]
    assert row.split()[-1] == runs
    described = json.loads(cli("targets", "far", "--json").stdout)
    assert (described["missing_on_this_machine"], described["derived_from"]) == (missing, "reference_c")
    assert ("this machine lacks mips" if missing else "`env` runs it") in cli("targets", "far").stdout


def test_targets_reports_a_faulty_plugin(cli, refused, monkeypatch):
    registry = Registry.of(reference_c=plugin, extra=extension("L7"))
    monkeypatch.setattr("morello.api.targets.installed", lambda: registry)
    refused(cli("targets", "reference_c"), "error: plugin 'extra', microkernel Clear of target reference_c")
    assert cli("targets").exit_code == 1


@pytest.fixture
def broken(tmp_path):
    """A folder with two plugins that fail: one when it is imported, one when it extends reference_c."""
    sources = {
        "orphan": "import morello_wide",
        "meddler": (
            "from morello.plugins import TargetPlugin, hookimpl\n@hookimpl\n"
            "def morello_plugin():\n    return TargetPlugin(extends='reference_c', levels=[7])\n"
        ),
    }
    for name, source in sources.items():
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[morello]\n{name} = {name}_plugin\n")
        (tmp_path / f"{name}_plugin.py").write_text(source)
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))}


@pytest.mark.slow
def test_plugins_that_fail_are_left_out_and_listed(broken, write):
    def run(*arguments):
        return subprocess.run([*MORELLO, *arguments], capture_output=True, text=True, timeout=60, env=broken)

    done = run("compile", write(target="reference_c"))
    assert done.returncode == 0
    assert "void one(" in done.stdout
    orphan = "plugin 'orphan' (orphan_plugin) cannot be loaded: ModuleNotFoundError: No module named 'morello_wide'"
    assert (
        f"warning: {orphan}; plugin orphan is skipped\n  hint: install its requirements: pip install morello-wide"
        in done.stderr
    )
    assert "level 7 of target reference_c: levels are" in done.stderr
    assert done.stderr.count("warning: ") == 2
    done = run("targets", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    printed = json.loads(done.stdout)
    reasons = [(one["name"], one["target"], one["reason"]) for one in printed["disabled"]]
    assert ("orphan", None, orphan) in reasons
    assert any("pip install morello-wide" in (one["hint"] or "") for one in printed["disabled"])
    assert {target for name, target, _ in reasons if name == "meddler"} == {"reference_c"}
    done = run("targets", "orphan")
    assert done.returncode == 1
    assert f"error: target 'orphan' is disabled: {orphan}" in done.stderr


def test_progress_is_plain_lines_now_and_then(cli, write, monkeypatch):
    assert cli("explain", write()).stderr == ""
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    monkeypatch.setattr(progress, "UPDATE_SECONDS", 0.001)
    lines = cli("explain", write()).stderr.splitlines()
    odd = [
        line
        for line in lines
        if not re.match(r"(making .*for|searching) (runner-ups…|(runner-ups of )?(one|…)), \d+ s", line)
    ]
    assert odd == []


def test_progress_is_live_on_a_terminal(cli, write, monkeypatch):
    monkeypatch.setattr(progress, "UPDATE_SECONDS", 0.0)
    shown = cli("explain", write(), FORCE_COLOR="1", TERM="xterm").stderr
    # Which phases are seen is chance: each may end before the display looks.
    assert re.search(r"\x1b\[2K.*(making [a-z ]+ for|searching) (runner-ups of )?one, \d+ s", shown)


@pytest.mark.slow
def test_ctrl_c_reports_the_interrupted_step(write):
    process = subprocess.Popen(
        [*MORELLO, "run", "--prove", write(LONG)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Shells start background jobs with SIGINT ignored, and these tests may run in one.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "large for x86_avx2:\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    (line,) = err.splitlines()
    assert line.startswith("interrupted the search for large: ")
    assert "Specs had been solved" in line


@pytest.mark.parametrize("arguments", [pytest.param(["targets"], marks=pytest.mark.slow), ["--help"]])
def test_reader_that_went_away(arguments):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as out:
        done = subprocess.run([*MORELLO, *arguments], stdout=out, stderr=subprocess.PIPE, text=True)
    assert done.returncode != 0
    assert done.stderr == ""


@pytest.mark.slow
def test_terminal_without_unicode(write):
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    path = write(BYTES)
    done = subprocess.run([*MORELLO, "explain", path], env=environment, capture_output=True)
    assert done.returncode == 0
    assert b"? initialize: " in done.stdout
    done = subprocess.run([*MORELLO, "compile", path], env=environment, capture_output=True)
    assert "Matmul(1×1×1×1".encode() in done.stdout


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_missing_command_names_the_package_to_install(
    name: str, cli, refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("morello.cli.app.plugin_commands", list)
    assert f"\n  {name} " not in cli("--help").stdout
    refused(cli(name, "FILE"), f"`morello {name}` is not installed", f"pip install {DISTRIBUTIONS[name]}")


def test_each_command_declares_its_group_and_summary() -> None:
    for name, command in core_commands().items():
        assert command.group in GROUPS
        assert command.summary.endswith(".")
        assert command.load().name == name


def subcommands(name: str, command: click.Command) -> Iterator[tuple[str, str]]:
    """Yield the commands that do something, by name, and the file of each."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        assert command.callback
        yield name, Path(inspect.getfile(inspect.unwrap(command.callback))).read_text(encoding="utf-8")
    if isinstance(command, click.Group):
        for each, below in command.commands.items():
            yield from subcommands(f"{name} {each}", below)


def test_commands_do_no_more_than_the_api() -> None:
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
    table = page.split("## Commands")[1].split("\n## ")[0]
    rows = {
        name: re.findall(r"`([\w.]+)`", names)
        for name, names in re.findall(r"^\| `([\w -]+)` \| (.*) \|$", table, re.M)
    }
    found = {
        name: source for one, command in core_commands().items() for name, source in subcommands(one, command.load())
    }
    assert rows.keys() == found.keys()
    shared = Path(kernels.__file__).read_text(encoding="utf-8")
    for name, source in found.items():
        for function in rows[name]:
            owner, _, method = function.rpartition(".")
            if owner == "models":
                assert callable(getattr(models, method))
                assert f"{function}(" in source
                continue
            assert (owner or method) in api.__all__
            assert callable(getattr(getattr(api, owner), method) if owner else getattr(api, method))
            word = f"kernel.{method}(" if owner else f"api.{method}("
            assert word in source or word in shared or f"made.{word}" in source, (name, function)
