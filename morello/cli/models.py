"""Options of commands on models, and the searches for their kernels."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import attrs
import click

from morello import api, models
from morello.cli.common import (
    PATH,
    Command,
    DatabaseOptions,
    FiniteRange,
    as_group,
    cc_option,
    complete_targets,
    cpu_option,
    database_options,
    dims_option,
    jobs_option,
    memory_option,
    profile_option,
    prove_option,
    with_options,
)
from morello.progress import ModelDisplay


@attrs.frozen
class _ModelOptions:
    """The options that choose a model and its targets."""

    model: str
    dims: Mapping[str, int]
    target: tuple[str, ...]
    profile: str | None
    cpu: str | None

    def planned(self, name: str | None, layouts: str = "nhwc") -> models.PlannedModel:
        """Return the model before its searches. Raises MorelloError."""
        if len({*self.target}) < len(self.target):
            raise click.UsageError(f"--target {' --target '.join(self.target)}: name each once")
        targets = models.targets_of(self.target, self.profile, self.cpu)
        return models.PlannedModel.of(models.from_onnx(self.model, self.dims), targets, name, layouts)


@attrs.frozen
class ModelSearch:
    """Options of the searches for a model's kernels: the database, the budget that they share, how many at once."""

    db: api.SpecStore | None
    budget: api.SearchBudget
    jobs: int
    cc: str | None

    def solved(self, planned: models.PlannedModel) -> models.PlannedModel:
        """Return the model with programs, with progress on stderr. Raises MorelloError."""
        with ModelDisplay(planned.name, planned.kernels, self.db.name if self.db else None) as display:
            return planned.solved(self.db or False, self.budget, self.jobs, display)


def shares_of(model: models.PlannedModel, budget: api.SearchBudget) -> Mapping[str, api.SearchBudget]:
    """Return the budgets of a model's kernels by name, which are those of `morello build`, for a command's budget."""
    if budget.accepts_stored:
        budget = attrs.evolve(budget, expansions=api.MODEL_EXPANSIONS)
    return model.shares(budget)


def check_threads(model: models.PlannedModel | None, threads: int) -> None:
    """Raise UsageError for threads of a file that is no model."""
    if threads > 1 and not model:
        raise click.UsageError("--threads is for models in ONNX, files that end in .onnx")


@attrs.frozen
class _SearchOptions:
    """The options of `ModelSearch`."""

    database: DatabaseOptions
    time_limit: float | None
    effort: int | None
    prove: bool
    memory: int
    jobs: int | None
    cc: str | None

    def search(self) -> ModelSearch:
        if self.prove and (self.time_limit or self.effort):
            raise click.UsageError("--prove and limits of the search exclude each other")
        budget = attrs.evolve(models.default_budget(), memory=self.memory)
        if self.prove or self.time_limit or self.effort:
            budget = api.SearchBudget(self.time_limit, expansions=self.effort, memory=self.memory)
        return ModelSearch(self.database.opened(), budget, self.jobs or 1, self.cc)


_model_options = with_options(
    click.argument("model", metavar="MODEL", type=PATH),
    dims_option,
    click.option(
        "--target",
        metavar="NAME",
        multiple=True,
        shell_complete=complete_targets,
        help="Compile for this target; several make a program that chooses among them when it runs.  [default: that "
        "with the most features of this CPU]",
    ),
    profile_option,
    cpu_option,
    as_group(_ModelOptions, "chosen"),
)
_search_options = with_options(
    database_options,
    click.option(
        "--time-limit",
        metavar="SECONDS",
        type=FiniteRange(min=0, min_open=True),
        help="The time of all searches of a target together, each two seconds at least.",
    ),
    click.option(
        "--effort",
        metavar="N",
        type=click.IntRange(min=1),
        help="The expanded Specs of all searches of a target together, which each kernel gets by its share of the "
        f"work; by default {api.MODEL_EXPANSIONS:,}, unless the database has programs.",
    ),
    prove_option,
    memory_option("End searches when the processes take this much memory, with the best programs.", api.MODEL_MEMORY),
    jobs_option("Search for up to N kernels at once, in processes that share the memory of --memory."),
    cc_option,
    as_group(_SearchOptions, "options"),
)


def with_model(command: Command) -> Command:
    """Add MODEL and its options; the command is called with `planned`, a function of its name in C and layouts."""

    @_model_options
    @functools.wraps(command)
    def wrapped(chosen: _ModelOptions, **options: Any) -> None:
        command(planned=chosen.planned, **options)

    return wrapped


def with_model_search(command: Command) -> Command:
    """Add the options of searches; the command is called with `search`, a ModelSearch."""

    @_search_options
    @functools.wraps(command)
    def wrapped(options: _SearchOptions, **more: Any) -> None:
        command(search=options.search(), **more)

    return wrapped
