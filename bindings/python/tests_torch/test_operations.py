"""Every operation with every type of element, compared byte by byte with a local computation."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce as fold
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import run
from torch._C import _distributed_c10d as c10d

Tensor = torch.Tensor

NUMBERS = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
]
COMPLEX = [torch.complex64, torch.complex128]
MOVED = [
    *NUMBERS,
    *COMPLEX,
    torch.bool,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.complex32,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]

# Elements per rank: none, a few, a length that no algorithm divides evenly, and one beyond the
# threshold of multicast.
LENGTHS = [0, 1, 37, 100_003]


def values(rank: int, length: int, dtype: torch.dtype) -> Tensor:
    """Bytes of a rank for operations that only move data."""
    generator = torch.Generator().manual_seed(1000 * rank + length)
    size = torch.empty(0, dtype=dtype).element_size()
    raw = torch.randint(0, 256, (length * size,), dtype=torch.uint8, generator=generator)
    if dtype is torch.bool:
        return raw > 127
    return raw.view(dtype)


def numbers(rank: int, length: int, dtype: torch.dtype) -> Tensor:
    """Small numbers of a rank, so that every order of additions has the same result."""
    return (torch.arange(length) * (rank + 1) % 5).to(dtype)


def raw(tensor: Tensor) -> bytes:
    plain = tensor.detach().contiguous().reshape(-1)
    return bytes(plain.view(torch.uint8).numpy()) if plain.numel() else b""


def check(got: Tensor, want: Tensor, what: str) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape), what
    assert raw(got) == raw(want), what


# ---- Moving data ----


def _move(rank: int, size: int) -> None:
    for dtype in MOVED:
        for length in LENGTHS:
            inputs = [values(r, length, dtype) for r in range(size)]
            mine, what = inputs[rank], f"{dtype} {length}"
            whole = torch.cat([i.view(torch.uint8) for i in inputs]).view(dtype)
            group = dist.group.WORLD

            for root in (0, size - 1):
                got = mine.clone()
                group.broadcast([got], _root(c10d.BroadcastOptions(), root)).wait()
                check(got, inputs[root], f"broadcast {what}")

            got = torch.empty(size * length, dtype=dtype)
            dist.all_gather_into_tensor(got, mine)
            check(got, whole, f"all_gather_into_tensor {what}")

            got = torch.empty(size * length, dtype=dtype)
            part = got[rank * length : (rank + 1) * length]
            part.copy_(mine)
            dist.all_gather_into_tensor(got, part)
            check(got, whole, f"all_gather_into_tensor in place {what}")

            outputs = [torch.empty_like(mine) for _ in range(size)]
            dist.all_gather(outputs, mine)
            for r in range(size):
                check(outputs[r], inputs[r], f"all_gather {what}")

            block = torch.empty(size * length, dtype=dtype)
            dist.all_gather(list(block.split(length)) if length else [block] * size, mine)
            check(block, whole, f"all_gather into one block {what}")

            outputs = [torch.empty_like(mine) for _ in range(size)]
            dist.gather(mine, outputs if rank == 1 else None, dst=1)
            if rank == 1:
                for r in range(size):
                    check(outputs[r], inputs[r], f"gather {what}")

            got = torch.empty_like(mine)
            dist.scatter(got, inputs if rank == 2 else None, src=2)
            check(got, mine, f"scatter {what}")

            sent = [values(100 + 10 * rank + r, length, dtype) for r in range(size)]
            outputs = [torch.empty_like(mine) for _ in range(size)]
            dist.all_to_all(outputs, sent)
            for r in range(size):
                check(outputs[r], values(100 + 10 * r + rank, length, dtype), f"all_to_all {what}")

            _exchange(rank, size, inputs, what)


def _root(options: Any, root: int) -> Any:
    options.rootRank = root
    return options


def _exchange(rank: int, size: int, inputs: list[Tensor], what: str) -> None:
    """Every rank sends to the next one."""
    got = torch.empty_like(inputs[rank])
    work = dist.isend(inputs[rank], (rank + 1) % size, tag=7)
    dist.recv(got, (rank - 1) % size, tag=7)
    work.wait()
    check(got, inputs[(rank - 1) % size], f"send and receive {what}")


def test_data_arrives() -> None:
    run(_move)


def _uneven(rank: int, size: int) -> None:
    for dtype in (torch.float32, torch.int8):
        for scale in (1, 50_001):
            inputs = [values(r, (r + 1) * scale, dtype) for r in range(size)]
            outputs = [torch.empty_like(i) for i in inputs]
            dist.all_gather(outputs, inputs[rank])
            for r in range(size):
                check(outputs[r], inputs[r], "uneven all_gather")

            parts = [numbers(rank, (r + 1) * scale, dtype) for r in range(size)]
            got = torch.empty((rank + 1) * scale, dtype=dtype)
            dist.reduce_scatter(got, parts)
            want = sum(numbers(r, (rank + 1) * scale, dtype) for r in range(size))
            check(got, want.to(dtype), "uneven reduce_scatter")


def test_ranks_contribute_different_lengths() -> None:
    run(_uneven)


def _splits(rank: int, size: int) -> None:
    # Rank r sends (r + s) % 3 rows of 5 elements to rank s.
    def rows(r: int, s: int) -> Tensor:
        return values(10 * r + s, 5 * ((r + s) % 3), torch.int32).view(-1, 5)

    sent = torch.cat([rows(rank, s) for s in range(size)])
    want = torch.cat([rows(r, rank) for r in range(size)])
    got = torch.empty_like(want)
    dist.all_to_all_single(
        got,
        sent,
        output_split_sizes=[(r + rank) % 3 for r in range(size)],
        input_split_sizes=[(rank + s) % 3 for s in range(size)],
    )
    check(got, want, "all_to_all_single with splits")

    outputs = [torch.empty_like(rows(r, rank)) for r in range(size)]
    dist.all_to_all(outputs, [rows(rank, s) for s in range(size)])
    check(torch.cat(outputs), want, "all_to_all of different lengths")

    sent = torch.arange(2 * size) + 100 * rank
    got = torch.empty_like(sent)
    dist.all_to_all_single(got, sent)
    want = torch.cat([torch.arange(2 * rank, 2 * rank + 2) + 100 * r for r in range(size)])
    check(got, want, "all_to_all_single")


def test_all_to_all_with_splits() -> None:
    run(_splits)


def _quantised(rank: int, size: int) -> None:
    tensor = torch.quantize_per_tensor(torch.arange(12.0).view(3, 4) + rank, 0.1, 10, torch.quint8)
    got = [torch.quantize_per_tensor(torch.zeros(3, 4), 0.1, 10, torch.quint8) for _ in range(size)]
    dist.group.WORLD.allgather([got], [tensor]).wait()
    for r in range(size):
        want = torch.quantize_per_tensor(torch.arange(12.0).view(3, 4) + r, 0.1, 10, torch.quint8)
        assert torch.equal(got[r].int_repr(), want.int_repr())
    dist.group.WORLD.broadcast([tensor], _root(c10d.BroadcastOptions(), 1)).wait()
    want = torch.quantize_per_tensor(torch.arange(12.0).view(3, 4) + 1, 0.1, 10, torch.quint8)
    assert torch.equal(tensor.int_repr(), want.int_repr())


def test_quantised_tensors_move() -> None:
    run(_quantised)


# ---- Reductions ----

ReduceOp = dist.ReduceOp


def _product(tensors: list[Tensor]) -> Tensor:
    return fold(torch.mul, tensors)


REFERENCES: dict[Any, Callable[[list[Tensor]], Tensor]] = {
    ReduceOp.SUM: lambda ts: fold(torch.add, ts),
    ReduceOp.PRODUCT: _product,
    ReduceOp.MIN: lambda ts: fold(torch.minimum, ts),
    ReduceOp.MAX: lambda ts: fold(torch.maximum, ts),
}
BITS: dict[Any, Callable[[list[Tensor]], Tensor]] = {
    ReduceOp.BAND: lambda ts: fold(torch.bitwise_and, ts),
    ReduceOp.BOR: lambda ts: fold(torch.bitwise_or, ts),
    ReduceOp.BXOR: lambda ts: fold(torch.bitwise_xor, ts),
}


def _operators(dtype: torch.dtype) -> dict[Any, Callable[[list[Tensor]], Tensor]]:
    if dtype is torch.bool:
        return {
            ReduceOp.SUM: BITS[ReduceOp.BOR],
            ReduceOp.MAX: BITS[ReduceOp.BOR],
            ReduceOp.PRODUCT: BITS[ReduceOp.BAND],
            ReduceOp.MIN: BITS[ReduceOp.BAND],
            **BITS,
        }
    if dtype.is_complex:
        return {ReduceOp.SUM: REFERENCES[ReduceOp.SUM]}
    return REFERENCES if dtype.is_floating_point else {**REFERENCES, **BITS}


def _reduce(rank: int, size: int) -> None:
    for dtype in [*NUMBERS, *COMPLEX, torch.bool]:
        for length in LENGTHS:
            inputs = [numbers(r, length, dtype) for r in range(size)]
            for op, reference in _operators(dtype).items():
                want, what = reference(inputs), f"{op} {dtype} {length}"
                got = inputs[rank].clone()
                dist.all_reduce(got, op)
                check(got, want, f"all_reduce {what}")

                got = inputs[rank].clone()
                dist.reduce(got, 1, op)
                check(got, want if rank == 1 else inputs[rank], f"reduce {what}")

                whole = [numbers(r, size * length, dtype) for r in range(size)]
                part = reference(whole)[rank * length : (rank + 1) * length]
                got = torch.empty(length, dtype=dtype)
                dist.reduce_scatter_tensor(got, whole[rank].clone(), op)
                check(got, part, f"reduce_scatter_tensor {what}")

                got = torch.empty(length, dtype=dtype)
                parts = [whole[rank][r * length : (r + 1) * length].clone() for r in range(size)]
                dist.reduce_scatter(got, parts, op)
                check(got, part, f"reduce_scatter {what}")


def test_reductions() -> None:
    run(_reduce)


def _scaled(rank: int, size: int) -> None:
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        for length in LENGTHS:
            inputs = [numbers(r, length, dtype) for r in range(size)]
            got = inputs[rank].clone()
            dist.all_reduce(got, ReduceOp.AVG)
            want = (fold(torch.add, [i.double() for i in inputs]) / size).to(dtype)
            check(got, want, f"all_reduce AVG {dtype} {length}")

            # In place: the output is this rank's part of the input, as in FSDP2.
            whole = [numbers(r, size * length, dtype) for r in range(size)]
            buffer = whole[rank].clone()
            part = buffer[rank * length : (rank + 1) * length]
            dist.reduce_scatter_tensor(part, buffer, ReduceOp.AVG)
            want = (fold(torch.add, [w.double() for w in whole]) / size).to(dtype)
            check(part, want[rank * length : (rank + 1) * length], f"AVG in place {dtype}")

            for factor in (0.5, torch.tensor([0.5])):
                got = inputs[rank].clone()
                dist.all_reduce(got, c10d._make_nccl_premul_sum(factor))
                want = fold(torch.add, [i.double() * 0.5 for i in inputs]).to(dtype)
                check(got, want, f"all_reduce PREMUL_SUM {dtype} {length}")


def test_averages_and_factors() -> None:
    run(_scaled)


def _sparse(rank: int, size: int) -> None:
    def tensor(r: int) -> Tensor:
        indices = torch.tensor([[0, r, 2 + r, 3], [r, 1, 0, 3]])[:, : r + 1]
        return torch.sparse_coo_tensor(indices, torch.ones(r + 1, 2) * (r + 1), (size + 3, size, 2))

    for _ in range(2):
        got = tensor(rank)
        work = dist.all_reduce(got, async_op=True)
        after = torch.full((3,), float(rank))
        dist.all_reduce(after)  # queues behind the sparse one
        assert after.tolist() == [sum(range(size))] * 3
        work.wait()
        want = fold(torch.add, [tensor(r).to_dense() for r in range(size)])
        check(got.to_dense(), want, "sparse all_reduce")


def test_sparse_tensors_are_added() -> None:
    run(_sparse)


def _refused(rank: int, size: int) -> None:
    with pytest.raises(TypeError, match="float8_e4m3fn"):
        dist.group.WORLD.allreduce([torch.zeros(4).to(torch.float8_e4m3fn)]).wait()
    options = c10d.AllreduceOptions()
    options.reduceOp = ReduceOp.MAX
    with pytest.raises(TypeError, match="complex64"):
        dist.group.WORLD.allreduce([torch.zeros(4, dtype=torch.complex64)], options)
    with pytest.raises(dist.DistBackendError, match="allreduce failed on rank"):
        dist.all_reduce(torch.zeros(4), ReduceOp.BAND)
    with pytest.raises(ValueError, match="list of 4 tensors"):
        dist.group.WORLD.allgather([[torch.zeros(4)]], [torch.zeros(4)])
    # None of these took a place in the order of calls.
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [size] * 4


def test_errors_name_what_is_unsupported() -> None:
    run(_refused)


# ---- Coalesced operations, objects ----


def _coalesced(rank: int, size: int) -> None:
    group = dist.group.WORLD
    lengths = [1, 0, 1000, 70_000]

    def tensors(r: int, count: int) -> list[Tensor]:
        return [numbers(r + i, count * n, torch.float32) for i, n in enumerate(lengths)]

    inputs = [tensors(r, 1) for r in range(size)]

    got = [t.clone() for t in inputs[rank]]
    group.allreduce_coalesced(got, c10d.AllreduceCoalescedOptions()).wait()
    for i in range(len(lengths)):
        check(got[i], fold(torch.add, [x[i] for x in inputs]), "allreduce_coalesced")

    got = [torch.empty(size * n) for n in lengths]
    group.allgather_into_tensor_coalesced(got, inputs[rank]).wait()
    for i in range(len(lengths)):
        check(got[i], torch.cat([x[i] for x in inputs]), "allgather_into_tensor_coalesced")

    lists = [[torch.empty(n) for n in lengths] for _ in range(size)]
    group.allgather_coalesced(lists, inputs[rank]).wait()
    for r in range(size):
        for i in range(len(lengths)):
            check(lists[r][i], inputs[r][i], "allgather_coalesced")

    whole = [tensors(r, size) for r in range(size)]
    got = [torch.empty(n) for n in lengths]
    group.reduce_scatter_tensor_coalesced(got, whole[rank]).wait()
    for i, n in enumerate(lengths):
        want = fold(torch.add, [x[i] for x in whole])[rank * n : (rank + 1) * n]
        check(got[i], want, "reduce_scatter_tensor_coalesced")

    for device in (None, torch.device("cpu")):
        got = [torch.full((5,), float(rank + i)) for i in range(3)]
        with dist._coalescing_manager(group, device, async_ops=True) as manager:
            for tensor in got:
                dist.all_reduce(tensor)
        manager.wait()
        for i in range(3):
            assert got[i].tolist() == [sum(range(size)) + size * i] * 5


def test_coalesced_operations() -> None:
    run(_coalesced)


def _objects(rank: int, size: int) -> None:
    mine = {"rank": rank, "data": list(range(rank * 1000))}
    everyone = [{"rank": r, "data": list(range(r * 1000))} for r in range(size)]
    got: list[Any] = [None] * size
    dist.all_gather_object(got, mine)
    assert got == everyone
    dist.gather_object(mine, got if rank == 1 else None, dst=1)
    objects = [mine if rank == 2 else None]
    dist.broadcast_object_list(objects, src=2)
    assert objects == [everyone[2]]
    output: list[Any] = [None]
    dist.scatter_object_list(output, everyone if rank == 0 else None, src=0)
    assert output == [mine]
    if rank == 0:
        dist.send_object_list([mine], dst=3)
    if rank == 3:
        received: list[Any] = [None]
        dist.recv_object_list(received, src=0)
        assert received == [everyone[0]]


def test_objects() -> None:
    run(_objects)
