"""Process groups that are made and destroyed many times.

ALLCAST_TEST_CYCLES sets how often, 20 times by default.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import LIMIT, run

import allcast.torch

CYCLES = int(os.environ.get("ALLCAST_TEST_CYCLES", "20"))
WARM_UP = 5  # cycles after which caches and thread pools have their size


def _resources() -> dict[str, int]:
    """Threads and descriptors of this process, and its resident memory in KiB."""
    status = Path("/proc/self/status").read_text().splitlines()
    resident = next(line for line in status if line.startswith("VmRSS:"))
    return {
        "threads": len(os.listdir("/proc/self/task")),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "memory": int(resident.split()[1]),
    }


def _meet(store: dist.Store, size: int, name: str) -> None:
    """A barrier that does not use the group."""
    if store.add(f"count/{name}", 1) == size:
        store.set(f"all/{name}", "")
    store.wait([f"all/{name}"])


def _abort(rank: int, size: int, store: dist.Store, cycle: int) -> None:
    """Aborts the job while operations run that cannot end."""
    _meet(store, size, str(cycle))
    if rank == 0:
        work = dist.all_reduce(torch.ones(4), async_op=True)
        future = dist.all_reduce(torch.ones(4), async_op=True).get_future()
        dist.irecv(torch.ones(4), 1)
    dist.distributed_c10d._abort_process_group()
    assert not dist.is_initialized()
    assert not allcast.torch.groups.worlds()
    if rank == 0:
        with pytest.raises(dist.DistBackendError):
            work.wait()
        with pytest.raises(RuntimeError):
            future.wait()


def _cycle(
    rank: int, size: int, method: str, aborts: bool
) -> tuple[dict[str, int], dict[str, int]]:
    store = dist.FileStore(method[len("file://") :], size)
    before: dict[str, int] = {}
    for cycle in range(WARM_UP + CYCLES):
        if cycle == WARM_UP:
            before = _resources()
        dist.init_process_group("allcast", store=store, rank=rank, world_size=size)
        pair = dist.new_group([0, 1])
        everyone = torch.empty(size * 4096, dtype=torch.int32)
        dist.all_gather_into_tensor(everyone, torch.full((4096,), 100 * cycle + rank).int())
        want = torch.arange(size).add(100 * cycle).int().repeat_interleave(4096)
        assert torch.equal(everyone, want)
        if rank < 2:
            total = torch.full((8192,), rank + 1)
            dist.all_reduce(total, group=pair)
            assert torch.equal(total, torch.full((8192,), 3))
        if aborts:
            _abort(rank, size, store, cycle)
        else:
            dist.destroy_process_group()
        del pair
        gc.collect()
        gc.collect()  # what only finalisers of the first collection still refer to
    assert not any(type(o) is allcast.torch.groups.Group for o in gc.get_objects())
    return before, _resources()


@pytest.mark.parametrize("aborts", [False, True], ids=["destroy", "abort"])
def test_cycles_leak_nothing(aborts: bool) -> None:
    results = run(_cycle, aborts, size=3, backend=None, limit=LIMIT + 5 * CYCLES)
    for rank, (before, after) in enumerate(results):
        print(f"rank {rank} after {CYCLES} cycles: {before} became {after}")
        assert after["descriptors"] <= before["descriptors"], f"rank {rank}: {before} {after}"
        # The runtime of the library may start a few threads late, and keeps them.
        assert after["threads"] <= before["threads"] + 4, f"rank {rank}: {before} {after}"
        # Heaps of Go and Python breathe. A leak of one small buffer per cycle exceeds this soon.
        assert after["memory"] <= before["memory"] + 16384, f"rank {rank}: {before} {after}"
