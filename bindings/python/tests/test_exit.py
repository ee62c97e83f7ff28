"""Ranks that leave without closing their communicator: the others learn it at once."""

from __future__ import annotations

import pathlib

import pytest
from harness import Process

# Far longer than the test waits, so that nobody learns from the timeout.
TIMEOUT = "120s"
BOUND = 30.0

SIZE = 3
LOST = 2

RANK = """
    path, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    comm = harness.join(rank, size, harness.DirectoryStore(path), log="off")

    def meet():
        comm.allreduce(None, memoryview(bytearray(4 * 1024)).cast("f"))
"""

SURVIVOR = """
    start = time.monotonic()
    try:
        while True:
            meet()
    except (allcast.RankLostError, allcast.ClosedError) as error:
        print(error.rank, f"rank {error.rank}" in str(error), time.monotonic() - start)
    comm.close()
"""

EXITS = {
    "exception": ('raise RuntimeError("mine")', 1),
    "sys.exit": ("sys.exit(3)", 3),
    "os._exit": ("os._exit(3)", 3),
    "end": ("pass", 0),
    "with": ('with comm:\n        raise RuntimeError("mine")', 1),
    # The join has ended, and the interpreter lives on.
    "handled": (
        'with contextlib.suppress(RuntimeError), comm:\n        raise RuntimeError("mine")\n'
        '    print("lives")\n    sys.stdin.readline()',
        0,
    ),
    "pending": ('comm.start_recv(bytearray(4), 0)\n    raise RuntimeError("mine")', 1),
}


@pytest.mark.parametrize("met", ["met", "fresh"])
@pytest.mark.parametrize("how", list(EXITS))
def test_the_others_learn_at_once(how: str, met: str, tmp_path: pathlib.Path) -> None:
    statement, status = EXITS[how]
    first = "    meet()\n" if met == "met" else ""
    processes = []
    for rank in range(SIZE):
        last = f"    {statement}\n" if rank == LOST else SURVIVOR
        text = RANK + first + last
        arguments = (str(tmp_path), str(rank), str(SIZE))
        processes.append(Process(text, *arguments, ALLCAST_TIMEOUT=TIMEOUT))
    try:
        if how == "handled":
            assert processes[LOST].line() == "lives"
        for rank in range(SIZE):
            if rank == LOST:
                continue
            lost, named, seconds = processes[rank].end().split()
            assert (lost, named) == (str(LOST), "True")
            assert float(seconds) < BOUND
        if how == "handled":
            processes[LOST].tell("")
        processes[LOST].end(status)
    finally:
        for process in processes:
            process.__exit__()
