"""Unverified answers: programs are used if they replay, infeasibility is not used at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np
import pytest

import morello
from morello.db.answers import AnswerBlock, AnswerKind, SpecAnswer
from morello.db.export_import import export_lines, import_lines, import_tables
from morello.db.file import Damaged
from morello.db.maintenance import recompute
from morello.db.programs import solved_blocks
from morello.db.store import Conflict, SpecStore
from morello.ir.impl import Node, cost_and_peak
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.search.budget import SearchBudget

TEXT = "Matmul(1×1×1×2, L1, L1, L1, serial)"


def goal() -> morello.Goal:
    return morello.goal(TEXT, target="x86_avx2")


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> tuple[morello.Goal, SpecStore]:
    store = SpecStore(tmp_path_factory.mktemp("unverified") / "theirs.db")
    return goal().synthesize(db=store), store


def merged(path: Path, *others: SpecStore, trust: bool = False) -> SpecStore:
    store = SpecStore(path)
    for other in others:
        import_tables(store, other.tables(), trust=trust)
    return store


def store_of(path: Path, target: Target, blocks: Sequence[AnswerBlock]) -> SpecStore:
    """Return a database of some unverified answers."""
    theirs = SpecStore(path.with_name(f"{path.name}.theirs"))
    theirs.add(target, blocks)
    return merged(path, theirs)


def parts(impl: object) -> tuple[AnswerBlock, list[AnswerBlock]]:
    """Return the answers of the root of a program, and those of the rest."""
    assert isinstance(impl, Node)
    *others, root = solved_blocks(impl)
    assert len(root.shapes) == 1
    assert root.shapes[0].tolist() == list(impl.spec.shape)
    assert root.labels.op == impl.spec.op
    return root, others


def changed(impl: object, **changes: object) -> list[AnswerBlock]:
    """Return the answers of a program, without that of its root."""
    root, others = parts(impl)
    return [attrs.evolve(root, **changes), *others]


def denied(one: morello.Goal) -> list[AnswerBlock]:
    """An answer that a Spec with programs has none."""
    root, _ = parts(one.impl)
    nothing = np.array([-1], dtype=np.int32)
    return [attrs.evolve(root, costs=root.costs * 0, kinds=np.array([AnswerKind.NONE], dtype=np.int8), step=nothing)]


def marks(store: SpecStore) -> int:
    return sum(int(table.boxes.unverified.sum()) for table in store.tables())


def test_unverified_programs_are_used_and_marked(solved: tuple[morello.Goal, SpecStore], tmp_path: Path) -> None:
    first, theirs = solved
    store = merged(tmp_path / "a.db", theirs)
    entry = store.find(first.target, first.spec)
    assert entry
    assert entry.unverified
    assert store.program(first.target, first.spec) == first.impl
    again = goal()
    assert again.synthesize(db=store).impl == first.impl
    assert again.searches.of(store).solved == 0
    rows = sum(len(table.boxes) for table in store.tables())
    assert marks(store) == rows > 1
    assert marks(theirs) == 0


@pytest.mark.parametrize("whole", [True, False])
def test_optimality_that_rests_on_unverified_answers_is_not_claimed(
    whole: bool, solved: tuple[morello.Goal, SpecStore], tmp_path: Path
) -> None:
    first, theirs = solved
    _, others = parts(first.impl)
    store = merged(tmp_path / "a.db", theirs) if whole else store_of(tmp_path / "a.db", first.target, others)
    used = goal().synthesize(db=store)
    assert used.impl == first.impl
    assert used.low == 1
    assert used.proof == "not known how close to the optimum"
    proven = goal().synthesize(db=store, budget=SearchBudget())
    assert proven.low == cost_and_peak(first.impl).cost
    assert proven.proof == "optimal"
    assert goal().synthesize(db=store).proof == "optimal"


def test_marks_survive_text_and_trusted_merging(solved: tuple[morello.Goal, SpecStore], tmp_path: Path) -> None:
    store = merged(tmp_path / "a.db", solved[1])
    again = merged(tmp_path / "b.db", store, trust=True)
    copy = SpecStore(tmp_path / "c.db")
    import_tables(copy, import_lines(export_lines(store), "text"), trust=True)
    assert marks(store) == marks(again) == marks(copy) > 1
    assert marks(merged(tmp_path / "d.db", solved[1], trust=True)) == 0


def test_merging_marks_no_verified_answer(solved: tuple[morello.Goal, SpecStore], tmp_path: Path) -> None:
    own = merged(tmp_path / "a.db", solved[1], trust=True)
    before = [*export_lines(own)]
    import_tables(own, solved[1].tables())
    assert [*export_lines(own)] == before
    # An unverified answer becomes verified once search has found it here.
    store = merged(tmp_path / "b.db", solved[1])
    import_tables(store, own.tables(), trust=True)
    assert marks(store) == 0


def test_unverified_infeasibility_is_not_used(solved: tuple[morello.Goal, SpecStore], tmp_path: Path) -> None:
    first, _ = solved
    store = store_of(tmp_path / "a.db", first.target, denied(first))
    assert marks(store) == 1
    assert store.find(first.target, first.spec) is None
    assert goal().synthesize(db=store).impl == first.impl
    # The answer found here has replaced it.
    assert marks(store) == 0
    assert store.find(first.target, first.spec) is not None


def test_unverified_bounds_are_not_used(solved: tuple[morello.Goal, SpecStore], tmp_path: Path) -> None:
    first, _ = solved
    bound = attrs.evolve(denied(first)[0], kinds=np.array([AnswerKind.LOWER], dtype=np.int8), costs=np.array([10**6]))
    store = store_of(tmp_path / "a.db", first.target, [bound])
    assert store.find(first.target, first.spec) is None
    assert goal().synthesize(db=store).impl == first.impl


def test_wrong_infeasibility_is_detected(solved: tuple[morello.Goal, SpecStore], tmp_path: Path) -> None:
    store = SpecStore(tmp_path / "a.db")
    store.add(solved[0].target, denied(solved[0]))
    assert goal().synthesize(db=store).impl == solved[0].impl


@pytest.mark.parametrize("by", [-1, 1, 1000])
def test_a_cost_that_the_program_has_not_is_damage(
    by: int, solved: tuple[morello.Goal, SpecStore], tmp_path: Path
) -> None:
    first, _ = solved
    assert isinstance(first.impl, Node)
    cost = cost_and_peak(first.impl).cost + by
    store = store_of(tmp_path / "a.db", first.target, changed(first.impl, costs=np.array([cost])))
    with pytest.raises(Damaged, match=f"stored is cost {cost:,}"):
        goal().synthesize(db=store)


def test_answers_from_unverified_ones_are_unverified(solved: tuple[morello.Goal, SpecStore], tmp_path: Path) -> None:
    first, _ = solved
    _, others = parts(first.impl)
    store = store_of(tmp_path / "a.db", first.target, others)
    before = marks(store)
    again = goal()
    assert again.synthesize(db=store).impl == first.impl
    assert again.searches.of(store).solved > 0
    entry = store.find(first.target, first.spec)
    assert entry
    assert entry.unverified
    assert marks(store) > before


def test_contradicting_unverified_answers(solved: tuple[morello.Goal, SpecStore], tmp_path: Path) -> None:
    first, theirs = solved
    store = store_of(tmp_path / "a.db", first.target, denied(first))
    with pytest.raises(Conflict):
        import_tables(store, theirs.tables())
    assert marks(store) == 1


def wrong_and_right(first: morello.Goal, path: Path) -> SpecStore:
    """A database with an unverified program, whose stored cost is too low, and an unverified answer NONE."""
    assert isinstance(first.impl, Node)
    return store_of(path, first.target, changed(first.impl, costs=np.array([cost_and_peak(first.impl).cost - 1])))


def test_proving_takes_marks_off_and_wrong_answers_out(solved: tuple[morello.Goal, SpecStore], tmp_path: Path) -> None:
    first, _ = solved
    store = wrong_and_right(first, tmp_path / "a.db")
    before = marks(store)
    for limit, left in ((0, before), (1, before - 1), (None, 0)):
        found = recompute(store, [first.target], limit=limit, points=512)
        assert found.left == marks(store) == left
    assert store.find(first.target, first.spec) is None or not found.wrong
    assert goal().synthesize(db=store).impl == first.impl
    assert marks(store) == 0


def test_recomputation_reports_wrong_answers(solved: tuple[morello.Goal, SpecStore], tmp_path: Path) -> None:
    first, _ = solved
    store = wrong_and_right(first, tmp_path / "a.db")
    before = marks(store)
    found = recompute(store, [first.target], limit=None, points=512)
    assert (found.proven, len(found.wrong), found.left) == (before - 1, 1, 0)
    (wrong,) = found.wrong
    assert wrong.spec == Spec(first.spec.logical, first.spec.limits)
    assert wrong.solved == attrs.evolve(wrong.stored, cost=wrong.stored.cost + 1)
    assert store.find(first.target, first.spec) is None


def test_unsolved_answers_stay_unverified(solved: tuple[morello.Goal, SpecStore], tmp_path: Path) -> None:
    store = merged(tmp_path / "a.db", solved[1])
    before = marks(store)

    def never(target: Target, specs: Sequence[Spec]) -> list[SpecAnswer]:
        raise AssertionError

    assert recompute(store, [], solve=never, limit=None, points=512).left == before
    found = recompute(store, [solved[0].target], limit=None, points=1)
    assert 0 < found.left == marks(store) < before
