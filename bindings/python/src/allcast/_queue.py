"""Completion queues."""

from __future__ import annotations

import ctypes
import threading
import time
from types import TracebackType
from typing import NamedTuple

from . import _garbage, _native, _requests
from .errors import ClosedError, InvalidError


class Completion(NamedTuple):
    """The end of an operation. `request.wait()` returns or raises at once."""

    request: _requests.Request
    user: int
    error: int
    """Error code of the operation, 0 for success."""


class Queue:
    """Collects operations that have ended.

    An operation that was started with `queue=` adds one completion when it ends. The queue fits
    into an event loop: `fileno()` is readable while there are completions.
    """

    _BATCH = 64
    _drop = _garbage.drop

    def __init__(self) -> None:
        self._lib = _native.load()
        self._handle = ctypes.c_uint64()
        _native.check(self._lib, self._lib.allcast_queue_new(self._handle))
        self._closed = False
        # One thread at a time takes completions. They stay here if an exception of a signal handler
        # interrupts it after the library has handed them over.
        self._lock = threading.Lock()
        self._taken = (_native.Completion * self._BATCH)()
        self._count = ctypes.c_size_t()
        self._ready: list[Completion] = []
        self._size = self._BATCH

    def __enter__(self) -> Queue:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def fileno(self) -> int:
        """Returns a descriptor that is readable while there are completions.

        Do not read from it.
        """
        self._check_open()
        fd = ctypes.c_int()
        _native.check(self._lib, self._lib.allcast_queue_fd(self._handle, fd))
        return fd.value

    def next(self, timeout: float | None = None, max: int = 64) -> list[Completion]:
        """Takes up to max completions. If there are none, it waits for one, for `timeout` seconds
        at most.

        It returns an empty list if none came in time. `next(0)` does not wait.
        """
        if max < 1:
            raise InvalidError(f"max is {max}: want 1 or more")
        self._check_open()
        end = None if timeout is None else time.monotonic() + timeout
        if not _requests.acquire(self._lock, end):
            return []
        try:
            if not self._ready and not self._count.value:
                self._size = max if max < self._BATCH else self._BATCH
                if not _requests.wait_sliced(self._take, end):
                    return []
            return self._deliver(max)
        finally:
            self._lock.release()

    def close(self) -> None:
        """Frees the queue. It raises InUseError while operations may still add to it.

        A thread that waits in `next` then gets ClosedError.
        """
        if not self._closed:
            # Threads in next must know why the queue is gone as soon as it is.
            self._closed = True
            code = self._lib.allcast_queue_free(self._handle)
            if code != _native.OK:
                self._closed = False
                raise _native.last_error(self._lib, code)

    def __del__(self) -> None:
        # A request with this queue refers to it, so that no operation can add to it any more.
        if not getattr(self, "_closed", True):
            self._drop((self._free, self._handle.value, 0))

    @staticmethod
    def _free(lib: ctypes.CDLL, handle: int, _: int) -> bool:
        return bool(lib.allcast_queue_free(handle) != _native.ERR_IN_USE)

    def _check_open(self) -> None:
        if _native.forked():
            raise _native.forked_error()
        if self._closed:
            raise _closed()
        if _garbage.dropped:
            _garbage.collect(self._lib)

    def _take(self, wait_ms: int) -> bool:
        code = self._lib.allcast_queue_next(
            self._handle, self._taken, self._size, wait_ms, self._count
        )
        if code == _native.OK:
            return True
        if code == _native.ERR_TIMEOUT:
            return False
        if self._closed:
            raise _closed()
        raise _native.last_error(self._lib, code)

    def _deliver(self, size: int) -> list[Completion]:
        # An exception of a signal handler may interrupt this anywhere. The next call then repeats
        # it, so that completions leave _count and _ready last.
        count = self._count.value
        if count:
            self._ready = [self._completion(self._taken[i]) for i in range(count)]
            self._count.value = 0
        delivered = self._ready[:size]
        for completion in delivered:
            completion.request.end()
        del self._ready[:size]
        return delivered

    def _completion(self, taken: _native.Completion) -> Completion:
        request = _requests.live[taken.user]
        assert isinstance(request, _requests.Request)
        # The thread that started the operation may not have got the handle yet. The library returns
        # no handle if the request was waited for.
        if taken.request:
            request._handle.value = taken.request
        return Completion(request, request.user, taken.error)


def _closed() -> ClosedError:
    return ClosedError("the queue is closed")
