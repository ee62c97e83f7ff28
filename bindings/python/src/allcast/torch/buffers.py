"""Memory of tensors: contiguous tensors as they are, others through temporary memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import torch

import allcast

from .works import Call


class Scratch:
    """Temporary host memory. Freed memory is kept for later calls, because fresh pages are slow."""

    _KEPT = 64 << 20  # bytes that may be kept

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[torch.Tensor] = []
        self._size = 0

    def take(self, nbytes: int) -> torch.Tensor:
        """Returns memory of at least nbytes."""
        with self._lock:
            for i, memory in enumerate(self._free):
                if nbytes <= memory.numel() <= 2 * nbytes:
                    del self._free[i]
                    self._size -= memory.numel()
                    return memory
        return torch.empty(nbytes, dtype=torch.uint8)

    def give(self, memory: torch.Tensor) -> None:
        """Takes back memory that nothing uses any more."""
        with self._lock:
            self._free.append(memory)
            self._size += memory.numel()
            while self._size > self._KEPT:
                self._size -= self._free.pop(0).numel()


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether the memory of a tensor holds its elements in order."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def _adjacent(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether tensors are plain and lie next to each other, in order."""
    following = tensors[0].data_ptr()
    for tensor in tensors:
        if tensor.data_ptr() != following or not _is_plain(tensor):
            return False
        following += tensor.nbytes
    return True


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a plain tensor of any type, including quantised ones, as bytes."""
    offset = tensor.storage_offset() * tensor.element_size()
    flat = torch.empty(0, dtype=torch.uint8)
    return flat.set_(tensor.untyped_storage(), offset, (tensor.nbytes,), (1,))


def _read(tensor: torch.Tensor, memory: torch.Tensor) -> None:
    if not _is_plain(tensor):
        tensor = tensor.resolve_conj().resolve_neg().contiguous()
    memory.copy_(_bytes_of(tensor))


def _write(tensor: torch.Tensor, memory: torch.Tensor) -> None:
    if _is_plain(tensor):
        _bytes_of(tensor).copy_(memory)
        return
    plain = torch.empty_like(tensor, memory_format=torch.contiguous_format)
    _bytes_of(plain).copy_(memory)
    tensor.copy_(plain)


def _bind(
    scratch: Scratch,
    tensors: Sequence[torch.Tensor],
    read: bool,
    write: bool,
    finish: list[Callable[[], None]],
) -> allcast.Memory | None:
    """Returns the memory of a buffer. It appends functions to run when the operation has ended."""
    if not tensors:
        return None
    if len(tensors) == 1:
        tensor = tensors[0]
        if _is_plain(tensor):
            return allcast.Memory(tensor.data_ptr(), tensor.nbytes, None, tensor)
        total = tensor.nbytes
    else:
        total = sum(tensor.nbytes for tensor in tensors)
        if _adjacent(tensors):
            return allcast.Memory(tensors[0].data_ptr(), total, None, tensors)
    memory = scratch.take(total)
    parts = torch.split(memory[:total], [tensor.nbytes for tensor in tensors])
    if read:
        with torch.no_grad():
            for tensor, part in zip(tensors, parts):
                _read(tensor, part)

    def done() -> None:
        if write:
            for tensor, part in zip(tensors, parts):
                _write(tensor, part)
        scratch.give(memory)

    finish.append(done)
    return allcast.Memory(memory.data_ptr(), total, None, memory)


def bind(
    scratch: Scratch, call: Call, finish: list[Callable[[], None]]
) -> tuple[allcast.Memory | None, allcast.Memory | None]:
    """Returns the send buffer and the receive buffer of a call on CPU tensors."""
    send = _bind(scratch, call.send, True, False, finish)
    return send, _bind(scratch, call.recv, call.in_place, call.writes, finish)
