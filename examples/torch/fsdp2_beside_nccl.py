"""Trains with FSDP2 over NCCL, while Allcast gathers the parameters over multicast:

    torchrun --nproc_per_node 4 examples/torch/fsdp2_beside_nccl.py

It needs one GPU per rank, because ranks cannot share a GPU with NCCL. Without them, gloo on CPU
takes the place of NCCL, which shows the same calls.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import allcast.torch
from allcast.torch.fsdp import use_multicast

STEPS = 10
WIDTH = 512


def main() -> None:
    local, ranks = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    gpus = torch.cuda.device_count()
    nccl = gpus >= ranks and dist.is_nccl_available()
    if nccl:
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
        if dist.get_rank() == 0:
            print(f"NCCL needs one GPU per rank, and {ranks} ranks have {gpus}: using gloo on CPU")
    rank = dist.get_rank()

    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(6)]
    model = nn.Sequential(*blocks).to(device)
    for block in model:
        fully_shard(block)
    fully_shard(model)
    use_multicast(model)  # after the last fully_shard, on all ranks
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    torch.manual_seed(rank)
    data = torch.randn(8, WIDTH, device=device)
    for step in range(STEPS):
        loss = (model(data) - data).square().mean()
        loss.backward()  # the default backend reduces gradients
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step}: loss of rank 0 {loss.item():.6f}")

    if rank == 0:
        for name, group in allcast.torch.stats()["groups"].items():
            for algorithm, done in group["operations"].get("allgather", {}).items():
                print(f"group {name}: {done['count']} all-gathers with {algorithm}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
