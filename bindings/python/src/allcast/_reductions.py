"""Collectives that combine elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ._buffers import Buffer, element_type, memory
from ._operations import (
    CallArguments,
    DType,
    Operations,
    StartCallArguments,
    address,
    check_equal,
    number,
    wrong_block,
)
from ._requests import Request
from ._types import Op, parse_op
from .errors import InvalidError

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Reductions(Operations):
    """Collectives that combine elements."""

    def reduce(
        self,
        send: Buffer | None,
        recv: Buffer | None,
        op: Op | str = "sum",
        root: int = 0,
        dtype: DType = None,
        factor: float = 1.0,
        **call: Unpack[CallArguments],
    ) -> None:
        """Combines send of all ranks by element, and stores the result in recv of rank root.

        Other ranks ignore recv. The root may pass None for send if its input is in recv.
        """
        self.start_reduce(send, recv, op, root, dtype, factor, **call).finish()

    def start_reduce(
        self,
        send: Buffer | None,
        recv: Buffer | None,
        op: Op | str = "sum",
        root: int = 0,
        dtype: DType = None,
        factor: float = 1.0,
        **call: Unpack[StartCallArguments],
    ) -> Request:
        """Starts a `reduce`."""
        source = None if send is None else memory(send, "send", False)
        target = self._at_root(recv, "recv", True, root)
        block = source or target
        if block is None:
            raise InvalidError("send: only the root may pass None")
        if source is not None and target is not None:
            check_equal(source, target)
        kind = element_type(dtype, source, target)
        return self._start(
            self._lib.allcast_start_reduce,
            (
                self._handle,
                address(source),
                address(target),
                block.nbytes,
                kind,
                parse_op(op),
                number(root, "root"),
            ),
            (source, target),
            factor=factor,
            **call,
        )

    def reduce_scatter(
        self,
        send: Buffer,
        recv: Buffer,
        op: Op | str = "sum",
        dtype: DType = None,
        factor: float = 1.0,
        **call: Unpack[CallArguments],
    ) -> None:
        """Combines send of all ranks by element, and stores block i in recv of rank i.

        send is `size` times as long as recv.
        """
        self.start_reduce_scatter(send, recv, op, dtype, factor, **call).finish()

    def start_reduce_scatter(
        self,
        send: Buffer,
        recv: Buffer,
        op: Op | str = "sum",
        dtype: DType = None,
        factor: float = 1.0,
        **call: Unpack[StartCallArguments],
    ) -> Request:
        """Starts a `reduce_scatter`."""
        source, target = memory(send, "send", False), memory(recv, "recv", True)
        kind = element_type(dtype, source, target)
        self._check_blocks(target, "recv", source, "send")
        return self._start(
            self._lib.allcast_start_reduce_scatter,
            (self._handle, source.address, target.address, target.nbytes, kind, parse_op(op)),
            (source, target),
            factor=factor,
            **call,
        )

    def reduce_scatterv(
        self,
        send: Buffer,
        recv: Buffer,
        counts: Sequence[int],
        op: Op | str = "sum",
        dtype: DType = None,
        factor: float = 1.0,
        **call: Unpack[CallArguments],
    ) -> None:
        """Is a reduce_scatter in which rank i receives counts[i] elements.

        All ranks pass the same counts.
        """
        self.start_reduce_scatterv(send, recv, counts, op, dtype, factor, **call).finish()

    def start_reduce_scatterv(
        self,
        send: Buffer,
        recv: Buffer,
        counts: Sequence[int],
        op: Op | str = "sum",
        dtype: DType = None,
        factor: float = 1.0,
        **call: Unpack[StartCallArguments],
    ) -> Request:
        """Starts a `reduce_scatterv`."""
        source, target = memory(send, "send", False), memory(recv, "recv", True)
        kind = element_type(dtype, source, target)
        sizes = self._counts(counts, "counts", source, "send")
        if target.nbytes != sizes[self.rank]:
            raise wrong_block(target, "recv", sizes[self.rank])
        return self._start(
            self._lib.allcast_start_reduce_scatterv,
            (self._handle, source.address, target.address, sizes, kind, parse_op(op)),
            (source, target),
            factor=factor,
            **call,
        )

    def allreduce(
        self,
        send: Buffer | None,
        recv: Buffer,
        op: Op | str = "sum",
        dtype: DType = None,
        factor: float = 1.0,
        **call: Unpack[CallArguments],
    ) -> None:
        """Combines send of all ranks by element, and stores the result in recv of all ranks.

        If send is None, the input is in recv. All ranks get the same bits.
        """
        self.start_allreduce(send, recv, op, dtype, factor, **call).finish()

    def start_allreduce(
        self,
        send: Buffer | None,
        recv: Buffer,
        op: Op | str = "sum",
        dtype: DType = None,
        factor: float = 1.0,
        **call: Unpack[StartCallArguments],
    ) -> Request:
        """Starts an `allreduce`."""
        target = memory(recv, "recv", True)
        source = None if send is None else memory(send, "send", False)
        if source is not None:
            check_equal(source, target)
        kind = element_type(dtype, source, target)
        return self._start(
            self._lib.allcast_start_allreduce,
            (self._handle, address(source), target.address, target.nbytes, kind, parse_op(op)),
            (source, target),
            factor=factor,
            **call,
        )
