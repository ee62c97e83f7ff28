"""Process groups that are made and destroyed many times.

ALLCAST_TEST_CYCLES sets how often, 20 times by default.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

import torch
import torch.distributed as dist
from ranks import LIMIT, run

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


def _cycle(rank: int, size: int, method: str) -> tuple[dict[str, int], dict[str, int]]:
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
        dist.destroy_process_group()
        gc.collect()
    return before, _resources()


def test_cycles_leak_nothing() -> None:
    results = run(_cycle, size=3, backend=None, limit=LIMIT + 5 * CYCLES)
    for rank, (before, after) in enumerate(results):
        print(f"rank {rank} after {CYCLES} cycles: {before} became {after}")
        assert after["descriptors"] <= before["descriptors"], f"rank {rank}: {before} {after}"
        # The runtime of the library may start a few threads late, and keeps them.
        assert after["threads"] <= before["threads"] + 4, f"rank {rank}: {before} {after}"
        # Heaps of Go and Python breathe. A leak of one small buffer per cycle exceeds this soon.
        assert after["memory"] <= before["memory"] + 16384, f"rank {rank}: {before} {after}"
