"""The Python API: goals, kernels, functions on arrays, and a function for everything that a command does."""

# ruff: noqa: F401

from morello.lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from morello.api.candidates import KernelCandidate, kernel_candidates
    from morello.api.databases import (
        DatabaseStats,
        TablePlane,
        database_stats,
        drop_measured,
        largest_tables,
        measured_programs,
        open_database,
        outdated,
        read_source,
        table_plane,
        targets_of,
    )
    from morello.api.functions import (
        attention,
        conv2d,
        einsum,
        gelu,
        layer_norm,
        matmul,
        qmatmul,
        quantize_weights,
        softmax,
    )
    from morello.api.goals import Goal, Layouts, prepare
    from morello.api.kernel import Kernel
    from morello.api.library import build_library, library_name, make_library, named_by_target, spec_file
    from morello.api.pages import explanation_page
    from morello.api.parallel import Processes, Workers, cluster, expect, synthesize_all
    from morello.api.pipeline import compile, goal, goal_from, kernel_of, parse, synthesize, tuned
    from morello.api.precomputing import (
        Precomputation,
        Shapes,
        is_spec,
        parse_families,
        parse_sizes,
        precompute,
        shapes_up_to,
    )
    from morello.api.scaffold import new_kernel, new_target
    from morello.api.sizes import SizedGoal, SizedKernel, SizePlan
    from morello.api.speed import NO_LIBRARY, Speed, measure_speed, require_library, times_text
    from morello.api.target_checks import check_target
    from morello.api.targets import TargetDescription, TargetList, describe_target, list_targets
    from morello.build.cache import CacheContents, cache_contents, clear_cache, limit_cache, parse_size
    from morello.build.toolchain import find_compiler
    from morello.calibration.machine import Calibration, calibrate_target
    from morello.codegen.library import check_names, no_sizes
    from morello.codegen.threads import MAX_THREADS
    from morello.db.default import database, default_place, is_address, open_store
    from morello.db.export_import import export_lines, import_tables
    from morello.db.maintenance import Difference, damage, differences, prune, recompute
    from morello.db.store import SpecStore
    from morello.errors import MorelloError
    from morello.frontend.format import format_text
    from morello.frontend.parser import Family
    from morello.report.explanation import Explanation
    from morello.report.rooflines import Roofline, roofline
    from morello.run.arrays import empty, pack, unpack
    from morello.run.metrics import Reading
    from morello.run.runner import require_runner
    from morello.search.budget import (
        DEFAULT_EXPANSIONS,
        MODEL_EXPANSIONS,
        MODEL_MEMORY,
        SearchBudget,
        available_memory,
    )
    from morello.testing.target_check import Outcome, TargetCheck
    from morello.verify.check import CheckReport
    from morello.verify.reference import REFERENCE_NAME, reference_target

#: The exported names of each module.
_NAMES = {
    "morello.api.candidates": "KernelCandidate kernel_candidates",
    "morello.api.databases": "DatabaseStats TablePlane database_stats drop_measured largest_tables "
    "measured_programs open_database outdated read_source table_plane targets_of",
    "morello.api.functions": "attention conv2d einsum gelu layer_norm matmul qmatmul quantize_weights softmax",
    "morello.api.goals": "Goal Layouts prepare",
    "morello.api.kernel": "Kernel",
    "morello.api.library": "build_library library_name make_library named_by_target spec_file",
    "morello.api.pages": "explanation_page",
    "morello.api.parallel": "Processes Workers cluster expect synthesize_all",
    "morello.api.pipeline": "compile goal goal_from kernel_of parse synthesize tuned",
    "morello.api.precomputing": "Precomputation Shapes is_spec parse_families parse_sizes precompute shapes_up_to",
    "morello.api.scaffold": "new_kernel new_target",
    "morello.api.sizes": "SizePlan SizedGoal SizedKernel",
    "morello.api.speed": "NO_LIBRARY Speed measure_speed require_library times_text",
    "morello.api.target_checks": "check_target",
    "morello.api.targets": "TargetDescription TargetList describe_target list_targets",
    "morello.build.cache": "CacheContents cache_contents clear_cache limit_cache parse_size",
    "morello.build.toolchain": "find_compiler",
    "morello.calibration.machine": "Calibration calibrate_target",
    "morello.codegen.library": "check_names no_sizes",
    "morello.codegen.threads": "MAX_THREADS",
    "morello.db.default": "database default_place is_address open_store",
    "morello.db.export_import": "export_lines import_tables",
    "morello.db.maintenance": "Difference damage differences prune recompute",
    "morello.db.store": "SpecStore",
    "morello.errors": "MorelloError",
    "morello.frontend.format": "format_text",
    "morello.frontend.parser": "Family",
    "morello.report.explanation": "Explanation",
    "morello.report.rooflines": "Roofline roofline",
    "morello.run.arrays": "empty pack unpack",
    "morello.run.metrics": "Reading",
    "morello.run.runner": "require_runner",
    "morello.search.budget": "DEFAULT_EXPANSIONS MODEL_EXPANSIONS MODEL_MEMORY SearchBudget available_memory",
    "morello.testing.target_check": "Outcome TargetCheck",
    "morello.verify.check": "CheckReport",
    "morello.verify.reference": "REFERENCE_NAME reference_target",
}
_EXPORTS = {module: names.split() for module, names in _NAMES.items()}

if not TYPE_CHECKING:
    __all__ = sorted(name for names in _EXPORTS.values() for name in names)


__getattr__, __dir__ = lazy(__name__, _EXPORTS)
