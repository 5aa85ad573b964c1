"""Images of other sizes."""

from __future__ import annotations

from math import prod

import numpy as np

from morello.ir.ops.resize import Resize
from morello.models.building import Builder, Source, Unsupported, translates

_ROUND = {
    "round_prefer_floor": lambda places: np.ceil(places - 0.5),
    "round_prefer_ceil": lambda places: np.floor(places + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _scales(make: Builder, node: Source) -> list[float]:
    """Return the factor of each dimension."""
    shape, made = make.shape(node.inputs[0]), make.shape(node.outputs[0])
    scales = node.get("scales")
    at = 1 if node.op == "Upsample" or node.version < 11 else 2
    if node.input(at) and make.shape(node.inputs[at]) != (0,):
        scales = make.value(node.inputs[at], "a list of scales").tolist()
    axes = node.get("axes") or range(len(shape))
    found = [to / size for to, size in zip(made, shape, strict=True)]
    if scales:
        for axis, scale in zip(axes, scales, strict=True):
            found[axis] = scale
    elif (policy := node.get("keep_aspect_ratio_policy", "stretch")) != "stretch":
        sizes = make.value(node.inputs[3], "a list of sizes").tolist()
        each = [size / shape[axis] for axis, size in zip(axes, sizes, strict=True)]
        for axis in axes:
            found[axis] = min(each) if policy == "not_larger" else max(each)
    return found


def _places(make: Builder, node: Source, axis: int, scale: float) -> np.ndarray:
    """Return the places of an axis of the output in the input."""
    size, made = make.shape(node.inputs[0])[axis], make.shape(node.outputs[0])[axis]
    old = node.op == "Upsample" or node.version < 11
    grid = "asymmetric" if old else node.get("coordinate_transformation_mode", "half_pixel")
    # Scales may give sizes that are no whole numbers.
    at, length = np.arange(made), scale * size
    half = (at + 0.5) / scale - 0.5
    if grid == "half_pixel":
        return half
    if grid == "asymmetric":
        return at / scale
    if grid == "pytorch_half_pixel":
        return half if made > 1 else np.zeros(1)
    if grid == "align_corners":
        return at * (size - 1) / (length - 1 if length != 1 else 1)
    if grid == "half_pixel_symmetric":
        return half + size / 2 * (1 - made / length)
    if grid == "tf_crop_and_resize":
        region = make.value(node.inputs[1], "a region").tolist()
        axes = [*(node.get("axes") or range(make.rank(node.inputs[0])))]
        number = axes.index(axis)
        start, end = region[number], region[len(region) // 2 + number]
        step = (end - start) * (size - 1) / (length - 1) if made > 1 else 0.0
        found = start * (size - 1) + at * step if made > 1 else np.array([(start + end) / 2 * (size - 1)])
        if found.min() < 0 or found.max() > size - 1:
            raise Unsupported("a region beyond the image")
        return found
    raise Unsupported(f"the grid {grid}")


def _kernel(distance: np.ndarray, cubic: float | None) -> np.ndarray:
    """Return the weights of pixels at a distance: those of a cubic function with this parameter, or linear ones."""
    far = np.abs(distance)
    if cubic is None:
        return np.clip(1 - far, 0, 1)
    near = ((cubic + 2) * far - (cubic + 3)) * far * far + 1
    further = ((cubic * far - 5 * cubic) * far + 8 * cubic) * far - 4 * cubic
    return np.where(far <= 1, near, np.where(far < 2, further, 0.0))


def _weights(node: Source, places: np.ndarray, size: int, scale: float) -> np.ndarray:
    """Return the matrix of weights of an axis: output × input."""
    cubic = float(node.get("cubic_coeff_a", -0.75)) if node.get("mode") == "cubic" else None
    narrow = min(scale, 1.0) if node.get("antialias", 0) else 1.0
    reach = 1 if cubic is None else 2
    first = int(np.floor(-reach / narrow)) + 1
    offsets = np.arange(first, 2 - first)
    base = np.floor(places)
    weights = _kernel((offsets - (places - base)[:, None]) * narrow, cubic)
    pixels = base[:, None].astype(int) + offsets
    outside = (pixels < 0) | (pixels >= size)
    if node.get("exclude_outside", 0):
        weights = np.where(outside, 0.0, weights)
    if node.get("exclude_outside", 0) or narrow < 1:
        weights = weights / weights.sum(1, keepdims=True)
    found = np.zeros((len(places), size))
    np.add.at(found, (np.arange(len(places))[:, None], np.clip(pixels, 0, size - 1)), weights)
    return found


def _matrix_of(op: Resize, shape: tuple[int, ...], axis: int) -> np.ndarray:
    """Return the weights of an axis of the operation of the language."""
    places = op.places(shape, axis)
    pixels, behind = places.found(shape[2 + axis])
    weight = behind / places.unit if op.mode == "linear" else np.zeros(len(pixels))
    found = np.zeros((len(pixels), op.image[axis]))
    np.add.at(found, (np.arange(len(pixels)), pixels), 1 - weight)
    np.add.at(found, (np.arange(len(pixels)), np.minimum(pixels + 1, op.image[axis] - 1)), weight)
    return found


@translates("Resize", "Upsample")
def _resize(make: Builder, node: Source) -> None:
    source, to = node.inputs[0], node.outputs[0]
    shape, made, scales = make.shape(source), make.shape(to), _scales(make, node)
    mode = node.get("mode", "nearest")
    changed = dict[int, np.ndarray]()
    region = node.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    for axis in node.get("axes") or range(len(shape)):
        scale = scales[axis]
        if scale == 1 and shape[axis] == made[axis] and not region:
            continue
        places = _places(make, node, axis, scale)
        if mode == "nearest":
            rounded = _ROUND[node.get("nearest_mode", "round_prefer_floor") if node.version > 10 else "floor"](places)
            changed[axis] = np.clip(rounded, 0, shape[axis] - 1).astype(np.int64)
        else:
            changed[axis] = _weights(node, places, shape[axis], scale)
    if not changed:
        make.reshape(source, shape, to)
        return
    if len(shape) == 4 and min(changed) >= 2 and mode != "cubic":
        matrices = {axis: np.eye(shape[axis]) for axis in (2, 3)}
        for axis, found in changed.items():
            matrices[axis] = matrices[axis][found] if mode == "nearest" else found
        for grid in ("half_pixel", "asymmetric", "align_corners"):
            given = {"image": shape[2:], "mode": mode, "grid": grid}
            op = Resize(image=shape[2:], mode="nearest" if mode == "nearest" else "linear", grid=grid)
            if all(np.allclose(_matrix_of(op, made, axis), matrices[2 + axis], atol=1e-12) for axis in (0, 1)):
                make.node("Resize", source, to=to, given=given)
                return
    for axis, found in changed.items():
        if mode == "nearest":
            source = make.gathered(source, axis, found)
            continue
        sizes = make.shape(source)
        before, after = prod(sizes[:axis]), prod(sizes[axis + 1 :])
        weights = make.constant(found.astype(make.tensors[source].dtype.numpy))
        apart = make.reshape(source, (before, sizes[axis], after))
        product = make.node("Matmul", weights, apart, shape=(before, len(found), after))
        source = make.reshape(product, (*sizes[:axis], len(found), *sizes[axis + 1 :]))
    make.reshape(source, made, to)
