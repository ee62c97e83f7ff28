"""Options of a job, as text for the library."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from . import _native
from .errors import OptionsError

# Options that are durations in seconds.
_DURATIONS = frozenset(("timeout", "join_timeout", "deadline"))


class Options:
    """Options in the library, for the duration of a join."""

    def __init__(self, lib: ctypes.CDLL, values: Mapping[str, Any]) -> None:
        self._lib = lib
        self.handle = ctypes.c_uint64()
        _native.check(lib, lib.allcast_options_new(self.handle))
        try:
            for name, value in values.items():
                if value is not None:
                    self._set(name, _encode(name, value))
        except BaseException:
            self.free()
            raise

    def _set(self, name: str, value: bytes) -> None:
        option = name.replace("_", "-").encode()
        _native.check(
            self._lib, self._lib.allcast_options_set(self.handle, option, value, len(value))
        )

    def free(self) -> None:
        """Frees the options."""
        self._lib.allcast_options_free(self.handle)


def _encode(name: str, value: Any) -> bytes:
    if name in ("key", "site_key"):
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise OptionsError(f"{name} is of type {type(value).__name__}: want at least 16 bytes")
        return bytes(value)
    if isinstance(value, bool):
        return b"on" if value else b"off"
    if name in _DURATIONS and isinstance(value, (int, float)):
        return b"%.6fs" % value
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value).encode()
    return str(value).encode()
