"""Communicators."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Callable, Union

from . import _garbage, _memory, _native, _requests
from ._background import Background
from ._buffers import Buffer, Memory, element_type, memory, same_kind
from ._options import Options
from ._queue import Queue
from ._requests import Message, Request
from ._store import Callbacks, Store
from ._types import DataType, Op, parse_op
from .errors import ClosedError, InvalidError

_CALL_SIZE = ctypes.sizeof(_native.Call)

# Communicators of join that are open. They leave their jobs at exit.
_open: set[Comm] = set()


class Comm:
    """A group of ranks that communicate.

    All ranks start the collectives on it in the same order. Its methods may be called from any
    thread.

    Arguments of all operations:

    - `algorithm` names an algorithm, such as "mcast" or "ring". By default Allcast chooses one.
    - `timeout` is the deadline of the operation in seconds. A collective that exceeds it fails on
      all ranks.
    - `chains` is the number of ranks that multicast at once, and `subgroups` the number of
      multicast groups.
    - `queue` gets a completion when the operation ends, with the number `user`.

    Counts have one entry per rank. They are in elements of the buffer that they divide, or in bytes
    if that is a `Memory` or has no element type.
    """

    rank: int
    """This rank."""
    size: int
    """Number of ranks."""

    def __init__(self, lib: ctypes.CDLL, handle: int, parent: Comm | None) -> None:
        """Use `join`, or `split`, `subset` or `shrink` of another communicator, instead."""
        self._lib = lib
        self._handle = handle
        self._closed = False
        self._world: Comm = self if parent is None else parent._world
        number = ctypes.c_int()
        _native.check(lib, lib.allcast_rank(handle, number))
        self.rank = number.value
        _native.check(lib, lib.allcast_size(handle, number))
        self.size = number.value
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
        self.close()

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
        number = ctypes.c_int()
        self._check(self._ready().allcast_world_rank(self._handle, rank, number))
        return number.value

    def describe(self) -> dict[str, Any]:
        """Describes the communicator: rank, size, fabric, multicast, datapath and so on."""
        return self._json(self._ready().allcast_describe)

    def stats(self) -> dict[str, Any]:
        """Returns the counters of this process since it joined."""
        return self._json(self._ready().allcast_stats)

    def abort(self) -> None:
        """Ends all operations on the communicator on all its ranks."""
        self._check(self._ready().allcast_abort(self._handle))

    def close(self) -> None:
        """Ends the use of the communicator on this rank.

        Closing the communicator of `join` leaves the job: it waits for the other ranks, for the
        option `timeout` at most, and closes all others.
        """
        if self.closed:
            return
        lib = self._ready()
        self._closed = True
        _open.discard(self)
        if self._world is self:
            Background(lambda: _close(lib, self._handle), _ignore).result()
        else:
            _close(lib, self._handle)

    def split(self, color: int, key: int = 0, timeout: float | None = None) -> Comm | None:
        """Makes one communicator per color, ordered by key. All ranks call it.

        Ranks with color -1 get None.
        """
        lib, limit = self._ready(), _native.milliseconds(timeout, -1)
        return self._derive(lambda out: lib.allcast_split(self._handle, color, key, limit, out))

    def subset(self, ranks: Iterable[int], tag: str = "", timeout: float | None = None) -> Comm:
        """Makes a communicator of the given ranks, in this order. Only these ranks call it, with the same tag."""
        lib, limit = self._ready(), _native.milliseconds(timeout, -1)
        members = list(ranks)
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

        handle = Background(run, lambda handle: _close(lib, handle)).result()
        return Comm(lib, handle, self) if handle else None

    # ---- Operations ----
    def broadcast(
        self,
        buf: Buffer,
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
    ) -> None:
        """Copies buf of rank root to buf of all other ranks. It is equally long on all ranks."""
        self._finish(
            self.start_broadcast(
                buf, root, algorithm=algorithm, timeout=timeout, chains=chains, subgroups=subgroups
            )
        )

    def start_broadcast(
        self,
        buf: Buffer,
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
        queue: Queue | None = None,
        user: int = 0,
    ) -> Request:
        """Starts a `broadcast`."""
        block = memory(buf, "buf", self.rank != root)
        return self._start(
            self._lib.allcast_start_broadcast,
            (self._handle, block.address, block.nbytes, root),
            block,
            algorithm,
            timeout,
            chains,
            subgroups,
            queue,
            user,
        )

    def allgather(
        self,
        send: Buffer | None,
        recv: Buffer,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
    ) -> None:
        """Copies send of all ranks to recv of all ranks, in rank order.

        recv is `size` times as long as send. If send is None, this rank's block is in recv already.
        """
        self._finish(
            self.start_allgather(
                send, recv, algorithm=algorithm, timeout=timeout, chains=chains, subgroups=subgroups
            )
        )

    def start_allgather(
        self,
        send: Buffer | None,
        recv: Buffer,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
        queue: Queue | None = None,
        user: int = 0,
    ) -> Request:
        """Starts an `allgather`."""
        target = memory(recv, "recv", True)
        if send is None:
            source, address, block = None, None, self._divide(target, "recv")
        else:
            source = memory(send, "send", False)
            same_kind(source, target)
            address, block = source.address, source.nbytes
            self._check_blocks(source, "send", target, "recv")
        return self._start(
            self._lib.allcast_start_allgather,
            (self._handle, address, target.address, block),
            (source, target),
            algorithm,
            timeout,
            chains,
            subgroups,
            queue,
            user,
        )

    def allgatherv(
        self,
        send: Buffer | None,
        recv: Buffer,
        counts: Sequence[int],
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
    ) -> None:
        """Is an allgather in which rank i contributes counts[i] elements. All ranks pass the same counts."""
        self._finish(
            self.start_allgatherv(
                send,
                recv,
                counts,
                algorithm=algorithm,
                timeout=timeout,
                chains=chains,
                subgroups=subgroups,
            )
        )

    def start_allgatherv(
        self,
        send: Buffer | None,
        recv: Buffer,
        counts: Sequence[int],
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
        queue: Queue | None = None,
        user: int = 0,
    ) -> Request:
        """Starts an `allgatherv`."""
        target = memory(recv, "recv", True)
        sizes = self._counts(counts, "counts", target, "recv")
        source = self._own_block(send, "send", False, sizes[self.rank])
        if source is not None:
            same_kind(source, target)
        return self._start(
            self._lib.allcast_start_allgatherv,
            (self._handle, _address(source), target.address, sizes),
            (source, target),
            algorithm,
            timeout,
            chains,
            subgroups,
            queue,
            user,
        )

    def gather(
        self,
        send: Buffer | None,
        recv: Buffer | None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
    ) -> None:
        """Copies send of all ranks to recv of rank root, in rank order.

        Other ranks ignore recv. The root may pass None for send if its block is in recv already.
        """
        self._finish(
            self.start_gather(
                send,
                recv,
                root,
                algorithm=algorithm,
                timeout=timeout,
                chains=chains,
                subgroups=subgroups,
            )
        )

    def start_gather(
        self,
        send: Buffer | None,
        recv: Buffer | None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
        queue: Queue | None = None,
        user: int = 0,
    ) -> Request:
        """Starts a `gather`."""
        source = None if send is None else memory(send, "send", False)
        target = self._at_root(recv, "recv", True, root)
        if source is None:
            if target is None:
                raise InvalidError("send: only the root may pass None")
            block = self._divide(target, "recv")
        else:
            block = source.nbytes
            if target is not None:
                same_kind(source, target)
                self._check_blocks(source, "send", target, "recv")
        return self._start(
            self._lib.allcast_start_gather,
            (self._handle, _address(source), _address(target), block, root),
            (source, target),
            algorithm,
            timeout,
            chains,
            subgroups,
            queue,
            user,
        )

    def gatherv(
        self,
        send: Buffer | None,
        recv: Buffer | None,
        counts: Sequence[int] | None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
    ) -> None:
        """Is a gather in which rank i contributes counts[i] elements. Only the root needs counts."""
        self._finish(
            self.start_gatherv(
                send,
                recv,
                counts,
                root,
                algorithm=algorithm,
                timeout=timeout,
                chains=chains,
                subgroups=subgroups,
            )
        )

    def start_gatherv(
        self,
        send: Buffer | None,
        recv: Buffer | None,
        counts: Sequence[int] | None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
        queue: Queue | None = None,
        user: int = 0,
    ) -> Request:
        """Starts a `gatherv`."""
        source = None if send is None else memory(send, "send", False)
        target = self._at_root(recv, "recv", True, root)
        sizes = None
        if target is not None:
            sizes = self._counts(counts, "counts", target, "recv")
        if source is None:
            if sizes is None:
                raise InvalidError("send: only the root may pass None")
            block = sizes[self.rank]
        else:
            block = source.nbytes
            if target is not None:
                same_kind(source, target)
        return self._start(
            self._lib.allcast_start_gatherv,
            (self._handle, _address(source), block, _address(target), sizes, root),
            (source, target),
            algorithm,
            timeout,
            chains,
            subgroups,
            queue,
            user,
        )

    def scatter(
        self,
        send: Buffer | None,
        recv: Buffer | None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
    ) -> None:
        """Copies block i of send of rank root to recv of rank i.

        Other ranks ignore send. The root may pass None for recv if its block is to stay in send.
        """
        self._finish(
            self.start_scatter(
                send,
                recv,
                root,
                algorithm=algorithm,
                timeout=timeout,
                chains=chains,
                subgroups=subgroups,
            )
        )

    def start_scatter(
        self,
        send: Buffer | None,
        recv: Buffer | None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
        queue: Queue | None = None,
        user: int = 0,
    ) -> Request:
        """Starts a `scatter`."""
        source = self._at_root(send, "send", False, root)
        target = None if recv is None else memory(recv, "recv", True)
        if target is None:
            if source is None:
                raise InvalidError("recv: only the root may pass None")
            block = self._divide(source, "send")
        else:
            block = target.nbytes
            if source is not None:
                same_kind(source, target)
                self._check_blocks(target, "recv", source, "send")
        return self._start(
            self._lib.allcast_start_scatter,
            (self._handle, _address(source), _address(target), block, root),
            (source, target),
            algorithm,
            timeout,
            chains,
            subgroups,
            queue,
            user,
        )

    def scatterv(
        self,
        send: Buffer | None,
        recv: Buffer | None,
        counts: Sequence[int] | None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
    ) -> None:
        """Is a scatter in which rank i receives counts[i] elements. Only the root needs counts."""
        self._finish(
            self.start_scatterv(
                send,
                recv,
                counts,
                root,
                algorithm=algorithm,
                timeout=timeout,
                chains=chains,
                subgroups=subgroups,
            )
        )

    def start_scatterv(
        self,
        send: Buffer | None,
        recv: Buffer | None,
        counts: Sequence[int] | None,
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
        queue: Queue | None = None,
        user: int = 0,
    ) -> Request:
        """Starts a `scatterv`."""
        source = self._at_root(send, "send", False, root)
        target = None if recv is None else memory(recv, "recv", True)
        sizes = None
        if source is not None:
            sizes = self._counts(counts, "counts", source, "send")
        if target is None:
            if sizes is None:
                raise InvalidError("recv: only the root may pass None")
            block = sizes[self.rank]
        else:
            block = target.nbytes
            if source is not None:
                same_kind(source, target)
        return self._start(
            self._lib.allcast_start_scatterv,
            (self._handle, _address(source), sizes, _address(target), block, root),
            (source, target),
            algorithm,
            timeout,
            chains,
            subgroups,
            queue,
            user,
        )

    def alltoall(
        self,
        send: Buffer | None,
        recv: Buffer,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
    ) -> None:
        """Copies block i of send of rank j to block j of recv of rank i.

        If send is None, the blocks to send are in recv.
        """
        self._finish(
            self.start_alltoall(
                send, recv, algorithm=algorithm, timeout=timeout, chains=chains, subgroups=subgroups
            )
        )

    def start_alltoall(
        self,
        send: Buffer | None,
        recv: Buffer,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
        queue: Queue | None = None,
        user: int = 0,
    ) -> Request:
        """Starts an `alltoall`."""
        target = memory(recv, "recv", True)
        source = None
        if send is not None:
            source = memory(send, "send", False)
            same_kind(source, target)
            _check_equal(source, target)
        block = self._divide(target, "recv")
        return self._start(
            self._lib.allcast_start_alltoall,
            (self._handle, _address(source), target.address, block),
            (source, target),
            algorithm,
            timeout,
            chains,
            subgroups,
            queue,
            user,
        )

    def alltoallv(
        self,
        send: Buffer | None,
        recv: Buffer,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
    ) -> None:
        """Is an alltoall in which this rank sends send_counts[i] elements to rank i and receives
        recv_counts[i].

        If send is None, the blocks to send are in recv, and both counts are equal.
        """
        self._finish(
            self.start_alltoallv(
                send,
                recv,
                send_counts,
                recv_counts,
                algorithm=algorithm,
                timeout=timeout,
                chains=chains,
                subgroups=subgroups,
            )
        )

    def start_alltoallv(
        self,
        send: Buffer | None,
        recv: Buffer,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
        queue: Queue | None = None,
        user: int = 0,
    ) -> Request:
        """Starts an `alltoallv`."""
        target = memory(recv, "recv", True)
        source = None if send is None else memory(send, "send", False)
        if source is not None:
            same_kind(source, target)
        outgoing = self._counts(
            send_counts, "send_counts", source or target, "recv" if source is None else "send"
        )
        incoming = self._counts(recv_counts, "recv_counts", target, "recv")
        return self._start(
            self._lib.allcast_start_alltoallv,
            (self._handle, _address(source), outgoing, target.address, incoming),
            (source, target),
            algorithm,
            timeout,
            chains,
            subgroups,
            queue,
            user,
        )

    def reduce(
        self,
        send: Buffer | None,
        recv: Buffer | None,
        op: Op | str = "sum",
        root: int = 0,
        dtype: DType = None,
        factor: float = 1.0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
    ) -> None:
        """Combines send of all ranks, element by element, and stores the result in recv of rank
        root.

        Other ranks ignore recv. The root may pass None for send if its input is in recv.
        """
        self._finish(
            self.start_reduce(
                send,
                recv,
                op,
                root,
                dtype,
                factor,
                algorithm=algorithm,
                timeout=timeout,
                chains=chains,
                subgroups=subgroups,
            )
        )

    def start_reduce(
        self,
        send: Buffer | None,
        recv: Buffer | None,
        op: Op | str = "sum",
        root: int = 0,
        dtype: DType = None,
        factor: float = 1.0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
        queue: Queue | None = None,
        user: int = 0,
    ) -> Request:
        """Starts a `reduce`."""
        source = None if send is None else memory(send, "send", False)
        target = self._at_root(recv, "recv", True, root)
        block = source or target
        if block is None:
            raise InvalidError("send: only the root may pass None")
        if source is not None and target is not None:
            _check_equal(source, target)
        kind = element_type(dtype, source, target)
        return self._start(
            self._lib.allcast_start_reduce,
            (
                self._handle,
                _address(source),
                _address(target),
                block.nbytes,
                kind,
                parse_op(op),
                root,
            ),
            (source, target),
            algorithm,
            timeout,
            chains,
            subgroups,
            queue,
            user,
            factor,
        )

    def reduce_scatter(
        self,
        send: Buffer,
        recv: Buffer,
        op: Op | str = "sum",
        dtype: DType = None,
        factor: float = 1.0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
    ) -> None:
        """Combines send of all ranks, element by element, and stores block i of the result in recv
        of rank i.

        send is `size` times as long as recv.
        """
        self._finish(
            self.start_reduce_scatter(
                send,
                recv,
                op,
                dtype,
                factor,
                algorithm=algorithm,
                timeout=timeout,
                chains=chains,
                subgroups=subgroups,
            )
        )

    def start_reduce_scatter(
        self,
        send: Buffer,
        recv: Buffer,
        op: Op | str = "sum",
        dtype: DType = None,
        factor: float = 1.0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
        queue: Queue | None = None,
        user: int = 0,
    ) -> Request:
        """Starts a `reduce_scatter`."""
        source, target = memory(send, "send", False), memory(recv, "recv", True)
        kind = element_type(dtype, source, target)
        self._check_blocks(target, "recv", source, "send")
        return self._start(
            self._lib.allcast_start_reduce_scatter,
            (self._handle, source.address, target.address, target.nbytes, kind, parse_op(op)),
            (source, target),
            algorithm,
            timeout,
            chains,
            subgroups,
            queue,
            user,
            factor,
        )

    def reduce_scatterv(
        self,
        send: Buffer,
        recv: Buffer,
        counts: Sequence[int],
        op: Op | str = "sum",
        dtype: DType = None,
        factor: float = 1.0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
    ) -> None:
        """Is a reduce_scatter in which rank i receives counts[i] elements. All ranks pass the same counts."""
        self._finish(
            self.start_reduce_scatterv(
                send,
                recv,
                counts,
                op,
                dtype,
                factor,
                algorithm=algorithm,
                timeout=timeout,
                chains=chains,
                subgroups=subgroups,
            )
        )

    def start_reduce_scatterv(
        self,
        send: Buffer,
        recv: Buffer,
        counts: Sequence[int],
        op: Op | str = "sum",
        dtype: DType = None,
        factor: float = 1.0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
        queue: Queue | None = None,
        user: int = 0,
    ) -> Request:
        """Starts a `reduce_scatterv`."""
        source, target = memory(send, "send", False), memory(recv, "recv", True)
        kind = element_type(dtype, source, target)
        sizes = self._counts(counts, "counts", source, "send")
        if target.nbytes != sizes[self.rank]:
            raise _wrong_block(target, "recv", sizes[self.rank])
        return self._start(
            self._lib.allcast_start_reduce_scatterv,
            (self._handle, source.address, target.address, sizes, kind, parse_op(op)),
            (source, target),
            algorithm,
            timeout,
            chains,
            subgroups,
            queue,
            user,
            factor,
        )

    def allreduce(
        self,
        send: Buffer | None,
        recv: Buffer,
        op: Op | str = "sum",
        dtype: DType = None,
        factor: float = 1.0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
    ) -> None:
        """Combines send of all ranks, element by element, and stores the result in recv of all
        ranks.

        If send is None, the input is in recv. All ranks get the same bits.
        """
        self._finish(
            self.start_allreduce(
                send,
                recv,
                op,
                dtype,
                factor,
                algorithm=algorithm,
                timeout=timeout,
                chains=chains,
                subgroups=subgroups,
            )
        )

    def start_allreduce(
        self,
        send: Buffer | None,
        recv: Buffer,
        op: Op | str = "sum",
        dtype: DType = None,
        factor: float = 1.0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
        queue: Queue | None = None,
        user: int = 0,
    ) -> Request:
        """Starts an `allreduce`."""
        target = memory(recv, "recv", True)
        source = None if send is None else memory(send, "send", False)
        if source is not None:
            _check_equal(source, target)
        kind = element_type(dtype, source, target)
        return self._start(
            self._lib.allcast_start_allreduce,
            (self._handle, _address(source), target.address, target.nbytes, kind, parse_op(op)),
            (source, target),
            algorithm,
            timeout,
            chains,
            subgroups,
            queue,
            user,
            factor,
        )

    def barrier(
        self,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
    ) -> None:
        """Waits until all ranks have called it."""
        self._finish(
            self.start_barrier(
                algorithm=algorithm, timeout=timeout, chains=chains, subgroups=subgroups
            )
        )

    def start_barrier(
        self,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
        queue: Queue | None = None,
        user: int = 0,
    ) -> Request:
        """Starts a `barrier`."""
        return self._start(
            self._lib.allcast_start_barrier,
            (self._handle,),
            None,
            algorithm,
            timeout,
            chains,
            subgroups,
            queue,
            user,
        )

    def broadcast_coalesced(
        self,
        bufs: Sequence[Buffer],
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
    ) -> None:
        """Broadcasts many small buffers as one operation."""
        self._finish(
            self.start_broadcast_coalesced(
                bufs, root, algorithm=algorithm, timeout=timeout, chains=chains, subgroups=subgroups
            )
        )

    def start_broadcast_coalesced(
        self,
        bufs: Sequence[Buffer],
        root: int = 0,
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
        queue: Queue | None = None,
        user: int = 0,
    ) -> Request:
        """Starts a `broadcast_coalesced`."""
        blocks = [memory(buf, "bufs", self.rank != root) for buf in bufs]
        return self._start(
            self._lib.allcast_start_broadcast_coalesced,
            (self._handle, _addresses(blocks), _sizes(blocks), len(blocks), root),
            blocks,
            algorithm,
            timeout,
            chains,
            subgroups,
            queue,
            user,
        )

    def allgather_coalesced(
        self,
        sends: Sequence[Buffer],
        recvs: Sequence[Buffer],
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
    ) -> None:
        """Is one allgather per pair of sends and recvs, as one operation. None of sends may be None."""
        self._finish(
            self.start_allgather_coalesced(
                sends,
                recvs,
                algorithm=algorithm,
                timeout=timeout,
                chains=chains,
                subgroups=subgroups,
            )
        )

    def start_allgather_coalesced(
        self,
        sends: Sequence[Buffer],
        recvs: Sequence[Buffer],
        *,
        algorithm: str | None = None,
        timeout: float | None = None,
        chains: int = 0,
        subgroups: int = 0,
        queue: Queue | None = None,
        user: int = 0,
    ) -> Request:
        """Starts an `allgather_coalesced`."""
        sources = [memory(buf, "sends", False) for buf in sends]
        targets = [memory(buf, "recvs", True) for buf in recvs]
        if len(sources) != len(targets):
            raise InvalidError(f"{len(sources)} buffers in sends and {len(targets)} in recvs")
        for source, target in zip(sources, targets):
            same_kind(source, target)
            self._check_blocks(source, "sends", target, "recvs")
        return self._start(
            self._lib.allcast_start_allgather_coalesced,
            (self._handle, _addresses(sources), _addresses(targets), _sizes(sources), len(sources)),
            (sources, targets),
            algorithm,
            timeout,
            chains,
            subgroups,
            queue,
            user,
        )

    def send(self, buf: Buffer, to: int, tag: int = 0, *, timeout: float | None = None) -> None:
        """Sends buf to another rank. It is matched by source and tag, in order.

        A timeout withdraws a message without a match, with WithdrawnError.
        """
        self._finish(self.start_send(buf, to, tag, timeout=timeout))

    def start_send(
        self,
        buf: Buffer,
        to: int,
        tag: int = 0,
        *,
        timeout: float | None = None,
        queue: Queue | None = None,
        user: int = 0,
    ) -> Request:
        """Starts a `send`."""
        block = memory(buf, "buf", False)
        return self._start(
            self._lib.allcast_start_send,
            (self._handle, block.address, block.nbytes, to, tag),
            block,
            None,
            timeout,
            0,
            0,
            queue,
            user,
        )

    def recv(
        self,
        buf: Buffer,
        source: int = _native.ANY_SOURCE,
        tag: int = 0,
        *,
        timeout: float | None = None,
    ) -> Message:
        """Receives a message from another rank, or from ANY_SOURCE. The message may be shorter than
        buf.

        A timeout withdraws a receive without a match, with WithdrawnError.
        """
        message = self._finish(self.start_recv(buf, source, tag, timeout=timeout))
        assert message is not None
        return message

    def start_recv(
        self,
        buf: Buffer,
        source: int = _native.ANY_SOURCE,
        tag: int = 0,
        *,
        timeout: float | None = None,
        queue: Queue | None = None,
        user: int = 0,
    ) -> Request:
        """Starts a `recv`."""
        block = memory(buf, "buf", True)
        return self._start(
            self._lib.allcast_start_recv,
            (self._handle, block.address, block.nbytes, source, tag),
            block,
            None,
            timeout,
            0,
            0,
            queue,
            user,
            receives=True,
        )

    # ---- Parts of operations ----

    def _start(
        self,
        function: Callable[..., int],
        arguments: tuple[Any, ...],
        buffers: object,
        algorithm: str | None,
        timeout: float | None,
        chains: int,
        subgroups: int,
        queue: Queue | None,
        user: int,
        factor: float = 1.0,
        receives: bool = False,
    ) -> Request:
        """Starts an operation with arguments of the library between the communicator and the call."""
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
                call.chains, call.subgroups = chains, subgroups
        return _requests.start(self._lib, function, arguments, buffers, call, queue, user, receives)

    def _finish(self, request: Request) -> Message | None:
        """Waits for the operation of a blocking call. An exception of a signal handler gives it up."""
        try:
            return request.wait()
        except BaseException:
            request.give_up()
            raise

    def _divide(self, buffer: Memory, name: str) -> int:
        """Returns the size of a block of a buffer with one block per rank."""
        if buffer.nbytes % self.size:
            raise InvalidError(
                f"{name}: a buffer of {buffer.nbytes} bytes cannot be divided among {self.size} ranks"
            )
        return buffer.nbytes // self.size

    def _check_blocks(self, block: Memory, block_name: str, whole: Memory, whole_name: str) -> None:
        if block.nbytes * self.size != whole.nbytes:
            raise InvalidError(
                f"{block_name} has {block.nbytes} bytes and {whole_name} {whole.nbytes}: the second must be "
                f"{self.size} times as long"
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
            raise _wrong_block(block, name, nbytes)
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
                f"{name}: the counts {list(counts)} describe {sum(sizes)} bytes, and {buffer_name} has "
                f"{buffer.nbytes}"
            )
        return (ctypes.c_size_t * self.size)(*sizes)


DType = Union[DataType, str, None]


def _address(buffer: Memory | None) -> int | None:
    return None if buffer is None else buffer.address


def _addresses(buffers: list[Memory]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(buffers))(*[buffer.address for buffer in buffers])


def _sizes(buffers: list[Memory]) -> ctypes.Array[ctypes.c_size_t]:
    return (ctypes.c_size_t * len(buffers))(*[buffer.nbytes for buffer in buffers])


def _wrong_block(buffer: Memory, name: str, nbytes: int) -> InvalidError:
    return InvalidError(f"{name}: a buffer of {buffer.nbytes} bytes for {nbytes} bytes of counts")


def _check_equal(send: Memory, recv: Memory) -> None:
    if send.nbytes != recv.nbytes:
        raise InvalidError(
            f"send has {send.nbytes} bytes and recv {recv.nbytes}: they must be equally long"
        )


def _close(lib: ctypes.CDLL, handle: int) -> None:
    if handle:
        _native.check(lib, lib.allcast_close(handle))


def _ignore(_: None) -> None:
    """Is the fate of a call without a result that was abandoned."""


def _leave_all() -> None:
    lib = _native.load()
    while _open:
        comm = _open.pop()
        comm._closed = True
        lib.allcast_close(comm._handle)
    _garbage.collect(lib, len(_garbage.dropped))


_native.at_exit(_leave_all)


def join(
    *,
    rank: int | None = None,
    size: int | None = None,
    addr: str | None = None,
    store: Store | None = None,
    attempt: int | None = None,
    key: bytes | None = None,
    secure: bool | None = None,
    integrity: bool | None = None,
    interface: str | None = None,
    fabric: str | None = None,
    device: str | None = None,
    rack: str | None = None,
    rate: str | None = None,
    timeout: float | None = None,
    join_timeout: float | None = None,
    deadline: float | None = None,
    subgroups: int | None = None,
    groups: Sequence[str] | None = None,
    comm_groups: str | None = None,
    chunk: int | None = None,
    ttl: int | None = None,
    dscp: int | None = None,
    receive_buffer: int | None = None,
    plain_sockets: bool | None = None,
    no_multicast: bool | None = None,
    datapath: str | None = None,
    hook: str | None = None,
    receive_cores: Sequence[int] | None = None,
    pin: Sequence[int] | None = None,
    tuning: str | None = None,
    calibrate: bool | None = None,
    log: str | None = None,
) -> Comm:
    """Connects this process to the other ranks of the job. All ranks call it.

    Arguments that are None come from the environment, as torchrun, mpirun, srun or `allcast run`
    set it. Durations are in seconds. docs/settings.md describes the arguments.
    """
    values = {name: value for name, value in locals().items() if name != "store"}
    lib = _native.load()
    options = Options(lib, values)
    callbacks: Callbacks | None = None

    def run() -> int:
        out = ctypes.c_uint64()
        try:
            struct = None if callbacks is None else callbacks.struct
            code = lib.allcast_join(options.handle, struct, out)
            if code:
                err = _native.last_error(lib, code)
                if callbacks is not None and callbacks.failure is not None:
                    raise callbacks.explain(err)
                raise err
        finally:
            options.free()
        return out.value

    background = Background(run, lambda handle: _close(lib, handle))
    if store is not None:
        callbacks = Callbacks(store, background.serve)
    return Comm(lib, background.result(), None)
