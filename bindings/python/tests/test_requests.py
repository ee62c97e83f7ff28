"""Requests and queues."""

from __future__ import annotations

import asyncio
import gc
import select
import threading
import weakref
from typing import Any

import pytest
from harness import PATIENCE, Job, on_threads

import allcast
from allcast import _garbage, _native, _requests


def test_wait_ends_with_timeout(job: Job) -> None:
    """The operation continues after the wait has ended."""
    started = threading.Event()

    def run(comm: allcast.Comm) -> None:
        if comm.rank == 0:
            request = comm.start_barrier()
            with pytest.raises(allcast.WaitTimeoutError, match="it continues") as caught:
                request.wait(0.01)
            assert isinstance(caught.value, TimeoutError)
            with pytest.raises(allcast.WaitTimeoutError):
                request.wait(0)
            assert not request.done()
            started.set()
            request.wait(PATIENCE)
            assert request.done()
            request.wait()  # again
            request.wait(float("inf"))
        else:
            assert started.wait(PATIENCE)
            comm.barrier(timeout=float("inf"))

    job.run(run)


def test_threads_wait_for_the_same_request(job: Job) -> None:
    for _ in range(20):
        requests = [comm.start_barrier() for comm in job.comms]
        on_threads(9, lambda i: requests[i % 3].wait(PATIENCE))  # noqa: B023
        assert all(request.done() for request in requests)


def test_infinite_time() -> None:
    """A thread that waits for the lock of a request passes the time to Python."""
    assert threading.Lock().acquire(timeout=_native.milliseconds(float("inf"), -1) / 1000)


def test_dropped_requests(job: Job) -> None:
    """Operations without a Request keep their buffers alive until they end."""

    class Owned(bytearray):
        pass

    recvs = [Owned(3) for _ in job.comms]
    gone = [weakref.ref(recv) for recv in recvs]
    for comm in job.comms[:2]:
        comm.start_allgather(bytes([comm.rank]), recvs[comm.rank])
    last = recvs.pop()
    recvs.clear()
    gc.collect()
    assert all(ref() is not None for ref in gone)
    job.comms[2].start_allgather(b"\x02", last)
    del last
    # The requests are released by later calls, after the operations have ended.
    while any(ref() is not None for ref in gone):
        job.run(lambda comm: comm.barrier())
    job.run(lambda comm: comm.barrier())
    assert not _garbage.dropped


def test_dropped_request_in_a_cycle(job: Job) -> None:
    class Node:
        request: allcast.Request
        buffer: bytearray

    nodes = [Node() for _ in job.comms]
    for node, comm in zip(nodes[:2], job.comms[:2]):
        node.buffer = bytearray(3)
        memory = allcast.Memory(
            allcast._buffers.memory(node.buffer, "", True).address, 3, owner=node
        )
        node.request = comm.start_allgather(bytes([comm.rank]), memory)
    gone = weakref.ref(nodes[0])
    alive = nodes[0].buffer
    del nodes, node, memory
    gc.collect()
    assert gone() is not None
    recv = bytearray(3)
    job.comms[2].allgather(b"\x02", recv)
    job.run(lambda comm: comm.barrier())
    assert alive == recv == b"\x00\x01\x02"


def test_cancel_withdraws_a_receive(job: Job) -> None:
    comm = job.comms[0]
    request = comm.start_recv(bytearray(4), 1, tag=77)
    assert not request.done()
    request.cancel()
    with pytest.raises(allcast.WithdrawnError):
        request.wait(PATIENCE)
    request.cancel()  # it has ended


def test_timeout_withdraws_a_receive(job: Job) -> None:
    comm = job.comms[0]
    with pytest.raises(allcast.WithdrawnError):
        comm.recv(bytearray(4), 1, tag=78, timeout=0.01)
    with pytest.raises(allcast.WithdrawnError):
        comm.start_recv(bytearray(4), 1, tag=78, timeout=0.01).wait(PATIENCE)


def test_queue(job: Job) -> None:
    def run(comm: allcast.Comm) -> None:
        with allcast.Queue() as queue:
            assert queue.next(0) == []
            assert queue.next(0.01) == []
            recvs = [bytearray(comm.size) for _ in range(10)]
            requests = [
                comm.start_allgather(bytes([comm.rank + i]), recv, queue=queue, user=i)
                for i, recv in enumerate(recvs)
            ]
            assert all(request.handle for request in requests)
            completions: list[allcast.Completion] = []
            while len(completions) < 10:
                completions += queue.next(PATIENCE, max=3)
            assert sorted(c.user for c in completions) == list(range(10))
            for completion in completions:
                assert completion.request is requests[completion.user]
                assert completion.request.user == completion.user
                assert completion.error == 0
                assert completion.request.algorithm != ""
                assert completion.request.wait() is None
                assert completion.request.done()
            for i, recv in enumerate(recvs):
                assert recv == bytes(rank + i for rank in range(comm.size))

    job.run(run)


def test_queue_of_receives(job: Job) -> None:
    def run(comm: allcast.Comm) -> None:
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        with allcast.Queue() as queue:
            buf = bytearray(10)
            comm.start_recv(buf, left, queue=queue)  # the queue returns the request
            comm.send(b"hello", right)
            (completion,) = queue.next(PATIENCE)
            assert completion.request.wait() == (left, 0, 5)
            assert buf[:5] == b"hello"

    job.run(run)


def test_request_of_a_queue_may_be_waited_for_first(job: Job) -> None:
    def run(comm: allcast.Comm) -> None:
        with allcast.Queue() as queue:
            request = comm.start_barrier(queue=queue)
            request.wait(PATIENCE)
            (completion,) = queue.next(PATIENCE)
            assert completion.request is request
            request.wait()

    job.run(run)


def test_queue_reports_errors(job: Job) -> None:
    with allcast.Queue() as queue:
        job.comms[0].start_recv(bytearray(1), 1, tag=79, queue=queue, user=5, timeout=0.01)
        (completion,) = queue.next(PATIENCE)
        assert (completion.user, completion.error) == (5, allcast.WithdrawnError.code)
        for _ in range(2):
            with pytest.raises(allcast.WithdrawnError):
                completion.request.wait()


def test_call_that_does_not_start(job: Job) -> None:
    before = len(_requests.live)
    with allcast.Queue() as queue:
        with pytest.raises(allcast.InvalidError, match="root"):
            job.comms[0].start_broadcast(bytearray(1), root=9, queue=queue)
        with pytest.raises(TypeError, match="unexpected keyword"):
            job.comms[0].start_barrier(nonsense=1)  # type: ignore[call-arg]
    assert len(_requests.live) == before


def test_busy_queue_cannot_be_closed(job: Job) -> None:
    queue = allcast.Queue()
    request = job.comms[0].start_recv(bytearray(1), 1, tag=80, queue=queue)
    with pytest.raises(allcast.InUseError):
        queue.close()
    request.cancel()
    assert len(queue.next(PATIENCE)) == 1
    queue.close()
    queue.close()
    for call in (lambda: queue.next(0), queue.fileno):
        with pytest.raises(allcast.ClosedError):
            call()
    with pytest.raises(allcast.InvalidError):
        allcast.Queue().next(max=0)


def test_close_wakes_waiting_threads() -> None:
    queue = allcast.Queue()
    entered = threading.Event()

    def wait(rank: int) -> None:
        if rank == 0:
            assert entered.wait(PATIENCE)
            queue.close()
            return
        entered.set()
        with pytest.raises(allcast.ClosedError):
            queue.next()

    on_threads(2, wait)


def test_descriptor_of_a_queue(job: Job) -> None:
    with allcast.Queue() as queue:
        assert select.select([queue], [], [], 0) == ([], [], [])
        requests = [comm.start_barrier(queue=queue) for comm in job.comms]
        taken = 0
        while taken < len(requests):
            assert select.select([queue], [], [], PATIENCE)[0] == [queue]
            taken += len(queue.next(0))
        assert select.select([queue], [], [], 0) == ([], [], [])


def test_asyncio(job: Job) -> None:
    async def main() -> list[Any]:
        loop = asyncio.get_running_loop()
        with allcast.Queue() as queue:
            futures: dict[int, asyncio.Future[int]] = {}

            def drain() -> None:
                for completion in queue.next(0):
                    futures[completion.user].set_result(completion.error)

            loop.add_reader(queue.fileno(), drain)
            for comm in job.comms:
                futures[comm.rank] = loop.create_future()
                comm.start_barrier(queue=queue, user=comm.rank)
            results = await asyncio.wait_for(asyncio.gather(*futures.values()), PATIENCE)
            loop.remove_reader(queue.fileno())
            return results

    assert asyncio.run(main()) == [0, 0, 0]


def test_many_threads(job: Job) -> None:
    """Threads share communicators and a queue."""
    with allcast.Queue() as queue:
        total, users = 200, 4
        taken: list[int] = []
        lock = threading.Lock()

        def work(i: int) -> None:
            if i < users:
                for n in range(total):
                    job.comms[0].start_send(b"message", 1, tag=i, queue=queue, user=n)
                for _ in range(total):
                    buf = bytearray(7)
                    assert job.comms[1].recv(buf, 0, tag=i).bytes == 7
                    assert buf == b"message"
                return
            while True:
                completions = queue.next(0.05, max=5)
                for completion in completions:
                    completion.request.wait()
                with lock:
                    taken.extend(c.user for c in completions)
                    if len(taken) == total * users:
                        return

        on_threads(users + 3, work)
        assert sorted(taken) == sorted(list(range(total)) * users)


def test_interrupted_delivery(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler raises an exception while a queue hands its completions over."""
    with allcast.Queue() as queue:
        for comm in job.comms:
            comm.start_barrier(queue=queue, user=comm.rank)
        taken: list[int] = []
        end = _requests.Request.end

        def interrupted(request: allcast.Request) -> None:
            end(request)
            monkeypatch.setattr(_requests.Request, "end", end)
            raise KeyboardInterrupt

        while len(taken) < len(job.comms):
            monkeypatch.setattr(_requests.Request, "end", interrupted)
            with pytest.raises(KeyboardInterrupt):
                queue.next(PATIENCE)
            taken += [completion.user for completion in queue.next(0)]
        assert sorted(taken) == [0, 1, 2]
