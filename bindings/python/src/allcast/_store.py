"""Stores in Python, for the callbacks of the library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Protocol

from . import _native
from .errors import Error


class Store(Protocol):
    """A store lets ranks find each other without the address of rank 0."""

    def set(self, key: str, value: bytes) -> Any:
        """Stores a value."""

    def get(self, key: str, wait: float) -> bytes | None:
        """Looks a key up, and waits for it for at most `wait` seconds.

        It returns None if the key has no value yet.
        """


_malloc = ctypes.CDLL(None).malloc
_malloc.restype = ctypes.c_void_p
_malloc.argtypes = [ctypes.c_size_t]

_FOUND = 0
_NO_VALUE = 1
_FAILED = 2


class Callbacks:
    """Callbacks of a store, which remember its exception."""

    def __init__(self, store: Store, serve: Callable[[Callable[[], object]], object]) -> None:
        self._store = store
        self._serve = serve
        self.failure: BaseException | None = None
        self.struct = _native.Store(None, _native.SET(self._set), _native.GET(self._get))

    def _set(self, _user: Any, key: bytes, value: int | None, length: int) -> int:
        data = ctypes.string_at(value, length) if value else b""
        try:
            self._serve(lambda: self._store.set(key.decode(), data))
        except BaseException as err:
            self.failure = err
            return _FAILED
        return _FOUND

    def _get(self, _user: Any, key: bytes, wait_ms: int, value: Any, length: Any) -> int:
        try:
            found = self._serve(lambda: self._store.get(key.decode(), wait_ms / 1000))
            if found is None:
                return _NO_VALUE
            data = bytes(found)  # type: ignore[call-overload]
        except BaseException as err:
            self.failure = err
            return _FAILED
        memory = _malloc(max(len(data), 1))
        if not memory:
            return _FAILED
        ctypes.memmove(memory, data, len(data))
        value[0] = memory
        length[0] = len(data)
        return _FOUND

    def explain(self, err: Error) -> BaseException:
        """Returns the exception of a join that failed with err because of the store."""
        failure = self.failure
        if failure is not None and not isinstance(failure, Exception):
            return failure  # KeyboardInterrupt and the like
        if err.code == _native.ERR_STORE:
            err.__cause__ = failure
        return err
