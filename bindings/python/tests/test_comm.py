"""Communicators and their memory."""

from __future__ import annotations

import pytest
from harness import Job

import allcast


def test_split_and_subset(job: Job) -> None:
    def run(comm: allcast.Comm) -> None:
        sub = comm.split(-1 if comm.rank == 1 else 0, key=-comm.rank, timeout=60.0)
        if comm.rank == 1:
            assert sub is None
        else:
            assert sub is not None
            assert (sub.rank, sub.size) == (1 if comm.rank == 0 else 0, 2)
            assert sub.world_rank(0) == 2
            recv = bytearray(2)
            sub.allgather(bytes([comm.rank]), recv)
            assert list(recv) == [2, 0]
            sub.close()
            assert sub.closed
            assert not comm.closed
        if comm.rank > 0:
            with comm.subset([2, 1], tag="pair", timeout=60.0) as pair:
                recv = bytearray(2)
                pair.allgather(bytes([comm.rank]), recv)
                assert list(recv) == [2, 1]

    job.run(run)


def test_stats_and_description(job: Job) -> None:
    job.run(lambda comm: comm.allgather(bytes(1000), bytearray(3000), algorithm="ring"))
    for rank, comm in enumerate(job.comms):
        described = comm.describe()
        assert (described["rank"], described["size"], described["fabric"]) == (rank, 3, "ip")
        assert comm.stats()["sent_bytes"] > 1000


def test_alloc(job: Job) -> None:
    def run(comm: allcast.Comm) -> None:
        memory = comm.alloc(3000)
        assert isinstance(memory, allcast.Allocation)
        assert (memory.nbytes, len(memory)) == (3000, 3000)
        assert bytes(memory) == bytes(3000)
        view = memoryview(memory).cast("B")
        view[comm.rank * 1000 : (comm.rank + 1) * 1000] = bytes([comm.rank + 1]) * 1000
        comm.allgather(None, memory)
        assert bytes(memory) == b"".join(bytes([rank + 1]) * 1000 for rank in range(3))
        request = comm.start_recv(memory, (comm.rank + 1) % 3, tag=91)
        with pytest.raises(allcast.InUseError):
            memory.free()
        request.cancel()
        with pytest.raises(allcast.WithdrawnError):
            request.wait()
        del view
        memory.free()
        memory.free()
        with pytest.raises(allcast.ClosedError):
            _ = memory.address
        empty = comm.alloc(0)
        assert empty.nbytes == 0
        comm.broadcast(empty)

    job.run(run)


def test_dropped_allocation(job: Job) -> None:
    """Views keep the memory, and an operation does too."""
    numpy = pytest.importorskip("numpy", reason="numpy is not installed")

    def run(comm: allcast.Comm) -> None:
        array = numpy.frombuffer(comm.alloc(4000), dtype=numpy.float32)
        array[:] = comm.rank
        comm.allreduce(None, array)
        assert (array == 3).all()

    job.run(run)
