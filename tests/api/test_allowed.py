"""Goals whose search may take only some steps: their programs, proofs, schedules and databases."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import morello
from morello.db.store import SpecStore
from morello.errors import MorelloError, NoImplementation
from morello.ir.impl import Leaf, cost_and_peak
from tools.fixtures import Cli, Write

Refused = Callable[..., None]

SPEC = "MatmulAccum(1×1×1×8, (f32, L1), (f32, L1), (f32, L1), serial)"
KERNEL = "BroadcastVecMultAdd"
PROOF = f"optimal among programs without [{KERNEL}]"
HEAD = f"target x86_avx2\nspec kernel = {SPEC}\n"
PARTS = f"""{HEAD}schedule kernel {{
    move 2 to VRF as row_major v8
    subschedule [0] {{
        synthesize without [Assign]
    }}
    synthesize
}}
"""


@pytest.fixture
def goal() -> morello.Goal:
    return morello.goal(SPEC, target="x86_avx2", profile="base")


def cost(goal: morello.Goal) -> int:
    return cost_and_peak(goal.impl).cost


def test_a_program_without_a_kernel_is_proven_among_those_without_it(goal: morello.Goal) -> None:
    best, found = goal.synthesize(db=False), goal.synthesize(db=False, without=[KERNEL])
    assert f"select {KERNEL}" in best.schedule
    assert KERNEL not in found.schedule
    assert (best.proof, found.proof) == ("optimal", PROOF)
    assert cost(found) == found.low > cost(best)
    assert morello.synthesize(goal, db=False, without=[KERNEL]) == found.impl
    kernel = morello.compile(goal, db=False, using=["MultAdd"])
    assert kernel.proof == "optimal among programs using [MultAdd]"
    assert "select MultAdd" in kernel.schedule
    assert "optimal among programs using [MultAdd]" in str(kernel.explain())


def test_a_search_that_ends_early_states_the_programs_that_its_bound_is_about(goal: morello.Goal) -> None:
    open_ = goal.synthesize(db=False, budget=morello.SearchBudget(gap=float("inf")), without=[KERNEL])
    assert open_.proof.endswith(f"the optimum among programs without [{KERNEL}] (proven)") or open_.proof == PROOF
    assert open_.low <= cost(goal.synthesize(db=False, without=[KERNEL]))


def test_steps_that_leave_no_program_are_named(goal: morello.Goal) -> None:
    with pytest.raises(NoImplementation) as caught:
        goal.synthesize(db=False, using=["to_accum", "MultAdd"])
    assert caught.value.message == "no implementation exists for MatmulAccum on x86_avx2 using [to_accum, MultAdd]"
    assert caught.value.hint == "allow more kernels or rewrites: more memory does not help"
    with pytest.raises(MorelloError, match="x86_avx2 has no microkernel or rewrite 'MultAd'"):
        goal.synthesize(without=["MultAd"])


def test_names_add_up_and_stay_with_the_open_parts(goal: morello.Goal) -> None:
    less = goal.allowing(without=["fit"]).allowing(using=["MultAdd"], without=["fit", "split"])
    assert less.schedule == "synthesize using [MultAdd] without [fit, split]"
    tiled = less.tile(1, 1, 1, 4)
    assert tiled.schedule == "tile [1, 1, 1, 4]\nsynthesize using [MultAdd] without [fit, split]"
    assert morello.parse(tiled.spec_file)["kernel"].impl == tiled.impl
    inner = tiled.subschedule(0, lambda child: child.tile(1, 1, 1, 2))
    assert inner.synthesize(db=False).proof == "optimal among programs using [MultAdd] without [fit, split]"
    assert pickle.loads(pickle.dumps(tiled)).impl == tiled.impl


def test_a_schedule_restricts_its_parts_one_by_one() -> None:
    (open_,) = morello.parse(PARTS).values()
    done = open_.synthesize(db=False)
    assert done.proof == "optimal among programs in part without [Assign]"
    assert not isinstance(done.impl, Leaf)
    assert "Assign" not in morello.Goal.of_impl(done.impl.children[0], done.target).schedule
    assert morello.parse(open_.spec_file)["kernel"].impl == open_.impl


@pytest.mark.slow
def test_databases_keep_the_answers_of_each_set_of_steps_apart(goal: morello.Goal, tmp_path: Path) -> None:
    store = SpecStore(tmp_path / "solved.db")
    whole = goal.synthesize(db=False)
    less = goal.synthesize(db=store, without=[KERNEL])
    assert store.program(goal.target, goal.spec) is None
    assert goal.synthesize(db=store).impl == whole.impl
    again = morello.goal(SPEC, target="x86_avx2", profile="base")
    assert again.synthesize(db=store, without=[KERNEL]) == less
    assert again.synthesize(db=store) == whole
    # Both were answered without a search.
    assert again.searches.solved(store) == 0
    # The same kernels are left by a list of all others.
    others = [one.name for one in goal.target.kernels if one.op_name.startswith("Matmul") and one.name != KERNEL]
    assert again.synthesize(db=store, using=[one for one in others if "saturating" not in one]).proof != "optimal"


def test_commands_take_steps_by_name(cli: Cli, write: Write) -> None:
    path = write(f"spec kernel = {SPEC}\n")
    result = cli("compile", path, "--no-db", "--without", f"{KERNEL}, fit", "--emit", "schedule")
    assert KERNEL not in result.stdout
    assert result.stderr == f"kernel: optimal among programs without [{KERNEL}, fit]\n"
    text = cli("explain", path, "--no-db", "--using", "MultAdd").stdout
    assert "s; optimal among programs using [MultAdd]" in text
    (explained,) = json.loads(cli("explain", path, "--no-db", "--using", "MultAdd", "--json").stdout)
    assert explained["among"] == "programs using [MultAdd]"
    listed = json.loads(cli("explain", path, "--kernels", "--without", KERNEL, "--json").stdout)
    assert f'"{KERNEL}"' not in json.dumps(listed)


def test_unknown_names_of_commands(cli: Cli, write: Write, refused: Refused) -> None:
    path = write(f"spec kernel = {SPEC}\n")
    refused(
        cli("compile", path, "--without", "MultAd"),
        "no microkernel or rewrite 'MultAd'",
        "did you mean 'MultAdd'?",
        code=2,
    )
    refused(cli("run", path, "--using", ""), "no microkernel or rewrite ''", code=2)


@pytest.mark.slow
def test_databases_verify_restricted_answers_and_keep_them(goal: morello.Goal, cli: Cli, tmp_path: Path) -> None:
    file = str(tmp_path / "solved.db")
    goal.synthesize(db=file, without=[KERNEL])
    (row,) = json.loads(cli("db", "stats", file, "--json").stdout)["fingerprints"]
    assert (row["target"], row["current"]) == (f"x86_avx2 without [{KERNEL}]", True)
    assert cli("db", "prune", file, "--dry-run").stdout == "there is nothing to drop\n"
    cli("db", "import", str(tmp_path / "copy.db"), file)
    assert " 0 wrong" in cli("db", "verify", str(tmp_path / "copy.db"), "--recompute", "--limit", "2").stdout
