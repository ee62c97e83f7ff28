"""Calls whose tensors do not fit together raise before anything moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import run
from torch._C import _distributed_c10d as c10d
from torch.testing import assert_close

import allcast.torch

SIZE = 2
ROOT = 0

HALF, BRAIN = torch.float16, torch.bfloat16


def _of(dtype: torch.dtype = torch.float32, count: int = 4, device: str = "cpu") -> torch.Tensor:
    return torch.ones(count, dtype=dtype, device=device)


def _rooted(kind: Any) -> Any:
    options = kind()
    options.rootRank = ROOT
    return options


def _gather(rank: int, group: Any, outputs: list[torch.Tensor], tensor: torch.Tensor) -> Any:
    """Calls gather on the root, and returns an error elsewhere: nothing is wrong there."""
    if rank != ROOT:
        raise TypeError("not the root")
    return group.gather([outputs], [tensor], _rooted(c10d.GatherOptions))


def _scatter(rank: int, group: Any, output: torch.Tensor, inputs: list[torch.Tensor]) -> Any:
    if rank != ROOT:
        raise TypeError("not the root")
    return group.scatter([output], [inputs], _rooted(c10d.ScatterOptions))


# Calls by name, for two tensors that do not fit together: the first is written, the second is read.
Pair = Callable[[int, Any, Callable[[int], torch.Tensor], Callable[[int], torch.Tensor]], Any]
PAIRS: dict[str, Pair] = {
    "allgather into": lambda r, g, a, b: g.all_gather_single(a(8), b(4)),
    "allgather": lambda r, g, a, b: g.allgather([[a(4), a(4)]], [b(4)]),
    "allgather, mixed": lambda r, g, a, b: g.allgather([[a(4), b(4)]], [a(4)]),
    "allgather coalesced": lambda r, g, a, b: g.allgather_coalesced([[a(4)], [a(4)]], [b(4)]),
    "allgathers into": lambda r, g, a, b: g.all_gather_single_coalesced([a(8), a(8)], [a(4), b(4)]),
    "gather": lambda r, g, a, b: _gather(r, g, [a(4), a(4)], b(4)),
    "gather, mixed": lambda r, g, a, b: _gather(r, g, [a(4), b(4)], a(4)),
    "scatter": lambda r, g, a, b: _scatter(r, g, a(4), [b(4), b(4)]),
    "scatter, mixed": lambda r, g, a, b: _scatter(r, g, a(4), [a(4), b(4)]),
    "reduce-scatter": lambda r, g, a, b: g.reduce_scatter([a(4)], [[b(4), b(4)]]),
    "reduce-scatter of one": lambda r, g, a, b: g.reduce_scatter_single(a(4), b(8)),
    "reduce-scatters": lambda r, g, a, b: g.reduce_scatter_single_coalesced(
        [a(4), a(4)], [a(8), b(8)]
    ),
    "alltoall": lambda r, g, a, b: g.alltoall([a(4), a(4)], [b(4), b(4)]),
    "alltoall, mixed": lambda r, g, a, b: g.alltoall([a(4), b(4)], [a(4), b(4)]),
    "alltoall of one": lambda r, g, a, b: g.all_to_all_single(a(4), b(4), [], []),
}

SIZES: dict[str, Callable[[int, Any], Any]] = {
    "allgather into": lambda r, g: g.all_gather_single(_of(count=7), _of()),
    "allgather": lambda r, g: g.allgather([[_of(count=3)] * 2], [_of()]),
    "allgathers into": lambda r, g: g.all_gather_single_coalesced([_of(count=8)], [_of()] * 2),
    "allgather coalesced": lambda r, g: g.allgather_coalesced([[_of()] * 2, [_of()]], [_of()] * 2),
    "allgather coalesced, short": lambda r, g: g.allgather_coalesced([[_of()] * 2] * 2, [_of()]),
    # The total is right.
    "gather": lambda r, g: _gather(r, g, [_of(count=3), _of(count=5)], _of()),
    "scatter": lambda r, g: _scatter(r, g, _of(), [_of(count=3), _of(count=4)]),
    "reduce-scatter": lambda r, g: g.reduce_scatter([_of()], [[_of(count=3)] * 2]),
    "reduce-scatter of one": lambda r, g: g.reduce_scatter_single(_of(), _of(count=7)),
    "reduce-scatters": lambda r, g: g.reduce_scatter_single_coalesced([_of()] * 2, [_of(count=8)]),
    "alltoall": lambda r, g: g.alltoall([_of()] * 2, [_of(count=3)] * 2),
    "alltoall of one": lambda r, g: g.all_to_all_single(_of(), _of(count=6), [], []),
    # One side has splits, and the other cannot be divided.
    "alltoall, divided": lambda r, g: g.all_to_all_single(_of(count=5), _of(), [], [2, 2]),
    "alltoall, negative": lambda r, g: g.all_to_all_single(_of(), _of(), [5, -1], [5, -1]),
}


def _refuses(name: str, call: Callable[[], Any], match: str) -> None:
    try:
        call().wait()
    except (TypeError, ValueError) as error:
        if str(error) != "not the root":
            assert match in str(error), f"{name}: {error}"  # noqa: PT017
        return
    raise AssertionError(f"{name} raised nothing")


def _all(rank: int, size: int) -> None:
    group = dist.group.WORLD
    for name, pair in PAIRS.items():
        _refuses(
            name,
            lambda p=pair: p(rank, group, lambda n: _of(HALF, n), lambda n: _of(BRAIN, n)),
            "bfloat16",
        )
        _refuses(name, lambda p=pair: p(rank, group, _cpu, _meta), "meta")
        _refuses(name, lambda p=pair: p(rank, group, _meta, _cpu), "meta")
        _refuses(name, lambda p=pair: p(rank, group, _meta, _meta), "use tensors on cpu or cuda")
    for name, call in SIZES.items():
        _refuses(name, lambda c=call: c(rank, group), "")
    for name in ("broadcast", "allreduce", "reduce", "allreduce_coalesced"):
        _refuses(name, lambda n=name: getattr(group, n)([_meta(4)]), "meta")
    _refuses("mixed", lambda: group.allreduce_coalesced([_cpu(4), _meta(4)]), "meta")
    _refuses("send", lambda: group.send([_meta(4)], 1 - rank), "meta")
    _refuses("recv", lambda: group.recv([_meta(4)], 1 - rank), "meta")
    # No rank has started anything, nor taken a place in the order of calls.
    assert allcast.torch.stats()["groups"]["0"]["operations"] == {}
    assert group._get_sequence_number_for_group() == 0
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    assert_close(tensor, torch.full((4,), float(size)))


def _cpu(count: int) -> torch.Tensor:
    return _of(count=count)


def _meta(count: int) -> torch.Tensor:
    return _of(count=count, device="meta")


def test_tensors_that_do_not_fit_together_raise() -> None:
    run(_all, size=SIZE)


def _public(rank: int, size: int) -> None:
    output = torch.zeros(2 * size, dtype=HALF)
    with pytest.raises(TypeError, match=r"bfloat16.*float16"):
        dist.all_gather_into_tensor(output, torch.ones(2, dtype=BRAIN))
    assert not output.any()


def test_all_gather_never_reinterprets_bits() -> None:
    run(_public, size=SIZE)
