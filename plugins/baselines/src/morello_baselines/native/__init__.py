"""Morello and the libraries that it is compared with: one line each here, one small class each in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from morello_baselines.native.base import Baseline

_SCIPY = {"library": "libscipy_openblas64*.so", "symbol": "scipy_cblas_sgemm64_", "integers": "64"}


def _blas(name: str, group: str, library: dict[str, str], **environment: str) -> Baseline:
    return Baseline(name, "morello_baselines.native.blas:Blas", group, library, environment)


def _onednn(group: str, isa: str) -> list[Baseline]:
    """Return oneDNN for a class of instructions: plain, its sgemm, and with packed weights."""
    environment = {"ONEDNN_MAX_CPU_ISA": isa}
    runner = "morello_baselines.native.onednn:OneDnnRunner"
    suffix = "" if group == "any" else f" {group}"
    return [
        Baseline(f"oneDNN{suffix}", runner, group, {}, environment),
        Baseline(f"oneDNN sgemm{suffix}", runner, group, {"call": "sgemm"}, environment),
        Baseline(f"oneDNN packed{suffix}", runner, group, {"weights": "any"}, environment, packs=True),
    ]


def _tvm(group: str, cpu: str) -> Baseline:
    """Return TVM for a CPU of LLVM, by default the machine's. It tunes for minutes, so it runs only by name."""
    name = "TVM" if group == "any" else f"TVM {group}"
    # It would pin itself to a CPU of its own choice.
    environment = {"TVM_BIND_THREADS": "0"}
    return Baseline(
        name, "morello_baselines.native.tvm:Tvm", group, {"cpu": cpu}, environment, asked=True, patience=1200.0
    )


#: All but Morello. The class `any` excludes matrix units (AMX), so some are limited to a lesser CPU.
BASELINES: tuple[Baseline, ...] = (
    _blas("OpenBLAS Haswell", "avx2", _SCIPY, OPENBLAS_CORETYPE="Haswell"),
    _blas("OpenBLAS Zen", "avx2", _SCIPY, OPENBLAS_CORETYPE="Zen"),
    _blas("OpenBLAS SkylakeX", "any", _SCIPY, OPENBLAS_CORETYPE="SkylakeX"),
    _blas("OpenBLAS Cooperlake", "any", _SCIPY, OPENBLAS_CORETYPE="Cooperlake"),
    _blas("OpenBLAS", "any", _SCIPY),
    _blas("MKL avx2", "avx2", {"library": "libmkl_rt.so*"}, MKL_ENABLE_INSTRUCTIONS="AVX2"),
    _blas("MKL", "any", {"library": "libmkl_rt.so*"}, MKL_ENABLE_INSTRUCTIONS="AVX512_E3"),
    _blas("BLIS zen3", "avx2", {"library": "libblis.so*"}, BLIS_ARCH_TYPE="6"),
    _blas("BLIS skx", "any", {"library": "libblis.so*"}, BLIS_ARCH_TYPE="0"),
    # As x86_avx2, which uses AVX-VNNI on CPUs that have it.
    *_onednn("avx2", "AVX2_VNNI"),
    *_onednn("any", "AVX512_CORE_FP16"),
    Baseline("libxsmm avx2", "morello_baselines.native.blas:Xsmm", "avx2", {}, {"LIBXSMM_TARGET": "hsw"}),
    Baseline("libxsmm", "morello_baselines.native.blas:Xsmm", "any", {}, {"LIBXSMM_TARGET": "cpx"}),
    Baseline(
        "torch avx2",
        "morello_baselines.native.pytorch:TorchRunner",
        "avx2",
        {},
        {"MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2_VNNI", "ATEN_CPU_CAPABILITY": "avx2"},
    ),
    Baseline(
        "torch", "morello_baselines.native.pytorch:TorchRunner", "any", {}, {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}
    ),
    Baseline("ONNX Runtime", "morello_baselines.native.onnx_runtime:OnnxRuntime", "any"),
    Baseline(
        "ONNX Runtime packed",
        "morello_baselines.native.onnx_runtime:OnnxRuntime",
        "any",
        {"weights": "initializers"},
        packs=True,
    ),
    Baseline("XNNPACK", "morello_baselines.native.xnnpack:Xnnpack", "any", packs=True),
    _tvm("avx2", "haswell"),
    _tvm("any", ""),
)


def chosen(names: Sequence[str]) -> list[Baseline]:
    """Return the baselines whose names begin with one of these; without names, all that need not be asked for."""
    return [one for one in BASELINES if (one.name.startswith(tuple(names)) if names else not one.asked)]


def morello_runners(targets: Sequence[str], database: str, expansions: int | None = None) -> list[Baseline]:
    """Return Morello for each target: AVX2 competes with its class, everything else with all.

    A search ends after these expansions, by default with the proof.
    """
    options = {"database": database, "expansions": str(expansions or "")}
    return [_morello(target, target, "Ours", options) for target in targets]


def ttile_runners(targets: Sequence[str]) -> list[Baseline]:
    """Return the mapper `ttile` for each target."""
    return [_morello(f"ttile {target}", target, "TTile", {}) for target in targets]


def _morello(name: str, target: str, runner: str, options: Mapping[str, str]) -> Baseline:
    group = "avx2" if "avx2" in target else "any"
    return Baseline(name, f"morello_baselines.native.ours:{runner}", group, {"target": target, **options})
