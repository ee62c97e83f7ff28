"""Operations on device tensors, staged through pinned host memory.

An operation is a list of pieces. Each piece copies bytes to the host, runs one operation of Allcast
on host memory, and copies bytes back. The copy of piece i+1 to the host, the network of piece i and
the copy of piece i-1 to the device overlap.

The call enqueues the first copies behind the current stream and returns. The thread that starts the
group's collectives waits for the copies of a piece, starts its operation, and goes on with the next
piece. The thread that handles completions enqueues the copies to the device.

Work.wait on device tensors must not block the host, so it has to make the current stream wait for
something that the host does later. The choices are:

  - a kernel that spins, as in Work.block_current_stream: occupies the device, which starves the
    other processes that share it;
  - a host function in the stream: one driver thread runs the host functions of all streams, so that
    a blocked one delays those of everyone else;
  - a stream that waits for a value in memory (cuStreamWaitValue32): costs nothing while it waits;
  - an event that the completion thread records: the host must block in wait until it is recorded,
    because an event cannot be waited for before it is recorded.

Staging uses the third. On a device that has no third, or that several processes share, it uses the
fourth: processes take turns on such a device, and one whose streams wait still gets its turns.

Streams may share a hardware queue, where a copy that is enqueued behind a waiting stream cannot
start. Therefore wait first enqueues all copies of the operation that are missing, each copy to the
device behind its own wait, in an order in which every command depends on earlier ones only. After
that, the host only sets the value. This holds for all ranks and all operations that are called in
the same order, so that even a device with a single queue makes progress.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import torch

import allcast

from . import tracing
from .devices import CudaDevice, Device
from .pieces import Done, Plan, Settings, Start, add_call, aligned, shape_of
from .pinned import Flag, Flags, Pool, Streams
from .works import NO_TIMEOUT, Call, Promise, Work, not_ended

if TYPE_CHECKING:
    from .groups import Group


class _Sequence:
    """Runs functions one after the other, in a thread that ends when there are none for a while."""

    _IDLE_SECONDS = 2.0

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Condition()
        self._queue: deque[Callable[[], None]] = deque()
        self._running = False

    def add(self, function: Callable[[], None]) -> None:
        with self._lock:
            self._queue.append(function)
            if self._running:
                self._lock.notify()
                return
            self._running = True
        threading.Thread(target=self._serve, name=self._name, daemon=True).start()

    def _serve(self) -> None:
        while True:
            with self._lock:
                if not self._lock.wait_for(lambda: bool(self._queue), self._IDLE_SECONDS):
                    self._running = False
                    return
                function = self._queue.popleft()
            function()
            del function  # it refers to tensors


class Outstanding:
    """The collectives of a device whose copies are not all enqueued yet, in the order of the calls.

    A stream that waits for a collective may hold up copies that are enqueued later. If these belong
    to an earlier collective, and other ranks wait for that one first, all would wait forever.
    Before a stream waits, the copies of all earlier collectives are therefore enqueued.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[StagedCall, None] = {}

    def add(self, call: StagedCall) -> None:
        with self._lock:
            self._calls[call] = None

    def remove(self, call: StagedCall) -> None:
        with self._lock:
            self._calls.pop(call, None)

    def enqueue_through(self, call: StagedCall) -> None:
        """Enqueues the copies of all earlier collectives, and those of the call itself."""
        with self._lock:
            for earlier in list(self._calls):
                if earlier is call:
                    break
                earlier.enqueue_rest()
                del self._calls[earlier]
            self._calls.pop(call, None)
            call.enqueue_rest()


class Staging:
    """Stages the operations of one group on one device."""

    def __init__(
        self,
        device: Device,
        settings: Settings,
        pool: Pool | None = None,
        flags: Flags | None = None,
        outstanding: Outstanding | None = None,
        copies: _Sequence | None = None,
        streams: Streams | None = None,
    ) -> None:
        self.device = device
        self.settings = settings
        self.pool = pool or Pool(device, settings.pool)
        self.flags = flags or Flags(device)
        self.outstanding = outstanding or Outstanding()
        # Enqueueing may block until a stream goes on that waits for the network. The thread that
        # handles completions must not do it then, because it is the one that lets streams go on.
        self.copies = copies or _Sequence("allcast-copies")
        self.failure: BaseException | None = None  # of a collective: no later one can work
        self.sends = _Sequence("allcast-sends")
        self.streams = streams or Streams(device)
        self._streams = (self.streams.take(), self.streams.take())
        weakref.finalize(self, self.streams.put, *self._streams).atexit = False

    def of_another_group(self) -> Staging:
        """Returns staging for another group on the same device."""
        return Staging(
            self.device,
            self.settings,
            self.pool,
            self.flags,
            self.outstanding,
            self.copies,
            self.streams,
        )

    def call(
        self,
        plan: Plan,
        timeout: float,
        message: bool = False,
        ended: Callable[[], None] | None = None,
    ) -> StagedCall:
        """Enqueues the first copies of an operation behind the current stream, and returns at once.

        The group then has to call run of the result, in its order of collectives, or fail. A
        message, unlike a collective, gets streams of its own, so that its copies queue behind no
        other operation. When the network has done its part, any thread calls ended.
        """
        streams, depth = self._streams, self.settings.depth
        if message:
            # Neither does a message wait for memory that another operation uses.
            streams, depth = (self.streams.take(), self.streams.take()), len(plan.pieces)
        call = StagedCall(self, plan, timeout, streams, depth, message, ended)
        if not message:
            self.outstanding.add(call)
        return call


def _pass_on(error: BaseException) -> None:
    """Raises what is no failure of an operation, such as KeyboardInterrupt."""
    if not isinstance(error, Exception):
        raise error


class StagedCall:
    """One operation on device tensors.

    A thread that enqueues copies holds _enqueuing, so that copies of an operation are enqueued in
    one order, whether a completion or wait_stream enqueues them. Enqueueing blocks while the device
    has too many commands. The end of a piece must let the device go on nevertheless, so that it
    takes only _lock, which protects the other fields. A thread may take _lock while it holds
    _enqueuing, but not the other way round.
    """

    def __init__(
        self,
        staging: Staging,
        plan: Plan,
        timeout: float,
        streams: tuple[Any, Any],
        depth: int,
        message: bool,
        ended: Callable[[], None] | None,
    ) -> None:
        self._staging = staging
        self._ended_callback = ended
        self._device = staging.device
        self._plan = plan
        self._timeout = timeout
        self._depth = min(len(plan.pieces), depth)
        self._to_host, self._to_device = streams
        self._enqueuing = threading.Lock()
        self._lock = threading.Condition()
        # Event per piece whose copies to the host are enqueued. None: its memory is ready.
        self._copied_in: list[Any] = []
        self._copied_out: list[Any] = []  # event per piece whose copies to the device are enqueued
        self._arrived: set[int] = set()  # pieces that ended before an earlier one
        self._ended = 0  # number of pieces that have ended, in order
        self._running = 0  # number of pieces that the network works on
        self._flag: Flag | None = None  # counts ended pieces, once a stream waits for them
        self._ordered = False  # a thread orders its stream behind the operation
        self._concluding = False
        self._concluded = False
        self._error: BaseException | None = None
        self.refused = False  # the network has not begun the operation
        self._last: Any = None  # event after all copies

        stride = aligned(max(plan.nbytes, 1))
        self._message = message
        # Pieces are bounded by their size and number.
        self._whole = len(plan.pieces) == 1 and not message
        if self._whole:
            self._memory, free = staging.pool.take_whole(stride, timeout)
        else:
            self._memory, free = staging.pool.take(stride * self._depth, message)
        self._slots = [self._memory[i * stride :][: plan.nbytes] for i in range(self._depth)]
        called = self._device.record(self._device.current_stream())
        for stream in streams:
            self._device.wait_event(stream, called)
            if free is not None:
                self._device.wait_event(stream, free)
        for to, source in plan.local:
            self._device.copy(self._to_device, to, source)
        for piece in plan.pieces[: self._depth]:
            if free is None and not piece.copies_in:
                self._copied_in.append(None)
            else:
                self._enqueue_in()

    def run(self, before: Callable[[int], None] | None = None) -> None:
        """Starts the pieces in order, each one once its bytes are on the host, and then returns.

        Before it waits for the memory of a piece, it calls a function with the number of pieces
        that have to end first.
        """
        deadline = time.monotonic() + self._timeout
        for i, piece in enumerate(self._plan.pieces):
            if before is not None:
                before(i + 1 - self._depth)
            with self._lock:
                self._lock.wait_for(functools.partial(self._can_continue, i))
                if self._error is not None:
                    return
                copied = self._copied_in[i]
            try:
                if copied is not None:
                    self._device.synchronize(copied)
            except BaseException as error:
                self.fail(error)
                _pass_on(error)
                return
            with self._lock:
                if self._error is not None:
                    return
                self._running += 1
            left = max(deadline - time.monotonic(), 0.001)
            memory = self._slots[i % self._depth]
            send = None if piece.send is None else memory[piece.send]
            recv = None if piece.recv is None else memory[piece.recv]
            try:
                piece.start(send, recv, self._done(i), left)
            except BaseException as error:
                # Every rank refuses an invalid call, which takes no place in the order of calls.
                self.refused = i == 0 and isinstance(error, allcast.InvalidError)
                self._piece_ended(i, error)
                _pass_on(error)
                return

    def fail(self, error: BaseException) -> None:
        """Ends the operation with an error. No further piece starts."""
        with self._lock:
            self._set_error(error)
        self._continue()

    def _set_error(self, error: BaseException) -> None:
        if not self._concluding and self._error is None:
            self._error = error
            self._lock.notify_all()
        self._release_streams()

    def _release_streams(self) -> None:
        """Lets streams go on after a failure, once the network does not use the memory any more."""
        if self._error is not None and self._running == 0 and self._flag is not None:
            self._flag.advance(len(self._plan.pieces))

    def wait_stream(self) -> None:
        """Makes the current stream wait for the operation, or raises the error if it has failed.

        It does not block the host on devices whose streams can wait for memory. A failure after the
        call releases the stream, which then works with incomplete data.
        """
        with self._lock:
            self._ordered = True
        blocks = not self._device.stream_waits
        if not blocks:
            self._staging.outstanding.enqueue_through(self)
        with self._lock:
            if blocks:
                self._lock.wait_for(lambda: self._concluded)
            if self._error is not None:
                raise self._error
            self._device.wait_event(self._device.current_stream(), self._last)
            # From here on, whoever reuses the memory of the tensors is ordered behind the current
            # stream.
            self._plan.tensors = []

    def enqueue_rest(self) -> None:
        """Enqueues all copies that are missing, each one behind a wait for its piece."""
        with self._enqueuing:
            with self._lock:
                if self._last is not None or self._error is not None:
                    return
                # From here on, the end of a piece only sets the flag.
                self._flag = self._staging.flags.take()
                self._flag.advance(self._ended)
            while len(self._copied_out) < len(self._plan.pieces):
                value = self._flag.base + len(self._copied_out) + 1
                self._device.wait_flag(self._to_device, self._flag.memory, value)
                self._enqueue_out()
            self._enqueue_last()

    def wait_host(self, timeout: float | None = None) -> bool:
        """Blocks the host until the operation has ended, and raises its error.

        It returns False if the given number of seconds passes first.
        """
        if not self.wait_concluded(timeout):
            return False
        self._device.synchronize(self._last)
        return True

    def wait_concluded(self, timeout: float | None = None) -> bool:
        """Does the same, except that it does not wait for copies."""
        with self._lock:
            if not self._lock.wait_for(lambda: self._concluded, timeout):
                return False
            if self._error is not None:
                raise self._error
        return True

    def done(self) -> bool:
        """Returns whether the operation has ended, copies included."""
        with self._lock:
            if self._error is not None:
                return self._concluded
            # The last piece lets streams go on before the operation is concluded.
            if self._last is None or self._ended < len(self._plan.pieces):
                return False
            return self._device.query(self._last)

    @property
    def failure(self) -> BaseException | None:
        with self._lock:
            return self._error

    def concluded(self) -> bool:
        """Returns whether the network has done its part, and all copies are enqueued."""
        with self._lock:
            return self._concluded

    def behind(self) -> AbstractContextManager[Any]:
        """Makes a stream current that is behind the last copy of a concluded operation."""
        return self._device.using(self._to_device)

    def make_current(self) -> None:
        """Does the same for the rest of a callback."""
        self.behind().__enter__()

    def _can_continue(self, i: int) -> bool:
        return len(self._copied_in) > i or self._error is not None

    # The following methods enqueue. The caller holds _enqueuing.

    def _enqueue_in(self) -> None:
        i = len(self._copied_in)
        if i >= self._depth:
            self._device.wait_event(self._to_host, self._copied_out[i - self._depth])
        memory = self._slots[i % self._depth]
        for copy in self._plan.pieces[i].copies_in:
            self._device.copy(self._to_host, copy.host_region(memory), copy.device)
        copied = self._device.record(self._to_host)
        with self._lock:
            self._copied_in.append(copied)
            self._lock.notify_all()

    def _enqueue_out(self) -> None:
        i = len(self._copied_out)
        memory = self._slots[i % self._depth]
        for copy in self._plan.pieces[i].copies_out:
            self._device.copy(self._to_device, copy.device, copy.host_region(memory))
        self._copied_out.append(self._device.record(self._to_device))
        if len(self._copied_in) < len(self._plan.pieces):
            self._enqueue_in()

    def _enqueue_last(self) -> None:
        if self._error is None:
            for to, source in self._plan.results:
                self._device.assign(self._to_device, to, source)
        # The copies to the host may be the only ones.
        if self._copied_in[-1] is not None:
            self._device.wait_event(self._to_device, self._copied_in[-1])
        last = self._device.record(self._to_device)
        with self._lock:
            self._last = last
        # The event keeps the next owner away from memory that the network still uses.
        put = self._staging.pool.put_whole if self._whole else self._staging.pool.put
        put(self._memory, last)

    # The following methods handle the end of pieces.

    def _done(self, i: int) -> Done:
        return lambda error: self._piece_ended(i, error)

    def _piece_ended(self, i: int, error: BaseException | None) -> None:
        with self._lock:
            self._running -= 1
            if error is not None:
                self._set_error(error)
            elif self._error is not None:
                self._release_streams()
            else:
                self._arrived.add(i)
                while self._ended in self._arrived:
                    self._arrived.remove(self._ended)
                    self._ended += 1
                if self._flag is not None:
                    self._flag.advance(self._ended)
        self._continue()

    def _continue(self) -> None:
        if self._device.stream_waits:
            self._staging.copies.add(self._enqueue_and_conclude)
        else:
            self._enqueue_and_conclude()

    def _enqueue_and_conclude(self) -> None:
        try:
            self._enqueue_ended()
        except BaseException as error:
            with self._lock:
                self._set_error(error)
            self._conclude()
            _pass_on(error)
        else:
            self._conclude()

    def _enqueue_ended(self) -> None:
        """Enqueues the copies of pieces that have ended, unless they are enqueued already."""
        with self._enqueuing:
            with self._lock:
                ended = self._ended
                if self._flag is not None or self._error is not None:
                    return
            while len(self._copied_out) < ended:
                self._enqueue_out()
            if ended == len(self._plan.pieces) and self._last is None:
                self._enqueue_last()

    def _conclude(self) -> None:
        """Ends the operation once the network uses none of its memory any more."""
        count = len(self._plan.pieces)
        with self._lock:
            complete = self._error is None and self._ended == count
            failed = self._error is not None and self._running == 0
            if self._concluding or not (complete or failed):
                return
            self._concluding = True
        # Another thread may be enqueueing the rest.
        with self._enqueuing:
            try:
                if self._last is None:
                    self._enqueue_last()
            except BaseException as error:
                # The device is broken. Its copies may still use the memory, which thus stays here.
                failed = True
                with self._lock:
                    self._error = self._error or error
            with self._lock:
                if self._flag is not None:
                    self._flag.advance(count)
                    self._flag.base += count
                    self._staging.flags.put(self._flag)
                if not self._ordered or failed:
                    for tensor in {id(tensor): tensor for tensor in self._plan.tensors}.values():
                        self._device.record_use(tensor, self._to_host)
                        self._device.record_use(tensor, self._to_device)
                    self._plan.tensors = []
                self._concluded = True
                self._lock.notify_all()
        self._staging.outstanding.remove(self)
        if self._message:
            self._staging.streams.put(self._to_host, self._to_device)
        if self._ended_callback is not None:
            self._ended_callback()


# The seam with the backend. works.py describes it.


class _PieceWork:
    """Gets the end of one request from the completion thread."""

    def __init__(self, work: StagedWork, nbytes: int, done: Done) -> None:
        self._work = work
        self._nbytes = nbytes
        self._done = done
        self._queued = True
        self._requests: Sequence[allcast.Request] = ()

    def begin(self, requests: Sequence[allcast.Request]) -> None:
        self._requests = requests

    def settle(self) -> None:
        error: BaseException | None = None
        try:
            for request in self._requests:
                self._work.note(request.algorithm, request.wait(), self._nbytes)
        except Exception as failed:
            error = failed
        self._done(error)

    def take_future(self) -> bool:
        return False  # the Work publishes its result itself


class StagedWork(Work):
    """An operation on device tensors. wait blocks the current stream, where it can."""

    def __init__(self, group: Group, staging: Staging, calls: Sequence[Call]) -> None:
        first = calls[0]
        nbytes = sum(call.nbytes for call in calls)
        super().__init__(group, first.operation, first.results, nbytes, first.timeout)
        self._staging = staging
        self._collective = first.ordered
        self._device = first.device
        self._algorithm: str | None = None
        self._direct: deque[_PieceWork] | None = None  # pieces that this thread waits for
        self._ended_pieces = 0
        plan = Plan()
        for call in calls:
            shape = shape_of(call.operation, group.size, group.rank)
            add_call(plan, staging.settings, shape, call, self._starter(call))
        self.call = staging.call(plan, first.timeout, not first.ordered, self._concluded)

    def _starter(self, call: Call) -> Start:
        def start(
            send: torch.Tensor | None,
            recv: torch.Tensor | None,
            done: Done,
            timeout: float,
        ) -> None:
            if self._direct is not None:
                request = call.start(_memory(send), _memory(recv), {"timeout": timeout})
                self._direct.append(_PieceWork(self, call.nbytes, done))
                self._direct[-1].begin([request])
                return
            piece = _PieceWork(self, call.nbytes, done)
            options = self._group.options(cast(Work, piece), 1, timeout)
            try:
                call.start(_memory(send), _memory(recv), options)
            except BaseException:
                self._group.world.completions.forget(options["user"])
                raise

        return start

    def note(self, algorithm: str, message: allcast.Message | None, nbytes: int) -> None:
        """Takes the result of a request."""
        self._algorithm = self._algorithm or algorithm
        if message is not None:
            self._source = message.source
            if message.bytes != nbytes:
                raise ValueError(
                    f"a message of {message.bytes} bytes arrived from rank {message.source} for a "
                    f"tensor of {nbytes} bytes"
                )

    def run(self) -> None:
        """Starts the operation. The staging thread of the group calls it."""
        self.call.run()

    def start_directly(self) -> None:
        """Starts the operation, whose end this thread waits for itself.

        This saves several changes of threads. The thread then has to call finish_directly.
        """
        self._direct = deque()
        self.call.run(self._end_pieces)

    def finish_directly(self) -> None:
        """Waits for an operation that start_directly has started."""
        assert self._direct is not None
        count = self._ended_pieces + len(self._direct)
        try:
            self._end_pieces(count)
        except BaseException:
            # Such as KeyboardInterrupt. It ends the waiting, and the operation continues.
            threading.Thread(target=self._end_pieces, args=(count,), daemon=True).start()
            raise

    def _end_pieces(self, count: int) -> None:
        """Waits until so many pieces have ended."""
        while self._direct and self._ended_pieces < count:
            self._direct[0].settle()
            self._direct.popleft()
            self._ended_pieces += 1

    def _concluded(self) -> None:
        if self._algorithm is not None:
            self._group.count(self._operation, self._algorithm, self._nbytes)
        failure = self.call.failure
        if failure is not None:
            self._error = self._group.backend_error(self._operation, failure)
            if self._collective and not self.call.refused:
                self._staging.failure = self._error
        if self.take_future():
            # Callbacks may block, and must not do so in the thread that enqueues copies.
            threading.Thread(target=self.publish, name="allcast-callbacks", daemon=True).start()

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Makes the current stream wait for the result.

        With a timeout, it also blocks the host until the network has done its part. If the timeout
        passes first, the operation continues.
        """
        try:
            with tracing.waiting(self._group, self._operation, self._results):
                if timeout > NO_TIMEOUT:
                    limit = timeout.total_seconds()
                    if not self.call.wait_concluded(limit):
                        raise allcast.WaitTimeoutError(not_ended(limit))
                self.call.wait_stream()
        except Exception as error:
            raise self._group.backend_error(self._operation, error) from error
        return True

    def block_current_stream(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self.call.done()

    def is_success(self) -> bool:
        return self.call.done() and self.call.failure is None

    def exception(self) -> BaseException | None:
        return self._error

    def source_rank(self) -> int:
        """Returns the sender of a received message. It blocks until the message has arrived."""
        self.call.wait_concluded()
        return self._source

    _source_rank = source_rank

    def take_future(self) -> bool:
        return self.call.concluded() and super().take_future()

    def publish(self) -> None:
        with self.call.behind():
            super().publish()

    def get_future(self) -> torch.futures.Future[Any]:
        """Returns a future that is complete when the network has done its part."""
        with self._lock:
            if self._promise is None:
                device = self._device
                devices = [device] if device is not None and device.type == "cuda" else []
                # torch runs the callback on a stream of its pool, which others may use, and sets
                # the stream back afterwards.
                self._promise = Promise(devices, self.call.make_current)
            promise = self._promise
        if self.take_future():
            self.publish()
        return promise.future


def _memory(part: torch.Tensor | None) -> allcast.Memory | None:
    return None if part is None else allcast.Memory(part.data_ptr(), part.numel(), None, part)


def host_memory(memory: torch.Tensor, part: slice | None) -> allcast.Memory | None:
    """Returns a part of host memory as a buffer of an operation."""
    return None if part is None else _memory(memory[part])


class _Devices:
    """What the groups of this process share, by device."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shared: dict[int, Staging] = {}
        self._groups: weakref.WeakKeyDictionary[Group, dict[int, Staging]] = (
            weakref.WeakKeyDictionary()
        )

    def staging(self, group: Group, index: int) -> Staging:
        with self._lock:
            of_group = self._groups.setdefault(group, {})
            if index not in of_group:
                if index not in self._shared:
                    self._shared[index] = Staging(CudaDevice(index), Settings.from_environment())
                of_group[index] = self._shared[index].of_another_group()
            return of_group[index]


_devices = _Devices()


def launch(group: Group, *calls: Call) -> Work:
    """Starts operations on device tensors in the order of the group, as one Work."""
    first = calls[0]
    device = first.device
    assert device is not None
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            f"{first.operation}: the current stream is captured into a graph, which cannot contain "
            "operations of the network: call it outside of the graph"
        )
    with torch.cuda.device(device):
        return launch_on(_devices.staging(group, device.index), group, calls)


def launch_on(staging: Staging, group: Group, calls: Sequence[Call]) -> Work:
    """Starts operations on a device."""
    first = calls[0]
    if staging.failure is not None and first.ordered:
        raise staging.failure
    # wait follows at once, and blocks the host on such a device.
    direct = first.ordered and first.sync and not staging.device.stream_waits
    if direct and len(calls) == 1:
        from . import inline

        plan = inline.plan(staging, group, first)
        if len(plan.pieces) == 1:  # on all ranks, because only sizes decide
            return inline.run(staging, group, first, plan)
    work = StagedWork(group, staging, calls)
    if direct:
        if group.order.run(work.start_directly, work.run):
            work.finish_directly()
    elif first.ordered:
        group.order.stage(work.run)
    elif any(call.send for call in calls):
        staging.sends.add(work.run)
    else:
        work.run()  # does not block, because a receive copies nothing to the host
    return work
