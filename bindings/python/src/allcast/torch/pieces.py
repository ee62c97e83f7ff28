"""How an operation on device tensors is cut into pieces.

All ranks cut an operation alike, because each piece is an operation of Allcast of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from .devices import Region
from .works import Call

_ALIGNMENT = 256  # of parts of a buffer: a multiple of all element sizes and of cache lines
_SMALLEST_WIDTH = 64 << 10  # bytes per rank below which cutting costs more than it hides
_MOST_PIECES = 32  # a device blocks the host that enqueues about 1000 commands behind a wait
_PLAIN = (torch.float32, torch.bfloat16, torch.float16)

Done = Callable[[BaseException | None], None]

# Starts an operation of Allcast on host memory, and returns at once. The arguments are the send
# buffer and the receive buffer, as flat tensors of bytes or None, a function, and the number of
# seconds within which the operation must end. Whatever ends the operation calls the function
# exactly once, from any thread, unless starting raises.
Start = Callable[[torch.Tensor | None, torch.Tensor | None, Done, float], None]


@dataclass(frozen=True)
class Settings:
    """Sizes that decide how operations are cut. They must be the same on all ranks."""

    piece: int = 8 << 20  # bytes of a piece, over all ranks
    depth: int = 3  # pieces of an operation that own memory at a time
    pool: int = 256 << 20  # bytes of pinned memory that the process keeps

    @staticmethod
    def from_environment() -> Settings:
        return Settings(
            piece=_environment_size("ALLCAST_TORCH_PIECE", Settings.piece, _ALIGNMENT),
            depth=_environment_size("ALLCAST_TORCH_PIECES", Settings.depth, 1),
            pool=_environment_size("ALLCAST_TORCH_PINNED", Settings.pool, 0),
        )


def _environment_size(name: str, default: int, unit: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < unit or (unit and value % unit):
        raise ValueError(f"{name} is {text!r}: set it to a positive multiple of {max(unit, 1)}")
    return value


@dataclass(frozen=True)
class Copy:
    """A copy between a tensor on the device and the host memory of a piece."""

    device: Region
    host: int  # offset in the memory of the piece; rows lie next to each other there

    def host_region(self, memory: torch.Tensor) -> Region:
        return Region(memory, self.host, self.device.width, self.device.rows, self.device.width)


@dataclass
class Piece:
    """One part of an operation, which runs as an operation of Allcast of its own."""

    start: Start
    send: slice | None  # the send buffer in the memory of the piece
    recv: slice | None
    copies_in: list[Copy]
    copies_out: list[Copy]

    @property
    def nbytes(self) -> int:
        return max(part.stop for part in (self.send, self.recv, slice(0)) if part is not None)


@dataclass
class Plan:
    """An operation that is cut into pieces."""

    pieces: list[Piece] = field(default_factory=list)
    tensors: list[torch.Tensor] = field(default_factory=list)  # tensors that the copies use
    # Copies on the device, each as target and source.
    local: list[tuple[Region, Region]] = field(default_factory=list)
    # Strided tensors and the contiguous ones that take their place in the copies.
    results: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Host memory per piece."""
        return max(piece.nbytes for piece in self.pieces)


@dataclass(frozen=True)
class Shape:
    """How the buffers of an operation consist of blocks of equal size."""

    send: int = 1  # blocks of the send buffer
    recv: int = 1  # blocks of the receive buffer
    own: int | None = None  # block of the receive buffer that this rank gives to an allgather


def shape_of(operation: str, size: int, rank: int) -> Shape:
    """Returns the shape of a divisible operation."""
    if operation == "allgather":
        return Shape(1, size, rank)
    if operation == "gather":
        return Shape(1, size)
    if operation in ("scatter", "reduce_scatter"):
        return Shape(size, 1)
    return Shape()


def cut(block: int, blocks: int, piece: int) -> list[tuple[int, int]]:
    """Cuts a block into ranges (offset, width). A piece consists of the same range of all blocks.

    Only sizes decide, because they are the same on all ranks.
    """
    target = max(piece // blocks, _SMALLEST_WIDTH, block // _MOST_PIECES)
    count = max((block + target // 2) // target, 1)
    width = max(aligned(-(-block // count)), 1)
    return [(at, min(width, block - at)) for at in range(0, block, width)] or [(0, 0)]


class _Blocks:
    """A buffer on the device: tensors one after the other, seen as blocks of equal size."""

    def __init__(self, tensors: Sequence[torch.Tensor], count: int) -> None:
        self._tensors = [_flat(tensor) for tensor in tensors]
        self.present = bool(tensors)
        self.nbytes = sum(tensor.numel() for tensor in self._tensors)
        if self.nbytes % count:
            raise ValueError(
                f"a buffer of {self.nbytes} bytes does not consist of {count} equal blocks"
            )
        self.size = self.nbytes // count  # of a block

    def regions(self, first: int, last: int, offset: int, width: int) -> list[Region]:
        """Returns where a range of the blocks from first to last lies, block by block."""
        if width == 0 or first == last:
            return []
        if len(self._tensors) == 1:
            at = first * self.size + offset
            return [Region(self._tensors[0], at, width, last - first, self.size)]
        regions = []
        for block in range(first, last):
            at, end = block * self.size + offset, block * self.size + offset + width
            base = 0
            for tensor in self._tensors:
                low, high = max(at, base), min(end, base + tensor.numel())
                if low < high:
                    regions.append(Region(tensor, low - base, high - low))
                base += tensor.numel()
        return regions

    def copies(self, first: int, last: int, offset: int, width: int, host: int) -> list[Copy]:
        """Returns the copies between that range and host memory, where the parts lie in a row."""
        copies = []
        for region in self.regions(first, last, offset, width):
            copies.append(Copy(region, host))
            host += region.nbytes
        return copies


def add_call(plan: Plan, settings: Settings, shape: Shape, call: Call, start: Start) -> None:
    """Cuts an operation on device tensors into pieces, and adds them to a plan."""
    if not call.divisible:
        shape = Shape()
    sources = [_contiguous(tensor) for tensor in call.send]
    targets = [_contiguous(tensor) for tensor in call.recv]
    if call.writes:
        pairs = zip(call.recv, targets)
        plan.results += [(to, copy) for to, copy in pairs if copy.data_ptr() != to.data_ptr()]
    plan.tensors += [*call.send, *call.recv, *sources, *targets]
    send, recv = _Blocks(sources, shape.send), _Blocks(targets, shape.recv)
    if not call.divisible:
        plan.pieces.append(_piece(shape, call, start, send, (0, send.size), recv, (0, recv.size)))
        return
    if send.present and recv.present and send.size != recv.size:
        raise ValueError(
            f"{call.operation}: the blocks of the input have {send.size} bytes and those of the "
            f"output {recv.size}: pass tensors of matching sizes"
        )
    block = recv.size if recv.present else send.size
    if shape.own is not None and send.present:
        # The own block reaches the output without the host.
        own = recv.regions(shape.own, shape.own + 1, 0, block)
        plan.local += [pair for pair in zip(own, send.regions(0, 1, 0, block)) if not _same(*pair)]
    for part in cut(block, max(shape.send, shape.recv), settings.piece):
        plan.pieces.append(_piece(shape, call, start, send, part, recv, part))


def _piece(
    shape: Shape,
    call: Call,
    start: Start,
    send: _Blocks,
    send_range: tuple[int, int],
    recv: _Blocks,
    recv_range: tuple[int, int],
) -> Piece:
    if shape.own is not None:
        return _gather_piece(shape.recv, shape.own, start, send, recv, *recv_range)
    send_bytes = shape.send * send_range[1] if send.present else 0
    at = aligned(send_bytes)
    piece = Piece(start, None, None, [], [])
    if send.present:
        piece.send = slice(0, send_bytes)
        piece.copies_in += send.copies(0, shape.send, *send_range, 0)
    if recv.present:
        piece.recv = slice(at, at + shape.recv * recv_range[1])
        copies = recv.copies(0, shape.recv, *recv_range, at)
        if call.in_place or not call.writes:
            piece.copies_in += copies
        if call.writes:
            piece.copies_out += copies
    return piece


def _gather_piece(
    ranks: int, own: int, start: Start, send: _Blocks, recv: _Blocks, offset: int, width: int
) -> Piece:
    """Returns a piece of an allgather, which works in place on the host to save a copy there."""
    piece = Piece(start, None, slice(0, ranks * width), [], [])
    if send.present:
        piece.copies_in += send.copies(0, 1, offset, width, own * width)
    else:
        piece.copies_in += recv.copies(own, own + 1, offset, width, own * width)
    piece.copies_out += recv.copies(0, own, offset, width, 0)
    piece.copies_out += recv.copies(own + 1, ranks, offset, width, (own + 1) * width)
    return piece


def _contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor whose memory holds the elements in order."""
    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        return tensor
    with torch.no_grad():
        return tensor.resolve_conj().resolve_neg().contiguous()


def _same(a: Region, b: Region) -> bool:
    return a.tensor.data_ptr() + a.offset == b.tensor.data_ptr() + b.offset


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the memory of a contiguous tensor of any type."""
    if tensor.dim() == 1 and tensor.dtype in _PLAIN:  # the usual case, in a third of the time
        return tensor.detach().view(torch.uint8)
    offset = tensor.storage_offset() * tensor.element_size()
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return flat.set_(tensor.untyped_storage(), offset, (tensor.nbytes,), (1,))


def aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
