"""Requests: operations that were started, and the memory that they use."""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _garbage, _native
from .errors import Error, WaitTimeoutError

if TYPE_CHECKING:
    from ._queue import Queue

# Python runs handlers of signals between calls of the library only. The main thread therefore waits
# in slices, so that Ctrl-C takes effect within one of them.
_SLICE_MS = 100

# Buffers of operations that may not have ended, by token. Requests with a queue are here
# themselves, because the queue returns them.
live: dict[int, object] = {}
tokens = itertools.count(1)


class Message(NamedTuple):
    """A message that was received."""

    source: int
    """Rank of the sender."""
    tag: int
    bytes: int


class Request:
    """An operation that was started.

    Its buffers stay alive until the operation ends, even if the program drops the Request.
    """

    __slots__ = (
        "__weakref__",
        "_algorithm",
        "_buffers",
        "_code",
        "_failure",
        "_handle",
        "_lib",
        "_lock",
        "_message",
        "_queue",
        "_token",
        "user",
    )  # fmt: skip

    user: int
    """Number that the caller passed to the start of the operation."""

    _drop = _garbage.drop

    def __init__(self, lib: ctypes.CDLL, queue: Queue | None, user: int) -> None:
        self._lib = lib
        self._handle = ctypes.c_uint64()
        self._token = 0
        self._queue = queue
        self._lock = threading.Lock()
        self._code = -1  # while the end is not known
        self._failure: Error | None = None
        self._message: _native.Message | None = None
        self._algorithm: str | None = None
        self._buffers: object = None  # of a request that `live` holds
        self.user = user

    def __del__(self) -> None:
        if self._code < 0 and self._handle.value:
            self._drop((self._release, self._token, self._handle.value))

    @staticmethod
    def _release(lib: ctypes.CDLL, token: int, handle: int) -> bool:
        """Releases a request that was dropped, if its operation has ended."""
        if lib.allcast_wait(handle, 0, None) == _native.ERR_TIMEOUT:
            return False
        live.pop(token, None)
        return True

    @property
    def handle(self) -> int:
        """Handle of the request in the C library."""
        return self._handle.value

    @property
    def algorithm(self) -> str:
        """Algorithm of the operation, such as "mcast" or "ring"."""
        if self._algorithm is None:
            self._algorithm = _native.text(self._lib.allcast_algorithm(self._handle))
        return self._algorithm

    def wait(self, timeout: float | None = None) -> Message | None:
        """Waits for the operation and raises its error. A receive returns its message.

        If `timeout` seconds pass first, it raises WaitTimeoutError, and the operation continues. An
        exception of a signal handler, such as KeyboardInterrupt, ends only the waiting.
        """
        if self._code < 0:
            _ = self.algorithm  # while the library knows it
            self._wait(timeout)
        return self._result()

    def done(self) -> bool:
        """Reports whether the operation has ended."""
        if self._code >= 0:
            return True
        if _native.forked():
            raise _native.forked_error()
        # A thread that holds the lock waits for the operation, so it has not ended as far as anyone
        # knows.
        if not self._lock.acquire(blocking=False):
            return False
        try:
            _ = self.algorithm  # while the library knows it
            return self._code >= 0 or self._poll(0)
        finally:
            self._lock.release()

    def cancel(self) -> None:
        """Gives the operation up. A send or receive without a match is withdrawn.

        Any other operation aborts its communicator. The operation then ends soon; wait for it.
        """
        if _native.forked():
            raise _native.forked_error()
        if self._code < 0:
            code = self._lib.allcast_cancel(self._handle)
            # Another thread may have released the handle, because the operation has ended.
            if code != _native.ERR_INVALID:
                _native.check(self._lib, code)

    def finish(self) -> Message | None:
        """Is `wait` for a blocking call. An exception of a signal handler gives the call up."""
        try:
            self._wait(None)
        except BaseException:
            self.give_up()
            raise
        return self._result()

    def give_up(self) -> None:
        """Cancels the operation, unless it has ended, and waits until its buffers are free."""
        if self._code < 0 and not _native.forked():
            self.cancel()
            self._wait(None)

    def end(self) -> None:
        """Lets go of the buffers, after the queue has returned the request."""
        live.pop(self._token, None)
        self._buffers = None
        self._queue = None

    def _result(self) -> Message | None:
        failure = self._failure
        if failure is not None:
            # Every call raises an exception of its own, because raising adds a traceback to it.
            err = type(failure)(
                str(failure), rank=failure.rank, world_rank=failure.world_rank, phase=failure.phase
            )
            err.code = failure.code
            raise err
        message = self._message
        return None if message is None else Message(message.source, message.tag, message.bytes)

    def _wait(self, timeout: float | None) -> None:
        if _native.forked():
            raise _native.forked_error()
        end = None if timeout is None else time.monotonic() + timeout
        if not acquire(self._lock, end):
            raise _timeout(timeout)
        try:
            if self._code < 0 and not wait_sliced(self._poll, end):
                raise _timeout(timeout)
        finally:
            self._lock.release()

    def _poll(self, wait_ms: int) -> bool:
        """Waits for at most wait_ms, and reports whether the operation has ended.

        The caller holds the lock.
        """
        lib = self._lib
        try:
            code = lib.allcast_wait(self._handle, wait_ms, self._message)
            if code == _native.ERR_TIMEOUT:
                return False
            self._settle(code, _native.last_error(lib, code) if code else None)
        except BaseException:
            if self._code < 0:
                self._settle_interrupted()
            raise
        return True

    def _settle_interrupted(self) -> None:
        """Finds out whether the operation has ended, after a signal handler raised an exception.

        If it has, and the library had returned already, the handle is gone, and the last error of
        the thread is the result.
        """
        lib = self._lib
        code = lib.allcast_error_code()
        failure = _native.last_error(lib, code) if code else None
        now = lib.allcast_wait(self._handle, 0, self._message)
        if now == _native.ERR_INVALID:
            self._settle(code, failure)
        elif now != _native.ERR_TIMEOUT:
            self._settle(now, _native.last_error(lib, now) if now else None)

    def _settle(self, code: int, failure: Error | None) -> None:
        self._failure = failure
        self._code = code
        if self._queue is None:
            live.pop(self._token, None)


def _timeout(timeout: float | None) -> WaitTimeoutError:
    return WaitTimeoutError(f"the operation has not ended after {timeout} s; it continues")


def acquire(lock: threading.Lock, end: float | None) -> bool:
    """Acquires a lock until the time end, and reports whether it could."""
    if lock.acquire(blocking=False):
        return True
    # A signal right before the wait, or on another thread, does not end it.
    return wait_sliced(lambda ms: lock.acquire(timeout=-1 if ms < 0 else ms / 1000), end)


def wait_sliced(poll: Callable[[int], bool], end: float | None) -> bool:
    """Polls until the time end, in slices on the main thread.

    It reports whether poll has succeeded.
    """
    sliced = threading.get_ident() == threading.main_thread().ident
    while True:
        left = -1 if end is None else _native.milliseconds(end - time.monotonic(), -1)
        wait = left
        if sliced and (left < 0 or left > _SLICE_MS):
            wait = _SLICE_MS
        if poll(wait):
            return True
        if wait == left:
            return False


def start(
    lib: ctypes.CDLL,
    function: Callable[..., int],
    arguments: tuple[Any, ...],
    buffers: object,
    call: _native.Call | None,
    queue: Queue | None,
    user: int,
    receives: bool,
) -> Request:
    """Starts an operation. buffers stay alive until it ends."""
    if _native.forked():
        raise _native.forked_error()
    if _garbage.dropped:
        _garbage.collect(lib)
    request = Request(lib, queue, user)
    if receives:
        request._message = _native.Message()
    token = next(tokens)
    request._token = token
    if queue is None:
        live[token] = buffers
    else:
        assert call is not None
        call.queue = queue._handle
        call.user = token
        request._buffers = buffers
        live[token] = request
    code = function(*arguments, call, request._handle)
    if code:
        live.pop(token, None)
        request._code = code
        raise _native.last_error(lib, code)
    return request
