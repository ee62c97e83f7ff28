"""Messages between two ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _native
from ._buffers import Buffer, memory
from ._operations import (
    MessageArguments,
    Operations,
    StartMessageArguments,
    number,
)
from ._requests import Message, Request

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Messages(Operations):
    """Messages between two ranks."""

    def send(self, buf: Buffer, to: int, tag: int = 0, **call: Unpack[MessageArguments]) -> None:
        """Sends buf to another rank. It is matched by source and tag, in order.

        A timeout withdraws a message without a match, with WithdrawnError.
        """
        self.start_send(buf, to, tag, **call).finish()

    def start_send(
        self, buf: Buffer, to: int, tag: int = 0, **call: Unpack[StartMessageArguments]
    ) -> Request:
        """Starts a `send`."""
        block = memory(buf, "buf", False)
        return self._start(
            self._lib.allcast_start_send,
            (self._handle, block.address, block.nbytes, number(to, "to"), number(tag, "tag")),
            block,
            **call,
        )

    def recv(
        self,
        buf: Buffer,
        source: int = _native.ANY_SOURCE,
        tag: int = 0,
        **call: Unpack[MessageArguments],
    ) -> Message:
        """Receives a message from another rank, or from ANY_SOURCE.

        The message may be shorter than buf. A timeout withdraws a receive without a match, with
        WithdrawnError.
        """
        message = self.start_recv(buf, source, tag, **call).finish()
        assert message is not None
        return message

    def start_recv(
        self,
        buf: Buffer,
        source: int = _native.ANY_SOURCE,
        tag: int = 0,
        **call: Unpack[StartMessageArguments],
    ) -> Request:
        """Starts a `recv`."""
        block = memory(buf, "buf", True)
        return self._start(
            self._lib.allcast_start_recv,
            (
                self._handle,
                block.address,
                block.nbytes,
                number(source, "source"),
                number(tag, "tag"),
            ),
            block,
            receives=True,
            **call,
        )
