"""Pinned host memory: buffers for reuse, and counters that streams wait for."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import torch

from .devices import Device

_SMALLEST_CLASS = 64 << 10
_FLAG_SLOTS = 256


class Pool:
    """Pinned host memory for reuse, per size class.

    Memory comes back with an event. It may be handed out before the event occurs, since its next
    user lets its copies wait for the event.
    """

    def __init__(self, device: Device, limit: int) -> None:
        self._device = device
        self._limit = limit
        self._lock = threading.Lock()
        self._idle: dict[int, list[tuple[torch.Tensor, Any]]] = {}
        self._owned = 0  # bytes, handed out or idle

    def take(self, nbytes: int, idle_only: bool = False) -> tuple[torch.Tensor, Any]:
        """Returns memory, and the event that its first use must wait for or None.

        With idle_only there is no such event.
        """
        size = _size_class(nbytes)
        with self._lock:
            idle = self._idle.get(size, [])
            for i, (memory, event) in enumerate(idle):
                if event is None or self._device.query(event):
                    del idle[i]
                    return memory, None
            if idle and not idle_only and self._owned + size > self._limit:
                return idle.pop(0)
            self._owned += size
        # Never blocks: beyond the limit, memory is dropped as soon as it comes back.
        try:
            return self._device.pinned(size), None
        except BaseException:
            with self._lock:
                self._owned -= size
            raise

    def put(self, memory: torch.Tensor, event: Any) -> None:
        """Takes memory back. The event occurs after the last copy from or to it."""
        size = memory.numel()
        with self._lock:
            self._idle.setdefault(size, []).append((memory, event))
            self._trim()

    def _trim(self) -> None:
        for size in sorted(self._idle, reverse=True):
            idle = self._idle[size]
            for entry in list(idle):
                if self._owned <= self._limit:
                    return
                # A copy may still use memory whose event has not occurred.
                if entry[1] is None or self._device.query(entry[1]):
                    idle.remove(entry)
                    self._owned -= size

    @property
    def owned(self) -> int:
        """Bytes that the pool has allocated and not dropped."""
        with self._lock:
            return self._owned


def _size_class(nbytes: int) -> int:
    return max(_SMALLEST_CLASS, 1 << max(nbytes - 1, 0).bit_length())


class Flags:
    """Counters in pinned memory that streams wait for.

    A counter only grows, so that the next user of a slot continues where the previous one stopped,
    and no stream ever sees a value go back.
    """

    def __init__(self, device: Device, slots: int = _FLAG_SLOTS) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._slots = slots
        self._free: list[Flag] = []

    def take(self) -> Flag:
        with self._lock:
            if not self._free:
                memory = self._device.pinned(4 * self._slots).view(torch.int32)
                memory.zero_()
                self._free = [Flag(memory[i : i + 1]) for i in range(self._slots)]
            return self._free.pop()

    def put(self, flag: Flag) -> None:
        """Takes a counter back that no stream will wait for beyond its present value."""
        with self._lock:
            self._free.append(flag)


class Flag:
    """One counter. Its first use starts at base."""

    def __init__(self, memory: torch.Tensor) -> None:
        self.memory = memory
        self.base = 0
        self._cell = ctypes.c_uint32.from_address(memory.data_ptr())

    def advance(self, value: int) -> None:
        """Lets streams pass that wait for base plus value."""
        self._cell.value = (self.base + value) % 2**32
