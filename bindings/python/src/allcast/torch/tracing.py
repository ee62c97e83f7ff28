"""What torch's tools see of operations: its profiler and its flight recorder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _distributed_c10d as c10d
from torch._C._profiler import _RecordFunctionFast
from torch.autograd import profiler

if TYPE_CHECKING:
    from .groups import Group
    from .works import Call

_UNSEEN = contextlib.nullcontext()


def launching(group: Group, calls: Sequence[Call]) -> AbstractContextManager[Any]:
    """Shows the start of an operation in the profiler, with the sizes of its tensors."""
    if not profiler._is_profiler_enabled:
        return _UNSEEN
    tensors = [tensor for call in calls for tensor in (*call.send, *call.recv)]
    return _record(group, calls[0].operation, tensors)


def waiting(
    group: Group, operation: str, results: Sequence[torch.Tensor]
) -> AbstractContextManager[Any]:
    """Shows the time that a thread waits for an operation."""
    if not profiler._is_profiler_enabled:
        return _UNSEEN
    return _record(group, f"{operation} wait", results)


def _record(
    group: Group, name: str, tensors: Sequence[torch.Tensor]
) -> AbstractContextManager[Any]:
    # The names of values are those that c10d gives to its own collectives.
    values = {
        "Collective name": name,
        "Process Group Name": group.name,
        "Group size": group.size,
        "Rank": group.rank,
    }
    shown: AbstractContextManager[Any] = _RecordFunctionFast(f"allcast:{name}", [*tensors], values)
    return shown


def flight_recorder() -> bool:
    """Reports whether torch's flight recorder should see the operations.

    Its hooks run in torch's dispatcher, which calls from Python to a ProcessGroup of Python bypass.
    """
    if not hasattr(c10d, "FlightRecorderHook"):
        return False  # torch before 2.15
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):
        size = os.environ.get(name)
        if size:
            return int(size) > 0
    return False
