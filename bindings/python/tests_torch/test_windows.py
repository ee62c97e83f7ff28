"""Checks that windows contain every byte of every tensor once, and every rank gets its shard."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from allcast.torch.safetensors import ITEM_SIZES, Entry
from allcast.torch.targets import (
    DTYPES,
    Span,
    Target,
    UnsupportedError,
    local_box,
    targets_of,
)
from allcast.torch.windows import ALIGNMENT, plan


def make_entries(chance: random.Random, count: int) -> list[Entry]:
    entries, offset = [], 100
    for number in range(count):
        dtype = chance.choice(list(ITEM_SIZES))
        shape = tuple(chance.choice((0, 1, 2, 3, 5, 8, 33)) for _ in range(chance.randint(0, 4)))
        nbytes = math.prod(shape) * ITEM_SIZES[dtype]
        entries.append(Entry(f"t{number}", dtype, shape, nbytes, 0, offset))
        offset += nbytes
    return entries


@pytest.mark.parametrize("seed", range(200))
def test_every_byte_once(seed: int) -> None:
    chance = random.Random(seed)
    entries = make_entries(chance, chance.randint(0, 12))
    wanted = [chance.random() < 0.8 for _ in entries]
    limit = chance.choice((64, 100, 1000, 10_000))
    small = chance.choice((1, limit // 8, limit))
    covered = [bytearray(entry.nbytes) for entry in entries]
    for window in plan(entries, wanted, limit, small):
        assert window.pieces
        assert 0 < window.nbytes <= limit
        end = 0
        for piece in window.pieces:
            assert piece.at % ALIGNMENT == 0
            assert piece.at >= end
            end = piece.at + piece.nbytes
            entry = entries[piece.entry]
            # The position of the piece follows from its indices.
            item = ITEM_SIZES[entry.dtype]
            position = 0
            for dim, i in enumerate((*piece.prefix, piece.start)[: len(entry.shape)]):
                position += i * math.prod(entry.shape[dim + 1 :]) * item
            assert piece.offset == position
            rows = math.prod(entry.shape[len(piece.prefix) + 1 :]) * item
            assert piece.nbytes == (piece.stop - piece.start) * rows
            for i in range(piece.offset, piece.offset + piece.nbytes):
                covered[piece.entry][i] += 1
            assert len(window.pieces) == 1 or piece.nbytes < small
        assert end == window.nbytes
    for number, entry in enumerate(entries):
        assert covered[number] == bytes([int(wanted[number])]) * entry.nbytes


def test_small_tensors_share_windows() -> None:
    entries = [Entry(f"t{i}", "F32", (25,), 100, 0, 100 * i) for i in range(1000)]
    windows = plan(entries, [True] * len(entries), 16 << 10, 1 << 10)
    assert len(windows) == 7


def divide(shape: Sequence[int], mesh: Sequence[int], order: Sequence[tuple[int, int]]) -> Any:
    """Divides a tensor of indices in an explicit order of (mesh dimension, tensor dimension).

    Returns a function from coordinates to the shard there.
    """
    full = torch.arange(math.prod(shape)).view(tuple(shape))

    def shard(coordinate: Sequence[int]) -> torch.Tensor:
        part = full
        for mesh_dim, dim in order:
            chunks = part.chunk(mesh[mesh_dim], dim)
            at = coordinate[mesh_dim]
            part = chunks[at] if at < len(chunks) else part.narrow(dim, 0, 0)
        return part

    return shard


def split_factor(mesh: Sequence[int], order: Sequence[tuple[int, int]], at: int) -> int:
    """Returns in how many parts later mesh dimensions have divided a tensor before this step."""
    mesh_dim, dim = order[at]
    return math.prod(mesh[m] for m, d in order[:at] if d == dim and m > mesh_dim)


@pytest.mark.parametrize("seed", range(300))
def test_shards_of_random_meshes(seed: int) -> None:
    """Loads a random tensor into the shards of all ranks of a random mesh, window by window."""
    chance = random.Random(seed)
    mesh = [chance.randint(1, 4) for _ in range(chance.randint(1, 3))]
    shape = [chance.choice((1, 2, 4, 7, 12)) for _ in range(chance.randint(1, 3))]
    sharded = [d for d in range(len(mesh)) if chance.random() < 0.7]
    order = [(d, chance.randrange(len(shape))) for d in sharded]
    if chance.random() < 0.5:
        order.reverse()  # as fully_shard does after tensor parallelism
    placements: list[Any] = [Replicate()] * len(mesh)
    for at, (mesh_dim, dim) in enumerate(order):
        factor = split_factor(mesh, order, at)
        placements[mesh_dim] = _StridedShard(dim, split_factor=factor) if factor > 1 else Shard(dim)
    shard_at = divide(shape, mesh, order)

    dtype = chance.choice(("I64", "F32", "U8", "F64"))
    values = torch.arange(math.prod(shape)).view(shape).to(DTYPES[dtype])
    kept = torch.int64 if dtype == "I64" else chance.choice((values.dtype, torch.float64))
    if dtype == "U8":
        kept = torch.uint8
    data = bytes(values.contiguous().view(-1).view(torch.uint8).tolist())
    entry = Entry("t", dtype, tuple(shape), len(data), 0, 0)
    windows = plan([entry], [True], chance.choice((16, 64, 1000)), chance.choice((1, 16)))
    for coordinate in itertools.product(*(range(n) for n in mesh)):
        box = local_box(shape, mesh, coordinate, placements)
        want = shard_at(coordinate).to(kept)
        assert [s.stop - s.start for s in box] == list(want.shape), (mesh, placements)
        local = torch.full_like(want, 99)
        if chance.random() < 0.3 and local.dim() > 1:
            local = local.transpose(0, 1).contiguous().transpose(0, 1)
        target = Target("t", torch.empty(shape, device="meta"), local, box)
        for window in windows:
            for piece in window.pieces:
                part = data[piece.offset : piece.offset + piece.nbytes]
                arrived = torch.tensor(list(part), dtype=torch.uint8)
                memory = target.direct(piece, values.dtype)
                if memory is not None:
                    memory.view(-1).view(torch.uint8).copy_(arrived)
                else:
                    target.copy(piece, arrived, values.dtype, wait=True)
        assert torch.equal(local, want)


def test_placements_without_a_shard() -> None:
    with pytest.raises(UnsupportedError, match="its placement"):
        local_box([4], [2], [0], [Partial()])
    with pytest.raises(UnsupportedError, match="not supported"):
        local_box([4], [2, 2], [0, 0], [_StridedShard(0, split_factor=2), Replicate()])


def piece_of(shape: Sequence[int], item: int) -> Any:
    nbytes = math.prod(shape) * item
    name = {1: "BOOL", 2: "BF16", 4: "F32"}[item]
    return plan([Entry("t", name, tuple(shape), nbytes, 0, 0)], [True], 1 << 20, 1)[0].pieces[0]


def target_of(tensor: torch.Tensor) -> Target:
    return Target("t", tensor, tensor, [Span(0, n) for n in tensor.shape])


def test_direct_memory() -> None:
    piece = piece_of([4, 6], 4)
    tensor = torch.zeros(4, 6)
    memory = target_of(tensor).direct(piece, torch.float32)
    assert memory is not None
    assert memory.data_ptr() == tensor.data_ptr()
    assert target_of(tensor.to(torch.bfloat16)).direct(piece, torch.float32) is None
    assert target_of(torch.zeros(6, 4).t()).direct(piece, torch.float32) is None
    assert target_of(torch.zeros(4, 8)[:, :6]).direct(piece, torch.float32) is None


def test_bool_bytes_become_0_or_1() -> None:
    tensor = torch.zeros(4, dtype=torch.bool)
    piece = piece_of([4], 1)
    assert target_of(tensor).direct(piece, torch.bool) is None
    arrived = torch.tensor([0, 1, 2, 255], dtype=torch.uint8)
    target_of(tensor).copy(piece, arrived, torch.bool, wait=True)
    assert tensor.view(torch.uint8).tolist() == [0, 1, 1, 1]


def test_overlapping_memory_is_not_direct() -> None:
    base = torch.zeros(10)
    state = {"a": base[:6], "b": base[4:], "c": torch.zeros(3), "d": base[:6]}
    targets, problems = targets_of(state)
    assert not problems
    assert {name: t.shared for name, t in targets.items()} == {
        "a": True,
        "b": True,
        "c": False,
        "d": True,
    }
    targets, _ = targets_of({"a": base[:5], "b": base[5:], "tied": base[5:]})
    assert not any(t.shared for t in targets.values())


def test_unsupported_tensors() -> None:
    state = {
        "meta": torch.empty(1, device="meta"),
        "sparse": torch.zeros(2, 2).to_sparse(),
        "extra": "text",
    }
    targets, problems = targets_of(state)
    assert not targets
    assert len(problems) == 2
    assert "to_empty" in problems[0]
    assert "'meta'" in problems[0]
