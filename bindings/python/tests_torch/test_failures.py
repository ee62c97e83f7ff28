"""Timeouts, lost ranks and forked children."""

from __future__ import annotations

import os
import signal
import threading
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import run
from torch.utils.data import DataLoader, Dataset

import allcast
import allcast.torch

# A test that waits for a timeout sets it when all else is done: to make a group takes longer on a
# busy machine.
_NEVER = timedelta(hours=1)


def _deadline(rank: int, size: int) -> None:
    """One rank does not take part in a collective."""
    group = dist.new_group(timeout=_NEVER)
    dist.barrier(group=group)
    if rank == 1:
        # The others wait for this rank until their operation has ended.
        dist.recv(torch.zeros(1), 0)
        return
    if rank == 0:
        dist.recv(torch.zeros(1), 2)  # so that only rank 1 can be late
        group.set_timeout(timedelta(seconds=1))
    work = dist.all_reduce(torch.ones(10), group=group, async_op=True)
    if rank == 2:
        dist.send(torch.zeros(1), 0)
    want = "timeout of 1 s.*rank 1" if rank == 0 else "rank 1"
    with pytest.raises(dist.DistBackendError, match=want):
        work.wait()
    assert work.is_completed()
    assert not work.is_success()
    assert work.exception() is not None
    with pytest.raises(dist.DistBackendError):
        dist.all_reduce(torch.ones(10), group=group)
    # The default group still works.
    if rank == 0:
        dist.send(torch.zeros(1), 1)


def test_a_timeout_ends_an_operation() -> None:
    run(_deadline, size=3)


def _unmatched(rank: int, size: int) -> None:
    group = dist.new_group(timeout=_NEVER)
    if rank == 0:
        group.set_timeout(timedelta(seconds=1))
        with pytest.raises(dist.DistBackendError, match="recv exceeded its timeout of 1 s"):
            dist.recv(torch.zeros(3), 1, group=group)
    # Nothing is broken.
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [size] * 3


def test_a_timeout_ends_a_receive() -> None:
    run(_unmatched, size=2)


def _failed_future(rank: int, size: int) -> None:
    group = dist.new_group(timeout=_NEVER)
    if rank == 0:
        group.set_timeout(timedelta(seconds=1))
        future = dist.all_reduce(torch.ones(10), group=group, async_op=True).get_future()
        seen: list[str] = []
        chained = future.then(lambda done: seen.append("called"))
        with pytest.raises(Exception, match="rank 1"):
            future.wait()
        chained.wait()
        assert seen == ["called"]
    dist.barrier()


def test_a_future_reports_the_error() -> None:
    run(_failed_future, size=2)


def _reduce_forever(group: Any = None) -> None:
    while True:
        dist.all_reduce(torch.ones(100_000), group=group)


def _killed(rank: int, size: int) -> str:
    tensor = torch.ones(100_000)
    dist.all_reduce(tensor)
    group = dist.new_group([0, 1, 2])
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(dist.DistBackendError, match="rank 2") as failed:
        _reduce_forever()
    if rank < 2:
        with pytest.raises(dist.DistBackendError, match="rank 2"):
            _reduce_forever(group)
    cause = failed.value.__cause__
    assert isinstance(cause, allcast.RankLostError)
    assert cause.rank == 2
    dist.destroy_process_group()
    return str(failed.value)


def test_survivors_name_a_killed_rank() -> None:
    results = run(_killed, size=4, killed=(2,))
    assert all("rank 2" in results[r] for r in (0, 1, 3))


def _monitored(rank: int, size: int) -> None:
    world = dist.group.WORLD
    world.monitored_barrier(timedelta(seconds=60))
    if rank == 1:
        dist.recv(torch.zeros(1), 0)  # the others have given up
    with pytest.raises(dist.DistBackendError) as failed:
        # Rank 2 waits until rank 0 answers.
        world.monitored_barrier(timedelta(seconds=60 if rank == 2 else 1))
    want = ["Rank 1 failed to pass", "rank 0 did not answer", "rank 1 failed to pass"][rank]
    assert want in str(failed.value)
    if rank == 0:
        dist.send(torch.zeros(1), 1)
    # The late message of rank 1 does not count for this barrier.
    world.monitored_barrier(timedelta(seconds=60))


def test_monitored_barrier_names_the_late_rank() -> None:
    run(_monitored, size=3)


class _Numbers(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((4,), float(index))


def _loader(rank: int, size: int) -> None:
    loader = DataLoader(_Numbers(), batch_size=8, num_workers=2, multiprocessing_context="fork")
    for _ in range(2):
        for batch in loader:
            total = batch.sum()
            dist.all_reduce(total)
            assert total.item() == size * batch.sum().item()


def test_workers_of_a_data_loader_do_not_disturb() -> None:
    run(_loader)


def _forked_child(rank: int, size: int) -> None:
    group = dist.new_group()
    dist.barrier(group)
    child = os.fork()
    if child == 0:
        # Finalisers do nothing here, and calls fail clearly.
        code = 1
        try:
            dist.all_reduce(torch.ones(3))
        except dist.DistBackendError as error:
            code = 0 if "fork" in str(error) else 2
        dist.destroy_process_group()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [size] * 3


def test_a_forked_child_cannot_use_the_group() -> None:
    run(_forked_child, size=2)


def _killed_with_workers(rank: int, size: int) -> None:
    loader = DataLoader(_Numbers(), batch_size=8, num_workers=2, multiprocessing_context="fork")
    batches = iter(loader)
    next(batches)  # the workers run
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        _reduce_forever()


def test_a_killed_rank_is_noticed_although_its_workers_live() -> None:
    run(_killed_with_workers, size=3, killed=(1,))


def _pending(rank: int, size: int) -> None:
    """Destroying a group while an operation runs ends the operation."""
    group = dist.new_group()
    ended = threading.Event()
    if rank == 0:
        work: Any = dist.all_reduce(torch.ones(3), group=group, async_op=True)

        def wait() -> None:
            try:
                work.wait()
            except dist.DistBackendError:
                ended.set()

        thread = threading.Thread(target=wait)
        thread.start()
        group.abort()
        thread.join(60)
        assert ended.is_set()


def test_abort_ends_operations() -> None:
    run(_pending, size=2)
