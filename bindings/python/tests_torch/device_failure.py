"""A rank that dies releases the streams of the others, and their next call names it. Run it under
torchrun:

torchrun --nproc_per_node 4 device_failure.py --device cuda
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from device_operations import Checks

LIMIT = 60.0  # seconds until a stream must be free


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cuda", "fake"], default="cuda")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device: run with --device fake")
    dist.init_process_group("allcast", timeout=timedelta(seconds=LIMIT))
    checks = Checks(arguments.device)
    lost = checks.size - 1
    tensor = checks.make(3_000_000, torch.float32, 1)
    for _ in range(2):
        dist.all_reduce(tensor.clone())
    checks.synchronize()
    dist.barrier()
    if checks.rank == lost:
        os._exit(0)
    began = time.monotonic()
    raised: BaseException | None = None
    try:
        dist.all_reduce(tensor)  # the stream waits for a rank that does not exist any more
        checks.synchronize()
        released = time.monotonic() - began
        while raised is None and time.monotonic() - began < LIMIT:
            try:
                dist.all_reduce(tensor)
                checks.synchronize()
            except dist.DistBackendError as error:
                raised = error
    except dist.DistBackendError as error:
        raised, released = error, time.monotonic() - began
    assert raised is not None, "no call fails although a rank is lost"
    assert f"rank {lost}" in str(raised), f"the error does not name rank {lost}: {raised}"
    print(f"rank {checks.rank}: stream released after {released:.2f} s, then: {raised}", flush=True)


if __name__ == "__main__":
    main()
