"""Trains a small model with FSDP2 over Allcast, on CPU or on GPUs:

    torchrun --nproc_per_node 4 examples/torch/fsdp2.py

Rank 0 prints the loss, and at the end which all-gathers ran over multicast.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import allcast.torch

STEPS = 10
WIDTH = 512


def main() -> None:
    dist.init_process_group("allcast")
    rank = dist.get_rank()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        # Ranks may share a GPU, unlike with NCCL.
        local = int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)

    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(6)]
    model = nn.Sequential(*blocks).to(device)
    for block in model:
        fully_shard(block)  # FSDP2 gathers each block before it is used
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    torch.manual_seed(rank)  # each rank trains on its own data
    data = torch.randn(8, WIDTH, device=device)
    for step in range(STEPS):
        loss = (model(data) - data).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if rank == 0:
            print(f"step {step}: loss {mean.item():.6f}")

    if rank == 0:
        for name, group in allcast.torch.stats()["groups"].items():
            for algorithm, done in group["operations"].get("allgather", {}).items():
                print(f"group {name}: {done['count']} all-gathers with {algorithm}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
