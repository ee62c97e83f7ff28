"""What operations use in turn: pinned memory, counters that streams wait for, and streams."""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from typing import Any

import torch

from .devices import Device

_SMALLEST_CLASS = 64 << 10
_FLAG_SLOTS = 256
_LOOK_SECONDS = 0.01


class Pool:
    """Pinned host memory for reuse, per size class.

    Memory comes back with an event. It may be handed out before the event occurs, since its next
    user lets its copies wait for the event.
    """

    def __init__(self, device: Device, limit: int) -> None:
        self._device = device
        self._limit = limit
        self._lock = threading.Condition()
        self._idle: dict[int, list[tuple[torch.Tensor, Any]]] = {}
        self._owned = 0  # bytes, handed out or idle
        self._whole = 0  # bytes handed out by take_whole

    def take_whole(self, nbytes: int, seconds: float) -> tuple[torch.Tensor, Any]:
        """Returns memory for an operation in one piece, which may be large.

        If the pool would exceed its limit, it blocks until enough memory has come back, and raises
        an error after a time. A single operation may always exceed the limit.
        """
        size = self._class(nbytes)
        end = time.monotonic() + seconds
        with self._lock:
            while self._owned + size > self._limit and not self._idle.get(size):
                self._trim(size)
                # Messages must not wait for anything, and nothing waits for them.
                if self._owned + size <= self._limit or not (
                    self._whole or any(self._idle.values())
                ):
                    break
                # The end of copies notifies nobody.
                if time.monotonic() >= end:
                    raise TimeoutError(
                        f"{size} bytes of pinned memory beyond the limit of {self._limit} did not "
                        f"become free in {seconds:g} s: set ALLCAST_TORCH_PINNED, or wait for "
                        "earlier operations first"
                    )
                self._lock.wait(_LOOK_SECONDS)
            self._whole += size
        try:
            return self.take(nbytes)
        except BaseException:
            self._end_whole(size)
            raise

    def put_whole(self, memory: torch.Tensor, event: Any) -> None:
        """Takes memory of take_whole back."""
        self.put(memory, event)
        self._end_whole(memory.numel())

    def _end_whole(self, size: int) -> None:
        with self._lock:
            self._whole -= size
            self._lock.notify_all()

    def _class(self, nbytes: int) -> int:
        size = _size_class(nbytes)
        # Nothing that is larger than the pool stays in it for reuse.
        return size if size <= self._limit else max(nbytes, 1)

    def take(self, nbytes: int, idle_only: bool = False) -> tuple[torch.Tensor, Any]:
        """Returns memory, and the event that its first use must wait for or None.

        With idle_only there is no such event.
        """
        size = self._class(nbytes)
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

    def forget(self, memory: torch.Tensor) -> None:
        """Does not expect memory back. Operations that still use it keep it alive."""
        with self._lock:
            self._owned -= memory.numel()

    def _trim(self, wanted: int = 0) -> None:
        for size in sorted(self._idle, reverse=True):
            idle = self._idle[size]
            for entry in list(idle):
                if self._owned + wanted <= self._limit:
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


class Streams:
    """Streams for copies. Each has one user at a time."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._free: deque[Any] = deque()

    def take(self) -> Any:
        """Returns a stream whose last user has left nothing to do in it."""
        for _ in range(len(self._free)):
            try:
                stream = self._free.popleft()
            except IndexError:  # another thread was faster
                break
            if self._device.idle(stream):
                return stream
            self._free.append(stream)
        return self._device.new_stream()

    def put(self, *streams: Any) -> None:
        """Takes streams back. Finalisers may call it."""
        self._free.extend(streams)


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
