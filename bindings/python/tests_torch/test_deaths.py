"""Ranks that die during training: the others raise an exception that names the lost rank."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import run
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

WIDTH = 192
LOST = 2
DEADLY_STEP = 2  # DDP arranges its buckets anew in the first steps


def _model() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(4)])


def _ddp() -> nn.Module:
    return DistributedDataParallel(_model(), bucket_cap_mb=0.2)


def _ddp_with_hook() -> nn.Module:
    model = DistributedDataParallel(_model(), bucket_cap_mb=0.2)
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    return model


def _fsdp2() -> nn.Module:
    model = _model()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    return model


MODELS: dict[str, Callable[[], nn.Module]] = {
    "ddp": _ddp,
    "hook": _ddp_with_hook,
    "fsdp2": _fsdp2,
}


def _die(*unused: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _deadly(phase: str, layer: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Makes this rank die in a phase of its next training step."""
    if phase == "forward":
        layer.register_forward_hook(_die)
    elif phase == "backward":
        layer.register_full_backward_hook(_die)
    else:
        optimizer.register_step_pre_hook(_die)


def _steps(rank: int, model: nn.Module, phase: str) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(100):
        if rank == LOST and step == DEADLY_STEP:
            layers = model.module if isinstance(model, DistributedDataParallel) else model
            _deadly(phase, layers[1], optimizer)
        model(torch.randn(4, WIDTH)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def _train(rank: int, size: int, kind: str, phase: str) -> str:
    model = MODELS[kind]()
    with pytest.raises(RuntimeError, match=rf"lost: rank {LOST}\b") as failed:
        _steps(rank, model, phase)
    dist.destroy_process_group()
    return str(failed.value)


@pytest.mark.parametrize("phase", ["forward", "backward", "step"])
@pytest.mark.parametrize("kind", list(MODELS))
def test_survivors_of_a_training_step_name_the_lost_rank(kind: str, phase: str) -> None:
    errors = run(_train, kind, phase, size=3, killed=(LOST,))
    assert all(errors[rank] for rank in (0, 1))


def _future(rank: int, size: int) -> None:
    """Everything that takes a future sees the error, in C++ too."""
    if rank == LOST:
        dist.barrier()
        os._exit(0)
    dist.barrier()
    work = dist.all_reduce(torch.ones(10), async_op=True)
    late = dist.all_reduce(torch.ones(10), async_op=True)
    with pytest.raises(dist.DistBackendError, match=rf"lost: rank {LOST}\b"):
        late.wait()
    # A future may be asked for before and after the end.
    for future in (work.get_future(), late.get_future()):
        chained = future.then(lambda done: done.value())
        collected = torch.futures.collect_all([future])
        for waited in (future, chained, collected):
            with pytest.raises(RuntimeError, match=rf"lost: rank {LOST}\b"):
                waited.wait()
            with pytest.raises(RuntimeError, match=rf"lost: rank {LOST}\b"):
                waited.value()


def test_futures_fail_in_c_plus_plus_too() -> None:
    run(_future, size=3, killed=(LOST,))
