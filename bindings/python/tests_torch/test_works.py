"""Works, futures, order and buffers."""

from __future__ import annotations

import gc
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import run

import allcast.torch

LARGE = 300_000


def _async(rank: int, size: int) -> None:
    tensors = [torch.full((n,), float(rank)) for n in (1, 1000, LARGE)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work, tensor in zip(works, tensors):
        assert work.wait()
        assert work.is_completed()
        assert work.is_success()
        assert work.exception() is None
        assert work.result()[0] is tensor
        assert torch.equal(tensor, torch.full_like(tensor, sum(range(size))))
        assert work.wait()  # again

    # A Work completes without wait.
    work = dist.all_reduce(tensors[0], async_op=True)
    while not work.is_completed():
        time.sleep(0.001)
    assert tensors[0].tolist() == [size * sum(range(size))]


def test_asynchronous_operations() -> None:
    run(_async)


def _timeout_of_wait(rank: int, size: int) -> None:
    tensor = torch.ones(4)
    if rank == 0:
        work = dist.all_reduce(tensor, async_op=True)
        with pytest.raises(dist.DistBackendError, match="continues"):
            work.wait(timedelta(milliseconds=10))
        assert not work.is_completed()
        dist.send(tensor, 1)
        assert work.wait()
    else:
        if rank == 1:
            dist.recv(torch.empty(4), 0)
            dist.send(tensor, 2)
        if rank == 2:
            dist.recv(torch.empty(4), 1)
        dist.all_reduce(tensor)
    assert tensor.tolist() == [size] * 4


def test_wait_with_a_timeout_leaves_the_operation_running() -> None:
    run(_timeout_of_wait, size=3)


def _dropped(rank: int, size: int) -> None:
    results = []
    for i in range(20):
        tensor = torch.full((LARGE if i % 5 == 0 else 10,), float(rank + i))
        results.append(tensor)
        dist.all_reduce(tensor, async_op=True)  # the Work is dropped
        # So is the input, and memory is reused.
        output = torch.empty(size * 1000)
        dist.all_gather_into_tensor(output, torch.full((1000,), float(rank)), async_op=True)
        del output
        torch.full((1000,), -1.0)
        gc.collect()
    # Results of dropped Works on tensors that are not contiguous arrive, too.
    matrix, other = (torch.full((40, 50), float(rank)) for _ in range(2))
    dist.all_reduce(matrix.t(), async_op=True)
    dist.all_reduce(other[:, ::2], async_op=True)
    for i, tensor in enumerate(results):
        _poll(tensor, torch.full_like(tensor, sum(range(size)) + size * i))
    want = torch.full((40, 50), float(sum(range(size))))
    _poll(matrix, want)
    want[:, 1::2] = rank
    _poll(other, want)
    operations = allcast.torch.stats()["groups"]["0"]["operations"]
    counts = {
        name: sum(entry["count"] for entry in algorithms.values())
        for name, algorithms in operations.items()
    }
    assert counts == {"allreduce": 22, "allgather": 20}


def _poll(tensor: torch.Tensor, want: torch.Tensor) -> None:
    """Waits until an operation has stored its result. The test fails at its limit."""
    while not torch.equal(tensor, want):
        time.sleep(0.001)


def test_dropped_works_end() -> None:
    run(_dropped)


def _destroyed(rank: int, size: int) -> None:
    """Operations that run when the program destroys the group."""
    tensors = [torch.full((LARGE,), float(rank)) for _ in range(4)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    future = works[-1].get_future()
    sparse = torch.eye(3).to_sparse()
    dist.all_reduce(sparse, async_op=True)
    dist.destroy_process_group()
    for work, tensor in zip(works, tensors):
        assert work.wait()
        assert torch.equal(tensor, torch.full_like(tensor, sum(range(size))))
    assert future.wait()[0] is tensors[-1]
    assert torch.equal(sparse.to_dense(), size * torch.eye(3))


def test_destroying_a_group_completes_operations() -> None:
    run(_destroyed)


def _time_limits_of_sparse(rank: int, size: int) -> None:
    group = dist.group.WORLD
    comm, limits = group._group.comm, []

    class Recorded:
        """The communicator, which notes the time limits of its calls."""

        def __getattr__(self, name: str) -> Any:
            def call(*arguments: Any, timeout: float) -> None:
                limits.append(timeout)
                getattr(comm, name)(*arguments, timeout=timeout)

            return call

    group._group.comm = Recorded()
    options = dist.AllreduceOptions()
    options.timeout = timedelta(seconds=60)
    tensor = torch.eye(3).to_sparse()
    group.allreduce([tensor], options).wait()
    group._group.comm = comm
    assert torch.equal(tensor.to_dense(), size * torch.eye(3))
    assert len(limits) == 3
    assert 60 >= limits[0] > limits[1] > limits[2] > 0


def test_one_time_limit_for_all_steps_of_a_sparse_sum() -> None:
    run(_time_limits_of_sparse, size=2)


def _called_after_destroy(rank: int, size: int) -> None:
    group = dist.group.WORLD
    sparse = torch.eye(3).to_sparse()
    group.allreduce([sparse]).wait()
    group.allreduce([torch.ones(3)]).get_future().wait()
    dist.destroy_process_group()
    # The staging thread starts the first, the calling thread the others. The last one is strided.
    for tensor in (sparse, torch.ones(3), torch.ones(3, 3).t()[1:]):
        with pytest.raises(dist.DistBackendError, match="closed"):
            group.allreduce([tensor]).wait()


def test_operations_of_a_destroyed_group_fail() -> None:
    run(_called_after_destroy, size=2)


def _layouts(rank: int, size: int) -> None:
    base = torch.arange(24.0).view(4, 6) + 100 * rank
    total = sum(torch.arange(24.0).view(4, 6) + 100 * r for r in range(size))

    tensor = base.clone().t()
    dist.all_reduce(tensor)
    assert torch.equal(tensor, total.t())

    whole = base.clone()
    dist.all_reduce(whole[:, 1:3])
    assert torch.equal(whole[:, 1:3], total[:, 1:3])
    assert torch.equal(whole[:, 3:], base[:, 3:])

    target = torch.zeros(6, 4)
    dist.broadcast(target.t() if rank else base.clone(), 0)
    if rank:
        assert torch.equal(target.t(), torch.arange(24.0).view(4, 6))

    outputs = [torch.zeros(6, 4).t() for _ in range(size)]
    dist.all_gather(outputs, base.t().contiguous().t())
    for r in range(size):
        assert torch.equal(outputs[r], torch.arange(24.0).view(4, 6) + 100 * r)

    gathered = torch.zeros(6, 4 * size).t()
    dist.all_gather_into_tensor(gathered, base)
    want = torch.cat([torch.arange(24.0).view(4, 6) + 100 * r for r in range(size)])
    assert torch.equal(gathered, want)

    part = torch.zeros(2, 6).t()
    dist.reduce_scatter_tensor(part, torch.ones(2, 6 * size).t())
    assert torch.equal(part, torch.full((6, 2), float(size)))

    conjugate = torch.tensor([1 + 2j, 3 - 1j]).conj()
    assert conjugate.is_conj()
    dist.group.WORLD.allreduce([conjugate]).wait()
    assert torch.equal(conjugate, size * torch.tensor([1 - 2j, 3 + 1j]))

    if rank == 0:
        dist.send(base.t(), 1)
    if rank == 1:
        got = torch.zeros(4, 6).t()
        dist.recv(got, 0)
        assert torch.equal(got, torch.arange(24.0).view(4, 6).t())

    parameter = torch.nn.Parameter(torch.full((4, 4), float(rank)).t())
    dist.all_reduce(parameter.data)
    leaf = torch.full((4, 4), float(rank)).t().requires_grad_()
    dist.group.WORLD.allreduce([leaf]).wait()
    assert leaf.tolist() == [[sum(range(size))] * 4] * 4


def test_tensors_that_are_not_contiguous() -> None:
    run(_layouts)


def _futures(rank: int, size: int) -> None:
    tensor = torch.full((8,), float(rank))
    future = dist.all_reduce(tensor, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    assert doubled.wait().tolist() == [2 * sum(range(size))] * 8

    # A callback that runs collectives and waits for them, also through another future.
    def more(done: torch.futures.Future[Any]) -> float:
        (value,) = done.value()
        dist.all_reduce(value)
        again = dist.all_reduce(value, async_op=True)
        again.get_future().wait()
        nested = dist.all_reduce(value, async_op=True).get_future()
        return float(nested.then(lambda inner: inner.value()[0][0]).wait())

    for n in (4, LARGE):
        tensor = torch.ones(n)
        work = dist.all_reduce(tensor, async_op=True)
        assert work.get_future().then(more).wait() == size**4
        assert work.wait()

    # Callbacks that wait for each other need a thread each. A callback that is attached after the
    # end runs in this thread, so the messages are sent later.
    events = [threading.Event() for _ in range(4)]
    futures = []
    for i in range(4):
        work = dist.irecv(torch.zeros(1), (rank - 1) % size, tag=i)

        def wait_for_next(done: torch.futures.Future[Any], i: int = i) -> int:
            if i + 1 < 4:
                assert events[i + 1].wait(60)
            events[i].set()
            return i

        futures.append(work.get_future().then(wait_for_next))
    dist.barrier()
    for i in range(4):
        dist.send(torch.ones(1), (rank + 1) % size, tag=i)
    assert [future.wait() for future in futures] == [0, 1, 2, 3]

    # A future after the end is complete.
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    assert work.get_future().done()


def test_callbacks_call_collectives() -> None:
    run(_futures)


def _order(rank: int, size: int) -> None:
    """Threads of a program agree on an order of calls. Operations of all kinds keep it."""
    turn = threading.Condition()
    current = 0
    failures: list[BaseException] = []

    def call(i: int) -> None:
        nonlocal current
        try:
            with turn:
                assert turn.wait_for(lambda: current == i, 60)
                tensor = torch.full((LARGE if i % 7 == 0 else 3,), float(rank + i))
                if i % 5 == 0:
                    tensor = tensor.view(-1, 1).to_sparse()
                work = dist.all_reduce(tensor, async_op=True)
                current += 1
                turn.notify_all()
            work.wait()
            dense = tensor.to_dense() if tensor.is_sparse else tensor
            assert torch.equal(dense, torch.full_like(dense, sum(range(size)) + size * i))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_collectives_start_in_call_order() -> None:
    run(_order)


def _messages(rank: int, size: int) -> None:
    """Messages pass collectives that cannot complete yet."""
    tensor = torch.ones(LARGE)
    if rank == 0:
        work = dist.all_reduce(tensor, async_op=True)
        sparse = dist.all_reduce(torch.eye(3).to_sparse(), async_op=True)
        dist.send(torch.tensor([5]), 1, tag=3)
        got = torch.zeros(1, dtype=torch.int64)
        assert dist.recv(got) == 1
        assert got.item() == 6
        work.wait()
        sparse.wait()
    else:
        got = torch.zeros(1, dtype=torch.int64)
        dist.recv(got, 0, tag=3)
        dist.send(got + 1, 0)
        dist.all_reduce(tensor)
        dist.all_reduce(torch.eye(3).to_sparse())
    assert torch.equal(tensor, torch.full_like(tensor, 2.0))

    # Several messages with different tags, received in another order.
    if rank == 0:
        works = [dist.isend(torch.full((n,), float(n)), 1, tag=n) for n in (3, 2, LARGE)]
        for work in works:
            work.wait()
    else:
        for n in (LARGE, 3, 2):
            got = torch.zeros(n)
            dist.recv(got, 0, tag=n)
            assert torch.equal(got, torch.full((n,), float(n)))

    ops = [
        dist.P2POp(dist.isend, torch.full((9,), float(rank)), 1 - rank),
        dist.P2POp(dist.irecv, tensor[:9], 1 - rank),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert tensor[:9].tolist() == [1.0 - rank] * 9


def test_messages_do_not_queue_behind_collectives() -> None:
    run(_messages, size=2)


def _functional(rank: int, size: int) -> None:
    import torch.distributed._functional_collectives as functional

    group = dist.group.WORLD
    mine = torch.full((3,), float(rank))
    assert functional.all_reduce(mine, "sum", group).tolist() == [sum(range(size))] * 3
    assert functional.all_reduce(mine, "avg", group).tolist() == [sum(range(size)) / size] * 3
    want = torch.arange(float(size)).repeat_interleave(3)
    assert torch.equal(functional.all_gather_tensor(mine, 0, group), want)
    got = functional.reduce_scatter_tensor(torch.ones(2 * size), "sum", 0, group)
    assert got.tolist() == [size] * 2
    got = functional.all_to_all_single(torch.arange(float(size)) + 10 * rank, None, None, group)
    assert got.tolist() == [rank + 10.0 * r for r in range(size)]
    assert functional.broadcast(mine, 1, group).tolist() == [1.0] * 3
    both = functional.all_reduce_coalesced([mine, mine + 1], "sum", group)
    assert [t[0].item() for t in both] == [sum(range(size)), sum(range(size)) + size]
    both = functional.all_gather_into_tensor_coalesced([mine, mine], group)
    assert all(torch.equal(t, want) for t in both)
    both = functional.reduce_scatter_tensor_coalesced([torch.ones(size)] * 2, "sum", [0, 0], group)
    assert [t.tolist() for t in both] == [[size], [size]]


def test_functional_collectives() -> None:
    run(_functional)
