"""Trains a model with DistributedDataParallel over Allcast.

torchrun --nproc_per_node 4 examples/torch/ddp.py
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import allcast.torch


def main() -> None:
    dist.init_process_group("allcast")
    torch.manual_seed(1)
    # DDP copies the parameters of rank 0 to all ranks by multicast.
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 1))
    )
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.Generator().manual_seed(dist.get_rank())
    for step in range(20):
        x = torch.randn(32, 512, generator=data)
        loss = nn.functional.mse_loss(model(x), x.mean(1, keepdim=True))
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0 and step % 5 == 4:
            print(f"step {step + 1}: loss {loss.item():.4f}")
    if dist.get_rank() == 0:
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
