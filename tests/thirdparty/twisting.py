"""A plugin with an operation of its own. Fingerprints count its file alone, as it is in no package."""

from __future__ import annotations

import attrs
import numpy as np

from morello.ir.ops import Operation
from morello.ir.ops.unary import Unary, UnaryErrors
from morello.plugins import Microkernel, TargetPlugin, hookimpl


class Twisting:
    """A plugin with an operation Twist, of its own class, that costs `cost` per value on x86_avx2."""

    def __init__(self, cost: int):
        class TwistErrors(UnaryErrors[Unary]):
            def error_bound(self, values: np.ndarray, errors: np.ndarray) -> np.ndarray:
                return errors * cost

        @attrs.frozen
        class Twist(Unary):
            """out = cost · x."""

            def function(self, values: np.ndarray) -> np.ndarray:
                return values * cost

            @property
            def error_analysis(self) -> TwistErrors:
                return TwistErrors(self)

            def flops(self, shape: tuple[int, ...]) -> int:
                return self.volume(shape)

        self.op, self._cost = Twist(), cost

    @hookimpl
    def morello_operations(self) -> list[Operation]:
        return [self.op]

    @hookimpl
    def morello_plugin(self) -> TargetPlugin:
        cost = self._cost
        kernel = Microkernel(
            name="TwistOne",
            op=type(self.op),
            takes="1, f32 RF/L1, f32 RF/L1",
            cost=lambda spec, target: cost,
            template="{out} = {src};",
        )
        return TargetPlugin(extends="x86_avx2", kernels=[kernel])
