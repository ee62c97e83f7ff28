"""Failures."""

from __future__ import annotations

import array
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from harness import PATIENCE, Job, MemoryStore, join, on_threads

import allcast

INVALID: list[tuple[Callable[[allcast.Comm], Any], str]] = [
    (lambda c: c.allgather(bytes(2), bytearray(7)), "must be 3 times as long"),
    (lambda c: c.allgather(None, bytearray(7)), "7 bytes cannot be divided among 3 ranks"),
    (lambda c: c.allgatherv(b"", bytearray(3), [1, 2]), "2 counts for 3 ranks"),
    (lambda c: c.allgatherv(b"", bytearray(3), [1, 1, 2]), "describe 4 bytes, and recv has 3"),
    (lambda c: c.allgatherv(b"", bytearray(3), [-1, 2, 2]), "describe 3 bytes"),
    (lambda c: c.allgatherv(bytes(2), bytearray(3), [1, 1, 1]), "2 bytes for 1 bytes of counts"),
    (lambda c: c.gather(None, None, root=(c.rank + 1) % 3), "only the root may pass None"),
    (lambda c: c.gather(b"", None, root=c.rank), "the root must not pass None"),
    (lambda c: c.gatherv(b"", bytearray(1), None, root=c.rank), "want one count per rank"),
    (lambda c: c.gatherv(None, None, None, root=(c.rank + 1) % 3), "only the root"),
    (lambda c: c.scatter(None, None, root=(c.rank + 1) % 3), "only the root"),
    (lambda c: c.scatter(bytes(4), bytearray(1), root=c.rank), "3 times as long"),
    (lambda c: c.scatterv(None, None, None, root=(c.rank + 1) % 3), "only the root"),
    (lambda c: c.alltoall(bytes(3), bytearray(6)), "must be equally long"),
    (lambda c: c.alltoallv(b"", bytearray(1), [0, 0, 0], [0, 0, 0]), "recv has 1"),
    (lambda c: c.reduce(None, None, root=(c.rank + 1) % 3), "only the root"),
    (lambda c: c.reduce_scatter(array.array("f", [1]), array.array("f", [1])), "3 times"),
    (lambda c: c.allreduce(array.array("f", [1]), array.array("f", [])), "equally long"),
    (lambda c: c.allreduce(None, array.array("f", [1]), "median"), "not an operator"),
    (lambda c: c.allreduce(None, array.array("f", [1]), "xor"), "xor"),
    (lambda c: c.allreduce(None, bytearray(3), dtype="float32"), "3 bytes"),
    (lambda c: c.allgather(array.array("f", [1]), array.array("i", [1] * 3)), "f4 and i4"),
    (lambda c: c.broadcast(bytearray(1), root=3), "root"),
    (lambda c: c.broadcast(bytearray(1), root=1 << 32), "root is 4294967296"),
    (lambda c: c.reduce(bytes(1), bytearray(1), root=1 << 32, dtype="int8"), "root is 4294967296"),
    (lambda c: c.send(b"", 1 << 32), "to is 4294967296"),
    (lambda c: c.recv(bytearray(1), 0, tag=1 << 31), "tag is 2147483648"),
    (lambda c: c.barrier(chains=1 << 32), "chains is 4294967296"),
    (lambda c: c.subset([1 << 32]), "rank is 4294967296"),
    (lambda c: c.split(-1 - (1 << 32)), "color is -4294967297"),
    (lambda c: c.world_rank(1 << 32), "rank is 4294967296"),
    (lambda c: c.broadcast(bytearray(1), algorithm="pigeon"), "no algorithm .*pigeon"),
    (lambda c: c.barrier(chains=-1), "negative"),
    (lambda c: c.broadcast_coalesced([b"x"], root=(c.rank + 1) % 3), "read-only"),
    (lambda c: c.allgather_coalesced([b"x"], []), "1 buffers in sends and 0 in recvs"),
    (lambda c: c.send(b"x", to=7), "rank|peer|7"),
    (lambda c: c.send(b"x", to=0, tag=-1), "tag"),
    (lambda c: c.world_rank(3), "rank 3"),
    (lambda c: c.alloc(-1), "-1 bytes"),
    (lambda c: c.subset([c.rank, c.rank]), "different ranks"),
]


@pytest.mark.parametrize(("call", "want"), INVALID, ids=[want for _, want in INVALID])
def test_invalid_arguments(job: Job, call: Callable[[allcast.Comm], Any], want: str) -> None:
    """A call with invalid arguments starts nothing, so that the job keeps working."""
    for comm in job.comms:
        with pytest.raises(allcast.InvalidError, match=want) as caught:
            call(comm)
        assert isinstance(caught.value, ValueError)
        assert caught.value.code == 1


def test_job_works_after_invalid_arguments(job: Job) -> None:
    job.run(lambda comm: comm.barrier(timeout=PATIENCE))


def test_mismatch(pair: Job) -> None:
    def run(comm: allcast.Comm) -> None:
        with pytest.raises(allcast.MismatchError) as caught:
            comm.allgather(None, bytearray(4 + 2 * comm.rank), algorithm="ring")
        assert "rank 0 called" in str(caught.value)
        assert caught.value.code == 6
        assert caught.value.phase != ""

    pair.run(run)


def test_abort(pair: Job) -> None:
    def run(comm: allcast.Comm) -> None:
        if comm.rank == 1:
            comm.abort()
            return
        with pytest.raises(allcast.AbortedError) as caught:
            comm.barrier()
        assert (caught.value.rank, caught.value.world_rank) == (1, 1)
        assert "rank 1" in str(caught.value)

    pair.run(run)


def test_deadline(pair: Job) -> None:
    with pytest.raises(allcast.DeadlineError) as caught:
        pair.comms[0].barrier(timeout=0.05)
    assert isinstance(caught.value, TimeoutError)
    with pytest.raises(allcast.Error):
        pair.comms[1].barrier()


def test_truncated(pair: Job) -> None:
    pair.comms[0].send(b"long", 1)
    with pytest.raises(allcast.TruncatedError):
        pair.comms[1].recv(bytearray(2))


def test_errors_of_communicators(pair: Job) -> None:
    """Errors name the rank in the communicator of the call, and the rank of the job."""
    subs = pair.run(lambda comm: comm.split(0, key=-comm.rank))

    def run(comm: allcast.Comm) -> None:
        sub = subs[comm.rank]
        assert sub is not None
        assert sub.rank == 1 - comm.rank
        assert sub.world_rank(sub.rank) == comm.rank
        if comm.rank == 0:
            sub.abort()
            return
        with pytest.raises(allcast.AbortedError) as caught:
            sub.barrier()
        assert (caught.value.rank, caught.value.world_rank) == (1, 0)

    pair.run(run)
    pair.run(lambda comm: comm.barrier())


def test_closed() -> None:
    job = Job(2)
    sub = job.run(lambda comm: comm.subset([0, 1], "test"))[0]
    memory = job.comms[0].alloc(10)
    job.close()
    job.close()
    comm = job.comms[0]
    assert comm.closed
    assert sub.closed
    assert "closed" in repr(sub)
    for call in (comm.barrier, sub.barrier, comm.describe, comm.abort, lambda: comm.alloc(1)):
        with pytest.raises(allcast.ClosedError):
            call()
    sub.close()
    memory.free()


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({"timeout": -1.0}, "timeout"),
        ({"fabric": "pigeon"}, "pigeon"),
        ({"key": b"short"}, "at least 16"),
        ({"key": "text"}, "key is of type str"),
        ({"tuning": "nonsense"}, "nonsense"),
        ({"rank": 5}, "Rank 5 of 1"),
    ],
)
def test_bad_options(options: dict[str, Any], want: str) -> None:
    values: dict[str, Any] = {"rank": 0, "size": 1, "store": MemoryStore(), **options}
    with pytest.raises(allcast.OptionsError, match=want) as caught:
        allcast.join(**values)
    assert isinstance(caught.value, ValueError)


def test_missing_rank() -> None:
    with pytest.raises(allcast.JoinError):
        join(0, 2, MemoryStore(), join_timeout=0.2)


def test_options() -> None:
    """Options of all types reach the library."""
    store = MemoryStore()
    options: dict[str, Any] = {
        "attempt": 3,
        "key": b"0123456789abcdef",
        "secure": True,
        "integrity": True,
        "rack": "leaf1",
        "rate": "10gbit",
        "timeout": 7.5,
        "deadline": 50,
        "subgroups": 2,
        "groups": ["239.77.1.2:5000", "239.77.1.3:5000"],
        "ttl": 1,
        "plain_sockets": True,
        "no_multicast": True,
        "log": "off",
        "tuning": "allgather:ring",
        "receive_buffer": 1 << 20,
    }
    comms = on_threads(2, lambda rank: join(rank, 2, store, **options))
    described = comms[0].describe()
    assert described["secure"] is True
    assert described["integrity"] is True
    assert described["multicast"]["works"] is False
    on_threads(2, lambda rank: comms[rank].close())


def test_pickle() -> None:
    err = allcast.RankLostError("lost", rank=3, world_rank=4, phase="data")
    copy = pickle.loads(pickle.dumps(err))
    assert type(copy) is allcast.RankLostError
    assert (str(copy), copy.code, copy.rank, copy.world_rank, copy.phase) == (
        "lost",
        3,
        3,
        4,
        "data",
    )
