"""An operation that Morello does not have, and a kernel for it."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from morello.plugins import KernelSite, Microkernel, Unary, UnaryErrors


@attrs.frozen(cache_hash=True)
class ClippedSwish(Unary):
    """out = x · min(max(x + 3, 0), 6) / 6, on floats."""

    def function(self, values: np.ndarray) -> np.ndarray:
        return values * np.clip(values + 3, 0, 6) / 6

    def flops(self, shape: tuple[int, ...]) -> int:
        return 5 * self.volume(shape)

    @property
    def error_analysis(self) -> ClippedSwishErrors:
        return ClippedSwishErrors(self)


class ClippedSwishErrors(UnaryErrors[ClippedSwish]):
    """Errors of a product whose factors are at most |x| and 6; the result for NaN is unspecified."""

    any_for_nan = True

    def roundings(self, shape: tuple[int, ...]) -> int:
        return 3

    def magnitude(self, shape: tuple[int, ...], inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        # Close to -3, the sum of x and 3 has an error that is small next to 3, not next to itself.
        return [np.abs(inputs[0]) * np.where(inputs[0] < -4, 0, np.minimum(np.abs(inputs[0]) + 3, 6)) / 6]

    def largest_intermediate(self, shape: tuple[int, ...], inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [6 * np.abs(inputs[0])]

    def error_bound(self, values: np.ndarray, errors: np.ndarray) -> np.ndarray:
        return 1.5 * errors  # the largest slope, at 3


def _emit(site: KernelSite) -> None:
    source, out = (site.operand(index).scalar() for index in range(2))
    x, gate = site.fresh("x"), site.fresh("gate")
    site.line("{")
    site.line(f"    const float {x} = {source}, {gate} = {x} + 3;")
    site.line(f"    {out} = {x} * ({gate} < 0 ? 0 : {gate} > 6 ? 6 : {gate}) / 6;")
    site.line("}")


CLIPPED_SWISH = Microkernel(
    name="ClippedSwishOne",
    op=ClippedSwish,
    takes="1, f32 RF/L1, f32 RF/L1",
    cost=lambda spec, machine: 8,
    emit=_emit,
)
