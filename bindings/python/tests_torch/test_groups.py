"""Groups: how they are made, used, destroyed and made again."""

from __future__ import annotations

import gc
import threading
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from ranks import init, run

import allcast
import allcast.torch
from allcast.torch import backend as allcast_backend


def total(group: Any, value: float) -> float:
    """The sum of a value over a group."""
    tensor = torch.full((1000,), value)
    dist.all_reduce(tensor, group=group)
    assert torch.equal(tensor, torch.full_like(tensor, tensor[0].item()))
    return tensor[0].item()


def _subgroups(rank: int, size: int) -> None:
    for ranks in ([1], [0, 2], [3, 1, 0], [0, 1, 2, 3]):
        group = dist.new_group(ranks)
        if rank not in ranks:
            assert group is dist.GroupMember.NON_GROUP_MEMBER
            continue
        assert total(group, rank) == sum(ranks)
        # Global and group ranks.
        tensor = torch.tensor([rank])
        dist.broadcast(tensor, ranks[-1], group=group)
        assert tensor.item() == ranks[-1]
        if len(ranks) > 1:
            first, last = ranks[0], ranks[-1]
            if rank == first:
                dist.send(torch.tensor([42]), last, group=group)
            if rank == last:
                got = torch.zeros(1, dtype=torch.int64)
                assert dist.recv(got, group=group) == first
                assert got.item() == 42
    assert total(None, rank) == sum(range(size))


def test_subgroups() -> None:
    run(_subgroups)


def _halves(rank: int, size: int) -> None:
    mine, groups = dist.new_subgroups(2)
    assert len(groups) == 2
    half = [0, 1] if rank < 2 else [2, 3]
    for _ in range(3):
        assert total(mine, rank) == sum(half)

    # Overlapping groups, whose collectives run at the same time.
    pairs = [dist.new_group([r, (r + 1) % size]) for r in range(size)]
    tensors, works = [], []
    for r, group in enumerate(pairs):
        if rank in (r, (r + 1) % size):
            tensors.append((r, torch.full((50_000,), float(rank))))
            works.append(dist.all_reduce(tensors[-1][1], group=group, async_op=True))
    for work in works:
        work.wait()
    for r, tensor in tensors:
        assert torch.equal(tensor, torch.full_like(tensor, r + (r + 1) % size))


def test_groups_run_at_the_same_time() -> None:
    run(_halves)


def _threads(rank: int, size: int) -> None:
    """Threads use groups of their own, and messages, at the same time."""
    groups = [dist.new_group([0, 1, 2, 3]) for _ in range(4)]
    failures: list[BaseException] = []

    def use(index: int) -> None:
        try:
            for i in range(10):
                assert total(groups[index], rank + i) == sum(range(size)) + size * i
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_groups_of_threads() -> None:
    run(_threads)


def _local(rank: int, size: int) -> None:
    """Only the members of a group call new_group, several groups at once."""
    for ranks in ([0, 1], [2, 3], [1, 2], [0, 3]):
        if rank in ranks:
            group = dist.new_group(ranks, use_local_synchronization=True)
            assert total(group, rank) == sum(ranks)


def test_only_members_make_a_group() -> None:
    run(_local)


def _mesh(rank: int, size: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
    assert total(mesh.get_group("inner"), rank) == (1 if rank < 2 else 5)
    assert total(mesh.get_group("outer"), rank) == (2 if rank % 2 == 0 else 4)
    full = torch.arange(64.0).view(8, 8)
    for placements in ([Shard(0), Shard(1)], [Replicate(), Shard(0)], [Shard(0), Shard(0)]):
        assert torch.equal(distribute_tensor(full, mesh, placements).full_tensor(), full)


def test_device_mesh() -> None:
    run(_mesh)


def _split(rank: int, size: int) -> None:
    if "device_types" not in dist.ProcessGroup.split_group.__doc__:
        pytest.skip("split_group of this torch works with CUDA devices only")
    group = dist.split_group(split_ranks=[[0, 1], [2, 3]])
    assert total(group, rank) == (1 if rank < 2 else 5)
    again = dist.split_group(group, split_ranks=[[1, 0]])
    if again is not dist.GroupMember.NON_GROUP_MEMBER:
        assert total(again, rank) == (1 if rank < 2 else 5)


def test_split_group() -> None:
    if allcast_backend.Backend is None:
        pytest.skip("split_group of this torch works with CUDA devices only")
    run(_split)


def _again(rank: int, size: int, method: str) -> None:
    threads = []
    for _ in range(4):
        init(rank, size, method)
        group = dist.new_group([0, 1])
        assert total(None, rank) == sum(range(size))
        if rank < 2:
            assert total(group, rank) == 1
            dist.destroy_process_group(group)
        dist.destroy_process_group()
        assert allcast.torch.stats() == {"groups": {}, "counters": {}}
        gc.collect()
        threads.append(threading.active_count())
    assert threads[-1] == threads[0], threads


def test_groups_can_be_made_again() -> None:
    run(_again, backend=None)


def _store(rank: int, size: int, method: str) -> None:
    """The second job uses the store of the first."""
    store = dist.FileStore(method[len("file://") :], size)
    for _ in range(3):
        dist.init_process_group("allcast", store=store, rank=rank, world_size=size)
        assert total(None, rank) == sum(range(size))
        dist.destroy_process_group()


def test_a_store_serves_several_jobs() -> None:
    run(_store, backend=None)


def _beside(rank: int, size: int) -> None:
    """Groups of Allcast next to a default group of another backend."""
    everyone = dist.new_group(backend="allcast")
    pair = dist.new_group([1, 3], backend="allcast")
    assert dist.get_backend(everyone) == "allcast"
    assert total(everyone, rank) == sum(range(size))
    if rank in (1, 3):
        assert total(pair, rank) == 4
        dist.destroy_process_group(pair)
    assert total(None, rank) == sum(range(size))


def test_groups_beside_another_backend() -> None:
    run(_beside, backend="gloo")


def _mixed(rank: int, size: int, method: str) -> None:
    init(rank, size, method, backend="cpu:allcast,cuda:gloo")
    assert total(None, rank) == sum(range(size))
    group = dist.new_group([0, 2])
    if rank in (0, 2):
        assert total(group, rank) == 2
    output = torch.empty(size * 1000)
    work = dist.all_gather_into_tensor(output, torch.full((1000,), float(rank)), async_op=True)
    work.wait()
    assert torch.equal(output, torch.arange(float(size)).repeat_interleave(1000))
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    assert future.wait()[0].tolist() == [size] * 3
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, rank)
    assert objects == list(range(size))
    if rank == 0:
        dist.send(torch.ones(3), 1)
    if rank == 1:
        got = torch.zeros(3)
        dist.recv(got, 0)
        assert got.tolist() == [1] * 3
    outputs = [torch.empty(2) for _ in range(size)]
    dist.all_gather(outputs, torch.full((2,), float(rank)))
    assert [o[0].item() for o in outputs] == list(range(size))
    got = torch.empty(2)
    dist.reduce_scatter_tensor(got, torch.ones(2 * size))
    assert got.tolist() == [size] * 2
    got = torch.empty(size)
    dist.all_to_all_single(got, torch.arange(float(size)) + 10 * rank)
    assert got.tolist() == [rank + 10.0 * r for r in range(size)]
    dist.barrier()
    dist.monitored_barrier()
    operations = allcast.torch.stats()["groups"]["0"]["operations"]
    assert {"allreduce", "allgather", "alltoall", "barrier", "reduce_scatter"} <= set(operations)
    dist.destroy_process_group()


def _refused(rank: int, size: int, method: str) -> None:
    with pytest.raises(RuntimeError, match=r"cpu:allcast,cuda:gloo.*torch 2\.14"):
        init(rank, size, method, backend="cpu:allcast,cuda:gloo")


def test_backends_per_device() -> None:
    run(_refused if allcast_backend.Backend is None else _mixed, backend=None)


def _same(rank: int, size: int, method: str) -> None:
    init(rank, size, method, backend="cpu:allcast,cuda:allcast")
    assert isinstance(dist.group.WORLD, allcast_backend.ProcessGroup)
    assert total(None, rank) == sum(range(size))
    dist.destroy_process_group()


def test_one_backend_for_several_devices() -> None:
    run(_same, backend=None, size=2)


def _names(rank: int, size: int) -> None:
    world = dist.group.WORLD
    assert dist.get_backend() == "allcast"
    assert world.rank() == rank
    assert world.size() == size
    assert world.name() == "allcast"
    assert world.group_name
    assert torch.device("cpu") in world._device_types
    assert world._get_sequence_number_for_group() == 0
    dist.barrier()
    assert world._get_sequence_number_for_group() == 1
    world.set_timeout(timedelta(seconds=77))
    assert world.options._timeout == timedelta(seconds=77)


def test_properties_of_groups() -> None:
    run(_names, size=2)


def _single(rank: int, size: int) -> None:
    assert total(None, 3) == 3
    output = torch.empty(3)
    dist.all_gather_into_tensor(output, torch.ones(3))
    assert output.tolist() == [1] * 3
    dist.barrier()


def test_a_group_of_one_rank() -> None:
    run(_single, size=1)


def _slow_leaving(rank: int, size: int) -> None:
    """Leaving takes longer than its limit, as on a busy machine. It is no error."""
    world = dist.group.WORLD._group.world
    close = type(world.comm).close

    def slow(comm: allcast.Comm, timeout: float | None = None) -> None:
        close(comm, timeout)
        raise allcast.Error("leaving takes longer")

    with mock.patch.object(type(world.comm), "close", slow):
        dist.distributed_c10d._abort_process_group()
    assert world not in allcast.torch.groups.worlds()
    assert world.completions._closed


def test_an_abort_may_take_longer_than_its_limit() -> None:
    run(_slow_leaving, size=2)
