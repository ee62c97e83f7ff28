"""Loads weights that one rank reads from disk into the models of all ranks.

The ranks use two communicators of their own. On the first they exchange the list of tensors and
agree on whether each rank can load them, before any data moves. The data moves over the second. A
rank that fails meanwhile aborts the second communicator, and every rank learns why over the first.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Optional, Union

import torch.distributed as dist
from torch import nn
from torch.nn.modules.module import _IncompatibleKeys

import allcast

from . import groups
from .matching import Matching, match
from .safetensors import Checkpoint, Entry, Paths
from .streaming import Counter, Stream
from .windows import plan

_WINDOW = 16 << 20
_MIN_WINDOW = 4096

# A piece of at least this part of a window is a Broadcast of its own.
_SMALL = 1 / 16

# Size of the record in which a rank reports how it fared: a byte for the state, then a text.
_RECORD = 1024
_OK, _FAILED, _STOPPED = range(3)


class WeightsError(RuntimeError):
    """Weights could not be loaded. All ranks raise the same error."""

    def __init__(self, rank: int, message: str) -> None:
        super().__init__(f"rank {rank} cannot load the weights: {message}")
        self.rank = rank


def load_state_dict(
    path: Optional[Paths],
    model: nn.Module,
    *,
    group: Union[dist.ProcessGroup, allcast.Comm, None] = None,
    reader: int = 0,
    strict: bool = True,
    window: int = _WINDOW,
    timeout: Optional[float] = None,
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
        window: Bytes per Broadcast. Each rank needs memory for three windows. The reader's counts.
        timeout: Limit of each step in seconds (default: that of the process group).

    Returns:
        The missing and the unexpected names, as torch.nn.Module.load_state_dict does.
    """
    with contextlib.ExitStack() as stack:
        count: Optional[Counter] = None
        if isinstance(group, allcast.Comm):
            comm = group
        else:
            members = stack.enter_context(_join(group))
            comm, count = members.comm, members.count
            timeout = members.timeout if timeout is None else timeout
        ranks = range(comm.size)
        control = stack.enter_context(comm.subset(ranks, tag="weights", timeout=timeout))
        data = stack.enter_context(comm.subset(ranks, tag="weights data", timeout=timeout))
        stream = Stream(data, reader, timeout, count)
        return _Loader(control, stream, reader, timeout).load(path, model, strict, window)


@contextlib.contextmanager
def _join(process_group: Optional[dist.ProcessGroup]) -> Iterator[groups.Group]:
    """Provides the communicator of a process group. Members of other backends join a job for it."""
    process_group = process_group or dist.group.WORLD
    if process_group is None:
        raise ValueError("pass a group, or call torch.distributed.init_process_group before")
    for device in process_group._device_types:
        backend = process_group._get_backend(device)
        existing = getattr(backend, "_group", None)
        if isinstance(existing, groups.Group):
            yield existing
            return
    joined = groups.create(
        dist.PrefixStore("allcast/weights", process_group.get_group_store()),
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
        self, control: allcast.Comm, stream: Stream, reader: int, timeout: Optional[float]
    ) -> None:
        self._control = control
        self._stream = stream
        self._reader = reader
        self._timeout = timeout

    def load(
        self, path: Optional[Paths], model: nn.Module, strict: bool, window: int
    ) -> _IncompatibleKeys:
        checkpoint: Optional[Checkpoint] = None
        if self._control.rank == self._reader:
            checkpoint = self._announce(path, window)
            entries = checkpoint.entries
        else:
            entries, window = self._hear()

        matching: Optional[Matching] = None
        error: Optional[Exception] = None
        try:
            matching = match(entries, model, strict)
        except Exception as e:
            error = e
        self._agree(error, "")
        assert matching is not None  # otherwise _agree has raised

        windows = plan(entries, self._wanted(matching, entries), window, int(window * _SMALL))
        try:
            self._stream.run(windows, window, entries, matching.targets, checkpoint)
        except Exception as e:
            error = e
        self._agree(error, "; the models now hold a mixture of old and new values")
        return _IncompatibleKeys(matching.missing, matching.unexpected)

    def _announce(self, path: Optional[Paths], window: int) -> Checkpoint:
        """Reads the headers of the checkpoint and sends them to all ranks."""
        try:
            if not isinstance(window, int) or window < _MIN_WINDOW:
                raise ValueError(f"window is {window!r}; it must be at least {_MIN_WINDOW} bytes")
            if path is None:
                raise ValueError("path is None on the rank that reads")
            checkpoint = Checkpoint(path)
            tensors = [(e.name, e.dtype, e.shape, e.nbytes) for e in checkpoint.entries]
            self._send({"window": window, "tensors": tensors})
        except (OSError, TypeError, ValueError) as e:
            self._send({"error": _describe(e)})
            raise WeightsError(self._reader, _describe(e)) from e
        return checkpoint

    def _send(self, message: object) -> None:
        text = json.dumps(message).encode("ascii")
        self._control.broadcast(
            bytearray(len(text).to_bytes(8, "little")), self._reader, timeout=self._timeout
        )
        self._control.broadcast(bytearray(text), self._reader, timeout=self._timeout)

    def _hear(self) -> tuple[list[Entry], int]:
        """Receives the list of tensors and the size of windows from the reader."""
        length = bytearray(8)
        self._control.broadcast(length, self._reader, timeout=self._timeout)
        text = bytearray(int.from_bytes(length, "little"))
        self._control.broadcast(text, self._reader, timeout=self._timeout)
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
            self._control.allreduce(
                None, wanted, "max", dtype=allcast.DataType.UINT8, timeout=self._timeout
            )
        return wanted

    def _agree(self, error: Optional[Exception], consequence: str) -> None:
        """Exchanges the errors of all ranks, and raises the same error on all of them."""
        state = _OK
        if error is not None:
            # An error of the network is rarely the cause: another rank has stopped.
            state = _STOPPED if isinstance(error, allcast.Error) else _FAILED
        text = _describe(error).encode("utf-8", "backslashreplace") if error else b""
        record = bytes([state]) + text[: _RECORD - 1].ljust(_RECORD - 1, b"\0")
        records = bytearray(_RECORD * self._control.size)
        try:
            self._control.allgather(record, records, timeout=self._timeout)
        except allcast.Error as e:
            raise e from error
        for wanted in (_FAILED, _STOPPED):
            for rank in range(self._control.size):
                reported = records[rank * _RECORD : (rank + 1) * _RECORD]
                if reported[0] != wanted:
                    continue
                if wanted == _STOPPED and error is not None:
                    raise error
                text = reported[1:].rstrip(b"\0").decode("utf-8", "ignore")
                raise WeightsError(rank, text + consequence) from error


def _describe(error: Exception) -> str:
    """Returns the text of an error, with its type unless that is obvious from the text."""
    if isinstance(error, (OSError, ValueError)):
        return str(error)
    return f"{type(error).__name__}: {error}"
