"""Collective communication over network multicast.

One process per rank joins the job and calls the same collectives in the same order:

    import allcast

    with allcast.join() as comm:
        comm.allgather(mine, everything)
"""

from __future__ import annotations

from . import _native
from ._buffers import Buffer, Memory
from ._comm import Comm
from ._join import join
from ._memory import Allocation
from ._native import ANY_SOURCE
from ._queue import Completion, Queue
from ._requests import Message, Request
from ._store import Store
from ._types import DataType, Op
from .errors import (
    AbortedError,
    ClosedError,
    CorruptError,
    DeadlineError,
    Error,
    ForkedError,
    InUseError,
    InvalidError,
    JoinError,
    MismatchError,
    MissingError,
    NoAggregationError,
    NoMulticastError,
    OptionsError,
    ProtocolError,
    RankLostError,
    StoreError,
    TruncatedError,
    WaitTimeoutError,
    WithdrawnError,
)

__all__ = [
    "ANY_SOURCE",
    "AbortedError",
    "Allocation",
    "Buffer",
    "ClosedError",
    "Comm",
    "Completion",
    "CorruptError",
    "DataType",
    "DeadlineError",
    "Error",
    "ForkedError",
    "InUseError",
    "InvalidError",
    "JoinError",
    "Memory",
    "Message",
    "MismatchError",
    "MissingError",
    "NoAggregationError",
    "NoMulticastError",
    "Op",
    "OptionsError",
    "ProtocolError",
    "Queue",
    "RankLostError",
    "Request",
    "Store",
    "StoreError",
    "TruncatedError",
    "WaitTimeoutError",
    "WithdrawnError",
    "join",
    "set_parallelism",
]

version: str
"""Version of the library. Ranks of one job must speak the same protocol (``allcast version``)."""
__version__: str


def __getattr__(name: str) -> str:
    # The library knows its version. Loading it here would prevent children from using it after
    # fork.
    if name in ("version", "__version__"):
        return _native.text(_native.load().allcast_version())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def set_parallelism(threads: int) -> None:
    """Limits the number of threads of the library that run at once."""
    lib = _native.load()
    _native.check(lib, lib.allcast_set_parallelism(threads))
