"""`--profile` and `morello targets`: the effect of profiles on programs, and their display."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tools.fixtures import Cli, Write

#: Two lines of memory are set, at `hit_cost` each, after its start cost.
ZEROS = "spec zeros = FillZero(32, (f32, GL), serial)\n"
PROFILE = """\
name = "own"
target = "x86_avx2"
description = "made by hand"

[levels.GL]
hit_cost = 10000
"""


@pytest.fixture
def profile(tmp_path: Path) -> str:
    path = tmp_path / "own.toml"
    path.write_text(PROFILE)
    return str(path)


def cost(result: Result) -> int:
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.stdout)
    assert found["profile"] in ("base", "own")
    return found["cost"]


def test_costs_are_those_of_the_profile(cli: Cli, write: Write, profile: str) -> None:
    command = ("explain", write(ZEROS), "--json", "--runner-ups", "0")
    base = cost(cli(*command))
    assert cost(cli(*command, "--profile", "base")) == base
    dear = cost(cli(*command, "--profile", profile))
    assert dear >= 2 * 10000 > base
    assert cost(cli(*command, MORELLO_PROFILE=profile)) == dear
    # The option overrides the environment.
    assert cost(cli(*command, "--profile", "base", MORELLO_PROFILE=profile)) == base
    assert "zeros for x86_avx2 (profile own): " in cli(*command[:2], "--profile", profile).stdout


def test_databases_keep_profiles_apart(cli: Cli, write: Write, profile: str, tmp_path: Path) -> None:
    command = ("explain", write(ZEROS), "--json", "--runner-ups", "0", "--db", str(tmp_path / "solved.db"))
    costs = [cost(cli(*command, *option)) for option in ([], ["--profile", profile], [])]
    assert costs[0] == costs[2] < costs[1]
    pruned = cli("db", "prune", str(tmp_path / "solved.db"), MORELLO_PROFILE=profile)
    assert pruned.stdout.startswith("dropped 0 fingerprints")


def test_profiles_that_do_not_fit(
    cli: Cli, write: Write, profile: str, refused: Callable[..., None], tmp_path: Path
) -> None:
    file = write(ZEROS)
    refused(
        cli("run", file, "--profile", "fast"),
        "unknown profile 'fast' of x86_avx2",
        "hint: profiles are base, sapphire_rapids, x86_64, zen4, zen5;",
        code=2,
    )
    other = cli("check", file, "--target", "x86_avx512", "--profile", profile)
    refused(other, f"{profile}: target must be x86_avx512, for which it is used")
    solve = ("precompute", file, "--up-to", "2", "--db", str(tmp_path / "solved.db"), "--profile")
    refused(cli(*solve, "none.toml"), "cannot read none.toml")
    refused(cli("targets", MORELLO_PROFILE="fast"), "error: unknown profile 'fast' (MORELLO_PROFILE)")


def test_targets_mark_the_profile_that_is_chosen(cli: Cli, profile: str) -> None:
    text = cli("targets", "x86_avx2", MORELLO_PROFILE=profile).stdout
    assert re.search(r"^base {9,}what the plugins declare$", text, re.M)
    assert re.search(r"^own +MORELLO_PROFILE +made by hand$", text, re.M)
    found = json.loads(cli("targets", "--json", MORELLO_PROFILE=profile).stdout)["targets"]
    by_name = {target["name"]: target["profiles"] for target in found}
    avx2 = {one["name"]: one for one in by_name["x86_avx2"]}
    assert [name for name, one in avx2.items() if one["chosen"]] == ["own"]
    assert {"base", "x86_64", "own"} <= {*avx2}
    assert avx2["own"]["file"] == profile
    assert [one["name"] for one in by_name["reference_c"] if one["chosen"]] == ["base"]
