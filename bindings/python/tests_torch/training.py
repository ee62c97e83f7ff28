"""Trains small models with one backend and saves what every rank ends with.

torchrun starts it: ``torchrun --nproc_per_node 4 training.py BACKEND FILE [CASE...]``. Rank 0
writes FILE, a dict from the name of a case to its tensors. A case is a function below; it returns
tensors under two names. "exact" holds tensors that depend on copies only, and "sums" tensors that
depend on the order of additions.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

Result = dict[str, list[Tensor]]

STEPS = 20
WIDTH = 192  # a layer has 144 KiB, so its shards are above the size from which multicast is used


def make_model() -> nn.Sequential:
    torch.manual_seed(1)
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Linear(WIDTH, WIDTH), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 7))


def train(model: nn.Module, rank: int, steps: int = STEPS) -> list[Tensor]:
    """Trains with other data on every rank and returns the losses of this rank."""
    data = torch.Generator().manual_seed(100 + rank)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(steps):
        x = torch.randn(8, WIDTH, generator=data)
        y = torch.randn(8, 7, generator=data)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        losses.append(loss.detach())
    return losses


def full(tensor: Tensor) -> Tensor:
    """Returns a parameter as one tensor, wherever its shards are."""
    tensor = tensor.detach()
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).clone()


def shard(mesh: DeviceMesh) -> nn.Sequential:
    model = make_model()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def all_losses(losses: list[Tensor]) -> list[Tensor]:
    mine = torch.stack(losses)
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    return everyone


def ddp() -> Result:
    model = make_model()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(dist.get_rank())  # DDP has to broadcast the parameters of rank 0
    wrapped = DistributedDataParallel(model)
    start = [full(p) for p in model.parameters()]
    losses = train(wrapped, dist.get_rank())
    return {"exact": start, "sums": [full(p) for p in model.parameters()] + all_losses(losses)}


def fsdp2() -> Result:
    model = shard(init_device_mesh("cpu", (dist.get_world_size(),)))
    start = [full(p) for p in model.parameters()]
    losses = train(model, dist.get_rank())
    return {"exact": start, "sums": [full(p) for p in model.parameters()] + all_losses(losses)}


def hsdp() -> Result:
    """Two replicas of two shards each."""
    mesh = init_device_mesh(
        "cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("replicate", "shard")
    )
    model = shard(mesh)
    losses = train(model, dist.get_rank())
    return {"exact": [], "sums": [full(p) for p in model.parameters()] + all_losses(losses)}


def checkpoint() -> Result:
    """Saves a sharded model, loads it into another one, and returns the parameters of both."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    saved, loaded = shard(mesh), shard(mesh)
    with torch.no_grad():
        for i, p in enumerate(saved.parameters()):
            p.add_(0.25 * i)
    path = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(path, src=0)
    dcp.save({"model": saved.state_dict()}, checkpoint_id=path[0])
    state = {"model": loaded.state_dict()}
    dcp.load(state, checkpoint_id=path[0])
    loaded.load_state_dict(state["model"])
    before, after = [full(p) for p in saved.parameters()], [full(p) for p in loaded.parameters()]
    for a, b in zip(before, after):
        if not torch.equal(a, b):
            raise AssertionError("a parameter changed between saving and loading")
    return {"exact": after, "sums": []}


def tensors() -> Result:
    """Gathers and redistributes tensors whose shards differ in size."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    exact = []
    for shape in [(64, 33), (7, 5), (3,), (130, 2, 9)]:
        for dtype in [torch.float32, torch.bfloat16, torch.int64]:
            whole = torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)
            for dim in range(len(shape)):
                d = distribute_tensor(whole, mesh, [Shard(dim)])
                for t in (d.full_tensor(), d.redistribute(mesh, [Replicate()]).to_local()):
                    if not torch.equal(t, whole):
                        raise AssertionError(
                            f"a tensor of {shape}, {dtype}, sharded by dimension {dim}, changed"
                        )
                    exact.append(t.clone())
                for other in range(len(shape)):
                    exact.append(d.redistribute(mesh, [Shard(other)]).full_tensor())
    return {"exact": exact, "sums": []}


CASES: dict[str, Callable[[], Result]] = {
    case.__name__: case for case in (ddp, fsdp2, hsdp, checkpoint, tensors)
}


def main() -> None:
    backend, out, names = sys.argv[1], sys.argv[2], sys.argv[3:] or list(CASES)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if backend == "allcast":
        import allcast.torch
    dist.init_process_group(backend)
    results: dict[str, object] = {}
    for name in names:
        results[name] = CASES[name]()
        if backend == "allcast":
            results[f"{name} stats"] = allcast.torch.stats()
    if dist.get_rank() == 0:
        torch.save(results, out)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
