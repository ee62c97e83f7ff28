"""What torch's profiler and flight recorder see of operations."""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from ranks import init, run
from torch._C import _distributed_c10d as c10d

from allcast.torch.fsdp import MulticastAllGather

OPERATIONS = ["allreduce", "allgather", "reduce_scatter", "broadcast", "barrier", "send", "recv"]


def _operations(rank: int, size: int) -> None:
    mine, everyone = torch.ones(3, 5), torch.ones(3 * size, 5)
    dist.all_reduce(mine)
    dist.all_gather_into_tensor(everyone, mine)
    dist.reduce_scatter_tensor(mine, everyone)
    dist.broadcast(mine, 0)
    dist.barrier()
    dist.send(mine, 1 - rank) if rank == 0 else dist.recv(mine, 1 - rank)
    dist.recv(mine, 1 - rank) if rank == 0 else dist.send(mine, 1 - rank)


def _profile(rank: int, size: int, folder: str) -> None:
    with torch.profiler.profile(record_shapes=True) as profile:
        _operations(rank, size)
        work = dist.all_reduce(torch.ones(7), async_op=True)
        work.wait()
    shapes: dict[str, list[Any]] = {}
    for event in profile.events():
        shapes.setdefault(event.name, []).append(event.input_shapes)
    for operation in OPERATIONS:
        assert f"allcast:{operation}" in shapes, sorted(shapes)
        assert f"allcast:{operation} wait" in shapes, sorted(shapes)
    assert [3, 5] in shapes["allcast:allgather"][0]
    assert [3 * size, 5] in shapes["allcast:allgather"][0]
    assert [7] in shapes["allcast:allreduce"][1]
    path = Path(folder) / f"{rank}.json"
    profile.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    (gathered,) = (e["args"] for e in events if e["name"] == "allcast:allgather")
    assert gathered["Process Group Name"] == "0"
    assert gathered["Group size"] == size


def test_the_profiler_sees_operations(tmp_path: Path) -> None:
    run(_profile, str(tmp_path), size=2)


recorder = pytest.mark.skipif(
    not hasattr(c10d, "FlightRecorderHook"), reason="FlightRecorderHook needs torch 2.15"
)


def _entries() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(c10d._dump_fr_trace_json(True, False, "allcast"))[
        "entries"
    ]
    return found


def _recorded(rank: int, size: int, method: str) -> None:
    with mock.patch.dict(os.environ, {"TORCH_FR_BUFFER_SIZE": "100"}):
        init(rank, size, method)
    _operations(rank, size)
    entries = _entries()
    names = [entry["profiling_name"] for entry in entries]
    assert len(names) == 7
    assert names[0] == "allcast:all_reduce"
    assert all(name.startswith("allcast:") for name in names)
    assert entries[1]["input_sizes"] == [[3, 5]]
    assert entries[1]["output_sizes"] == [[3 * size, 5]]
    assert entries[1]["process_group"] == ["0", "default_pg"]
    assert entries[1]["input_dtypes"] == ["Float"]

    # The server of torch.distributed.debug shows the same.
    server = c10d._WorkerServer("127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.port}/handler/fr_trace_json?backend=allcast"
    with urllib.request.urlopen(urllib.request.Request(url, data=b"")) as answer:
        shown = json.load(answer)["entries"]
    server.shutdown()
    assert [entry["profiling_name"] for entry in shown] == names

    # Parts of the package that need a communicator find it.
    gather = MulticastAllGather()
    gather.add(dist.group.WORLD)
    output = gather.allocate([size * 4], dtype=torch.float32, device=torch.device("cpu"))
    gather(output, torch.full((4,), float(rank)), dist.group.WORLD)
    assert output.tolist() == [float(r) for r in range(size) for _ in range(4)]
    assert len(_entries()) == 8
    dist.destroy_process_group()


@recorder
def test_the_flight_recorder_sees_operations() -> None:
    run(_recorded, size=2, backend=None)
