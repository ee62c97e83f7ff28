"""FSDP2 with Allcast gives the results of gloo. Run it under torchrun:

    torchrun --nproc_per_node 4 device_fsdp2.py --device cuda

The ranks may share one GPU. Each variant trains the same model for 20 steps:

  - gloo
  - gloo with all-gathers by Allcast (use_multicast): bits equal to gloo's, because all-gathers only
    move bytes
  - Allcast: relative error below 1e-5, because sums are added in another order
  - Allcast again: bits equal to the previous run
"""

from __future__ import annotations

import argparse
import itertools
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

import allcast.torch
import allcast.torch.fsdp

STEPS = 20
WIDTHS = [64, 515, 1024, 2048, 64]


def train(
    device: torch.device, group: dist.ProcessGroup, multicast: bool, dtype: torch.dtype | None
) -> tuple[list[float], torch.Tensor]:
    """Returns the losses and this rank's parameters."""
    torch.manual_seed(7)
    layers = [nn.Linear(a, b) for a, b in itertools.pairwise(WIDTHS)]
    model = nn.Sequential(*[nn.Sequential(layer, nn.GELU()) for layer in layers]).to(device)
    mesh = DeviceMesh.from_group(group, device.type)
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for layer in model:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    assert all(isinstance(layer, FSDPModule) for layer in model)
    if multicast:
        allcast.torch.fsdp.use_multicast(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batches = torch.Generator().manual_seed(100 + dist.get_rank())
    losses = []
    for _ in range(STEPS):
        input = torch.randn(4, WIDTHS[0], generator=batches).to(device)
        target = torch.randn(4, WIDTHS[-1], generator=batches).to(device)
        loss = (model(input).float() - target).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    parameters = [p.to_local().detach().flatten() for p in model.parameters()]
    return [float(loss) for loss in losses], torch.cat(parameters).cpu()


def relative(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want.double()).abs().max() / want.double().abs().max())


def check(condition: bool, text: str) -> None:
    failed = torch.tensor([0 if condition else 1])
    dist.all_reduce(failed)
    if int(failed):
        sys.exit(f"{text}: on {int(failed)} of {dist.get_world_size()} ranks")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    arguments = parser.parse_args()
    if arguments.device == "cuda":
        if not torch.cuda.is_available():
            sys.exit("no CUDA device")
        torch.cuda.set_device(0)
    device = (
        torch.device(arguments.device, 0) if arguments.device == "cuda" else torch.device("cpu")
    )
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    gloo, ours = dist.new_group(backend="gloo"), dist.new_group(backend="allcast")
    for dtype in (None, torch.bfloat16):
        losses, want = train(device, gloo, False, dtype)
        again, same = train(device, gloo, False, dtype)
        exact = losses == again and torch.equal(want, same)  # kernels may not be deterministic
        multicast_losses, multicast = train(device, gloo, True, dtype)
        if exact:
            check(
                multicast_losses == losses and torch.equal(multicast, want),
                f"use_multicast changes results with {dtype}",
            )
        first_losses, first = train(device, ours, False, dtype)
        second_losses, second = train(device, ours, False, dtype)
        error = max(
            relative(first, want), relative(torch.tensor(first_losses), torch.tensor(losses))
        )
        # In bfloat16, a gradient that differs in its last bit changes the next step.
        limit = 1e-5 if dtype is None else 1e-2
        check(error < limit, f"Allcast differs from gloo by {error:.1e} with {dtype}")
        if exact:
            check(
                torch.equal(first, second) and first_losses == second_losses,
                f"two runs of Allcast differ with {dtype}",
            )
        if dist.get_rank() == 0:
            print(
                f"FSDP2 on {dist.get_world_size()} ranks, {arguments.device} tensors, "
                f"{dtype or torch.float32}, {STEPS} steps: loss {losses[0]:.6f} to "
                f"{losses[-1]:.6f}, relative error of Allcast {error:.1e}"
                + ("" if exact else "; not compared bit by bit, because two runs of gloo differ")
            )
    operations = [group["operations"] for group in allcast.torch.stats()["groups"].values()]
    check(
        sum(sum(a["count"] for a in o.get("allgather", {}).values()) for o in operations) > 0,
        "no all-gather ran over Allcast",
    )
    if dist.get_rank() == 0:
        print(f"operations of Allcast: {operations}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
