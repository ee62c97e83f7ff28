"""Loads a checkpoint that one rank reads into the sharded models of all ranks.

torchrun --nproc_per_node 4 examples/torch/load_weights.py

It writes a checkpoint of 96 MiB first, and needs the package safetensors for this only.
"""

from __future__ import annotations

import os
import tempfile
import time

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from torch.distributed.fsdp import fully_shard

import allcast.torch


def make_model() -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(6)))


def main() -> None:
    dist.init_process_group("allcast")
    rank = dist.get_rank()
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "model.safetensors")
        if rank == 0:  # the other ranks never see the file
            torch.manual_seed(1)
            save_file(make_model().state_dict(), path)
        with torch.device("meta"):
            model = make_model()
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
        model.to_empty(device="cpu")
        dist.barrier()
        start = time.perf_counter()
        allcast.torch.load_state_dict(path, model)
        seconds = time.perf_counter() - start
    if rank == 0:
        size = sum(parameter.nbytes for parameter in model.parameters()) >> 20
        print(f"loaded {size} MiB into shards of {dist.get_world_size()} ranks in {seconds:.2f} s")
        show_operations()
    dist.destroy_process_group()


def show_operations() -> None:
    """Prints what has run, and over which algorithm. "mcast" is multicast."""
    for group in allcast.torch.stats()["groups"].values():
        for operation, algorithms in group["operations"].items():
            for algorithm, total in algorithms.items():
                size = total["bytes"] / 2**20
                print(f"{total['count']:4} x {operation:16}{algorithm:20}{size:8.1f} MiB")


if __name__ == "__main__":
    main()
