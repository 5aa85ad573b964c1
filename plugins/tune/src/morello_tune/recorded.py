"""Programs measured on machines of the same kind, which `compile` and `run` use in place of the model's choice."""

from __future__ import annotations

import attrs

from morello.api.goals import Goal
from morello.api.kernel import Kernel
from morello.build.toolchain import find_compiler, is_auto
from morello.codegen.forms import key_of
from morello.db.measured import MachineKind
from morello.db.store import SpecStore
from morello.errors import MorelloError
from morello.ir.impl import Leaf, leaves
from morello.plugins import hookimpl
from morello.plugins.profile_choice import microarchitectures
from morello.run.function import NativeFunction
from morello.run.runner import Runner, find_runner


def machine_of(kernel: Kernel, threads: int | None = None) -> MachineKind:
    """Return the kind of machine that runs a kernel: its CPU or its runner, the compiler, and the threads."""
    count = kernel.threads(threads if kernel.program.parallel else None)
    return MachineKind(cpu=_cpu(kernel.runner), compiler=str(kernel.compiler), threads=count)


def _cpu(runner: Runner | None) -> str:
    return str(runner) if runner else microarchitectures()[0]


@hookimpl
def morello_recorded_program(goal: Goal, db: SpecStore | None, compiler: str | None, runner: str | None) -> Goal | None:
    """Return a goal with the program that was measured fastest on such a machine; None without one.

    The goal must be neither scheduled nor restricted to some steps, and the C of the program must be the same as when
    it was measured.
    """
    if db is None or goal.impl != Leaf(goal.spec) or is_auto(compiler):
        return None
    programs = db.measured(goal.target, goal.spec)
    if not programs:
        return None
    try:
        cc, cpu = find_compiler(compiler, goal.target.info), _cpu(find_runner(goal.target.info, runner))
    except MorelloError:
        return None
    for found in programs:
        if (found.machine.cpu, found.machine.compiler) != (cpu, str(cc)):
            continue
        try:
            done = goal.apply(found.schedule)
            if next(leaves(done.impl), None) is not None:
                continue
            program = goal.target.emitter.emit(done.impl, goal.target, "kernel")
            threads = NativeFunction(done.impl, goal.target, program, cc).threads()
        except MorelloError:
            continue
        if key_of(program.source) == found.key and threads == found.machine.threads:
            return attrs.evolve(done, measured=found)
    return None
