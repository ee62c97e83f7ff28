"""Collectives that move data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ._buffers import Buffer, memory, same_kind
from ._operations import (
    CallArguments,
    Operations,
    StartCallArguments,
    address,
    addresses,
    check_equal,
    number,
    sizes,
)
from ._requests import Request
from .errors import InvalidError

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Collectives(Operations):
    """Collectives that move data."""

    def broadcast(self, buf: Buffer, root: int = 0, **call: Unpack[CallArguments]) -> None:
        """Copies buf of rank root to buf of all other ranks. It is equally long on all ranks."""
        self.start_broadcast(buf, root, **call).finish()

    def start_broadcast(
        self, buf: Buffer, root: int = 0, **call: Unpack[StartCallArguments]
    ) -> Request:
        """Starts a `broadcast`."""
        block = memory(buf, "buf", self.rank != root)
        return self._start(
            self._lib.allcast_start_broadcast,
            (self._handle, block.address, block.nbytes, number(root, "root")),
            block,
            **call,
        )

    def allgather(self, send: Buffer | None, recv: Buffer, **call: Unpack[CallArguments]) -> None:
        """Copies send of all ranks to recv of all ranks, in rank order.

        recv is `size` times as long as send. If send is None, this rank's block is in recv already.
        """
        self.start_allgather(send, recv, **call).finish()

    def start_allgather(
        self, send: Buffer | None, recv: Buffer, **call: Unpack[StartCallArguments]
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
            **call,
        )

    def allgatherv(
        self,
        send: Buffer | None,
        recv: Buffer,
        counts: Sequence[int],
        **call: Unpack[CallArguments],
    ) -> None:
        """Is an allgather in which rank i contributes counts[i] elements.

        All ranks pass the same counts.
        """
        self.start_allgatherv(send, recv, counts, **call).finish()

    def start_allgatherv(
        self,
        send: Buffer | None,
        recv: Buffer,
        counts: Sequence[int],
        **call: Unpack[StartCallArguments],
    ) -> Request:
        """Starts an `allgatherv`."""
        target = memory(recv, "recv", True)
        sizes = self._counts(counts, "counts", target, "recv")
        source = self._own_block(send, "send", False, sizes[self.rank])
        if source is not None:
            same_kind(source, target)
        return self._start(
            self._lib.allcast_start_allgatherv,
            (self._handle, address(source), target.address, sizes),
            (source, target),
            **call,
        )

    def gather(
        self,
        send: Buffer | None,
        recv: Buffer | None,
        root: int = 0,
        **call: Unpack[CallArguments],
    ) -> None:
        """Copies send of all ranks to recv of rank root, in rank order.

        Other ranks ignore recv. The root may pass None for send if its block is in recv already.
        """
        self.start_gather(send, recv, root, **call).finish()

    def start_gather(
        self,
        send: Buffer | None,
        recv: Buffer | None,
        root: int = 0,
        **call: Unpack[StartCallArguments],
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
            (self._handle, address(source), address(target), block, number(root, "root")),
            (source, target),
            **call,
        )

    def gatherv(
        self,
        send: Buffer | None,
        recv: Buffer | None,
        counts: Sequence[int] | None,
        root: int = 0,
        **call: Unpack[CallArguments],
    ) -> None:
        """Is a gather in which rank i contributes counts[i] elements.

        Only the root needs counts.
        """
        self.start_gatherv(send, recv, counts, root, **call).finish()

    def start_gatherv(
        self,
        send: Buffer | None,
        recv: Buffer | None,
        counts: Sequence[int] | None,
        root: int = 0,
        **call: Unpack[StartCallArguments],
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
            (self._handle, address(source), block, address(target), sizes, number(root, "root")),
            (source, target),
            **call,
        )

    def scatter(
        self,
        send: Buffer | None,
        recv: Buffer | None,
        root: int = 0,
        **call: Unpack[CallArguments],
    ) -> None:
        """Copies block i of send of rank root to recv of rank i.

        Other ranks ignore send. The root may pass None for recv if its block is to stay in send.
        """
        self.start_scatter(send, recv, root, **call).finish()

    def start_scatter(
        self,
        send: Buffer | None,
        recv: Buffer | None,
        root: int = 0,
        **call: Unpack[StartCallArguments],
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
            (self._handle, address(source), address(target), block, number(root, "root")),
            (source, target),
            **call,
        )

    def scatterv(
        self,
        send: Buffer | None,
        recv: Buffer | None,
        counts: Sequence[int] | None,
        root: int = 0,
        **call: Unpack[CallArguments],
    ) -> None:
        """Is a scatter in which rank i receives counts[i] elements.

        Only the root needs counts.
        """
        self.start_scatterv(send, recv, counts, root, **call).finish()

    def start_scatterv(
        self,
        send: Buffer | None,
        recv: Buffer | None,
        counts: Sequence[int] | None,
        root: int = 0,
        **call: Unpack[StartCallArguments],
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
            (self._handle, address(source), sizes, address(target), block, number(root, "root")),
            (source, target),
            **call,
        )

    def alltoall(self, send: Buffer | None, recv: Buffer, **call: Unpack[CallArguments]) -> None:
        """Copies block i of send of rank j to block j of recv of rank i.

        If send is None, the blocks to send are in recv.
        """
        self.start_alltoall(send, recv, **call).finish()

    def start_alltoall(
        self, send: Buffer | None, recv: Buffer, **call: Unpack[StartCallArguments]
    ) -> Request:
        """Starts an `alltoall`."""
        target = memory(recv, "recv", True)
        source = None
        if send is not None:
            source = memory(send, "send", False)
            same_kind(source, target)
            check_equal(source, target)
        block = self._divide(target, "recv")
        return self._start(
            self._lib.allcast_start_alltoall,
            (self._handle, address(source), target.address, block),
            (source, target),
            **call,
        )

    def alltoallv(
        self,
        send: Buffer | None,
        recv: Buffer,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        **call: Unpack[CallArguments],
    ) -> None:
        """Is an alltoall with send_counts[i] elements to rank i and recv_counts[i] from it.

        If send is None, the blocks to send are in recv, and both counts are equal.
        """
        self.start_alltoallv(send, recv, send_counts, recv_counts, **call).finish()

    def start_alltoallv(
        self,
        send: Buffer | None,
        recv: Buffer,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        **call: Unpack[StartCallArguments],
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
            (self._handle, address(source), outgoing, target.address, incoming),
            (source, target),
            **call,
        )

    def barrier(self, **call: Unpack[CallArguments]) -> None:
        """Waits until all ranks have called it."""
        self.start_barrier(**call).finish()

    def start_barrier(self, **call: Unpack[StartCallArguments]) -> Request:
        """Starts a `barrier`."""
        return self._start(self._lib.allcast_start_barrier, (self._handle,), None, **call)

    def broadcast_coalesced(
        self, bufs: Sequence[Buffer], root: int = 0, **call: Unpack[CallArguments]
    ) -> None:
        """Broadcasts many small buffers as one operation."""
        self.start_broadcast_coalesced(bufs, root, **call).finish()

    def start_broadcast_coalesced(
        self, bufs: Sequence[Buffer], root: int = 0, **call: Unpack[StartCallArguments]
    ) -> Request:
        """Starts a `broadcast_coalesced`."""
        blocks = [memory(buf, "bufs", self.rank != root) for buf in bufs]
        return self._start(
            self._lib.allcast_start_broadcast_coalesced,
            (self._handle, addresses(blocks), sizes(blocks), len(blocks), number(root, "root")),
            blocks,
            **call,
        )

    def allgather_coalesced(
        self, sends: Sequence[Buffer], recvs: Sequence[Buffer], **call: Unpack[CallArguments]
    ) -> None:
        """Is one allgather per pair of sends and recvs, as one operation.

        None of sends may be None.
        """
        self.start_allgather_coalesced(sends, recvs, **call).finish()

    def start_allgather_coalesced(
        self, sends: Sequence[Buffer], recvs: Sequence[Buffer], **call: Unpack[StartCallArguments]
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
            (self._handle, addresses(sources), addresses(targets), sizes(sources), len(sources)),
            (sources, targets),
            **call,
        )
