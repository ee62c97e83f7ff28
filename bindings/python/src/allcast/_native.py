"""Declarations of allcast.h, and loading of the library."""

from __future__ import annotations

import atexit
import ctypes
import math
import os
import pathlib
import threading
from collections.abc import Callable
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)
from typing import Any

from .errors import Error, ForkedError, error_class

ABI = 1

OK = 0
ERR_INVALID = 1
ERR_IN_USE = 11
ERR_TIMEOUT = 14
ERR_STORE = 16

ANY_SOURCE = -1

# Longest time to wait, for callers that pass infinity: 30 years. Locks of Python accept 292 years.
_MAX_SECONDS = 1e9


class Call(Structure):
    """allcast_call."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("algorithm", c_char_p),
        ("timeout_ms", c_int64),
        ("factor", c_double),
        ("queue", c_uint64),
        ("user", c_uint64),
        ("chains", c_int32),
        ("subgroups", c_int32),
    ]


class Message(Structure):
    """allcast_message."""

    _fields_ = [("source", c_int32), ("tag", c_int32), ("bytes", c_uint64)]


class Completion(Structure):
    """allcast_completion."""

    _fields_ = [
        ("request", c_uint64),
        ("user", c_uint64),
        ("error", c_int32),
        ("reserved", c_int32),
    ]


SET = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t)
GET = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int64, POINTER(c_void_p), POINTER(c_size_t))


class Store(Structure):
    """allcast_store."""

    _fields_ = [("user", c_void_p), ("set", SET), ("get", GET)]


_counts = POINTER(c_size_t)
_handle = POINTER(c_uint64)
_int = POINTER(c_int)
_pointers = POINTER(c_void_p)
_text = POINTER(c_void_p)  # char **, kept as an address because the caller frees it

# Arguments of each operation between the communicator and the call.
_OPERATIONS: dict[str, tuple[Any, ...]] = {
    "broadcast": (c_void_p, c_size_t, c_int),
    "allgather": (c_void_p, c_void_p, c_size_t),
    "allgatherv": (c_void_p, c_void_p, _counts),
    "gather": (c_void_p, c_void_p, c_size_t, c_int),
    "gatherv": (c_void_p, c_size_t, c_void_p, _counts, c_int),
    "scatter": (c_void_p, c_void_p, c_size_t, c_int),
    "scatterv": (c_void_p, _counts, c_void_p, c_size_t, c_int),
    "alltoall": (c_void_p, c_void_p, c_size_t),
    "alltoallv": (c_void_p, _counts, c_void_p, _counts),
    "reduce": (c_void_p, c_void_p, c_size_t, c_int, c_int, c_int),
    "reduce_scatter": (c_void_p, c_void_p, c_size_t, c_int, c_int),
    "reduce_scatterv": (c_void_p, c_void_p, _counts, c_int, c_int),
    "allreduce": (c_void_p, c_void_p, c_size_t, c_int, c_int),
    "barrier": (),
    "broadcast_coalesced": (_pointers, _counts, c_size_t, c_int),
    "allgather_coalesced": (_pointers, _pointers, _counts, c_size_t),
    "send": (c_void_p, c_size_t, c_int, c_int),
    "recv": (c_void_p, c_size_t, c_int, c_int),
}

# Result and arguments of the other functions.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "abi": (c_int,),
    "version": (c_char_p,),
    "error_message": (c_char_p,),
    "error_code": (c_int,),
    "error_rank": (c_int,),
    "error_world_rank": (c_int,),
    "error_phase": (c_char_p,),
    "error_name": (c_char_p, c_int),
    "options_new": (c_int, _handle),
    "options_set": (c_int, c_uint64, c_char_p, c_char_p, c_size_t),
    "options_free": (c_int, c_uint64),
    "join": (c_int, c_uint64, POINTER(Store), _handle),
    "rank": (c_int, c_uint64, _int),
    "size": (c_int, c_uint64, _int),
    "world_rank": (c_int, c_uint64, c_int, _int),
    "describe": (c_int, c_uint64, _text),
    "stats": (c_int, c_uint64, _text),
    "text_free": (None, c_void_p),
    "abort": (c_int, c_uint64),
    "close": (c_int, c_uint64),
    "close_within": (c_int, c_uint64, c_int64),
    "split": (c_int, c_uint64, c_int, c_int, c_int64, _handle),
    "subset": (c_int, c_uint64, _int, c_size_t, c_char_p, c_int64, _handle),
    "shrink": (c_int, c_uint64, c_int64, _handle),
    "alloc": (c_int, c_uint64, c_size_t, POINTER(c_void_p)),
    "free": (c_int, c_uint64, c_void_p),
    "wait": (c_int, c_uint64, c_int64, POINTER(Message)),
    "cancel": (c_int, c_uint64),
    "release": (c_int, c_uint64),
    "algorithm": (c_char_p, c_uint64),
    "queue_new": (c_int, _handle),
    "queue_fd": (c_int, c_uint64, _int),
    "queue_next": (c_int, c_uint64, POINTER(Completion), c_size_t, c_int64, POINTER(c_size_t)),
    "queue_free": (c_int, c_uint64),
    "set_parallelism": (c_int, c_int),
}


def _declare(lib: ctypes.CDLL) -> None:
    call = POINTER(Call)
    for name, arguments in _OPERATIONS.items():
        blocking = [c_uint64, *arguments, call]
        if name == "recv":
            blocking.append(POINTER(Message))
        _declare_one(lib, name, c_int, blocking)
        _declare_one(lib, "start_" + name, c_int, [c_uint64, *arguments, call, _handle])
    for name, (result, *rest) in _FUNCTIONS.items():
        _declare_one(lib, name, result, rest)


def _declare_one(lib: ctypes.CDLL, name: str, result: Any, arguments: list[Any]) -> None:
    function = getattr(lib, "allcast_" + name)
    function.restype = result
    function.argtypes = arguments


_lock = threading.Lock()
_library: ctypes.CDLL | None = None
_forked = False
_at_exit: list[Callable[[], None]] = []


def load() -> ctypes.CDLL:
    """Returns the library.

    It is loaded on first use, so that a child that was forked before can still load it.
    """
    if _forked:
        raise forked_error()
    return _library or _load()


def _load() -> ctypes.CDLL:
    global _library
    with _lock:
        if _library is None:
            path = _path()
            lib = _open(path)
            _declare(lib)
            os.register_at_fork(after_in_child=_after_fork)
            atexit.register(_exit)
            _library = lib
        return _library


def _path() -> str:
    named = os.environ.get("ALLCAST_LIBRARY")
    if named:
        return named
    return str(pathlib.Path(__file__).parent / "_lib" / "liballcast.so")


def _open(path: str) -> ctypes.CDLL:
    try:
        # All functions release the interpreter lock, although only some wait. A call that starts an
        # operation also sends its first data, which takes milliseconds for large buffers, and any
        # call into Go may wait for a processor. Holding the lock would save a tenth of a
        # microsecond, and stop the other threads of the program meanwhile.
        lib = ctypes.CDLL(path)
    except OSError as err:
        raise ImportError(
            f"allcast cannot load its library {path}: {err}; install the allcast wheel, "
            "or set ALLCAST_LIBRARY to the path of liballcast.so"
        ) from err
    try:
        abi = int(lib.allcast_abi())
    except AttributeError:
        raise ImportError(f"{path} is not the library of allcast: it has no allcast_abi") from None
    if abi != ABI:
        raise ImportError(
            f"{path} has version {abi} of the C interface, and this package needs version {ABI}: "
            "install a package and a library of the same release"
        )
    return lib


def _after_fork() -> None:
    # Threads of the library do not exist in the child, so that no call would end.
    global _forked
    _forked = True


def _exit() -> None:
    if not _forked:
        for function in _at_exit:
            function()


def at_exit(function: Callable[[], None]) -> None:
    """Runs a function at exit of a process that has loaded the library, but not in its children."""
    _at_exit.append(function)


def forked() -> bool:
    """Reports whether this process was forked from one that had loaded the library."""
    return _forked


def forked_error() -> ForkedError:
    """Returns the error of all calls in a forked child."""
    return ForkedError(
        "this process was forked after it had loaded the library of allcast, which does not work "
        "in the child: start ranks with exec or spawn, or use allcast only after the fork"
    )


def last_error(lib: ctypes.CDLL, code: int) -> Error:
    """Returns the exception for the last call on this thread, which returned code."""
    message = text(lib.allcast_error_message()) or text(lib.allcast_error_name(code))
    err = error_class(code)(
        message,
        rank=lib.allcast_error_rank(),
        world_rank=lib.allcast_error_world_rank(),
        phase=text(lib.allcast_error_phase()),
    )
    err.code = code
    return err


def check(lib: ctypes.CDLL, code: int) -> None:
    """Raises the error of a call that returned code."""
    if code:
        raise last_error(lib, code)


def text(value: bytes | None) -> str:
    """Decodes a text of the library."""
    return (value or b"").decode("utf-8", "replace")


def milliseconds(seconds: float | None, default: int) -> int:
    """Converts a duration and rounds it up, so that a short time to wait does not become none."""
    if seconds is None:
        return default
    return max(0, math.ceil(min(seconds, _MAX_SECONDS) * 1000))
