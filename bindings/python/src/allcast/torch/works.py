"""Works of c10d operations, their completion and their order.

The order of the collectives of a group is the order of the c10d calls. It holds whichever thread
starts an operation on the network:

- A c10d method describes the operation as a `Call` and hands it to `Group.launch`, which returns a
  `Work`.
- A Call on CPU tensors starts in the calling thread, because starting never blocks. `Order.run`
  does this.
- A Call on other tensors is staged: `staging.launch(group, call)` starts the copies to pinned
  memory in the calling thread and returns a Work. It passes a function to `Order.stage`. The
  group's staging thread runs that function, which may block until the copies have ended, and starts
  the operation on the network, in one or more pieces. The function makes its Work end with an error
  instead of raising.
- While a staged function is queued or runs, later collectives of the group queue behind it, those
  on CPU tensors included. The staging thread starts them in turn.
- Send and receive take no place in this order. They never pass through `Order`.

Staging code drives a Work like this:

- `Work(group, operation, results, nbytes, timeout, finish)` makes it. `finish` runs once after the
  last request has succeeded, on the thread that notices first. It copies results to their
  destination and returns soon.
- `group.options(work, n, timeout)` returns the keyword arguments for `n` calls of
  `comm.start_...`. With them, the completion thread ends the Work as soon as all `n` requests have
  ended, even if no thread waits.
- `work.begin(requests)` hands over the requests. `work.fail(error)` ends a Work without requests.

An operation keeps its tensors alive until it ends, even if the program drops the Work: its requests
refer to them.

A completion thread costs two switches between threads per operation. A Work therefore uses it only
if something has to happen without a thread that waits: if results have to be copied, or if the
program uses futures.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

import allcast

from . import tracing

if TYPE_CHECKING:
    from .groups import Group

NO_TIMEOUT = timedelta(0)

# Limit for operations and callbacks to end while a job closes.
CLOSE_SECONDS = 5.0

Start = Callable[[allcast.Memory | None, allcast.Memory | None, "dict[str, Any]"], allcast.Request]


def not_ended(seconds: float | None) -> str:
    """Says that an operation runs longer than a thread waits for it."""
    return f"it has not ended after {seconds:g} s, and continues"


class Call:
    """One operation of c10d: its buffers and how to start it on the network.

    `send` and `recv` list the tensors that make up the send buffer and the receive buffer, in
    order. An empty list stands for no buffer on this rank. If `in_place`, the receive buffer also
    holds the input. If not `writes`, the operation does not change the receive buffer of this rank,
    as on the root of a broadcast.

    `start(send, recv, options)` takes the buffers as contiguous host memory, or None, and returns a
    Request. It accepts shorter buffers than those of the call if `divisible`, so that staging can
    split the operation: each piece has an equal part of every rank's block.

    `ordered` calls are collectives. Messages between two ranks are not. c10d waits at once for a
    `sync` call, so no future or callback observes its end.
    """

    __slots__ = (
        "divisible",
        "in_place",
        "operation",
        "ordered",
        "recv",
        "results",
        "send",
        "start",
        "sync",
        "timeout",
        "writes",
    )

    def __init__(
        self,
        operation: str,
        send: Sequence[torch.Tensor],
        recv: Sequence[torch.Tensor],
        start: Start,
        results: Sequence[torch.Tensor],
        timeout: float,
        sync: bool = False,
        in_place: bool = False,
        writes: bool = True,
        divisible: bool = False,
        ordered: bool = True,
    ) -> None:
        self.operation = operation
        self.send = send
        self.recv = recv
        self.start = start
        self.results = results
        self.timeout = timeout
        self.sync = sync
        self.in_place = in_place
        self.writes = writes
        self.divisible = divisible
        self.ordered = ordered

    @property
    def nbytes(self) -> int:
        """Size of the larger buffer."""
        return max(sum(t.nbytes for t in self.send), sum(t.nbytes for t in self.recv))

    @property
    def device(self) -> torch.device | None:
        """Device of the tensors, None if there are none."""
        for tensors in (self.send, self.recv):
            if tensors:
                return tensors[0].device
        return None


class Promise:
    """The future of an operation, and the means to complete it.

    Future.set_exception marks only the Python object. Code in C++, such as DDP's reducer, would see
    success, with the exception as the value. A callback that raises an exception fails the future
    that `then` has returned in C++ too.
    """

    def __init__(
        self,
        devices: Sequence[torch.device] = (),
        current: Callable[[], object] | None = None,
    ) -> None:
        """The result is behind the current stream of `complete`.

        `current` runs in a callback. It has to make a stream current that is behind the result.
        """
        self._ended: torch.futures.Future[Any] = torch.futures.Future(devices=[*devices])
        self._failure: list[BaseException] = []
        # The callback must not refer to this object: collectors of garbage do not see such a cycle.
        failure = self._failure

        def outcome(ended: torch.futures.Future[Any]) -> Any:
            if failure:
                raise failure[0]
            if current is not None:
                current()
            return ended.value()

        self.future: torch.futures.Future[Any] = self._ended.then(outcome)

    def complete(self, results: list[torch.Tensor], error: BaseException | None) -> None:
        """Completes the future, which runs the callbacks of the program. They may block."""
        if error is not None:
            self._failure.append(error)
            results = []
        self._ended.set_result(results)


class Work(dist.Work):
    """An operation that has been called. Every method may be called from any thread."""

    def __init__(
        self,
        group: Group,
        operation: str,
        results: Sequence[torch.Tensor],
        nbytes: int,
        timeout: float,
        finish: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self._group = group
        self._operation = operation
        self._results = results
        self._nbytes = nbytes
        self._timeout = timeout
        self._finish = finish
        self._lock = threading.Lock()
        self._requests: Sequence[allcast.Request] | None = None  # None: not started yet
        self._queued = False  # whether the completion thread ends the Work
        self._done = False
        self._error: BaseException | None = None
        self._source = -1
        self._over: threading.Event | None = None
        self._promise: Promise | None = None
        self._published = False

    def begin(self, requests: Sequence[allcast.Request]) -> None:
        """Hands over the requests of the operation. The Work ends when all of them have ended."""
        self._requests = requests

    def defer(self) -> None:
        """Announces that another thread will call complete or fail."""
        self._queued = True

    def complete(self) -> None:
        """Ends a Work without requests."""
        self._end_without_requests(None)

    def fail(self, error: BaseException) -> None:
        """Ends a Work whose operation could not start, or failed without requests."""
        self._end_without_requests(error)

    def _end_without_requests(self, error: BaseException | None) -> None:
        self._end(error)
        if self.take_future():
            # Callbacks may block, and must not do so in the thread that starts operations.
            threading.Thread(target=self.publish, name="allcast-callbacks", daemon=True).start()

    def settle(self) -> None:
        """Ends the Work after all its requests have ended. Only the first call has an effect."""
        error: BaseException | None = None
        for request in self._requests or ():
            try:
                message = request.wait()
                if message is not None:
                    self._source = message.source
                    if message.bytes != self._nbytes:
                        error = ValueError(
                            f"a message of {message.bytes} bytes arrived from rank "
                            f"{message.source} for a tensor of {self._nbytes} bytes"
                        )
            except allcast.Error as failed:
                error = error or failed
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        with self._lock:
            if self._done:
                return
            if error is None and self._finish is not None:
                try:
                    self._finish()
                except Exception as failed:
                    error = failed
            self._finish = None
            if error is not None:
                self._error = self._group.backend_error(self._operation, error, self._timeout)
            self._done = True
            over = self._over
        if over is not None:
            over.set()

    def take_future(self) -> bool:
        """Whether the caller has to publish the result to a future. It is true at most once."""
        with self._lock:
            if self._promise is None or self._published:
                return False
            self._published = True
            return True

    def publish(self) -> None:
        """Completes the future, which runs the callbacks of the program. They may block."""
        assert self._promise is not None
        self._promise.complete(list(self._results), self._error)

    def _await(self, limit: float | None) -> None:
        """Waits until the operation has ended."""
        with self._lock:
            # Without a future, the waiting thread polls the network itself and ends the Work. With
            # one, the completion thread does, so that callbacks do not run in the waiting thread.
            requests = self._requests
            direct = requests is not None and self._promise is None
            if not direct and not self._done:
                self._over = self._over or threading.Event()
            over = self._over
        try:
            if direct:
                assert requests is not None
                for request in requests:
                    try:
                        request.wait(limit)
                    except allcast.WaitTimeoutError:
                        raise
                    except allcast.Error:
                        pass  # settle reports it
                self.settle()
            elif over is not None and not over.wait(limit):
                raise allcast.WaitTimeoutError(not_ended(limit))
        except allcast.WaitTimeoutError as passed:
            raise self._group.backend_error(self._operation, passed) from None

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Waits until the operation has ended, or for the timeout. The operation then continues."""
        if not self._done:
            with tracing.waiting(self._group, self._operation, self._results):
                self._await(timeout.total_seconds() if timeout > NO_TIMEOUT else None)
        if self._error is not None:
            raise self._error
        if self._promise is not None and not self._promise.future.done():
            self._promise.future.wait()
        return True

    def is_completed(self) -> bool:
        requests = None if self._done or self._promise is not None else self._requests
        if requests is not None and all(request.done() for request in requests):
            self.settle()
        return self._done

    def is_success(self) -> bool:
        return self._done and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> list[torch.Tensor]:
        return list(self._results)

    def source_rank(self) -> int:
        return self._source

    def _source_rank(self) -> int:
        return self._source

    def get_future(self) -> torch.futures.Future[Any]:
        """A future with the results."""
        with self._lock:
            if self._promise is not None:
                return self._promise.future
            self._promise = Promise()
            if self._done:
                self._published = True
            elif self._queued:
                return self._promise.future
        if self._published:
            self.publish()
        else:
            self._group.world.futures = True
            threading.Thread(target=self._watch, name="allcast-callbacks", daemon=True).start()
        return self._promise.future

    def _watch(self) -> None:
        """Ends a Work that the completion thread does not know."""
        for request in self._requests or ():
            with contextlib.suppress(allcast.Error):  # settle reports it
                request.wait()
        self.settle()
        if self.take_future():
            self.publish()


class Batch(dist.Work):
    """Several Works as one."""

    def __init__(self, works: Sequence[Work]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        for work in self._works:
            work.wait(timeout)
        return True

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)

    def exception(self) -> BaseException | None:
        return next((e for e in (work.exception() for work in self._works) if e), None)

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> list[torch.Tensor]:
        return [tensor for work in self._works for tensor in work.result()]

    def get_future(self) -> torch.futures.Future[Any]:
        collected = torch.futures.collect_all([work.get_future() for work in self._works])
        return collected.then(lambda all: [t for future in all.value() for t in future.value()])


class Completions:
    """The threads that end the Works of a job.

    One thread at a time leads: it waits for operations to end. A thread that has to complete a
    future first lets another thread lead, because callbacks of the program may wait for other
    operations.
    """

    def __init__(self) -> None:
        self.queue = allcast.Queue()
        # By user number: a Work, the number of its requests, and those that have ended.
        self._works: dict[int, tuple[Work, int, list[allcast.Request]]] = {}
        self._numbers = itertools.count(1)
        self._leader = threading.Lock()
        self._state = threading.Lock()
        self._draining = False
        self._empty = threading.Event()  # set while draining, when no Work is left
        self._spare = 0  # threads that wait to lead
        self._threads: set[threading.Thread] = set()
        self._closed = False
        self._add_thread()

    def expect(self, work: Work, requests: int) -> int:
        """Returns the user number for the requests of a Work."""
        number = next(self._numbers)
        work._queued = True
        self._works[number] = (work, requests, [])
        return number

    def forget(self, number: int) -> None:
        """Gives a Work up whose requests could not all start."""
        self._works.pop(number, None)

    def _add_thread(self) -> None:
        with self._state:
            if self._closed:
                return
            self._spare += 1
            thread = threading.Thread(target=self._serve, name="allcast-completions", daemon=True)
            self._threads.add(thread)
        thread.start()

    def _serve(self) -> None:
        while True:
            with self._leader:
                with self._state:
                    self._spare -= 1
                ended = self._next()
            if ended is None:
                return
            if ended:
                with self._state:
                    alone = self._spare == 0
                if alone:
                    self._add_thread()
                for work in ended:
                    work.publish()
            with self._state:
                if self._spare > 0 or self._closed:
                    self._threads.discard(threading.current_thread())
                    return
                self._spare += 1

    def _next(self) -> list[Work] | None:
        """Ends the Works of the next operations that have ended. Returns those with a future."""
        try:
            # One at a time, because each may have callbacks that block.
            completions = self.queue.next(max=1)
        except allcast.ClosedError:
            return None
        futures = []
        for completion in completions:
            entry = self._works.get(completion.user)
            if entry is None:
                continue  # its Work was given up
            work, count, ended = entry
            ended.append(completion.request)
            if len(ended) < count:
                continue
            del self._works[completion.user]
            work.begin(ended)  # the thread that started the operation may not have done so yet
            work.settle()
            if work.take_future():
                futures.append(work)
        if self._draining and not self._works:
            self._empty.set()
        return futures

    def close(self) -> None:
        """Ends the threads after all Works. The communicators are closed, so no Work runs long."""
        self._draining = True
        if self._works:
            self._empty.wait(CLOSE_SECONDS)
        with self._state:
            self._closed = True
            threads = list(self._threads)
        self.queue.close()
        for thread in threads:
            # A thread that runs a callback ends afterwards. The callback may have called this.
            if thread is not threading.current_thread():
                thread.join(CLOSE_SECONDS)


class Order:
    """Starts the collectives of one group in the order of the c10d calls, by the rules above."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._ready = threading.Condition(self._lock)
        self._queue: deque[Callable[[], None]] = deque()
        self._busy = 0  # functions that are queued or run in the staging thread
        self._thread: threading.Thread | None = None
        self._closed = False

    def run(self, start: Callable[[], None], later: Callable[[], None]) -> bool:
        """Calls start in this thread if no staged operation is under way; else queues later.

        It reports whether it has called start.
        """
        with self._lock:
            if self._busy == 0:
                start()
                return True
            self._append(later)
            return False

    def stage(self, function: Callable[[], None]) -> None:
        """Queues a function for the staging thread."""
        with self._lock:
            self._append(function)

    def _append(self, function: Callable[[], None]) -> None:
        self._busy += 1
        self._queue.append(function)
        if self._thread is None:
            name = f"allcast-staging-{self._name}"
            self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
            self._thread.start()
        self._ready.notify()

    def _serve(self) -> None:
        while True:
            with self._lock:
                while not self._queue:
                    if self._closed:
                        self._thread = None  # a later call gets a thread, and then its error
                        return
                    self._ready.wait()
                function = self._queue.popleft()
            function()
            del function  # it refers to tensors
            with self._lock:
                self._busy -= 1

    def close(self, end: float) -> None:
        """Lets the staging thread run the queued functions, and ends it. It waits until a time."""
        with self._lock:
            self._closed = True
            self._ready.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(max(end - time.monotonic(), 0))
