"""Signals, fork, exit and lost ranks."""

from __future__ import annotations

import pathlib
import signal
import threading
import time
from typing import Any

import pytest
from harness import PATIENCE, Job, MemoryStore, Process, join, on_threads

import allcast

# Two ranks as threads. `interrupt` sends SIGINT once the main thread waits for an operation.
PAIR = """
store = harness.MemoryStore()
comms = harness.on_threads(2, lambda r: harness.join(r, 2, store, timeout=TIMEOUT, log="off"))
waits = threading.Event()

def announce(cls, name):
    original = getattr(cls, name)
    def wrapper(self, *args):
        waits.set()
        return original(self, *args)
    setattr(cls, name, wrapper)

def interrupt():
    assert waits.wait(harness.PATIENCE)
    os.kill(os.getpid(), signal.SIGINT)

def run(function):
    waits.clear()
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        function()
    except KeyboardInterrupt:
        print("interrupted")
    thread.join()
"""


def script(text: str, timeout: float = PATIENCE) -> str:
    return f"TIMEOUT = {timeout}\n" + PAIR + text


def test_ctrl_c_gives_up_a_blocking_call() -> None:
    """The communicator is aborted on all ranks, as when the context of a call in Go ends."""
    text = script("""
announce(allcast.Request, "_wait")
run(lambda: comms[0].barrier())
for comm in comms:
    try:
        comm.barrier()
    except allcast.AbortedError as err:
        print("aborted by", err.rank)
assert not allcast._requests.live
harness.on_threads(2, lambda r: comms[r].close())
""")
    with Process(text) as process:
        assert process.end().split("\n") == ["interrupted", "aborted by 0", "aborted by 0", ""]


def test_ctrl_c_withdraws_a_receive() -> None:
    """Nothing is aborted, because the receive has no match."""
    text = script("""
announce(allcast.Request, "_wait")
run(lambda: comms[0].recv(bytearray(4)))
harness.on_threads(2, lambda r: comms[r].barrier())
comms[1].send(b"next", 0)
print(comms[0].recv(bytearray(4)).bytes)
harness.on_threads(2, lambda r: comms[r].close())
""")
    with Process(text) as process:
        assert process.end().split() == ["interrupted", "4"]


def test_ctrl_c_ends_the_waiting_only() -> None:
    text = script("""
announce(allcast.Request, "_wait")
request = comms[0].start_barrier()
run(request.wait)
comms[1].barrier()
request.wait()
queue = allcast.Queue()
announce(allcast.Queue, "_take")
run(queue.next)
harness.on_threads(2, lambda r: comms[r].close())
""")
    with Process(text) as process:
        assert process.end().split() == ["interrupted", "interrupted"]


@pytest.mark.parametrize("rank", [0, 1])
def test_ctrl_c_ends_join(rank: int) -> None:
    text = """
        asked = threading.Event()

        class Store(harness.MemoryStore):
            def set(self, key, value):
                super().set(key, value)
                asked.set()

            def get(self, key, wait):
                asked.set()
                return super().get(key, wait)

        def interrupt():
            assert asked.wait(harness.PATIENCE)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            harness.join(int(sys.argv[1]), 2, Store(), join_timeout=1000.0)
        except KeyboardInterrupt:
            print("interrupted")
        thread.join()
    """
    with Process(text, str(rank)) as process:
        assert process.end() == "interrupted\n"


def test_ctrl_c_ends_split() -> None:
    text = script("""
announce(allcast._background.Background, "result")
run(lambda: comms[0].split(0))
os._exit(0)
""")
    with Process(text) as process:
        assert process.end() == "interrupted\n"


class Library:
    """The library, with some functions replaced."""

    def __init__(self, lib: Any, **replaced: Any) -> None:
        self._lib = lib
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lib, name)


def interrupted(request: allcast.Request) -> allcast.Request:
    """Waits for a request, which is interrupted after the library has released it."""
    lib = request._lib

    def wait(handle: Any, wait_ms: int, message: Any) -> int:
        code = int(lib.allcast_wait(handle, wait_ms, message))
        if wait_ms != 0:
            raise KeyboardInterrupt
        return code

    request._lib = Library(lib, allcast_wait=wait)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        request.wait()
    request._lib = lib
    return request


def test_interrupted_wait_keeps_the_result(job: Job) -> None:
    """Python raises KeyboardInterrupt after the library has released the handle."""
    requests = [comm.start_barrier() for comm in job.comms]
    for request in requests:
        interrupted(request)
        assert request._code == 0
        assert request.done()
        request.wait()
    job.comms[1].start_send(b"hello", 0).wait()
    request = interrupted(job.comms[0].start_recv(bytearray(8)))
    assert request.wait() == (1, 0, 5)
    request = job.comms[0].start_recv(bytearray(8), 1, tag=90)
    request.cancel()
    interrupted(request)
    for _ in range(2):
        with pytest.raises(allcast.WithdrawnError):
            request.wait()


def test_interrupted_queue_keeps_completions(job: Job) -> None:
    with allcast.Queue() as queue:
        requests = [comm.start_barrier(queue=queue) for comm in job.comms]
        for request in requests:
            request.wait()
        lib = queue._lib

        def take(*arguments: Any) -> int:
            lib.allcast_queue_next(*arguments)
            raise KeyboardInterrupt

        queue._lib = Library(lib, allcast_queue_next=take)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            queue.next()
        queue._lib = lib
        taken: list[allcast.Completion] = []
        while len(taken) < 3:
            taken += queue.next(PATIENCE, max=2)
        assert {id(c.request) for c in taken} == {id(r) for r in requests}


def test_signal_handlers_run_during_a_call() -> None:
    text = script("""
got = threading.Event()
signal.signal(signal.SIGUSR1, lambda *_: got.set())
announce(allcast.Request, "_wait")

def other():
    assert waits.wait(harness.PATIENCE)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert got.wait(harness.PATIENCE)
    comms[1].barrier()

thread = threading.Thread(target=other)
thread.start()
comms[0].barrier()
thread.join()
print("handled")
harness.on_threads(2, lambda r: comms[r].close())
""")
    with Process(text) as process:
        assert process.end() == "handled\n"


def test_fork() -> None:
    """Calls fail in a child, its finalisers do nothing, and the parent is undisturbed."""
    text = script("""
queue = allcast.Queue()
memory = comms[0].alloc(100)
request = comms[0].start_recv(bytearray(1), 1, queue=queue)
other = comms[0].start_recv(bytearray(1), 1)
child = os.fork()
if child == 0:
    calls = [
        comms[0].barrier, comms[0].start_barrier, comms[0].describe, comms[0].abort, comms[0].close,
        lambda: comms[0].alloc(1), lambda: comms[0].split(0), request.wait, request.done,
        request.cancel, lambda: queue.next(0), queue.close, queue.fileno, memory.free,
        allcast.Queue, allcast.join, lambda: allcast.set_parallelism(1), lambda: allcast.version,
    ]
    for i, call in enumerate(calls):
        try:
            call()
            print("call", i, "works")
        except allcast.ForkedError as err:
            assert "forked" in str(err) and err.code == 17
    del request, other, queue, memory, comms, call, calls
    import gc
    gc.collect()
    print("child is done", flush=True)
    sys.exit(7)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 7
comms[1].send(b"x", 0)
comms[1].send(b"x", 0)
assert request.wait().bytes == other.wait().bytes == 1
memory.free()
harness.on_threads(2, lambda r: comms[r].close())
print("parent is done")
""")
    with Process(text) as process:
        assert process.end() == "child is done\nparent is done\n"


def test_join_after_fork() -> None:
    """A child may join if the parent has only imported the package."""
    text = """
        child = os.fork()
        if child == 0:
            with harness.join(0, 1, harness.MemoryStore()) as comm:
                comm.barrier()
            sys.exit(7)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status))
    """
    with Process(text) as process:
        assert process.end() == "7\n"


def test_exit_leaves_the_job() -> None:
    """A program that does not close its communicators leaves the job at exit.

    It closes one after the other, so the first waits until it misses the second.
    """
    text = script(
        """
requests = [comm.start_recv(bytearray(1), 1 - comm.rank, tag=5) for comm in comms]

def wait():
    with contextlib.suppress(allcast.Error):
        requests[1].wait()

threading.Thread(target=wait, daemon=True).start()
queue = allcast.Queue()
threading.Thread(target=queue.next, daemon=True).start()
comms[0].start_barrier()
comms[0].start_send(bytes(1 << 20), 1)
memory = comms[0].alloc(1000)
view = memoryview(memory)
print("exits")
""",
        timeout=3.0,
    )
    with Process(text) as process:
        assert process.end() == "exits\n"
        assert process.errors == ""


def test_exit_with_an_exception() -> None:
    text = script(
        """
comms[0].start_recv(bytearray(1))
raise SystemExit(5)
""",
        timeout=3.0,
    )
    with Process(text) as process:
        process.end(5)


RANK = """
    path, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    comm = harness.join(rank, size, harness.DirectoryStore(path), timeout=60.0, log="off")
    comm.barrier()
    print("joined")
"""


def test_killed_rank(tmp_path: pathlib.Path) -> None:
    """Survivors get an error that names the rank, and continue with a smaller communicator."""
    text = (
        RANK
        + """
    try:
        if rank == 1:
            sys.stdin.readline()
        comm.allgather(bytes([rank]), bytearray(size), timeout=60.0)
    except allcast.RankLostError as err:
        print("lost", err.rank, err.world_rank, "rank 1" in str(err), err.phase != "")
    comm = comm.shrink(timeout=60.0)
    recv = bytearray(comm.size)
    comm.allgather(bytes([rank]), recv)
    print(comm.rank, comm.size, list(recv), comm.world_rank(1))
    """
    )
    processes = [Process(text, str(tmp_path), str(rank), "3") for rank in range(3)]
    try:
        for process in processes:
            assert process.line() == "joined"
        processes[1].signal(signal.SIGKILL)
        for rank, process in ((0, processes[0]), (2, processes[2])):
            want = f"lost 1 1 True True\n{min(rank, 1)} 2 [0, 2] 2\n"
            assert process.end() == want
    finally:
        for process in processes:
            process.__exit__()


def test_join_with_an_address(tmp_path: pathlib.Path) -> None:
    """Rank 0 listens on a port that the kernel chooses."""
    comm = allcast.join(rank=0, size=1, addr="127.0.0.1:0", calibrate=False)
    assert (comm.rank, comm.size) == (0, 1)
    assert repr(comm) == "<allcast.Comm rank 0 of 1>"
    comm.close()


def test_environment() -> None:
    text = """
        with allcast.join(calibrate=False) as comm:
            print(comm.rank, comm.size)
    """
    environment = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    with Process(text, **environment) as process:
        assert process.end() == "0 1\n"


def threads_and_descriptors() -> tuple[int, int]:
    tasks = len(list(pathlib.Path("/proc/self/task").iterdir()))
    return tasks, len(list(pathlib.Path("/proc/self/fd").iterdir()))


def test_no_leaks() -> None:
    """Joining and leaving leaves no thread of Python, no descriptor and no object behind."""

    def cycle() -> None:
        store = MemoryStore()
        comms = on_threads(2, lambda rank: join(rank, 2, store))
        with allcast.Queue() as queue:
            queue.fileno()
            for comm in comms:
                comm.start_barrier(queue=queue)
                comm.start_allgather(bytes(10), bytearray(20))  # dropped
                comm.alloc(1 << 16)  # dropped
            taken = 0
            while taken < 2:
                taken += len(queue.next(PATIENCE))
            on_threads(2, lambda rank: comms[rank].close())

    for _ in range(10):
        cycle()
    tasks, descriptors = threads_and_descriptors()
    threads = threading.active_count()
    for _ in range(100):
        cycle()
    # Threads of Background end right after the call.
    end = time.monotonic() + PATIENCE
    while threading.active_count() > threads and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() == threads
    after, open_now = threads_and_descriptors()
    assert open_now <= descriptors
    # The Go runtime keeps some threads for later.
    assert after <= tasks + 20
    assert len(allcast._requests.live) <= 2


def test_ctrl_c_after_a_fork_on_another_thread() -> None:
    """The thread that forks is the main thread of the child."""
    text = """
    def wait():
        comm = allcast.join(rank=0, size=1)
        request = comm.start_recv(bytearray(1))
        waits = threading.Event()
        poll = allcast.Request._poll

        def announce(request, wait_ms):
            waits.set()
            return poll(request, wait_ms)

        def interrupt():
            assert waits.wait(harness.PATIENCE)
            os.kill(os.getpid(), signal.SIGINT)

        allcast.Request._poll = announce
        threading.Thread(target=interrupt).start()
        try:
            request.wait()
        except KeyboardInterrupt:
            os._exit(0)

    def fork():
        pid = os.fork()
        if pid == 0:
            try:
                wait()
            finally:
                os._exit(1)
        print(os.waitpid(pid, 0)[1])

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    """
    with Process(text) as process:
        assert process.end() == "0\n"
