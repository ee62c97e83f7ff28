"""Exceptions. Each error code of the C library has its own class."""

from __future__ import annotations


class Error(Exception):
    """Base class of all exceptions of Allcast."""

    code: int = 19
    """Error code of the C library."""
    rank: int
    """Rank at fault in the communicator of the call, or -1 if no single rank is at fault."""
    world_rank: int
    """Rank of the job's first communicator for `rank`, or -1."""
    phase: str
    """Phase in which the operation failed, or an empty string."""

    def __init__(
        self, message: str, *, rank: int = -1, world_rank: int = -1, phase: str = ""
    ) -> None:
        super().__init__(message)
        self.rank = rank
        self.world_rank = world_rank
        self.phase = phase


class InvalidError(Error, ValueError):
    """An argument is invalid. The call has started nothing."""

    code = 1


class OptionsError(Error, ValueError):
    """An option or an environment variable is invalid."""

    code = 2


class RankLostError(Error):
    """A rank died or was silent for longer than the option `timeout`."""

    code = 3


class AbortedError(Error):
    """A rank called `Comm.abort` or gave up a blocking call."""

    code = 4


class DeadlineError(Error, TimeoutError):
    """An operation exceeded its deadline."""

    code = 5


class MismatchError(Error):
    """Ranks made different calls."""

    code = 6


class ProtocolError(Error):
    """A rank sent a message that no correct rank sends."""

    code = 7


class CorruptError(Error):
    """Ranks ended with different bytes, which the option `integrity` detects."""

    code = 8


class ClosedError(Error):
    """The communicator, the job or the queue was closed."""

    code = 9


class NoMulticastError(Error):
    """The call requires multicast, which does not work."""

    code = 10


class InUseError(Error):
    """An unfinished operation uses the memory or the queue."""

    code = 11


class TruncatedError(Error):
    """A message was longer than the buffer of its receive."""

    code = 12


class MissingError(Error):
    """A living rank did not take part in a shrink."""

    code = 13


class WaitTimeoutError(Error, TimeoutError):
    """The time to wait passed. The operation continues."""

    code = 14


class WithdrawnError(Error):
    """A send or receive without a match was withdrawn."""

    code = 15


class StoreError(Error):
    """The store of `join` failed. `__cause__` is the exception that it raised."""

    code = 16


class ForkedError(Error):
    """The process was forked after it had loaded the library."""

    code = 17


class JoinError(Error):
    """Joining failed for another reason, such as a missing rank."""

    code = 18


class NoAggregationError(Error):
    """The call requires aggregators, which it cannot use."""

    code = 20


_CLASSES: dict[int, type[Error]] = {
    cls.code: cls
    for cls in (
        InvalidError,
        OptionsError,
        RankLostError,
        AbortedError,
        DeadlineError,
        MismatchError,
        ProtocolError,
        CorruptError,
        ClosedError,
        NoMulticastError,
        InUseError,
        TruncatedError,
        MissingError,
        WaitTimeoutError,
        WithdrawnError,
        StoreError,
        ForkedError,
        JoinError,
        NoAggregationError,
    )
}


def error_class(code: int) -> type[Error]:
    """Returns the class of an error code. Codes of newer libraries are plain errors."""
    return _CLASSES.get(code, Error)
