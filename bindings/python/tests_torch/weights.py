"""Loads weights in many ways. torchrun starts it: ``torchrun ... weights.py BACKEND DIRECTORY``.

A case is a function below. Every rank runs all cases in the same order, and writes their names and
the error of each to DIRECTORY. The first error ends the rank, and torchrun then ends the others.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from allcast.torch import WeightsError, load_state_dict
from allcast.torch.safetensors import INDEX, Checkpoint
from allcast.torch.targets import Target

CASES: dict[str, Callable[[Path], None]] = {}

# Windows far smaller than the models, so that each load takes many of them.
WINDOW = 64 << 10


def case(function: Callable[[Path], None]) -> Callable[[Path], None]:
    CASES[function.__name__] = function
    return function


class Block(nn.Module):
    """A layer with tensors of many shapes and types, larger and smaller than a window."""

    def __init__(self, width: int, device: str | None = None) -> None:
        super().__init__()
        self.up = nn.Linear(width, 3 * width + 1, device=device)
        self.down = nn.Linear(3 * width + 1, width, device=device)
        self.norm = nn.LayerNorm(width, device=device)
        self.wide = nn.Parameter(torch.zeros(width, 2, 3, dtype=torch.bfloat16, device=device))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64, device=device))
        self.register_buffer("mask", torch.zeros(width, dtype=torch.bool, device=device))
        self.register_buffer("nothing", torch.zeros(0, 5, device=device))
        self.register_buffer("scale", torch.zeros(7, device=device).to(torch.float8_e4m3fn))


def make_model(width: int = 150, layers: int = 3, device: str | None = None) -> nn.Module:
    return nn.Sequential(*(Block(width, device) for _ in range(layers)))


def contents(model: nn.Module, seed: int = 1) -> dict[str, torch.Tensor]:
    """Returns random values for all tensors of a model, the same on all ranks."""
    chance = torch.Generator().manual_seed(seed)
    values = {}
    for name, tensor in model.state_dict().items():
        random = torch.rand(tensor.shape, generator=chance) * 100 - 50
        values[name] = random > 0 if tensor.dtype == torch.bool else random.to(tensor.dtype)
    return values


def write(file: Path, tensors: dict[str, torch.Tensor], reader: int = 0) -> Path:
    """Writes a checkpoint on the rank that reads it."""
    if dist.get_rank() == reader:
        save_file({name: t.clone().contiguous() for name, t in tensors.items()}, file)
    return file


def whole(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def raw(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def check(model: nn.Module, want: dict[str, torch.Tensor]) -> None:
    for name, tensor in model.state_dict().items():
        got = whole(tensor)
        assert got.dtype == want[name].dtype, f"{name} has type {got.dtype}"
        assert torch.equal(raw(got), raw(want[name])), f"{name} has wrong values"


@contextlib.contextmanager
def raises(rank: int, *texts: str) -> Iterator[None]:
    """Expects a WeightsError on all ranks that names a rank and contains texts."""
    with pytest.raises(WeightsError) as raised:
        yield
    message = str(raised.value)
    assert raised.value.rank == rank, message
    for text in (f"rank {rank} ", *texts):
        assert text in message
    dist.barrier()


@case
def complete_model(at: Path) -> None:
    model = make_model()
    want = contents(model)
    file = write(at / "model.safetensors", want)
    for path, window in ((file, WINDOW), ([file], 16 << 20), (at, 4096)):
        for tensor in model.state_dict().values():
            tensor.zero_()
        result = load_state_dict(path, model, window=window)
        assert result.missing_keys == []
        assert result.unexpected_keys == []
        check(model, want)


@case
def several_files(at: Path) -> None:
    model = make_model()
    want = contents(model, 2)
    names = list(want)
    weight_map = {name: f"part-{i % 3}.safetensors" for i, name in enumerate(names)}
    for number in range(3):
        file = f"part-{number}.safetensors"
        write(at / file, {name: want[name] for name in names if weight_map[name] == file})
    if dist.get_rank() == 0:
        (at / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    load_state_dict(at, model, window=WINDOW)
    check(model, want)


@case
def another_reader(at: Path) -> None:
    model = make_model()
    want = contents(model, 3)
    path = write(at / "only-there", want, reader=2) if dist.get_rank() == 2 else None
    load_state_dict(path, model, reader=2, window=WINDOW)
    check(model, want)


@case
def fsdp2(at: Path) -> None:
    model = make_model()
    want = contents(model, 4)
    for block in model:
        fully_shard(block)
    fully_shard(model)
    load_state_dict(write(at / "model", want), model, window=WINDOW)
    check(model, want)
    # The parameters of a layer that is gathered at the moment are sharded first.
    model.unshard()
    for tensor in want.values():
        tensor.zero_()
    load_state_dict(write(at / "zeros", want), model, window=WINDOW)
    check(model, want)


@case
def hsdp(at: Path) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = make_model()
    want = contents(model, 5)
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    load_state_dict(write(at / "model", want), model, window=WINDOW)
    check(model, want)


class Pair(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, 2 * width)
        self.second = nn.Linear(2 * width, width)


@case
def fsdp2_and_tensor_parallel(at: Path) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = Pair(128)
    want = contents(model, 6)
    plan = {"first": ColwiseParallel(), "second": RowwiseParallel()}
    parallelize_module(model, mesh["tp"], plan)
    fully_shard(model, mesh=mesh["dp"])
    load_state_dict(write(at / "model", want), model, window=WINDOW)
    check(model, want)


class Holder(nn.Module):
    def __init__(self, **tensors: torch.Tensor) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            setattr(self, name, nn.Parameter(tensor, requires_grad=tensor.is_floating_point()))


@case
def placements(at: Path) -> None:
    """Shards on any dimension, uneven ones and a mesh without some of the ranks."""
    square = init_device_mesh("cpu", (2, 2))
    line = init_device_mesh("cpu", (4,))
    data = torch.arange(7.0 * 30 * 50).view(7, 30, 50)
    shards = {
        "columns": (line, [Shard(1)]),
        "last": (line, [Shard(2)]),
        "uneven": (line, [Shard(0)]),
        "both": (square, [Shard(0), Shard(1)]),
        "twice": (square, [Shard(1), Shard(1)]),
        "inner": (square, [Replicate(), Shard(2)]),
        "copies": (line, [Replicate()]),
    }
    tensors = {name: distribute_tensor(data, *where) for name, where in shards.items()}
    model = Holder(**{name: torch.zeros_like(t) for name, t in tensors.items()})
    path = write(at / "model", {name: data.clone() for name in shards})
    load_state_dict(path, model, window=4096)
    for name, tensor in tensors.items():
        got = getattr(model, name).detach().to_local()
        assert torch.equal(got, tensor.to_local()), name


@case
def tied_weights(at: Path) -> None:
    width = 100
    value, other = torch.randn(width, width), torch.randn(width, width)
    dist.broadcast(value, 0)
    dist.broadcast(other, 0)
    files = {
        "one name": {"0.weight": value},
        "the other name": {"1.weight": value},
        "both names": {"0.weight": other, "1.weight": value},
    }
    for number, tensors in enumerate(files.values()):
        for sharded in (False, True):
            model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(2)))
            model[1].weight = model[0].weight
            if sharded:
                fully_shard(model)
            load_state_dict(write(at / str(number), tensors), model, window=WINDOW)
            assert torch.equal(whole(model[0].weight), value)
            assert torch.equal(whole(model[1].weight), value)


@case
def conversion(at: Path) -> None:
    data = torch.randn(64, 33, generator=torch.Generator().manual_seed(1))
    path = write(
        at / "model",
        {
            "a": data,
            "b": data.to(torch.bfloat16),
            "c": data.to(torch.float8_e5m2),
            "d": data,
        },
    )
    model = Holder(
        a=torch.zeros(64, 33, dtype=torch.bfloat16),
        b=torch.zeros(33, 64).t(),
        c=torch.zeros(64, 33, dtype=torch.float16),
        d=torch.zeros(64, 33, dtype=torch.float64),
    )
    load_state_dict(path, model, window=4096)
    assert torch.equal(model.a, data.to(torch.bfloat16))
    assert torch.equal(model.b, data.to(torch.bfloat16).float())
    assert torch.equal(model.c, data.to(torch.float8_e5m2).to(torch.float16))
    assert torch.equal(model.d, data.double())
    for dtype in (torch.int64, torch.bool, torch.complex64):
        with raises(0, "tensor 'a' has type torch.float32"):
            bad = Holder(a=torch.zeros(64, 33, dtype=dtype))
            load_state_dict(path, bad, strict=False)


@case
def not_strict(at: Path) -> None:
    model = make_model(layers=2)
    want = contents(model, 7)
    stored = {name: t for name, t in want.items() if not name.startswith("1.up")}
    path = write(at / "model", {**stored, "extra": torch.ones(3)})
    result = load_state_dict(path, model, strict=False, window=WINDOW)
    assert result.missing_keys == ["1.up.weight", "1.up.bias"]
    assert result.unexpected_keys == ["extra"]
    kept = {name: t.clone() for name, t in model.state_dict().items() if "1.up" in name}
    check(model, {**want, **kept})


@case
def different_models(at: Path) -> None:
    """Every rank has another part of the model, as in pipeline parallelism."""
    want = contents(make_model(layers=4), 8)
    path = write(at / "model", {**want, "nowhere": torch.ones(1000)})
    rank = dist.get_rank()
    stage = nn.ModuleDict({str(rank): Block(150)})
    result = load_state_dict(path, stage, strict=False, window=WINDOW)
    assert not result.missing_keys
    assert len(result.unexpected_keys) == len(want) * 3 // 4 + 1
    check(stage, {name: t for name, t in want.items() if name.startswith(f"{rank}.")})


@case
def meta_device(at: Path) -> None:
    model = make_model(device="meta")
    want = contents(make_model(), 9)
    path = write(at / "model", want)
    with raises(0, "'0.wide'", "to_empty"):
        load_state_dict(path, model)
    load_state_dict(path, model.to_empty(device="cpu"), window=WINDOW)
    check(model, want)


@case
def subgroup(at: Path) -> None:
    group = dist.new_group([3, 1])
    if dist.get_rank() not in (1, 3):
        return
    model = make_model()
    want = contents(model, 10)
    reader = dist.get_global_rank(group, 1)
    path = write(at / "model", want, reader=reader)
    load_state_dict(path, model, group=group, reader=1, window=WINDOW)
    check(model, want)


@case
def versions(at: Path) -> None:
    """Autograd notices that parameters which it saved have changed."""
    model = nn.Linear(300, 300)
    loss = (model(torch.ones(300, requires_grad=True)) ** 2).sum()
    path = write(at / "model", contents(model))
    load_state_dict(path, model)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def unchanged(path: Any, model: nn.Module, rank: int, *texts: str, **options: Any) -> None:
    """Expects that a load fails on all ranks and changes nothing."""
    before = {name: raw(t).clone() for name, t in model.state_dict().items()}
    with raises(rank, *texts):
        load_state_dict(path, model, **options)
    for name, tensor in model.state_dict().items():
        assert torch.equal(raw(tensor), before[name]), f"{name} changed"


@case
def models_that_do_not_fit(at: Path) -> None:
    want = contents(make_model(), 11)
    path = write(at / "model", want)
    for rank in range(4):
        odd = dist.get_rank() == rank
        unchanged(path, make_model(width=151 if odd else 150), rank, "'0.up.weight' has shape")
        unchanged(path, make_model(layers=4 if odd else 3), rank, "the checkpoint lacks '3.")
        unchanged(path, make_model(layers=2 if odd else 3), rank, "the model lacks '2.")
        model = make_model()
        if odd:
            model.register_state_dict_pre_hook(mock.Mock(side_effect=KeyError("broken hook")))
            with raises(rank, "KeyError", "broken hook"):
                load_state_dict(path, model)
        else:
            unchanged(path, model, rank, "KeyError", "broken hook")
    load_state_dict(path, make_model())


@case
def files_that_cannot_be_read(at: Path) -> None:
    model = make_model()
    good = write(at / "good", contents(model, 12))
    for reader in (0, 3):
        unchanged(at / "absent", model, reader, "absent", reader=reader)
        unchanged(None, model, reader, "path is None", reader=reader)
    unchanged(good, model, 0, "window", window=0)
    if dist.get_rank() == 0:
        (at / "short").write_bytes(good.read_bytes()[:-1])
        (at / "text").write_text("not a checkpoint")
    unchanged(at / "short", model, 0, "short is truncated")
    unchanged(at / "text", model, 0, "truncated")
    load_state_dict(good, model)
    check(model, contents(model, 12))


@contextlib.contextmanager
def failing(what: Any, name: str, rank: int, effect: Callable[[], None]) -> Iterator[None]:
    """Lets the fifth call of a method on one rank have an effect first."""
    method, calls = getattr(what, name), []

    def wrapper(*args: Any, **keywords: Any) -> Any:
        calls.append(1)
        if len(calls) == 5:
            effect()
        return method(*args, **keywords)

    if dist.get_rank() == rank:
        with mock.patch.object(what, name, wrapper):
            yield
    else:
        yield


def fail() -> None:
    raise OSError(5, "the disk failed")


@case
def failures_while_data_moves(at: Path) -> None:
    model = make_model()
    want = contents(model, 13)
    path = write(at / "model", want)
    mixture = "mixture of old and new values"
    for rank in range(4):
        with failing(Target, "copy", rank, fail), raises(rank, "the disk failed", mixture):
            load_state_dict(path, model, window=4096)
        with failing(Checkpoint, "read", rank, fail), raises(rank, "the disk failed", mixture):
            load_state_dict(write(at / "model", want, rank), model, reader=rank, window=4096)

    def truncate() -> None:
        os.truncate(path, 10_000)

    def touch() -> None:
        os.utime(path, ns=(1, 1))

    with failing(Checkpoint, "read", 0, truncate), raises(0, "became shorter", mixture):
        load_state_dict(path, model, window=4096)
    write(path, want)
    with failing(Checkpoint, "read", 0, touch), raises(0, "changed while it was read", mixture):
        load_state_dict(path, model, window=4096)
    # The group still works.
    dist.barrier()
    load_state_dict(path, model, window=WINDOW)
    check(model, want)


def resident(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) << 10
    raise AssertionError(f"no {field} in /proc/self/status")


@case
def memory(at: Path) -> None:
    """A load needs memory for a few windows, however large the checkpoint is."""
    for sharded in (False, True):
        model = nn.Sequential(*(nn.Linear(1024, 2048) for _ in range(8)))
        want = contents(model, 14)
        path = write(at / "model", want)
        del want
        if sharded:
            fully_shard(model)
        size = sum(t.numel() * 4 for t in model.state_dict().values())
        assert size > 64 << 20
        load_state_dict(path, model, window=1 << 20)  # allocates what later loads use again
        dist.barrier()
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
        before = resident("VmRSS")
        load_state_dict(path, model, window=1 << 20)
        growth = resident("VmHWM") - before
        assert growth < 16 << 20, f"memory grew by {growth >> 10} KiB"


@case
def many_loads(at: Path) -> None:
    model = make_model(layers=1)
    want = contents(model, 15)
    path = write(at / "model", want)
    for _ in range(30):
        load_state_dict(path, model, window=WINDOW)
    check(model, want)


def main() -> None:
    backend, directory = sys.argv[1], Path(sys.argv[2])
    chosen: Sequence[str] = sys.argv[3:] or list(CASES)
    dist.init_process_group(backend)
    torch.set_num_threads(1)
    rank = dist.get_rank()
    results: dict[str, str] = {}
    for name in chosen:
        at = directory / name
        at.mkdir(exist_ok=True)
        dist.barrier()
        try:
            CASES[name](at)
            results[name] = ""
        except Exception:
            results[name] = traceback.format_exc()
        (directory / f"rank-{rank}").write_text(json.dumps(results))
        if results[name]:
            sys.exit(f"{name} failed on rank {rank}:\n{results[name]}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
