"""Loads weights that one rank reads from disk into the models of all ranks.

The ranks use a communicator of their own. They exchange the list of tensors and agree on whether
each rank can load them, before any data moves. A rank that fails while data moves aborts the
communicator. All ranks then shrink it, and tell each other on the new communicator what happened.
"""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Iterator
from datetime import timedelta
from typing import NoReturn

import torch.distributed as dist
from torch import nn
from torch._C import _distributed_c10d as c10d
from torch.nn.modules.module import _IncompatibleKeys

import allcast

from . import backend, groups
from .matching import Matching, match
from .safetensors import Checkpoint, Entry, Paths
from .streaming import Counter, Stream
from .windows import plan

_WINDOW = 64 << 20
_MIN_WINDOW = 4096

# A piece of at least this part of a window is a Broadcast of its own.
_SMALL = 1 / 64

# The record in which a rank reports how it fared: its number, a state and a text.
_RECORD = 1024
_START = "<IB"
_OK, _FAILED, _STOPPED = range(3)


class WeightsError(RuntimeError):
    """Weights could not be loaded. All ranks raise the same error."""

    def __init__(self, rank: int, message: str) -> None:
        super().__init__(f"rank {rank} cannot load the weights: {message}")
        self.rank = rank


def load_state_dict(
    path: Paths | None,
    model: nn.Module,
    *,
    group: dist.ProcessGroup | allcast.Comm | None = None,
    reader: int = 0,
    strict: bool = True,
    window: int = _WINDOW,
    timeout: float | None = None,
) -> _IncompatibleKeys:
    """Loads a safetensors checkpoint from the disk of one rank into the models of all ranks.

    All ranks of the group call it. The reader reads each byte once, and all ranks receive it by
    multicast, in windows. Each rank keeps the data of its own parameters and buffers. They may be
    complete or sharded (DTensor), on the CPU or another device, and different on each rank.
    Floats are converted to the type of the parameter; other types must be equal.

    Before any data moves, every rank compares the checkpoint with its model. If a rank finds a
    problem, the call raises the same WeightsError on all ranks and changes nothing. If a rank fails
    later, for example because its disk does, the models hold a mixture of old and new values.

    Args:
        path: A file, a list of files, or a directory that contains model.safetensors.index.json or
            model.safetensors. Only the reader uses it.
        model: The module to load into. Its state_dict has the names of the checkpoint.
        group: A process group of any backend (default: the default group) or a communicator.
        reader: The rank of the group that reads.
        strict: Whether missing and unexpected names are errors on this rank.
        window: Bytes per Broadcast. Each rank needs memory for two windows. The reader's counts.
        timeout: Limit of each step in seconds (default: that of the process group).

    Returns:
        The missing and the unexpected names, as torch.nn.Module.load_state_dict does.
    """
    with contextlib.ExitStack() as stack:
        count: Counter | None = None
        if isinstance(group, allcast.Comm):
            comm = group
        else:
            members = stack.enter_context(_join(group))
            comm, count = members.comm, members.count
            timeout = members.timeout if timeout is None else timeout
        own = comm.subset(range(comm.size), tag="weights", timeout=timeout)
        loader = _Loader(stack.enter_context(own), reader, timeout, count)
        return loader.load(path, model, strict, window)


@contextlib.contextmanager
def _join(process_group: dist.ProcessGroup | None) -> Iterator[groups.Group]:
    """Provides the communicator of a process group. Members of other backends join a job for it."""
    process_group = process_group or dist.group.WORLD
    if process_group is None:
        raise ValueError("pass a group, or call torch.distributed.init_process_group before")
    for device in process_group._device_types:
        existing = backend.group_of(process_group, device)
        if existing is not None:
            yield existing
            return
    joined = groups.create(
        c10d.PrefixStore("allcast/weights", process_group.get_group_store()),
        process_group.rank(),
        process_group.size(),
        _timeout_of(process_group),
        f"weights of {process_group.group_name}",
        dist.get_process_group_ranks(process_group),
    )
    try:
        yield joined
    finally:
        joined.close()


def _timeout_of(process_group: dist.ProcessGroup) -> timedelta:
    device = process_group._device_types[0]
    limit: timedelta = process_group._get_backend(device).options._timeout
    return limit


class _Loader:
    """One call of load_state_dict."""

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

    def load(
        self, path: Paths | None, model: nn.Module, strict: bool, window: int
    ) -> _IncompatibleKeys:
        try:
            matching = self._transfer(path, model, strict, window)
        except WeightsError:
            raise  # all ranks have agreed on it
        except Exception as error:
            self._explain(error)
        return _IncompatibleKeys(matching.missing, matching.unexpected)

    def _transfer(
        self, path: Paths | None, model: nn.Module, strict: bool, window: int
    ) -> Matching:
        checkpoint: Checkpoint | None = None
        if self._comm.rank == self._reader:
            checkpoint = self._announce(path, window)
            entries = checkpoint.entries
        else:
            entries, window = self._hear()
        matching = self._match(entries, model, strict)
        windows = plan(entries, self._wanted(matching, entries), window, int(window * _SMALL))
        stream = Stream(self._comm, self._reader, self._timeout, self._count)
        stream.run(windows, window, entries, matching.targets, checkpoint)
        self._comm.barrier(timeout=self._timeout)
        return matching

    def _match(self, entries: list[Entry], model: nn.Module, strict: bool) -> Matching:
        """Compares the checkpoint with the model, and agrees with all ranks that it fits."""
        matching: Matching | None = None
        failure: Exception | None = None
        try:
            matching = match(entries, model, strict)
        except Exception as error:
            failure = error
        for rank, state, text in self._exchange(self._comm, failure):
            if state != _OK:
                raise WeightsError(rank, text) from failure
        assert matching is not None  # otherwise this rank has reported a failure
        return matching

    def _explain(self, error: Exception) -> NoReturn:
        """Finds out which rank made the transfer fail, and raises the same error on all ranks.

        It stops ranks that have not failed. Some of them may not have begun to receive data yet.
        """
        self._comm.abort()
        with contextlib.ExitStack() as stack:
            try:
                survivors = stack.enter_context(self._comm.shrink(self._timeout))
                reports = self._exchange(survivors, error)
            except allcast.Error:
                # The network itself has failed. This rank can report its own error only.
                reports = [(self._comm.rank, _state_of(error), _describe(error))]
        for rank, state, text in reports:
            if state == _FAILED:
                mixture = "; the models now hold a mixture of old and new values"
                raise WeightsError(rank, text + mixture) from error
        raise error

    def _exchange(self, comm: allcast.Comm, error: Exception | None) -> list[tuple[int, int, str]]:
        """Tells all ranks how this one fared. Returns rank, state and text of each."""
        text = _describe(error).encode("utf-8", "backslashreplace") if error else b""
        start = struct.pack(_START, self._comm.rank, _state_of(error))
        record = (start + text)[:_RECORD].ljust(_RECORD, b"\0")
        records = bytearray(_RECORD * comm.size)
        comm.allgather(record, records, timeout=self._timeout)
        reports = []
        for at in range(0, len(records), _RECORD):
            rank, state = struct.unpack_from(_START, records, at)
            told = records[at + len(start) : at + _RECORD].rstrip(b"\0")
            reports.append((rank, state, told.decode("utf-8", "ignore")))
        return reports

    def _announce(self, path: Paths | None, window: int) -> Checkpoint:
        """Reads the headers of the checkpoint and sends them to all ranks."""
        try:
            if not isinstance(window, int) or window < _MIN_WINDOW:
                raise ValueError(f"window is {window!r}; it must be at least {_MIN_WINDOW} bytes")
            if path is None:
                raise ValueError("path is None on the rank that reads")
            checkpoint = Checkpoint(path)
        except Exception as error:
            self._send({"error": _describe(error)})
            raise WeightsError(self._reader, _describe(error)) from error
        tensors = [(e.name, e.dtype, e.shape, e.nbytes) for e in checkpoint.entries]
        self._send({"window": window, "tensors": tensors})
        return checkpoint

    def _send(self, message: object) -> None:
        text = json.dumps(message).encode("ascii")
        self._comm.broadcast(
            bytearray(len(text).to_bytes(8, "little")), self._reader, timeout=self._timeout
        )
        self._comm.broadcast(bytearray(text), self._reader, timeout=self._timeout)

    def _hear(self) -> tuple[list[Entry], int]:
        """Receives the list of tensors and the size of windows from the reader."""
        length = bytearray(8)
        self._comm.broadcast(length, self._reader, timeout=self._timeout)
        text = bytearray(int.from_bytes(length, "little"))
        self._comm.broadcast(text, self._reader, timeout=self._timeout)
        message = json.loads(text)
        if "error" in message:
            raise WeightsError(self._reader, message["error"])
        entries = [
            Entry(name, dtype, tuple(shape), nbytes, 0, 0)
            for name, dtype, shape, nbytes in message["tensors"]
        ]
        return entries, message["window"]

    def _wanted(self, matching: Matching, entries: list[Entry]) -> bytearray:
        """Returns which tensors at least one rank needs: one byte per tensor."""
        wanted = bytearray(int(i in matching.targets) for i in range(len(entries)))
        if wanted:
            self._comm.allreduce(
                None, wanted, "max", dtype=allcast.DataType.UINT8, timeout=self._timeout
            )
        return wanted


def _state_of(error: Exception | None) -> int:
    if error is None:
        return _OK
    # Errors of the network are consequences: another rank has stopped.
    return _STOPPED if isinstance(error, allcast.Error) else _FAILED


def _describe(error: Exception) -> str:
    """Returns the text of an error, with its type unless that is obvious from the text."""
    if isinstance(error, (OSError, ValueError)):
        return str(error)
    return f"{type(error).__name__}: {error}"
