"""Finds the memory of a model's tensors, and which part of each tensor this rank holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from .safetensors import Entry
from .windows import Piece

# Types of tensors in a checkpoint, where this version of torch has them.
_DTYPE_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2": "float8_e5m2",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "BF16": "bfloat16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
    "C64": "complex64",
}
DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, attribute)
    for name, attribute in _DTYPE_NAMES.items()
    if hasattr(torch, attribute)
}


class UnsupportedError(ValueError):
    """A tensor of the model cannot be loaded."""


class Span(NamedTuple):
    """A range of one dimension."""

    start: int
    stop: int


class Target:
    """A tensor of the model, in as far as this rank holds it."""

    def __init__(
        self, name: str, tensor: torch.Tensor, local: torch.Tensor, box: Sequence[Span]
    ) -> None:
        self.name = name
        self.tensor = tensor  # the tensor of the model, as a whole
        self.local = local  # the part that this rank holds
        self.box = box  # where that part is in the tensor
        self.shape = tuple(tensor.shape)
        self.shared = False  # whether another target uses some of the memory

    @property
    def dtype(self) -> torch.dtype:
        return self.local.dtype

    @property
    def device(self) -> torch.device:
        return self.local.device

    def memory(self) -> tuple[int, int]:
        """Returns the addresses of the first byte and of the byte after the last."""
        if self.local.numel() == 0:
            return 0, 0
        last = sum((n - 1) * s for n, s in zip(self.local.shape, self.local.stride()))
        first = self.local.data_ptr()
        return first, first + (last + 1) * self.local.element_size()

    def identity(self) -> tuple[Any, ...]:
        """Returns a value that two names of the same tensor have in common."""
        if self.local.numel() == 0:
            return (id(self.tensor),)
        return (
            self.device,
            self.local.data_ptr(),
            self.dtype,
            self.shape,
            self.local.stride(),
            tuple(self.box),
        )

    def check(self, entry: Entry) -> str | None:
        """Returns what is wrong with loading a tensor of a checkpoint into this one."""
        if entry.shape != self.shape:
            return f"has shape {list(entry.shape)} in the file and {list(self.shape)} in the model"
        source = DTYPES.get(entry.dtype)
        if source is None:
            return f"has type {entry.dtype}, which this version of torch lacks"
        # Other conversions, such as packed integers to floats, are mistakes.
        if source != self.dtype and not (source.is_floating_point and self.dtype.is_floating_point):
            return f"has type {source} in the file and {self.dtype} in the model"
        return None

    def _slices(self, piece: Piece) -> tuple[tuple[slice, ...], tuple[slice, ...]] | None:
        """Returns which elements of a piece this rank holds: in the piece, and in the tensor.

        The result is None if the rank holds none of them.
        """
        source, mine = [], []
        ranges = [Span(i, i + 1) for i in piece.prefix] + [Span(piece.start, piece.stop)]
        for dim, held in enumerate(self.box):
            span = ranges[dim] if dim < len(ranges) else Span(0, self.shape[dim])
            start, stop = max(span.start, held.start), min(span.stop, held.stop)
            if start >= stop:
                return None
            source.append(slice(start - span.start, stop - span.start))
            mine.append(slice(start - held.start, stop - held.start))
        return tuple(source), tuple(mine)

    def direct(self, piece: Piece, dtype: torch.dtype) -> torch.Tensor | None:
        """Returns memory of this tensor that has the same bytes as a piece, or None.

        The network or a file can then write the piece to its destination.
        """
        # A file may contain bytes other than 0 and 1, which are not valid in a torch.bool.
        if self.shared or self.device.type != "cpu" or dtype != self.dtype or dtype == torch.bool:
            return None
        slices = self._slices(piece)
        if slices is None:
            return None
        part = self.local[slices[1]]
        if part.numel() * part.element_size() != piece.nbytes or not part.is_contiguous():
            return None
        return part

    def copy(self, piece: Piece, data: torch.Tensor, dtype: torch.dtype, *, wait: bool) -> None:
        """Copies what this rank holds of a piece from data, its bytes."""
        slices = self._slices(piece)
        if slices is None:
            return
        inner = self.shape[len(piece.prefix) + 1 :]
        shape = [1] * len(piece.prefix) + [piece.stop - piece.start, *inner]
        source = data != 0 if dtype == torch.bool else data.view(dtype)
        source = source.view(shape if self.shape else ())
        self.local[slices[1]].copy_(source[slices[0]], non_blocking=not wait)


def _target(name: str, tensor: torch.Tensor) -> Target:
    """Returns the target for a tensor of a model, or raises UnsupportedError."""
    local, box = tensor, [Span(0, n) for n in tensor.shape]
    if isinstance(tensor, DTensor):
        local, box = tensor._local_tensor, _box_of(tensor)
    local = local.detach()
    if type(local) is not torch.Tensor or local.layout != torch.strided:
        raise UnsupportedError(f"{type(local).__name__} with layout {local.layout} is unsupported")
    if local.is_meta:
        raise UnsupportedError("it is on the meta device; call to_empty on the model first")
    if local.is_inference() and not torch.is_inference_mode_enabled():
        raise UnsupportedError("it is an inference tensor; load it in torch.inference_mode()")
    expected = [span.stop - span.start for span in box]
    if local.numel() == 0 and 0 in expected:
        local = local.new_empty(expected)  # an empty shard may have any shape
    if list(local.shape) != expected:
        raise UnsupportedError(
            f"its local shape is {list(local.shape)}, but its placements say {expected}"
        )
    return Target(name, tensor, local, box)


def _chunk(span: Span, parts: int, number: int) -> Span:
    """Returns one of the parts into which torch.chunk would divide a range."""
    step = -(-(span.stop - span.start) // parts)
    start = min(span.start + number * step, span.stop)
    return Span(start, min(start + step, span.stop))


def _box_of(tensor: DTensor) -> list[Span]:
    """Returns the part of a DTensor that this rank holds."""
    mesh = tensor.device_mesh
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return [Span(0, 0) for _ in tensor.shape]
    for entry in getattr(tensor._spec, "shard_order", None) or ():
        if list(entry.mesh_dims) != sorted(entry.mesh_dims):
            raise UnsupportedError(f"its order of shards {entry} is not supported")
    return local_box(tensor.shape, mesh.shape, coordinate, tensor.placements)


def local_box(
    shape: Sequence[int],
    mesh: Sequence[int],
    coordinate: Sequence[int],
    placements: Sequence[Any],
) -> list[Span]:
    """Returns the part of a tensor that the rank at a coordinate of a mesh holds.

    Mesh dimensions divide the tensor in their order, except where fully_shard has divided a tensor
    that was already divided by a later mesh dimension. Its placement _StridedShard then says into
    how many parts the tensor was already divided.
    """
    box = [Span(0, n) for n in shape]
    # Per dimension of the tensor: mesh dimensions that wait until it is divided into more parts.
    waiting: dict[int, list[tuple[int, int]]] = {}

    def divide(dim: int, number: int) -> None:
        box[dim] = _chunk(box[dim], mesh[number], coordinate[number])
        rest = [(other, parts // mesh[number]) for other, parts in waiting.get(dim, ())]
        waiting[dim] = rest
        if rest and rest[-1][1] == 1:
            divide(dim, rest.pop()[0])

    for number, placement in enumerate(placements):
        if isinstance(placement, _StridedShard) and placement.split_factor > 1:
            waiting.setdefault(placement.dim, []).append((number, int(placement.split_factor)))
        elif isinstance(placement, (Shard, _StridedShard)):
            divide(placement.dim, number)
        elif not isinstance(placement, Replicate):
            raise UnsupportedError(f"its placement {placement} is not supported")
    if any(waiting.values()):
        raise UnsupportedError(f"its placements {tuple(placements)} are not supported")
    return box


def targets_of(state: Mapping[str, Any]) -> tuple[dict[str, Target], list[str]]:
    """Returns the tensors of a state dict, and what is wrong with those that cannot be loaded."""
    targets: dict[str, Target] = {}
    problems: list[str] = []
    for name, tensor in state.items():
        if not isinstance(tensor, torch.Tensor):
            continue  # extra state of a module, which safetensors cannot hold
        try:
            targets[name] = _target(name, tensor)
        except UnsupportedError as e:
            problems.append(f"tensor {name!r} of the model: {e}")
    _mark_shared(targets.values())
    return targets, problems


def _mark_shared(targets: Iterable[Target]) -> None:
    """Marks targets that overlap others in memory, unless they are the same tensor."""
    tensors = {target.identity(): target for target in targets}
    ends: dict[torch.device, tuple[int, Target]] = {}
    for target in sorted(tensors.values(), key=lambda t: t.memory()[0]):
        first, stop = target.memory()
        end, owner = ends.get(target.device, (0, target))
        if first < end:
            target.shared = owner.shared = True
        if stop > end:
            ends[target.device] = (stop, target)
    for target in targets:
        target.shared = tensors[target.identity()].shared
