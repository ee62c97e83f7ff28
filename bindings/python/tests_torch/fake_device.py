"""A device for tests of staging, and a network between ranks of one process.

The device keeps the commands of each stream in order, and nothing else: it picks the next stream at
random. Its memory is host memory. With one queue, it runs the commands of all streams in the order
in which they were enqueued, like a device whose streams share one hardware queue.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

from allcast.torch.devices import Region


class Event:
    def __init__(self) -> None:
        self.occurred = False


class Stream:
    def __init__(self, name: str) -> None:
        self.name = name
        self.commands: deque[tuple[Callable[[], bool], Callable[[], None]]] = deque()


class FakeDevice:
    """Implements allcast.torch.devices.Device."""

    def __init__(
        self,
        seed: int = 0,
        stream_waits: bool = True,
        one_queue: bool = False,
        limit: int | None = None,
    ) -> None:
        self.stream_waits = stream_waits
        self._limit = limit  # of commands; enqueueing blocks at the limit
        self.copies = 0
        self.used: list[tuple[torch.Tensor, Stream]] = []
        self.pinned_bytes = 0
        self.failure: BaseException | None = None  # of copies
        self.broken: BaseException | None = None  # of everything, as after an error of CUDA
        self._random = random.Random(seed)
        self._one_queue = one_queue
        self._shared = Stream("shared")
        self._streams: list[Stream] = []
        self._change = threading.Condition()
        self._current = threading.local()
        self._default = self.new_stream()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with self._change:
            self._closed = True
            self._change.notify_all()
        self._thread.join()

    def poke(self) -> None:
        """Makes the device look at flags and gates again."""
        with self._change:
            self._change.notify_all()

    # What a test does with the device.

    def compute(self, function: Callable[[], None], gate: threading.Event | None = None) -> None:
        """Enqueues a kernel on the current stream. It starts when the gate is open."""
        runnable = gate.is_set if gate is not None else lambda: True
        self._enqueue(self.current_stream(), runnable, function)

    def drain(self) -> None:
        """Blocks until all streams are empty."""
        with self._change:
            done = self._change.wait_for(
                lambda: not self._shared.commands and not any(s.commands for s in self._streams), 60
            )
        assert done, "the device has not done all its work after 60 s"

    # The interface.

    def current_stream(self) -> Stream:
        return getattr(self._current, "stream", self._default)

    def new_stream(self) -> Stream:
        stream = Stream(f"stream {len(self._streams)}")
        with self._change:
            self._streams.append(stream)
        return stream

    def idle(self, stream: Stream) -> bool:
        with self._change:
            return not stream.commands and not (self._one_queue and self._shared.commands)

    def using(self, stream: Stream) -> contextlib.AbstractContextManager[Any]:
        @contextlib.contextmanager
        def use() -> Iterator[None]:
            previous = self.current_stream()
            self._current.stream = stream
            try:
                yield
            finally:
                self._current.stream = previous

        return use()

    def record(self, stream: Stream) -> Event:
        event = Event()

        def occur() -> None:
            event.occurred = True

        self._enqueue(stream, lambda: True, occur)
        return event

    def wait_event(self, stream: Stream, event: Event) -> None:
        self._enqueue(stream, lambda: event.occurred, lambda: None)

    def wait_flag(self, stream: Stream, flag: torch.Tensor, value: int) -> None:
        assert self.stream_waits
        reached = lambda: (int(flag.item()) - value) % 2**32 < 2**31  # noqa: E731
        self._enqueue(stream, reached, lambda: None)

    def copy(self, stream: Stream, to: Region, source: Region) -> None:
        if self.failure is not None:
            raise self.failure
        assert (to.width, to.rows) == (source.width, source.rows)

        def run() -> None:
            _rows(to).copy_(_rows(source))
            self.copies += 1

        self._enqueue(stream, lambda: True, run)

    def assign(self, stream: Stream, to: torch.Tensor, source: torch.Tensor) -> None:
        self._enqueue(stream, lambda: True, lambda: to.copy_(source))

    def synchronize(self, event: Event) -> None:
        self._check()
        with self._change:
            done = self._change.wait_for(lambda: event.occurred, 60)
        assert done, "an event has not occurred after 60 s"

    def synchronize_stream(self, stream: Stream) -> None:
        self.synchronize(self.record(stream))

    def query(self, event: Event) -> bool:
        self._check()
        return event.occurred

    def pinned(self, nbytes: int) -> torch.Tensor:
        self.pinned_bytes += nbytes
        # Not zero, so that a byte that nothing wrote shows.
        return torch.full((nbytes,), 0xA5, dtype=torch.uint8)

    def record_use(self, tensor: torch.Tensor, stream: Stream) -> None:
        self.used.append((tensor, stream))

    def _check(self) -> None:
        if self.broken is not None:
            raise self.broken

    def _enqueue(
        self, stream: Stream, runnable: Callable[[], bool], run: Callable[[], None]
    ) -> None:
        self._check()
        with self._change:
            if self._limit is not None:
                free = self._change.wait_for(lambda: self._pending() < (self._limit or 0), 60)
                assert free, "the device has accepted no command for 60 s"
            (self._shared if self._one_queue else stream).commands.append((runnable, run))
            self._change.notify_all()

    def _pending(self) -> int:
        return len(self._shared.commands) + sum(len(s.commands) for s in self._streams)

    def _serve(self) -> None:
        while True:
            with self._change:
                while True:
                    if self._closed:
                        return
                    heads = [s for s in [self._shared, *self._streams] if s.commands]
                    ready = [s for s in heads if s.commands[0][0]()]
                    if ready:
                        break
                    # The host sets flags without telling the device.
                    self._change.wait(0.001 if heads else None)
                stream = self._random.choice(ready)
                stream.commands[0][1]()
                stream.commands.popleft()
                self._change.notify_all()


def _rows(region: Region) -> torch.Tensor:
    assert region.tensor.dtype == torch.uint8
    assert region.tensor.dim() == 1
    pitch = region.pitch if region.rows > 1 else region.width
    end = region.offset + (region.rows - 1) * pitch + region.width
    assert region.offset >= 0
    assert end <= region.tensor.numel(), f"{region} is out of bounds"
    return region.tensor.as_strided(
        (region.rows, region.width), (pitch, 1), region.tensor.storage_offset() + region.offset
    )


Buffers = list[tuple["torch.Tensor | None", "torch.Tensor | None"]]


class FakeNetwork:
    """Runs operations between ranks of this process. The n-th operation of each rank meets the
    others' n-th.

    An operation that fails aborts the communicator, as in Allcast: the operations that run end with
    its error.
    """

    def __init__(self, ranks: int, seed: int = 0) -> None:
        self.ranks = ranks
        self.started: list[int] = [0] * ranks
        self.failing: dict[int, BaseException] = {}  # operations that fail, by number
        self.held: set[int] | None = None  # operations that wait for release, None: none waits
        self._random = random.Random(seed)
        self._lock = threading.Condition()
        self._operations: dict[int, dict[int, Any]] = {}
        self._aborted: BaseException | None = None

    def start(
        self,
        rank: int,
        apply: Callable[[Buffers], None],
        send: torch.Tensor | None,
        recv: torch.Tensor | None,
        done: Callable[[BaseException | None], None],
    ) -> None:
        with self._lock:
            if self._aborted is not None:
                raise self._aborted
            number = self.started[rank]
            self.started[rank] += 1
            operation = self._operations.setdefault(number, {})
            operation[rank] = (send, recv, done, apply)
            if len(operation) < self.ranks:
                return
            if self.held is not None:
                self.held.add(number)
                self._lock.notify_all()
                return
        self._end(number)

    def wait_held(self, count: int) -> None:
        """Blocks until the network holds that many operations."""
        with self._lock:
            assert self._lock.wait_for(lambda: len(self.held or ()) >= count, 60)

    def release(self) -> None:
        """Ends the operations that were held, the newest first, and holds no more."""
        with self._lock:
            held, self.held = self.held or set(), None
        for number in sorted(held, reverse=True):
            if number in self._operations:
                self._end(number)

    def _end(self, number: int) -> None:
        with self._lock:
            error = self.failing.get(number)
            ending = [self._operations.pop(number, {})]
            if error is not None:
                self._aborted = error
                ending += self._operations.values()
                self._operations = {}
        for operation in ending:
            if error is None:
                operation[0][3]([operation[rank][:2] for rank in range(self.ranks)])
            ranks = list(operation)
            self._random.shuffle(ranks)
            for rank in ranks:
                threading.Thread(target=operation[rank][2], args=(error,), daemon=True).start()

    def restart(self) -> None:
        """Makes a new communicator after a failure."""
        self.failing.clear()
        self._aborted = None
        self.started = [0] * self.ranks
