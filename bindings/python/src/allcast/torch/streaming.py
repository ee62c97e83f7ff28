"""Moves the data of a checkpoint: from files to the network, and from there into tensors."""

from __future__ import annotations

import collections
import contextlib
import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch

import allcast

from .safetensors import Checkpoint, Entry, FormatError
from .targets import DTYPES, Target
from .windows import Window

Counter = Callable[[str, str, int], None]
"""Counts an operation that has ended: its name, its algorithm and its bytes."""

# Number of Broadcasts under way at once. While one moves its data, the reader fills the next one
# or the others copy the previous one. More of them only compete for the processors.
_DEPTH = 2


class _Buffer(NamedTuple):
    """Memory for a window that has more than one destination, or none that is contiguous."""

    data: torch.Tensor
    copies: list[torch.cuda.Event]  # ends of the copies to devices that still read it


class _Transfer(NamedTuple):
    """A Broadcast under way."""

    request: allcast.Request
    window: Window
    buffer: _Buffer | None


class Stream:
    """The transfer of all windows of a checkpoint."""

    def __init__(
        self,
        comm: allcast.Comm,
        reader: int,
        timeout: float | None,
        count: Counter | None,
    ) -> None:
        self._comm = comm
        self._reader = reader
        self._timeout = timeout
        self._count = count
        self._transfers: collections.deque[_Transfer] = collections.deque()
        self._buffers: list[_Buffer] = []
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def run(
        self,
        windows: Sequence[Window],
        size: int,
        entries: Sequence[Entry],
        targets: Mapping[int, Target],
        checkpoint: Checkpoint | None,
    ) -> None:
        """Transfers windows of at most size bytes. The reader passes the checkpoint.

        If it fails, it aborts the communicator, so that it fails on all ranks. It returns once
        nothing writes to the tensors any more.
        """
        self._size = size
        self._entries = entries
        self._targets = targets
        self._checkpoint = checkpoint
        devices = {t.device for t in targets.values() if t.device.type == "cuda"}
        # The copies must not overtake kernels that initialise the parameters.
        for device in devices:
            self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._streams[device].wait_stream(torch.cuda.current_stream(device))
        try:
            for window in windows:
                self._start(window)
            while self._transfers:
                self._finish()
            if checkpoint is not None:
                checkpoint.close()
        except BaseException:
            self._comm.abort()
            for transfer in self._transfers:
                with contextlib.suppress(allcast.Error):
                    transfer.request.wait()
            if checkpoint is not None:
                with contextlib.suppress(OSError, FormatError):
                    checkpoint.close()
            raise
        finally:
            for device, stream in self._streams.items():
                torch.cuda.current_stream(device).wait_stream(stream)
            for buffer in self._buffers:
                _settle(buffer)

    def _start(self, window: Window) -> None:
        while len(self._transfers) >= _DEPTH:
            self._finish()
        buffer = None
        memory = self._destination(window)
        if memory is None:
            buffer = self._take()
            memory = buffer.data[: window.nbytes]
        view = _view(memory)
        if self._checkpoint is not None:
            for piece in window.pieces:
                entry = self._entries[piece.entry]
                part = view[piece.at : piece.at + piece.nbytes]
                self._checkpoint.read(entry.file, entry.offset + piece.offset, part)
        request = self._comm.start_broadcast(
            allcast.Memory(memory.data_ptr(), window.nbytes, owner=memory),
            self._reader,
            timeout=self._timeout,
        )
        self._transfers.append(_Transfer(request, window, buffer))

    def _destination(self, window: Window) -> torch.Tensor | None:
        """Returns the memory of a tensor that is the only destination of a window, or None."""
        if len(window.pieces) > 1:
            return None
        piece = window.pieces[0]
        target = self._targets.get(piece.entry)
        if target is None:
            return None
        return target.direct(piece, DTYPES[self._entries[piece.entry].dtype])

    def _finish(self) -> None:
        """Waits for the oldest Broadcast, and copies its data to their destinations."""
        transfer = self._transfers[0]
        transfer.request.wait()
        self._transfers.popleft()
        if self._count is not None:
            algorithm = transfer.request.algorithm
            self._count("load_state_dict", algorithm, transfer.window.nbytes)
        buffer = transfer.buffer
        for piece in transfer.window.pieces:
            target = self._targets.get(piece.entry)
            if target is None:
                continue
            if buffer is None:
                torch.autograd.graph.increment_version(target.local)
                continue
            data = buffer.data[piece.at : piece.at + piece.nbytes]
            dtype = DTYPES[self._entries[piece.entry].dtype]
            stream = self._streams.get(target.device)
            with torch.cuda.stream(stream):
                target.copy(piece, data, dtype, wait=stream is None)
        if buffer is not None:
            buffer.copies.extend(stream.record_event() for stream in self._streams.values())
            self._buffers.append(buffer)

    def _take(self) -> _Buffer:
        """Returns a buffer that nothing uses."""
        if self._buffers:
            buffer = self._buffers.pop(0)
            _settle(buffer)
            return buffer
        # Copies from pinned memory do not block this thread.
        pinned = bool(self._streams)
        return _Buffer(torch.empty(self._size, dtype=torch.uint8, pin_memory=pinned), [])


def _settle(buffer: _Buffer) -> None:
    """Waits until no device reads a buffer."""
    for copy in buffer.copies:
        copy.synchronize()
    buffer.copies.clear()


def _view(memory: torch.Tensor) -> memoryview:
    """Returns the bytes of a contiguous tensor on the CPU. The tensor must outlive them."""
    n = memory.numel() * memory.element_size()
    return memoryview((ctypes.c_char * n).from_address(memory.data_ptr())).cast("B")
