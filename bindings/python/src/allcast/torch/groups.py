"""Groups of ranks: joining over the store of torch, communicators, and launching operations."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

import allcast
from allcast._comm import exit_limit

from . import tracing
from .buffers import Scratch, bind
from .works import CLOSE_SECONDS, Batch, Call, Completions, Order, Work

# Errors of operations that reach their deadline. A message without a match is withdrawn then.
_TIMEOUTS = (allcast.DeadlineError, allcast.WithdrawnError)


class _Store:
    """The store of c10d as allcast.join expects it."""

    # Interval between looks for a key. A wait inside the store would log a warning when it ends.
    _LOOK = 0.01

    def __init__(self, store: c10d.Store) -> None:
        self._store = store

    def set(self, key: str, value: bytes) -> None:
        self._store.set(key, value)  # type: ignore[arg-type]  # it takes bytes, too

    def get(self, key: str, wait: float) -> bytes | None:
        end = time.monotonic() + wait
        while not self._store.check([key]):
            left = end - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(left, self._LOOK))
        return bytes(self._store.get(key))


class World:
    """A job of Allcast: its first communicator, and what all groups made from it share."""

    def __init__(self, comm: allcast.Comm) -> None:
        self.comm = comm
        self.completions = Completions()
        self.scratch = Scratch()
        self.futures = False  # whether the program has asked for the future of a Work
        self._groups: list[Group] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._closed = False

    def add(self, group: Group) -> None:
        with self._lock:
            self._groups.append(group)

    def remove(self, group: Group) -> None:
        with self._lock:
            if group in self._groups:
                self._groups.remove(group)

    def groups(self) -> list[Group]:
        with self._lock:
            return list(self._groups)

    def forked(self) -> bool:
        """Whether this process was forked from the one that joined."""
        return os.getpid() != self._pid

    def close(self, limit: float | None = None) -> None:
        """Leaves the job. It does nothing in a forked child, whose parent still uses the job.

        The limit is the number of seconds to wait for operations and for other ranks.
        """
        if self.forked():
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        _worlds.remove(self)
        groups = self.groups()
        end = time.monotonic() + (CLOSE_SECONDS if limit is None else limit)
        for group in groups:
            group.order.close(end)
        for group in groups:
            group.drain(end)
        try:
            self.comm.close(limit)
        except allcast.Error:
            if limit is None:
                raise
            # On a busy machine, leaving the job takes longer and continues.
        finally:
            self.completions.close()


class _Worlds:
    """The jobs of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: list[World] = []
        self._default: World | None = None  # that of torch's default group
        self._registered = False

    def add(self, world: World, default: bool) -> None:
        with self._lock:
            self._all.append(world)
            if default:
                self._default = world
            if not self._registered:
                # Functions run in reverse order at exit, so this one precedes that of the library,
                # which was loaded earlier.
                self._registered = True
                atexit.register(self._close)

    def remove(self, world: World) -> None:
        with self._lock:
            if world in self._all:
                self._all.remove(world)
            if self._default is world:
                self._default = None

    def default(self) -> World | None:
        with self._lock:
            return self._default

    def all(self) -> list[World]:
        with self._lock:
            return list(self._all)

    def _close(self) -> None:
        for world in reversed(self.all()):
            world.close(exit_limit())


_worlds = _Worlds()


def worlds() -> list[World]:
    """Returns the jobs that this process takes part in."""
    return _worlds.all()


class Group:
    """A communicator for one process group of torch."""

    def __init__(
        self, world: World, comm: allcast.Comm, name: str, timeout: timedelta, root: bool
    ) -> None:
        self.world = world
        self.comm = comm
        self.name = name
        self.rank: int = comm.rank
        self.size: int = comm.size
        self.timeout = timeout.total_seconds()
        self.order = Order(name)
        self.sequence = 0  # number of collectives
        self.barriers = 0  # number of monitored barriers
        self._batch = threading.local()  # Works of this thread since start_batch
        self._root = root
        self._recent: deque[weakref.ref[Work]] = deque(maxlen=64)  # the last collectives
        self._counts: dict[tuple[str, str], list[int]] = {}
        world.add(self)

    def drain(self, end: float) -> None:
        """Waits until the last collectives have ended, or until a time. Leaving stops them."""
        for ref in list(self._recent):
            work = ref()
            while work is not None and not work.is_completed() and time.monotonic() < end:
                time.sleep(0.001)

    def close(self) -> None:
        """Ends the use of the group on this rank. Closing a job's first group leaves the job."""
        if self._root:
            # The other ranks must not wait for one that cleans up after an exception.
            failed = sys.exc_info()[0] is not None
            self.world.close(exit_limit() if failed else None)
            return
        if self.world.forked():
            return
        self.world.remove(self)
        self.order.close(time.monotonic() + CLOSE_SECONDS)
        if not self.comm.closed:
            self.comm.close()

    def abort(self) -> None:
        """Ends all operations of the group on all its ranks, and its use on this rank.

        torch forgets an aborted group. It does not destroy it, too.
        """
        if self.world.forked():
            return
        if not self.comm.closed:
            self.comm.abort()
        if self._root:
            self.world.close(0)
        else:
            self.close()

    def subgroup(self, ranks: Sequence[int], name: str, timeout: timedelta) -> Group:
        """Makes a group of some ranks of this one. Only these ranks call it."""
        return _subset(self.world, self.comm, ranks, name, timeout)

    def backend_error(
        self, operation: str, error: BaseException, timeout: float | None = None
    ) -> BaseException:
        """Returns the exception for an operation that failed. It names this rank and the group."""
        outcome = "failed"
        if timeout is not None and isinstance(error, _TIMEOUTS):
            outcome = f"exceeded its timeout of {timeout:g} s"
        raised = dist.DistBackendError(
            f"allcast: {operation} {outcome} on rank {self.rank} of group {self.name!r}: {error}"
        )
        raised.__cause__ = error
        return raised

    def count(self, operation: str, algorithm: str, nbytes: int) -> None:
        """Counts an operation that has started."""
        entry = self._counts.get((operation, algorithm))
        if entry is None:
            entry = self._counts.setdefault((operation, algorithm), [0, 0])
        entry[0] += 1
        entry[1] += nbytes

    def counts(self) -> dict[str, dict[str, dict[str, int]]]:
        """Returns count and bytes of all operations, by name and algorithm."""
        result: dict[str, dict[str, dict[str, int]]] = {}
        for (operation, algorithm), (count, nbytes) in list(self._counts.items()):
            result.setdefault(operation, {})[algorithm] = {"count": count, "bytes": nbytes}
        return result

    def options(self, work: Work, requests: int, timeout: float) -> dict[str, Any]:
        """Returns arguments for the calls that start the requests of a Work."""
        if self.comm.closed:  # and the queue with it
            raise allcast.ClosedError("the communicator is closed")
        completions = self.world.completions
        return {
            "timeout": timeout,
            "queue": completions.queue,
            "user": completions.expect(work, requests),
        }

    def launch(self, *calls: Call) -> Work:
        """Starts operations in the order of the group, as one Work."""
        first = calls[0]
        device = first.device
        if device is not None and device.type not in ("cpu", "cuda"):
            raise ValueError(f"{first.operation}: tensors on {device}: use tensors on cpu or cuda")
        if first.ordered:
            self.sequence += 1
        with tracing.launching(self, calls):
            return self._launch(first, calls)

    def _launch(self, first: Call, calls: Sequence[Call]) -> Work:
        device = first.device
        if device is not None and device.type == "cuda":
            from . import staging

            return self._collect(staging.launch(self, *calls))
        finish: list[Callable[[], None]] = []
        buffers = [bind(self.world.scratch, call, finish) for call in calls]
        nbytes = first.nbytes if len(calls) == 1 else sum(call.nbytes for call in calls)
        work = Work(
            self,
            first.operation,
            first.results,
            nbytes,
            first.timeout,
            (lambda: _run(finish)) if finish else None,
        )
        if first.ordered and not first.sync:
            self._recent.append(weakref.ref(work))

        def start(queued: bool) -> None:
            options: dict[str, Any] = {"timeout": first.timeout}
            if queued:
                options = self.options(work, len(calls), first.timeout)
            try:
                requests = [
                    call.start(send, recv, options) for call, (send, recv) in zip(calls, buffers)
                ]
            except BaseException:
                if queued:
                    self.world.completions.forget(options["user"])
                raise
            work.begin(requests)
            self.count(first.operation, requests[0].algorithm, nbytes)

        def later() -> None:
            try:
                start(True)
            except Exception as error:
                work.fail(error)

        queued = not first.sync and (bool(finish) or self.world.futures)
        try:
            if first.ordered:
                if not self.order.run(lambda: start(queued), later):
                    work.defer()
            else:
                start(queued)
        except allcast.Error as error:
            raise self.backend_error(first.operation, error) from error
        return self._collect(work)

    def _collect(self, work: Work) -> Work:
        """Adds a Work to the batch of this thread, if there is one."""
        batch = getattr(self._batch, "works", None)
        if batch is not None:
            batch.append(work)
        return work

    def start_batch(self) -> None:
        """Collects the Works that this thread launches from now on."""
        self._batch.works = []

    def end_batch(self) -> Batch | None:
        """Returns the Works since start_batch as one, None if there are none."""
        works: list[Work] = self._batch.works
        self._batch.works = None
        return Batch(works) if works else None


def _run(functions: list[Callable[[], None]]) -> None:
    with torch.no_grad():
        for function in functions:
            function()


def create(
    store: c10d.Store, rank: int, size: int, timeout: timedelta, name: str, ranks: Sequence[int]
) -> Group:
    """Makes the group of a new process group.

    ranks are global ranks. They are empty for the default group.
    """
    world = _worlds.default()
    if ranks and world is not None:
        return _subset(world, world.comm, ranks, name, timeout)
    # A program may destroy its groups and make them again with the same store. Each rank counts its
    # joins there, so that ranks do not find addresses of an earlier job.
    attempt = store.add(f"allcast/joins/{rank}", 1) - 1
    try:
        comm = allcast.join(
            rank=rank,
            size=size,
            store=_Store(store),
            attempt=attempt,
            join_timeout=timeout.total_seconds(),
        )
    except allcast.Error as error:
        raise dist.DistBackendError(
            f"allcast: rank {rank} of {size} cannot join group {name!r}: {error}"
        ) from error
    world = World(comm)
    _worlds.add(world, default=not ranks)
    return Group(world, comm, name, timeout, root=True)


def _subset(
    world: World, parent: allcast.Comm, ranks: Sequence[int], name: str, timeout: timedelta
) -> Group:
    try:
        comm = parent.subset(list(ranks), tag=name, timeout=timeout.total_seconds())
    except allcast.Error as error:
        raise dist.DistBackendError(
            f"allcast: rank {parent.rank} cannot make group {name!r} of ranks {list(ranks)}: "
            f"{error}"
        ) from error
    return Group(world, comm, name, timeout, root=False)
