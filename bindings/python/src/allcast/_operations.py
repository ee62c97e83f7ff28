"""Parts of all operations: their arguments, checks and start."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from . import _native, _requests
from ._buffers import Buffer, Memory, memory
from ._types import DataType
from .errors import InvalidError

if TYPE_CHECKING:
    from ._queue import Queue
    from ._requests import Request

_CALL_SIZE = ctypes.sizeof(_native.Call)

DType = DataType | str | None


class MessageArguments(TypedDict, total=False):
    """Arguments of `send` and `recv`."""

    timeout: float | None
    """Time in seconds after which a message without a match is withdrawn."""


class CallArguments(TypedDict, total=False):
    """Arguments of all collectives."""

    algorithm: str | None
    """Name of an algorithm, such as "mcast" or "ring". By default Allcast chooses one."""
    timeout: float | None
    """Deadline of the operation in seconds. An operation that exceeds it fails on all ranks."""
    chains: int
    """Number of ranks that multicast at once."""
    subgroups: int
    """Number of multicast groups."""


class StartMessageArguments(MessageArguments, total=False):
    """Arguments that start a `send` or a `recv`."""

    queue: Queue | None
    """Queue that gets a completion when the operation ends."""
    user: int
    """Number that the completion has."""


class StartCallArguments(CallArguments, total=False):
    """Arguments that start a collective."""

    queue: Queue | None
    """Queue that gets a completion when the operation ends."""
    user: int
    """Number that the completion has."""


class Operations:
    """What the operations of a communicator share."""

    rank: int
    """This rank."""
    size: int
    """Number of ranks."""

    _lib: ctypes.CDLL
    _handle: int

    def _start(
        self,
        function: Callable[..., int],
        arguments: tuple[Any, ...],
        buffers: object,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
        queue: Queue | None = None,
        user: int = 0,
        factor: float = 1.0,
        receives: bool = False,
    ) -> Request:
        """Starts an operation. buffers are in use until it ends."""
        call = None
        if not (
            timeout is None
            and queue is None
            and algorithm is None
            and chains == subgroups == 0
            and factor == 1.0
        ):
            call = _native.Call()
            call.struct_size = _CALL_SIZE
            call.factor = factor
            if timeout is not None:
                call.timeout_ms = max(1, _native.milliseconds(timeout, 0))  # 0 means none
            if algorithm is not None:
                call.algorithm = algorithm.encode()
            if chains or subgroups:
                call.chains = number(chains, "chains")
                call.subgroups = number(subgroups, "subgroups")
        return _requests.start(self._lib, function, arguments, buffers, call, queue, user, receives)

    def _divide(self, buffer: Memory, name: str) -> int:
        """Returns the size of a block of a buffer with one block per rank."""
        if buffer.nbytes % self.size:
            raise InvalidError(
                f"{name}: a buffer of {buffer.nbytes} bytes cannot be divided among "
                f"{self.size} ranks"
            )
        return buffer.nbytes // self.size

    def _check_blocks(self, block: Memory, block_name: str, whole: Memory, whole_name: str) -> None:
        if block.nbytes * self.size != whole.nbytes:
            raise InvalidError(
                f"{block_name} has {block.nbytes} bytes and {whole_name} {whole.nbytes}: "
                f"the second must be {self.size} times as long"
            )

    def _at_root(
        self, buffer: Buffer | None, name: str, writable: bool, root: int
    ) -> Memory | None:
        """Returns the memory of a buffer that only the root needs."""
        if self.rank != root:
            return None
        if buffer is None:
            raise InvalidError(f"{name}: the root must not pass None")
        return memory(buffer, name, writable)

    def _own_block(
        self, buffer: Buffer | None, name: str, writable: bool, nbytes: int
    ) -> Memory | None:
        """Returns the memory of a buffer that holds this rank's block."""
        if buffer is None:
            return None
        block = memory(buffer, name, writable)
        if block.nbytes != nbytes:
            raise wrong_block(block, name, nbytes)
        return block

    def _counts(
        self, counts: Sequence[int] | None, name: str, buffer: Memory, buffer_name: str
    ) -> ctypes.Array[ctypes.c_size_t]:
        """Returns counts in bytes."""
        if counts is None:
            raise InvalidError(f"{name}: want one count per rank")
        if len(counts) != self.size:
            raise InvalidError(f"{name}: {len(counts)} counts for {self.size} ranks")
        sizes = [int(count) * buffer.unit for count in counts]
        if min(sizes) < 0 or sum(sizes) != buffer.nbytes:
            raise InvalidError(
                f"{name}: the counts {list(counts)} describe {sum(sizes)} bytes, and "
                f"{buffer_name} has {buffer.nbytes}"
            )
        return (ctypes.c_size_t * self.size)(*sizes)


def number(value: int, name: str) -> int:
    """Returns a number for an int of C. ctypes would drop its upper bits without an error."""
    if not -(1 << 31) <= value < 1 << 31:
        raise InvalidError(f"{name} is {value}, which does not fit into 32 bits")
    return value


def address(buffer: Memory | None) -> int | None:
    return None if buffer is None else buffer.address


def addresses(buffers: list[Memory]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(buffers))(*[buffer.address for buffer in buffers])


def sizes(buffers: list[Memory]) -> ctypes.Array[ctypes.c_size_t]:
    return (ctypes.c_size_t * len(buffers))(*[buffer.nbytes for buffer in buffers])


def wrong_block(buffer: Memory, name: str, nbytes: int) -> InvalidError:
    return InvalidError(f"{name}: a buffer of {buffer.nbytes} bytes for {nbytes} bytes of counts")


def check_equal(send: Memory, recv: Memory) -> None:
    if send.nbytes != recv.nbytes:
        raise InvalidError(
            f"send has {send.nbytes} bytes and recv {recv.nbytes}: they must be equally long"
        )
