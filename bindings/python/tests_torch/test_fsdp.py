"""use_multicast: all-gathers of FSDP2 by Allcast, everything else by another backend."""

from __future__ import annotations

import gc

import pytest
import torch
import torch.distributed as dist
from ranks import run
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

import allcast.torch
from allcast.torch.fsdp import MulticastAllGather, use_multicast

WIDTH = 256


def build(mesh: object = None, **options: object) -> nn.Sequential:
    torch.manual_seed(3)
    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(3)])
    for layer in model:
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def train(model: nn.Sequential, steps: int = 3) -> torch.Tensor:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        model(torch.randn(2, WIDTH, generator=batches)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.cat([p.to_local().detach().flatten().clone() for p in model.parameters()])


def gathers() -> dict[int, int]:
    """Number of all-gathers by Allcast, by the size of the group."""
    counts: dict[int, int] = {}
    for group in allcast.torch.stats()["groups"].values():
        for operation, algorithms in group["operations"].items():
            assert operation == "allgather", f"Allcast ran {operation}"
            done = sum(algorithm["count"] for algorithm in algorithms.values())
            counts[group["size"]] = counts.get(group["size"], 0) + done
    return counts


def _same_bits(rank: int, size: int) -> None:
    want = train(build())
    model = build()
    use_multicast(model)
    assert torch.equal(train(model), want)
    # Three layers, forward and backward, three steps. The root has no parameters of its own.
    assert gathers() == {size: 18}


def test_results_have_the_same_bits() -> None:
    run(_same_bits, backend="gloo")


def _given_group(rank: int, size: int) -> None:
    group = dist.new_group(backend="allcast")
    want = train(build())
    model = build()
    use_multicast(model, group)
    assert torch.equal(train(model), want)
    assert gathers() == {size: 18}


def test_given_group() -> None:
    run(_given_group, size=2, backend="gloo")


def _hybrid(rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    want = train(build(mesh))
    model = build(mesh)
    use_multicast(model)
    assert torch.equal(train(model), want)
    assert gathers() == {2: 18}


def test_groups_of_a_mesh() -> None:
    """With HSDP, each rank gathers in the group that shards its copy of the parameters."""
    run(_hybrid, backend="gloo")


def _partial(rank: int, size: int) -> None:
    options = {"reshard_after_forward": 2}
    want = train(build(**options))
    model = build(**options)
    use_multicast(model)
    assert torch.equal(train(model), want)
    assert gathers() == {4: 9, 2: 9}


def test_smaller_group_in_backward() -> None:
    run(_partial, backend="gloo")


def _same_backend(rank: int, size: int) -> None:
    want = train(build())
    model = build()
    use_multicast(model)
    assert torch.equal(train(model), want)
    assert len(allcast.torch.stats()["groups"]) == 1


def test_default_group_of_allcast_is_used_itself() -> None:
    run(_same_backend, size=2)


def _asynchronous(rank: int, size: int) -> None:
    gather = MulticastAllGather()
    group = dist.group.WORLD
    gather.add(group)
    output = gather.allocate((size * 1000,), dtype=torch.float32, device=torch.device("cpu"))
    own = output[rank * 1000 : (rank + 1) * 1000]
    own.fill_(rank)
    work = gather(output, own, group, async_op=True)
    assert work is not None
    work.wait()
    assert torch.equal(output, torch.arange(size).repeat_interleave(1000).float())
    # The memory serves the next tensor of the size once no tensor uses it.
    address = output.data_ptr()
    del own, work
    gc.collect()
    other = gather.allocate((size * 1000,), dtype=torch.float32, device=torch.device("cpu"))
    assert other.data_ptr() != address
    view = output.view(2, -1)[1]
    del output
    gc.collect()
    third = gather.allocate((size * 1000,), dtype=torch.float32, device=torch.device("cpu"))
    assert third.data_ptr() != address
    del view
    gc.collect()
    fourth = gather.allocate((size * 2000,), dtype=torch.bfloat16, device=torch.device("cpu"))
    assert fourth.data_ptr() == address
    empty = gather.allocate((0,), dtype=torch.float32, device=torch.device("cpu"))
    assert empty.numel() == 0
    # Garbage collection may free a tensor in a thread that is about to take memory.
    assert gather._memory is not None
    address = fourth.data_ptr()
    with gather._memory._lock:
        del fourth
    fifth = gather.allocate((size * 1000,), dtype=torch.float32, device=torch.device("cpu"))
    assert fifth.data_ptr() == address


def test_memory_is_reused() -> None:
    run(_asynchronous, size=2, backend="gloo")


def _wrong_groups(rank: int, size: int) -> None:
    model = build()
    other = dist.new_group([0], backend="gloo")
    if rank == 0:
        with pytest.raises(
            ValueError, match=r"got a group of ranks \[0\], but ranks \[0, 1\] share"
        ):
            use_multicast(model, other)
    with pytest.raises(ValueError, match="got a group of another backend"):
        use_multicast(model, dist.new_group(backend="gloo"))
    gather = MulticastAllGather()
    tensor = torch.zeros(size)
    with pytest.raises(RuntimeError, match="call it after the last fully_shard"):
        gather(tensor, tensor[:1], dist.group.WORLD)


def test_wrong_groups_are_refused() -> None:
    run(_wrong_groups, size=2, backend="gloo")


def test_model_without_fsdp_is_refused() -> None:
    with pytest.raises(ValueError, match="call fully_shard before use_multicast"):
        use_multicast(nn.Linear(2, 2))


def test_torch_without_the_hook_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(FSDPModule, "set_custom_all_gather")
    with pytest.raises(RuntimeError, match=r"use torch 2\.9 or newer"):
        use_multicast(nn.Linear(2, 2))
