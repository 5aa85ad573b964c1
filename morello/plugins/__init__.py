"""The interface of plugin authors: all that a plugin uses. Names are imported at their first use.

`PUBLIC_MODULES` are the modules whose names stay, and change with `API_VERSION` only.
"""

# ruff: noqa: F401

import sys
from importlib.util import find_spec

from morello.lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from morello.codegen.emitter import CEmitter
    from morello.codegen.float_bits import bits_to_float, float_to_bits
    from morello.errors import EmitError, Inapplicable, MorelloError, PluginError
    from morello.host import missing_features
    from morello.ir.dtypes import BF16, BOOL, F16, F32, F64, I8, I16, I32, U8, U16, U32, DType
    from morello.ir.impl import Impl, KernelCall, Leaf, Loop, Node, Pipeline
    from morello.ir.index import IndexExpr, as_index
    from morello.ir.layout import (
        Dynamic,
        Layout,
        OddEven,
        Packed,
        PhysicalDim,
        chwn,
        col_major,
        nchwc,
        nhwc,
        row_major,
        with_strips,
    )
    from morello.ir.numbers import Mask, Num, ceil_div, choose, product
    from morello.ir.ops.base import ErrorAnalysis, Operation
    from morello.ir.ops.binary import Add, Binary, Div, Maximum, Minimum, Mul, Pow, PRelu, Sub
    from morello.ir.ops.broadcast import Broadcast
    from morello.ir.ops.causal import CausalMask
    from morello.ir.ops.common import Along
    from morello.ir.ops.compare import Comparison, Logic, Not, Where
    from morello.ir.ops.compose import Compose
    from morello.ir.ops.conv import Conv, Conv1d, Conv3d, GroupedConv
    from morello.ir.ops.conv_transpose import ConvTranspose, GroupedConvTranspose
    from morello.ir.ops.divide import DivideVec, DivideVecScalar
    from morello.ir.ops.fill import Fill, FillZero
    from morello.ir.ops.functions import Clip, Elu, Function, HardSigmoid, LeakyRelu
    from morello.ir.ops.gather import Gather
    from morello.ir.ops.matmul import Matmul
    from morello.ir.ops.max import Max, Min
    from morello.ir.ops.move import Move, OnePrefix
    from morello.ir.ops.pad import Pad
    from morello.ir.ops.pool import AvgPool, MaxPool
    from morello.ir.ops.quantize import Quantize, Requantize
    from morello.ir.ops.quantized import Dequantize, QMatmul
    from morello.ir.ops.rand_matmul import RandMatmul, Random
    from morello.ir.ops.reduce import Mean, Prod, Sum
    from morello.ir.ops.resize import Resize
    from morello.ir.ops.scan import ArgMax, ArgMin, CumSum, LinearScan, TopK
    from morello.ir.ops.softmax import Softmax, SoftmaxComplete
    from morello.ir.ops.softmax_parts import (
        SoftmaxDenominator,
        SoftmaxDenominatorAndMax,
        SoftmaxDenominatorAndMaxFromParts,
        SoftmaxDenominatorAndUnscaled,
        SoftmaxDenominatorAndUnscaledFromMax,
    )
    from morello.ir.ops.softmax_per_part import SoftmaxDenominatorAndMaxPerPart
    from morello.ir.ops.unary import Exp, Gelu, Relu, Rsqrt, Scale, Shift, Sigmoid, Silu, Tanh, Unary, UnaryErrors
    from morello.ir.ops.views import Concat, Slice, Transpose
    from morello.ir.program import Parameter, Program
    from morello.ir.signature import Signature
    from morello.ir.spec import LogicalSpec, Spec
    from morello.ir.tensor import OperandState, TensorSpec
    from morello.kernels.machine import Machine, MemoryLevel, NewBuffer, Tables, TargetInfo, Weights
    from morello.kernels.microkernel import Combined, Cost, Microkernel, Registers, UnrollAndJam, per_vector, touching
    from morello.kernels.pattern import LayoutRule, Multiple, OperandPattern, SizeRule
    from morello.kernels.site import KernelSite, OperandSite
    from morello.kernels.target import Emitter, Metric, Target
    from morello.kernels.template import Template
    from morello.plugins.derivation import derive
    from morello.plugins.measure import Clock, Measurement, Meter, Peak, Rows
    from morello.plugins.plugin import TargetPlugin, hookimpl
    from morello.plugins.profile import ALL_CPUS, Profile, ProfileFile
    from morello.plugins.registry import Registry, installed
    from morello.rewrites import STANDARD
    from morello.rewrites.base import Rewrite, RewriteCase, argument
    from morello.rewrites.bufferize import Bufferize
    from morello.rewrites.move import MoveStep
    from morello.rewrites.pipeline import BufferedPipelineRewrite, NewTensor, PipelinePlan, PipelineRewrite, Stage
    from morello.rewrites.select import Select
    from morello.rewrites.tile import Tile
    from morello.rewrites.to_accum import ToAccum
    from morello.schedule import Schedule

#: Increases with each release that adds, changes or removes public names.
API_VERSION = 1
#: The modules that plugins may rely on.
PUBLIC_MODULES = ("morello", "morello.plugins", "morello.testing")

#: The exported names of each module.
_NAMES = {
    "morello.codegen.emitter": "CEmitter",
    "morello.codegen.float_bits": "bits_to_float float_to_bits",
    "morello.errors": "EmitError Inapplicable MorelloError PluginError",
    "morello.host": "missing_features",
    "morello.ir.dtypes": "BF16 BOOL DType F16 F32 F64 I16 I32 I8 U16 U32 U8",
    "morello.ir.impl": "Impl KernelCall Leaf Loop Node Pipeline",
    "morello.ir.index": "IndexExpr as_index",
    "morello.ir.layout": "Dynamic Layout OddEven Packed PhysicalDim chwn col_major nchwc nhwc row_major with_strips",
    "morello.ir.numbers": "Mask Num ceil_div choose product",
    "morello.ir.ops.base": "ErrorAnalysis Operation",
    "morello.ir.ops.binary": "Add Binary Div Maximum Minimum Mul PRelu Pow Sub",
    "morello.ir.ops.broadcast": "Broadcast",
    "morello.ir.ops.causal": "CausalMask",
    "morello.ir.ops.common": "Along",
    "morello.ir.ops.compare": "Comparison Logic Not Where",
    "morello.ir.ops.compose": "Compose",
    "morello.ir.ops.conv": "Conv Conv1d Conv3d GroupedConv",
    "morello.ir.ops.conv_transpose": "ConvTranspose GroupedConvTranspose",
    "morello.ir.ops.divide": "DivideVec DivideVecScalar",
    "morello.ir.ops.fill": "Fill FillZero",
    "morello.ir.ops.functions": "Clip Elu Function HardSigmoid LeakyRelu",
    "morello.ir.ops.gather": "Gather",
    "morello.ir.ops.matmul": "Matmul",
    "morello.ir.ops.max": "Max Min",
    "morello.ir.ops.move": "Move OnePrefix",
    "morello.ir.ops.pad": "Pad",
    "morello.ir.ops.pool": "AvgPool MaxPool",
    "morello.ir.ops.quantize": "Quantize Requantize",
    "morello.ir.ops.quantized": "Dequantize QMatmul",
    "morello.ir.ops.rand_matmul": "RandMatmul Random",
    "morello.ir.ops.reduce": "Mean Prod Sum",
    "morello.ir.ops.resize": "Resize",
    "morello.ir.ops.scan": "ArgMax ArgMin CumSum LinearScan TopK",
    "morello.ir.ops.softmax": "Softmax SoftmaxComplete",
    "morello.ir.ops.softmax_parts": "SoftmaxDenominator SoftmaxDenominatorAndMax SoftmaxDenominatorAndMaxFromParts "
    "SoftmaxDenominatorAndUnscaled SoftmaxDenominatorAndUnscaledFromMax",
    "morello.ir.ops.softmax_per_part": "SoftmaxDenominatorAndMaxPerPart",
    "morello.ir.ops.unary": "Exp Gelu Relu Rsqrt Scale Shift Sigmoid Silu Tanh Unary UnaryErrors",
    "morello.ir.ops.views": "Concat Slice Transpose",
    "morello.ir.program": "Parameter Program",
    "morello.ir.signature": "Signature",
    "morello.ir.spec": "LogicalSpec Spec",
    "morello.ir.tensor": "OperandState TensorSpec",
    "morello.kernels.machine": "Machine MemoryLevel NewBuffer Tables TargetInfo Weights",
    "morello.kernels.microkernel": "Combined Cost Microkernel Registers UnrollAndJam per_vector touching",
    "morello.kernels.pattern": "LayoutRule Multiple OperandPattern SizeRule",
    "morello.kernels.site": "KernelSite OperandSite",
    "morello.kernels.target": "Emitter Metric Target",
    "morello.kernels.template": "Template",
    "morello.plugins.derivation": "derive",
    "morello.plugins.measure": "Clock Measurement Meter Peak Rows",
    "morello.plugins.plugin": "TargetPlugin hookimpl",
    "morello.plugins.profile": "ALL_CPUS Profile ProfileFile",
    "morello.plugins.registry": "Registry installed",
    "morello.rewrites": "STANDARD",
    "morello.rewrites.base": "Rewrite RewriteCase argument",
    "morello.rewrites.bufferize": "Bufferize",
    "morello.rewrites.move": "MoveStep",
    "morello.rewrites.pipeline": "BufferedPipelineRewrite NewTensor PipelinePlan PipelineRewrite Stage",
    "morello.rewrites.select": "Select",
    "morello.rewrites.tile": "Tile",
    "morello.rewrites.to_accum": "ToAccum",
    "morello.schedule": "Schedule",
}
_EXPORTS = {module: names.split() for module, names in _NAMES.items()}

_NAMED = sorted(["API_VERSION", "PUBLIC_MODULES", *(name for names in _EXPORTS.values() for name in names)])

if not TYPE_CHECKING:
    __all__ = _NAMED

_attribute, __dir__ = lazy(__name__, _EXPORTS)


def __getattr__(name: str) -> object:
    try:
        return _attribute(name)
    except AttributeError:
        # `from morello.plugins import NAME` looks for an attribute, then for a module.
        importing = sys._getframe(1).f_code.co_filename == "<frozen importlib._bootstrap>"
        if name in _NAMED or not importing or name.startswith("__") or find_spec(f"{__name__}.{name}"):
            raise
        from importlib.metadata import version

        from morello.errors import suggestion

        listing = "docs/api/plugins.md lists all names; for those of a later version, pip install --upgrade morello"
        where = f"{__name__}, API version {API_VERSION} of Morello {version('morello')}"
        raise ImportError(f"{where}, has no {name!r}: {suggestion(name, _NAMED, listing)}", name=__name__) from None
