"""The check of microkernels finds wrong kernels, and reports which and how."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

from morello.errors import PluginError, VerificationError
from morello.ir import dtypes
from morello.plugins import Microkernel, OperandPattern, Target
from morello.plugins.registry import Registry, installed
from morello.testing import accepted_specs, check_declaration, kernel_checks
from tools.fuzz.sweep import toy_plugin

#: Takes the declaration of toy_cpu's kernel of that name, and the target with that kernel alone, changed.
Change = Callable[..., Target]


@pytest.fixture(scope="session")
def changed() -> Change:
    """Makes toy_cpu with one kernel, some fields of its declaration replaced."""
    plugin = toy_plugin()

    def make(name: str, **fields: Any) -> Target:
        (kernel,) = [one for one in plugin.kernels if one.name == name]
        return Registry.of(toy_cpu=attrs.evolve(plugin, kernels=(attrs.evolve(kernel, **fields),))).target("toy_cpu")

    return make


def check(target: Target, **options: Any) -> None:
    (one,) = kernel_checks(target, **options)
    one()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x86_avx2", "x86_avx512"])
def test_every_data_type_and_much_else_comes_up(name: str, avx2: Target) -> None:
    target = installed().target(name)
    # AVX-512 has these, too, with wider vectors: they are drawn for the check of kernels, but not looked at here.
    shared = {kernel.name for kernel in avx2.kernels} if name != avx2.name else set()
    for kernel in (one for one in target.kernels if one.name not in shared):
        specs = accepted_specs(target, kernel, 12)
        assert all(kernel.accepts(spec.logical) for spec in specs)
        assert len({spec.logical for spec in specs}) == len(specs) >= 2
    assign = target.kernels_by_name["Assign"]
    found = [state for spec in accepted_specs(target, assign, 30) for state in spec.logical.states]
    assert {state.level for state in found} == {"RF", "L1"}
    assert {state.aligned for state in found} == {True, False}
    assert {state.dtype for state in found} == {*dtypes.ALL}


def test_operands_that_need_not_be_contiguous_are_not(changed: Change) -> None:
    target = changed("ZeroBytes", operands=(OperandPattern(contiguous=False),))
    specs = accepted_specs(target, target.kernels[0], 20)
    assert {spec.logical.states[0].contiguous for spec in specs} == {True, False}


def test_the_same_seed_gives_the_same_specs(avx2: Target) -> None:
    kernel = avx2.kernels_by_name["VectorMove"]
    first, again, other = (accepted_specs(avx2, kernel, 5, seed) for seed in (0, 0, 1))
    assert first == again != other


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "emitted", "found"),
    [
        ("Zero", "{out} = 1;", "expected 0"),
        ("Zero", "{out} = 0; (&{out})[1] = 0;", "outside of it were overwritten|gaps between its elements"),
        ("Copy", "{out} = {src}; int unused = 0;", "unused"),
        ("Copy", "{out} = nothing;", "nothing"),
    ],
)
def test_wrong_kernels_are_found(changed: Change, name: str, emitted: str, found: str) -> None:
    levels = {"levels": ("C",)}
    patterns = [attrs.evolve(one, **levels) for one in changed(name).kernels[0].operands]
    with pytest.raises(VerificationError, match=found) as raised:
        check(changed(name, template=emitted, operands=tuple(patterns)))
    assert f"select {name}" in raised.value.message


@pytest.mark.slow
def test_calls_that_are_wrong_together_are_found(changed: Change) -> None:
    def emit(sites: Any) -> None:
        for site in sites[:-1]:  # One call is left out.
            kernel.print(site)

    (kernel,) = changed("AddScaledRow").kernels
    check(changed("AddScaledRow"))
    with pytest.raises(VerificationError, match="expected") as raised:
        check(changed("AddScaledRow", jam=attrs.evolve(kernel.jam, emit=emit)))
    assert "tile [" in raised.value.message


def test_an_unused_jam(changed: Change) -> None:
    (kernel,) = changed("AddScaledRow").kernels
    jam = attrs.evolve(kernel.jam, registers={"R": 9})
    with pytest.raises(PluginError, match="AddScaledRow of target toy_cpu: its jam is of no use"):
        check(changed("AddScaledRow", jam=jam))


@pytest.mark.slow
def test_faults_that_only_sanitizers_detect_are_found(changed: Change) -> None:
    target = changed("Zero", template="volatile int shift = 40; {out} = 0 * (1 << shift);")
    check(target)
    with pytest.raises(VerificationError, match="shift exponent"):
        check(target, sanitize=True)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up soon on Specs that cannot be drawn."""
    monkeypatch.setattr("morello.testing.conformance._ROUNDS", (50,))


@pytest.mark.usefixtures("hasty")
def test_a_kernel_that_accepts_nothing(changed: Change) -> None:
    with pytest.raises(PluginError, match="microkernel MultAdd of target toy_cpu: it accepts none"):
        check(changed("MultAdd", when=lambda spec: False))


@pytest.mark.usefixtures("hasty")
def test_a_data_type_that_is_never_accepted(changed: Change) -> None:
    target = changed("MultAdd", when=lambda spec: spec.states[0].dtype.name != "i32")
    with pytest.raises(PluginError, match="MultAdd of target toy_cpu: operand 0 is i32 in none of many Specs"):
        accepted_specs(target, target.kernels[0], 1)
    assert accepted_specs(target, target.kernels[0], 1, all_types=False)


@pytest.mark.usefixtures("hasty")
def test_operands_that_fit_no_registers(changed: Change) -> None:
    with pytest.raises(PluginError, match="AddScaledRow of target toy_cpu: it accepts none"):
        check(changed("AddScaledRow", registers={"R": 9}))
    fine, target = changed("AddScaledRow"), changed("AddScaledRow", registers={"R": 9})
    with pytest.raises(PluginError, match="needs 9 registers in R, which has 8"):
        check_declaration(target, target.kernels[0], accepted_specs(fine, fine.kernels[0], 3))


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"cost": lambda spec, target: 1 if isinstance(spec.shape[0], int) else 2}, "the values that it costs differ"),
        ({"cost": lambda spec, target: 0}, "its cost is an integer of at least 1"),
        (
            {"when": lambda spec: np.all(np.asarray(spec.op.volume(spec.shape)) < 20)},
            "the values that it accepts differ",
        ),
    ],
)
def test_declarations_that_disagree_with_themselves(changed: Change, fields: dict[str, Any], found: str) -> None:
    with pytest.raises(PluginError, match=found):
        check(changed("ZeroBytes", **fields), count=8)


def test_a_machine_that_lacks_a_feature(changed: Change) -> None:
    """Some kernels may be skipped, but it is an error if nothing can be executed."""
    some = changed("Zero")
    kernels = [attrs.evolve(kernel, cpu_features=("warp_drive",)) for kernel in some.kernels]
    (lacking,) = kernel_checks(attrs.evolve(some, kernels=tuple(kernels)))
    with pytest.raises(unittest.SkipTest, match="lacks warp_drive, which Zero needs"):
        lacking()
    plugin = toy_plugin()
    info = attrs.evolve(plugin.info, cpu_features=("warp_drive",))
    target = Registry.of(toy_cpu=attrs.evolve(plugin, info=info)).target("toy_cpu")
    with pytest.raises(VerificationError, match="no kernel of toy_cpu was executed: this CPU lacks warp_drive"):
        kernel_checks(target)[0]()


def test_kernels_have_distinct_ids(avx2: Target) -> None:
    assert [str(one) for one in kernel_checks(avx2)] == [f"x86_avx2-{kernel.name}" for kernel in avx2.kernels]
    assert all(isinstance(one.kernel, Microkernel) for one in kernel_checks(avx2))
