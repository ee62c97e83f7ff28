"""Operations that combine elements."""

from __future__ import annotations

import array
import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
from harness import Job

import allcast

SIZE = 1000


def numbers(rank: int, size: int = SIZE, code: str = "i") -> array.array[Any]:
    """Returns the input of a rank: small numbers, whose sums and products are exact as floats."""
    return array.array(code, [(rank * 3 + i) % 5 + 1 for i in range(size)])


def combined(op: Callable[[Any, Any], Any], ranks: int, code: str = "i") -> array.array[Any]:
    inputs = [numbers(rank, SIZE, code) for rank in range(ranks)]
    return array.array(code, [reduce(op, column) for column in zip(*inputs)])


OPS = [
    ("sum", operator.add),
    ("product", operator.mul),
    ("min", min),
    ("max", max),
    ("and", operator.and_),
    ("or", operator.or_),
    ("xor", operator.xor),
]


@pytest.mark.parametrize(("op", "function"), OPS)
def test_operators(job: Job, op: str, function: Callable[[Any, Any], Any]) -> None:
    def run(comm: allcast.Comm) -> None:
        recv = array.array("i", bytes(4 * SIZE))
        comm.allreduce(numbers(comm.rank), recv, op)
        assert recv == combined(function, comm.size)

    job.run(run)


@pytest.mark.parametrize("algorithm", ["recursive-doubling", "recursive-halving", "ring"])
def test_allreduce(job: Job, algorithm: str) -> None:
    def run(comm: allcast.Comm) -> None:
        recv = numbers(comm.rank, code="d")
        request = comm.start_allreduce(None, recv, allcast.Op.SUM, algorithm=algorithm)
        assert request.algorithm == algorithm
        request.wait()
        assert recv == combined(operator.add, comm.size, "d")

    job.run(run)


@pytest.mark.parametrize("algorithm", ["binomial", "chain", "ring"])
def test_reduce(job: Job, algorithm: str) -> None:
    def run(comm: allcast.Comm) -> None:
        for root in range(comm.size):
            mine = numbers(comm.rank, code="q")
            recv = array.array("q", bytes(8 * SIZE)) if comm.rank == root else None
            comm.reduce(mine, recv, root=root, algorithm=algorithm)
            assert recv is None or recv == combined(operator.add, comm.size, "q")
            # In place on the root.
            if comm.rank == root:
                comm.start_reduce(None, mine, "sum", root).wait()
                assert mine == combined(operator.add, comm.size, "q")
            else:
                comm.start_reduce(mine, None, "sum", root).wait()

    job.run(run)


@pytest.mark.parametrize("algorithm", ["pat", "ring"])
def test_reduce_scatter(job: Job, algorithm: str) -> None:
    def run(comm: allcast.Comm) -> None:
        total = SIZE * comm.size
        inputs = [numbers(rank, total, "f") for rank in range(comm.size)]
        want = array.array("f", map(sum, zip(*inputs)))
        recv = array.array("f", bytes(4 * SIZE))
        comm.reduce_scatter(inputs[comm.rank], recv, algorithm=algorithm)
        assert recv == want[comm.rank * SIZE : (comm.rank + 1) * SIZE]
        recv = array.array("f", bytes(4 * SIZE))
        request = comm.start_reduce_scatter(inputs[comm.rank], recv, algorithm=algorithm)
        assert request.algorithm == algorithm
        request.wait()
        assert recv == want[comm.rank * SIZE : (comm.rank + 1) * SIZE]

    job.run(run)


def test_reduce_scatterv(job: Job) -> None:
    counts = [10, 0, 3000]

    def run(comm: allcast.Comm) -> None:
        inputs = [numbers(rank, sum(counts), "h") for rank in range(comm.size)]
        want = array.array("h", map(sum, zip(*inputs)))
        at = sum(counts[: comm.rank])
        for start in (False, True):
            recv = array.array("h", bytes(2 * counts[comm.rank]))
            if start:
                comm.start_reduce_scatterv(inputs[comm.rank], recv, counts).wait()
            else:
                comm.reduce_scatterv(inputs[comm.rank], recv, counts, "sum")
            assert recv == want[at : at + counts[comm.rank]]

    job.run(run)


def test_average(job: Job) -> None:
    def run(comm: allcast.Comm) -> None:
        recv = array.array("d", [float(3 * comm.rank)] * 10)
        comm.allreduce(None, recv, "avg")
        assert recv == array.array("d", [3.0] * 10)

    job.run(run)


def test_premultiplied_sum(job: Job) -> None:
    def run(comm: allcast.Comm) -> None:
        recv = array.array("d", [1.0] * 10)
        comm.allreduce(None, recv, "premul_sum", factor=float(comm.rank + 1))
        assert recv == array.array("d", [6.0] * 10)
        recv = array.array("d", [1.0] * 10)
        comm.start_allreduce(
            None, recv, allcast.Op.PREMULTIPLIED_SUM, factor=0.5, timeout=60.0
        ).wait()
        assert recv == array.array("d", [1.5] * 10)

    job.run(run)


def test_type_of_bytes(job: Job) -> None:
    """Bytes have no element type, so that the caller has to name it."""

    def run(comm: allcast.Comm) -> None:
        recv = bytearray(numbers(comm.rank).tobytes())
        with pytest.raises(allcast.InvalidError, match="pass dtype"):
            comm.allreduce(None, recv)
        comm.allreduce(None, recv, dtype="int32")
        assert recv == combined(operator.add, comm.size).tobytes()
        recv = bytearray(numbers(comm.rank).tobytes())
        comm.allreduce(None, recv, dtype=allcast.DataType.INT32)
        assert recv == combined(operator.add, comm.size).tobytes()

    job.run(run)


def test_bool(job: Job) -> None:
    def run(comm: allcast.Comm) -> None:
        recv = memoryview(bytearray([comm.rank == 1, 0, 1])).cast("?")
        comm.allreduce(None, recv, "or")
        assert list(recv) == [True, False, True]

    job.run(run)
