"""machine: List the installed targets and their parts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any

import click
from click.shell_completion import CompletionItem

from morello import api
from morello.cli.common import cc_option, complete_targets, json_option, print_json, runner_option
from morello.errors import MorelloError
from morello.progress import Display, line
from morello.report.tables import Column, print_table
from morello.report.words import size

_STATUSES = ("passed", "failed", "skipped")
_EXECUTE_HINT = "run it on a machine that has what is missing, by --runner if need be"


class Targets(click.Group):
    """The subcommands; any other word is the name of a target to describe."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        described = click.Command(
            cmd_name, callback=partial(_describe, cmd_name), help=f"Describe the target {cmd_name}."
        )
        return super().get_command(ctx, cmd_name) or json_option(described)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return completions of a subcommand, an option or a target."""
        return [*super().shell_complete(ctx, incomplete), *complete_targets(ctx, self.params[0], incomplete)]


@click.group("targets", cls=Targets, invoke_without_command=True, subcommand_metavar="[NAME | COMMAND ...]")
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """List the installed targets; with NAME, its memory, rewrites, microkernels, profiles and plugins.

    Costs are those of the chosen profile: that of MORELLO_PROFILE, else of the user's configuration, else of the CPU.
    """
    if ctx.invoked_subcommand is None:
        _list(ctx, as_json)
    else:
        ctx.default_map = {ctx.invoked_subcommand: {"as_json": as_json}}


def _describe(name: str, as_json: bool) -> None:
    described = api.describe_target(name)
    if as_json:
        print_json(described.as_dict())
    else:
        _print(described)


@command.command("new")
@click.argument("name", metavar="NAME")
@click.option("--from", "base", metavar="TARGET", shell_complete=complete_targets, help="Derive it from this target.")
@click.option("--triple", metavar="TRIPLE", default="", help="The platform of its programs, e.g. aarch64-linux-musl.")
def new(name: str, base: str | None, triple: str) -> None:
    """Write the distribution of a new target into a folder called NAME.

    It has a few kernels in plain C, or is a variant of another target, and works at once.
    """
    for path in api.new_target(name, base=base, triple=triple):
        click.echo(f"wrote {path}")
    click.echo(f"\nNext: `pip install -e {name}`, then `morello targets test {name}`")


@command.command("new-kernel")
@click.argument("name", metavar="NAME")
@click.argument("operation", metavar="OPERATION")
def new_kernel(name: str, operation: str) -> None:
    """Add a microkernel to the target whose distribution is in the current folder.

    Its C computes OPERATION, such as Add or Exp, on vectors if C can, else on single values.
    """
    target, path = api.new_kernel(name, operation)
    click.echo(f"added {name} to {path}\n\nNext: `morello targets test {target} --kernel {name}`")


@command.command("test")
@click.argument("name", metavar="NAME", shell_complete=complete_targets)
@click.option("--kernel", "kernels", metavar="NAME", multiple=True, help="Check this kernel only, without programs.")
@click.option("--programs", metavar="N", type=click.IntRange(0), help="Check N random programs.  [default: 20]")
@cc_option
@runner_option
@json_option
@click.pass_context
def test(
    ctx: click.Context, name: str, kernels: Sequence[str], programs: int | None, as_json: bool, **tools: Any
) -> None:
    """Check that the kernels of a target, and random programs, compute their declared results.

    Kernels are emitted alone and in loops, on Specs drawn from their declarations; results are compared with numpy and
    plain C, between guard zones, in other processes. The exit status is 1 if a check fails, or if nothing was executed.
    """
    number = programs if programs is not None else 0 if kernels else 20
    with CheckDisplay(name) as display:
        report = api.check_target(name, kernels, number, listener=display, **tools)
    if as_json:
        print_json(report.as_dict())
    if report.count("skipped") == report.count():
        reasons = dict.fromkeys(one.detail for one in report.outcomes) or ["it has no kernels"]
        raise MorelloError(f"no code of {report.target} was executed: {'; '.join(reasons)}", _EXECUTE_HINT)
    if not as_json:
        _print_check(report)
    if not report.passed:
        ctx.exit(1)


class CheckDisplay(Display):
    """Show the progress of checks; call it with each outcome."""

    def __init__(self, target: str):
        super().__init__()
        self._target, self._counts = target, Counter[str]()

    def __call__(self, outcome: api.Outcome) -> None:
        self._counts.update([outcome.status])

    def describe(self) -> str:
        return line("testing", self._target, self.seconds, [f"{n:,} {status}" for status, n in self._counts.items()])

    def interrupted(self, error: KeyboardInterrupt) -> str:
        return f"interrupted the test of {self._target}: {sum(self._counts.values())} checks had ended"


def _print_check(report: api.TargetCheck) -> None:
    """Print a table of kernels and programs by operation, then each failure."""
    rows: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for one in report.outcomes:
        rows[one.operation, one.name if one.kind == "kernel" else "random programs"].update([one.status])
    columns = [Column("operation"), Column("checked", wraps=True)]
    columns += [Column(status, number=True) for status in _STATUSES]
    cells = {
        key: [f"{counts[status]:,}" if counts[status] else "–" for status in _STATUSES] for key, counts in rows.items()
    }
    print_table(columns, [(*key, *numbers) for key, numbers in cells.items()])
    for one in report.outcomes:
        if one.status == "failed":
            click.echo(f"\n{one.name} ({one.operation}): {one.detail}", err=True)
    passed = (
        f"{report.count('passed', kind):,} of {report.count('', kind):,} {kind}s" for kind in ("kernel", "program")
    )
    skipped = f"; {report.count('skipped'):,} skipped" if report.count("skipped") else ""
    click.echo(f"\n{report.target}: {' and '.join(passed)} passed{skipped}")


def _list(ctx: click.Context, as_json: bool) -> None:
    found = api.list_targets()
    if as_json:
        print_json(found.as_dict())
    else:
        if found.targets:
            _print_list(found.targets)
        if found.targets and found.disabled:
            click.echo()
        if found.disabled:
            _print_disabled(found)
    if not (found.targets or found.errors or any(one.target for one in found.disabled)):
        click.echo("no targets are installed; plugins bring them: pip install 'morello[x86]'", err=True)
    for error in dict.fromkeys(map(str, found.errors)):
        click.echo(f"error: {error}", err=True)
    if found.errors or not found.targets:
        ctx.exit(1)


def _print_disabled(found: api.TargetList) -> None:
    columns = [Column("disabled"), Column("target", spare=1), Column("why", wraps=True), Column("remedy", wraps=True)]
    rows = [(one.plugin.name, one.target or "–", one.error.message, one.error.hint or "") for one in found.disabled]
    print_table(columns, rows)


def _print_list(targets: Sequence[api.TargetDescription]) -> None:
    columns = [Column("target"), Column("description", wraps=True), Column("profile")]
    columns += [Column("kernels", number=True), Column("runs")]
    rows = [
        (
            one.target.name,
            one.target.info.description,
            one.target.profile,
            f"{len(one.target.kernels)}",
            "no" if one.missing else (one.runner or "yes").split()[0],
        )
        for one in targets
    ]
    print_table(columns, rows)
    click.echo("\nDetails of one: `morello targets NAME`")


def _print(described: api.TargetDescription) -> None:
    target, owner, missing = described.target, described.plugin, described.missing
    runs = f"`{described.runner}` runs it" if described.runner else "this machine can run it"
    runs = f"this machine lacks {', '.join(missing)}" if missing else runs
    click.echo(f"{target.full_name}: {target.info.description}")
    click.echo(f"plugin {owner.name} ({owner}); {runs}")
    if described.base:
        click.echo(f"derived from {described.base}")
    for plugin, counts in described.extended_by:
        what = ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items())
        click.echo(f"extended by plugin {plugin.name} ({plugin.distribution} {plugin.version}): {what}")
    if target.info.cost_unit:
        clock = f", at {target.mhz:,} MHz" if target.mhz else ""
        click.echo(f"costs are in {target.info.cost_unit}{clock}")
    weights = target.weights
    click.echo(f"parallel loops count with {weights.threads} threads, which cost {weights.sync:,} to start\n")
    _print_levels(described)
    click.echo()
    columns = [Column("profile"), Column("chosen", wraps=True), Column("description", wraps=True)]
    print_table(columns, [(one.name, one.reason or "", one.description) for one in described.profiles])
    click.echo()
    _print_kernels(described)
    click.echo()
    if target.optional_features:
        _print_features(described)
        click.echo()
    print_table([Column(f"{len(target.rewrites)} rewrites", wraps=True)], [[", ".join(target.rewrites_by_name)]])


def _print_kernels(described: api.TargetDescription) -> None:
    """Print the names of kernels by operation."""
    target, by_operation = described.target, defaultdict[str, list[str]](list)
    for kernel in target.kernels:
        by_operation[kernel.op_name].append(kernel.name)
    columns = [Column("operation"), Column("kernels", number=True), Column("names", wraps=True)]
    rows = [(op, f"{len(names)}", ", ".join(names)) for op, names in sorted(by_operation.items())]
    print_table(columns, rows)


def _print_features(described: api.TargetDescription) -> None:
    """Print the optional CPU features of a target, and the kernels that need them."""
    columns = [Column("CPU feature"), Column("used"), Column("this machine"), Column("kernels", wraps=True)]
    yes = {True: "yes", False: "no"}
    rows = [
        (name, yes[one["used"]], yes[one["on_this_machine"]], ", ".join(one["kernels"]))
        for name, one in described.optional_features.items()
    ]
    print_table(columns, rows)


def _print_levels(described: api.TargetDescription) -> None:
    columns = [Column("level"), Column("kind", spare=1), Column("capacity", number=True)]
    columns += [Column(heading, number=True, spare=2) for heading in ("unit", "divisions")]
    columns += [*(Column(f"{cost} cost", number=True) for cost in ("hit", "miss", "start"))]
    columns += [Column("alignment", number=True, spare=5), Column("vectors", spare=3), Column("moves to", spare=4)]
    rows = [
        (
            level.name,
            level.kind,
            size(level.capacity),
            size(level.unit),
            f"{level.grid.divisions:,}",
            str(level.hit_cost),
            str(level.miss_cost),
            str(level.start_cost),
            size(level.alignment),
            ", ".join(map(size, level.vectors)) or "–",
            ", ".join(level.destinations) or "–",
        )
        for level in described.target.levels
    ]
    print_table(columns, rows)
