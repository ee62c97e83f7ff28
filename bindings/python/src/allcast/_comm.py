"""Communicators."""

from __future__ import annotations

import contextlib
import ctypes
import json
import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any

from . import _garbage, _memory, _native
from ._background import Background
from ._collectives import Collectives
from ._messages import Messages
from ._operations import number
from ._reductions import Reductions
from .errors import ClosedError, Error, InvalidError

# Communicators of join that are open. They leave their jobs at exit.
_open: set[Comm] = set()


class Comm(Collectives, Reductions, Messages):
    """A group of ranks that communicate.

    All ranks start the collectives on it in the same order. Its methods may be called from any
    thread.

    Counts have one entry per rank. They are in elements of the buffer that they divide, or in bytes
    if that is a `Memory` or has no element type.
    """

    def __init__(self, lib: ctypes.CDLL, handle: int, parent: Comm | None) -> None:
        """Use `join`, or `split`, `subset` or `shrink` of another communicator, instead."""
        self._lib = lib
        self._handle = handle
        self._closed = False
        self._world: Comm = self if parent is None else parent._world
        found = ctypes.c_int()
        _native.check(lib, lib.allcast_rank(handle, found))
        self.rank = found.value
        _native.check(lib, lib.allcast_size(handle, found))
        self.size = found.value
        if parent is None:
            _open.add(self)

    def __enter__(self) -> Comm:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
            return
        # The other ranks must not wait for this one. Its own exception is what matters.
        with contextlib.suppress(Error):
            self.close(0)

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<allcast.Comm rank {self.rank} of {self.size}{state}>"

    # ---- Communicator ----

    @property
    def closed(self) -> bool:
        """Whether this communicator, or the one of `join`, was closed on this rank."""
        return self._closed or self._world._closed

    def world_rank(self, rank: int) -> int:
        """Converts a rank of this communicator to a rank of the communicator of `join`."""
        found = ctypes.c_int()
        self._check(self._ready().allcast_world_rank(self._handle, number(rank, "rank"), found))
        return found.value

    def describe(self) -> dict[str, Any]:
        """Describes the communicator: rank, size, fabric, multicast, datapath and so on."""
        return self._json(self._ready().allcast_describe)

    def stats(self) -> dict[str, Any]:
        """Returns the counters of this process since it joined."""
        return self._json(self._ready().allcast_stats)

    def abort(self) -> None:
        """Ends all operations on the communicator on all its ranks."""
        self._check(self._ready().allcast_abort(self._handle))

    def close(self, timeout: float | None = None) -> None:
        """Ends the use of the communicator on this rank.

        Closing the communicator of `join` leaves the job and closes all others. It first waits
        until the other ranks leave, for `timeout` seconds or the option of `join` at most. If they
        do not, their operations that need this rank fail at once, and name it. With `timeout`,
        leaving may continue after the call, on a busy machine.
        """
        if self.closed:
            return
        lib = self._ready()
        self._closed = True
        _open.discard(self)
        if self._world is self:
            Background(partial(close, lib, self._handle, timeout), _ignore).result()
        else:
            close(lib, self._handle)

    def split(self, color: int, key: int = 0, timeout: float | None = None) -> Comm | None:
        """Makes one communicator per color, ordered by key. All ranks call it.

        Ranks with color -1 get None.
        """
        lib, limit = self._ready(), _native.milliseconds(timeout, -1)
        number(color, "color")
        number(key, "key")
        return self._derive(lambda out: lib.allcast_split(self._handle, color, key, limit, out))

    def subset(self, ranks: Iterable[int], tag: str = "", timeout: float | None = None) -> Comm:
        """Makes a communicator of the given ranks, in this order.

        Only these ranks call it, with the same tag.
        """
        lib, limit = self._ready(), _native.milliseconds(timeout, -1)
        members = [number(rank, "rank") for rank in ranks]
        array = (ctypes.c_int * len(members))(*members)
        comm = self._derive(
            lambda out: lib.allcast_subset(
                self._handle, array, len(members), tag.encode(), limit, out
            )
        )
        assert comm is not None
        return comm

    def shrink(self, timeout: float | None = None) -> Comm:
        """Makes a communicator of the living ranks. All of them call it after a failure."""
        lib, limit = self._ready(), _native.milliseconds(timeout, -1)
        comm = self._derive(lambda out: lib.allcast_shrink(self._handle, limit, out))
        assert comm is not None
        return comm

    def alloc(self, nbytes: int) -> _memory.Allocation:
        """Allocates zeroed memory that the network can use without a copy or a registration."""
        if nbytes < 0:
            raise InvalidError(f"alloc of {nbytes} bytes")
        self._ready()
        return _memory.allocate(self, nbytes)

    def _ready(self) -> ctypes.CDLL:
        if _native.forked():
            raise _native.forked_error()
        if self.closed:
            raise ClosedError("the communicator is closed")
        if _garbage.dropped:
            _garbage.collect(self._lib)
        return self._lib

    def _check(self, code: int) -> None:
        if code:
            raise _native.last_error(self._lib, code)

    def _json(self, function: Callable[..., int]) -> dict[str, Any]:
        text = ctypes.c_void_p()
        self._check(function(self._handle, text))
        try:
            found: dict[str, Any] = json.loads(ctypes.string_at(text.value or 0))
            return found
        finally:
            self._lib.allcast_text_free(text)

    def _derive(self, function: Callable[[ctypes.c_uint64], int]) -> Comm | None:
        lib = self._lib

        def run() -> int:
            out = ctypes.c_uint64()
            _native.check(lib, function(out))
            return out.value

        handle = Background(run, lambda handle: close(lib, handle)).result()
        return Comm(lib, handle, self) if handle else None


def close(lib: ctypes.CDLL, handle: int, timeout: float | None = None) -> None:
    if not handle:
        return
    if timeout is None:
        _native.check(lib, lib.allcast_close(handle))
    else:
        _native.check(lib, lib.allcast_close_within(handle, _native.milliseconds(timeout, 0)))


def _ignore(_: object) -> None:
    """Is the fate of a call without a result that was abandoned."""


# Time that an exit gives other ranks, which may exit too.
_EXIT_SECONDS = 0.5


def exit_limit() -> float:
    """Returns for how long this process, which exits, waits for other ranks."""
    failed = getattr(sys, "last_value", None) is not None  # an exception that nobody has caught
    return 0.0 if failed else _EXIT_SECONDS


def _leave_all() -> None:
    lib = _native.load()
    leaving: list[threading.Thread] = []
    while _open:
        comm = _open.pop()
        comm._closed = True
        leave = partial(_leave, lib, comm._handle)
        # Ranks of one process wait for each other.
        leaving.append(threading.Thread(target=leave, name="allcast", daemon=True))
        try:
            leaving[-1].start()
        except RuntimeError:  # Python 3.12 starts no thread while the interpreter exits
            leaving.pop()
            leave()
    for thread in leaving:
        thread.join()
    _garbage.collect(lib, len(_garbage.dropped))


def _leave(lib: ctypes.CDLL, handle: int) -> None:
    with contextlib.suppress(Error):  # nobody is left to hear of it
        close(lib, handle, exit_limit())


_native.at_exit(_leave_all)
