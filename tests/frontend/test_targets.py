"""Files with schedules of their own for each target."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from morello.errors import MorelloError
from morello.frontend import Declaration, SourceError, SpecFile, parse, parse_spec, show_file
from morello.plugins.registry import Registry
from morello.rewrites.select import Select
from morello.rewrites.tile import Tile
from morello.schedule import schedule_text

SPECS = "target tiny\nspec a = Move(4×8, GL, L1)\nspec b = Move(8, GL, L1)\n"


@pytest.fixture(scope="module")
def both(plugin, small) -> Registry:
    """The targets `tiny` and `small`, which has one microkernel more."""
    return Registry.of(tiny=plugin, small=small)


def schedules(text: str, both: Registry, target: str) -> list[str]:
    return [schedule_text(goal.schedule) for goal in parse(SPECS + text, target=target, registry=both).goals]


def test_a_target_has_its_own_schedule_else_that_of_all_others(both: Registry) -> None:
    own, rest = "schedule a for small { select SmallMove }\n", "schedule a { select VectorMove }\n"
    for text in (own + rest, rest + own):
        assert schedules(text, both, "small") == ["select SmallMove", ""]
        assert schedules(text, both, "tiny") == ["select VectorMove", ""]


def test_a_target_without_a_schedule_is_left_to_search(both: Registry) -> None:
    text = "schedule a for small { select SmallMove }\nschedule b { tile [4] }\nschedule b for tiny { }\n"
    assert schedules(text, both, "tiny") == ["", ""]
    assert schedules(text, both, "small") == ["select SmallMove", "tile [4]"]


def test_a_schedule_may_be_for_several_targets(both: Registry) -> None:
    text = "schedule a for tiny,\n    small { tile [1, 8] }\n"
    assert schedules(text, both, "tiny") == schedules(text, both, "small") == ["tile [1, 8]", ""]


def test_steps_that_do_not_suit_another_target_are_reported(both: Registry) -> None:
    text = SPECS.replace("tiny", "small") + "schedule a { select SmallMove }\n"
    with pytest.raises(SourceError, match="unknown microkernel 'SmallMove'") as caught:
        parse(text, target="tiny", registry=both)
    assert caught.value.hint
    assert caught.value.hint.endswith("or give tiny its own, which may be empty: schedule a for tiny { ... }")
    with pytest.raises(SourceError) as caught:
        parse(text.replace("SmallMove", "smallMove"), registry=both)
    assert "its own" not in str(caught.value)


def test_files_say_whose_schedules_they_have(both: Registry) -> None:
    files = []
    for name, sizes in (("tiny", (1, 8)), ("small", (2, 8))):
        target = both.target(name)
        first = Declaration("a", parse_spec("Move(4×8, GL, L1)", target), (Tile(sizes), Select("VectorMove")))
        files.append(SpecFile(target, (first,)))
    assert (
        show_file(*files)
        == """\
target tiny

spec a = Move(4×8,
    (f32, GL, row_major),
    (f32, L1, row_major))

schedule a for tiny {
    tile [1, 8]
    select VectorMove
}

schedule a for small {
    tile [2, 8]
    select VectorMove
}
"""
    )


def test_different_specs_are_not_one_file(both: Registry) -> None:
    files = [
        SpecFile(both.target(name), (Declaration("a", parse_spec(text, both.target(name))),))
        for name, text in (("tiny", "Move(4, GL, L1)"), ("small", "Move(8, GL, L1)"))
    ]
    with pytest.raises(MorelloError, match="a is not the same Spec on all targets"):
        show_file(*files)


STEPS = st.lists(st.builds(Tile, st.lists(st.integers(0, 9), max_size=3).map(tuple)), max_size=2).map(tuple)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(st.tuples(STEPS, STEPS), min_size=1, max_size=3), serial=st.booleans())
def test_printed_schedules_are_read_for_each_target(both: Registry, drawn, serial: bool) -> None:
    text = f"Move(4×8×2, GL, L1{', serial' if serial else ''})"
    files = []
    for at, name in enumerate(("tiny", "small")):
        spec = parse_spec(text, both.target(name))
        goals = [Declaration(f"f{number}", spec, each[at]) for number, each in enumerate(drawn)]
        files.append(SpecFile(both.target(name), tuple(goals)))
    printed = show_file(*files)
    assert [parse(printed, target=each.target.name, registry=both) for each in files] == files
    assert parse(printed, registry=both) == files[0]
