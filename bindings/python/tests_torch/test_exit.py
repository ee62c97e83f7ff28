"""Ranks that raise an exception or exit: the others learn it at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Far longer than the test waits, so that nobody learns from the timeout.
TIMEOUT = "120s"
BOUND = 30.0

SIZE = 3
LOST = 2

RANK = """
import contextlib, sys, time
import torch, torch.distributed as dist
import allcast.torch

method, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
dist.init_process_group("allcast", init_method=method, rank=rank, world_size=size)
other = dist.new_group()
dist.all_reduce(torch.ones(4))
"""

SURVIVOR = """
start = time.monotonic()
try:
    while True:
        dist.all_reduce(torch.ones(1000))
except dist.DistBackendError as error:
    print("rank 2" in str(error), time.monotonic() - start)
"""

EXITS = {
    # The operation cannot end, and the exit must not wait for it.
    "exception": (
        "work = dist.all_reduce(torch.ones(1), group=other, async_op=True)\n"
        'raise RuntimeError("mine")',
        1,
    ),
    "finally": (
        'try:\n    raise RuntimeError("mine")\nfinally:\n    dist.destroy_process_group()',
        1,
    ),
    "end": ("pass", 0),
}


@pytest.mark.parametrize("how", list(EXITS))
def test_the_others_learn_at_once(how: str, tmp_path: Path) -> None:
    statement, status = EXITS[how]
    processes = []
    for rank in range(SIZE):
        text = RANK + (statement if rank == LOST else SURVIVOR)
        arguments = [f"file://{tmp_path / 'store'}", str(rank), str(SIZE)]
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", text, *arguments],
                env={**os.environ, "ALLCAST_TIMEOUT": TIMEOUT},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        for rank, process in enumerate(processes):
            out, errors = process.communicate(timeout=240)
            assert process.returncode == (status if rank == LOST else 0), errors
            if rank != LOST:
                named, seconds = out.split()
                assert named == "True", errors
                assert float(seconds) < BOUND
    finally:
        for process in processes:
            process.kill()
