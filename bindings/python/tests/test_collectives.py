"""Operations that move data, byte by byte, with every algorithm for three ranks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from harness import Job

import allcast

SIZES = [0, 1, 1000, 100_000]

ALGORITHMS = {
    "broadcast": ["mcast", "binary", "binomial", "chain", "knomial", "scatter-allgather"],
    "allgather": ["mcast", "bruck", "linear", "pat", "ring"],
    "gather": ["binomial", "linear"],
    "scatter": ["binomial", "linear"],
    "alltoall": ["bruck", "pairwise"],
}


def cases(operation: str) -> list[tuple[str, int]]:
    return [(algorithm, size) for algorithm in ALGORITHMS[operation] for size in SIZES]


def require(job: Job, algorithm: str) -> None:
    """Skips a test of multicast where it does not work."""
    state = job.comms[0].describe()["multicast"]
    if algorithm == "mcast" and not state["works"]:
        pytest.skip(f"multicast does not work: {state['reason']}")


@functools.cache
def block(rank: int, size: int) -> bytes:
    """Returns the bytes of a rank."""
    return bytes((rank * 71 + i * 13 + i // 251) % 256 for i in range(size))


def check_algorithm(start: Callable[..., allcast.Request], *args: Any, algorithm: str) -> None:
    request = start(*args, algorithm=algorithm)
    assert request.algorithm == algorithm
    assert request.wait() is None
    assert request.done()
    assert request.algorithm == algorithm


@pytest.mark.parametrize(("algorithm", "size"), cases("broadcast"))
def test_broadcast(job: Job, algorithm: str, size: int) -> None:
    require(job, algorithm)

    def run(comm: allcast.Comm) -> None:
        for root in range(comm.size):
            buf = bytearray(block(root, size) if comm.rank == root else size)
            comm.broadcast(buf, root, algorithm=algorithm)
            assert buf == block(root, size)
            buf = bytearray(block(root, size) if comm.rank == root else size)
            check_algorithm(comm.start_broadcast, buf, root, algorithm=algorithm)
            assert buf == block(root, size)

    job.run(run)


def test_broadcast_of_bytes(job: Job) -> None:
    """The root only reads its buffer, so that it may be constant."""

    def run(comm: allcast.Comm) -> None:
        buf: Any = b"constant" if comm.rank == 1 else bytearray(8)
        comm.broadcast(buf, root=1)
        assert buf == b"constant"

    job.run(run)


@pytest.mark.parametrize(("algorithm", "size"), cases("allgather"))
def test_allgather(job: Job, algorithm: str, size: int) -> None:
    require(job, algorithm)

    def run(comm: allcast.Comm) -> None:
        want = b"".join(block(rank, size) for rank in range(comm.size))
        recv = bytearray(size * comm.size)
        comm.allgather(block(comm.rank, size), recv, algorithm=algorithm)
        assert recv == want
        recv = bytearray(size * comm.size)
        recv[comm.rank * size : (comm.rank + 1) * size] = block(comm.rank, size)
        check_algorithm(comm.start_allgather, None, recv, algorithm=algorithm)
        assert recv == want

    job.run(run)


@pytest.mark.parametrize("algorithm", [None, "ring"])
def test_allgatherv(job: Job, algorithm: str | None) -> None:
    counts = [5, 0, 70_000]

    def run(comm: allcast.Comm) -> None:
        recv = bytearray(sum(counts))
        comm.allgatherv(block(comm.rank, counts[comm.rank]), recv, counts, algorithm=algorithm)
        assert recv == b"".join(block(rank, n) for rank, n in enumerate(counts))
        recv = bytearray(sum(counts))
        at = sum(counts[: comm.rank])
        recv[at : at + counts[comm.rank]] = block(comm.rank, counts[comm.rank])
        comm.start_allgatherv(None, recv, counts).wait()
        assert recv == b"".join(block(rank, n) for rank, n in enumerate(counts))

    job.run(run)


@pytest.mark.parametrize(("algorithm", "size"), cases("gather"))
def test_gather(job: Job, algorithm: str, size: int) -> None:
    def run(comm: allcast.Comm) -> None:
        want = b"".join(block(rank, size) for rank in range(comm.size))
        for root in range(comm.size):
            mine = block(comm.rank, size)
            if comm.rank != root:
                comm.gather(mine, None, root, algorithm=algorithm)
                check_algorithm(comm.start_gather, mine, None, root, algorithm=algorithm)
                continue
            recv = bytearray(size * comm.size)
            comm.gather(mine, recv, root, algorithm=algorithm)
            assert recv == want
            recv = bytearray(size * comm.size)
            recv[root * size : (root + 1) * size] = mine
            check_algorithm(comm.start_gather, None, recv, root, algorithm=algorithm)
            assert recv == want

    job.run(run)


def test_gatherv(job: Job) -> None:
    counts = [5, 0, 70_000]

    def run(comm: allcast.Comm) -> None:
        mine = block(comm.rank, counts[comm.rank])
        for root in range(comm.size):
            if comm.rank != root:
                comm.gatherv(mine, None, None, root)
                comm.start_gatherv(mine, None, None, root).wait()
                continue
            recv = bytearray(sum(counts))
            comm.gatherv(mine, recv, counts, root)
            assert recv == b"".join(block(rank, n) for rank, n in enumerate(counts))
            recv = bytearray(sum(counts))
            at = sum(counts[:root])
            recv[at : at + counts[root]] = mine
            comm.start_gatherv(None, recv, counts, root).wait()
            assert recv == b"".join(block(rank, n) for rank, n in enumerate(counts))

    job.run(run)


@pytest.mark.parametrize(("algorithm", "size"), cases("scatter"))
def test_scatter(job: Job, algorithm: str, size: int) -> None:
    def run(comm: allcast.Comm) -> None:
        whole = b"".join(block(rank, size) for rank in range(comm.size))
        for root in range(comm.size):
            recv = bytearray(size)
            send = whole if comm.rank == root else None
            comm.scatter(send, recv, root, algorithm=algorithm)
            assert recv == block(comm.rank, size)
            target = None if comm.rank == root else bytearray(size)
            check_algorithm(comm.start_scatter, send, target, root, algorithm=algorithm)
            assert target is None or target == block(comm.rank, size)

    job.run(run)


def test_scatterv(job: Job) -> None:
    counts = [5, 0, 70_000]

    def run(comm: allcast.Comm) -> None:
        whole = b"".join(block(rank, n) for rank, n in enumerate(counts))
        for root in range(comm.size):
            recv = bytearray(counts[comm.rank])
            send, sizes = (whole, counts) if comm.rank == root else (None, None)
            comm.scatterv(send, recv, sizes, root)
            assert recv == block(comm.rank, counts[comm.rank])
            target = None if comm.rank == root else bytearray(counts[comm.rank])
            comm.start_scatterv(send, target, sizes, root).wait()
            assert target is None or target == block(comm.rank, counts[comm.rank])

    job.run(run)


@pytest.mark.parametrize(("algorithm", "size"), cases("alltoall"))
def test_alltoall(job: Job, algorithm: str, size: int) -> None:
    def run(comm: allcast.Comm) -> None:
        send = b"".join(block(comm.rank * comm.size + rank, size) for rank in range(comm.size))
        want = b"".join(block(rank * comm.size + comm.rank, size) for rank in range(comm.size))
        recv = bytearray(len(send))
        comm.alltoall(send, recv, algorithm=algorithm)
        assert recv == want
        recv = bytearray(send)
        check_algorithm(comm.start_alltoall, None, recv, algorithm=algorithm)
        assert recv == want

    job.run(run)


def test_alltoallv(job: Job) -> None:
    def count(source: int, target: int) -> int:
        return source * 1000 + target * 7

    def run(comm: allcast.Comm) -> None:
        ranks = range(comm.size)
        outgoing = [count(comm.rank, rank) for rank in ranks]
        incoming = [count(rank, comm.rank) for rank in ranks]
        send = b"".join(block(comm.rank + rank, n) for rank, n in enumerate(outgoing))
        for start in (False, True):
            recv = bytearray(sum(incoming))
            if start:
                comm.start_alltoallv(send, recv, outgoing, incoming).wait()
            else:
                comm.alltoallv(send, recv, outgoing, incoming)
            assert recv == b"".join(block(comm.rank + rank, n) for rank, n in enumerate(incoming))

    job.run(run)


def test_barrier(job: Job) -> None:
    arrived: list[int] = []

    def run(comm: allcast.Comm) -> None:
        arrived.append(comm.rank)
        comm.barrier()
        assert sorted(arrived) == list(range(comm.size))
        check_algorithm(comm.start_barrier, algorithm="dissemination")

    job.run(run)


def test_broadcast_coalesced(job: Job) -> None:
    sizes = [0, 1, 300, 5000]

    def run(comm: allcast.Comm) -> None:
        for start in (False, True):
            bufs = [bytearray(block(i, n) if comm.rank == 2 else n) for i, n in enumerate(sizes)]
            if start:
                comm.start_broadcast_coalesced(bufs, root=2).wait()
            else:
                comm.broadcast_coalesced(bufs, root=2)
            assert bufs == [block(i, n) for i, n in enumerate(sizes)]

    job.run(run)


def test_allgather_coalesced(job: Job) -> None:
    sizes = [0, 1, 300, 5000]

    def run(comm: allcast.Comm) -> None:
        sends = [block(comm.rank + i, n) for i, n in enumerate(sizes)]
        for start in (False, True):
            recvs = [bytearray(n * comm.size) for n in sizes]
            if start:
                comm.start_allgather_coalesced(sends, recvs).wait()
            else:
                comm.allgather_coalesced(sends, recvs)
            for i, n in enumerate(sizes):
                assert recvs[i] == b"".join(block(rank + i, n) for rank in range(comm.size))

    job.run(run)


def test_chains_and_subgroups(job: Job) -> None:
    require(job, "mcast")

    def run(comm: allcast.Comm) -> None:
        recv = bytearray(10_000 * comm.size)
        comm.allgather(
            block(comm.rank, 10_000), recv, algorithm="mcast", chains=2, subgroups=1, timeout=60.0
        )
        assert recv == b"".join(block(rank, 10_000) for rank in range(comm.size))

    job.run(run)


def test_messages(job: Job) -> None:
    def run(comm: allcast.Comm) -> None:
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        sent = [comm.start_send(block(comm.rank, n), right, tag=n) for n in (10, 200_000)]
        large, small = bytearray(200_000), bytearray(64)
        assert comm.recv(large, left, tag=200_000) == (left, 200_000, 200_000)
        message = comm.start_recv(small, tag=10).wait()
        assert message == allcast.Message(source=left, tag=10, bytes=10)
        assert large == block(left, 200_000)
        assert small[:10] == block(left, 10)
        assert small[10:] == bytes(54)
        for request in sent:
            assert request.wait() is None
        comm.barrier()
        comm.send(b"", left)
        assert comm.recv(bytearray(0)) == (right, 0, 0)

    job.run(run)
