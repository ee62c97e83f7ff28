"""Stores."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest
from harness import PATIENCE, MemoryStore, join, on_threads

import allcast
from allcast import _background


class BrokenStore(MemoryStore):
    """A store that fails at its n-th call, and remembers the threads of calls."""

    def __init__(self, failure: BaseException | None = None, at: int = 0) -> None:
        super().__init__()
        self._failure = failure
        self._left = at
        self.threads: set[int] = set()

    def _count(self) -> None:
        self.threads.add(threading.get_ident())
        self._left -= 1
        if self._failure is not None and self._left < 0:
            raise self._failure

    def set(self, key: str, value: bytes) -> None:
        self._count()
        super().set(key, value)

    def get(self, key: str, wait: float) -> bytes | None:
        self._count()
        assert isinstance(key, str)
        assert wait >= 0
        return super().get(key, wait)


@pytest.mark.parametrize("rank", [0, 1])
def test_exception_of_a_store(rank: int) -> None:
    failure = RuntimeError("the disk is full")
    with pytest.raises(allcast.StoreError) as caught:
        join(rank, 2, BrokenStore(failure), join_timeout=60.0)
    assert caught.value.__cause__ is failure
    assert caught.value.code == 16


def test_exit_of_a_store() -> None:
    """Exceptions that end the program are not wrapped."""
    with pytest.raises(SystemExit):
        join(1, 2, BrokenStore(SystemExit(3)))


def test_store_runs_on_the_joining_thread() -> None:
    shared = MemoryStore()

    def run(rank: int) -> set[int]:
        store = BrokenStore()
        store._values, store._changed = shared._values, shared._changed
        with join(rank, 2, store):
            assert store.threads == {threading.get_ident()}
        return store.threads

    on_threads(2, run)


def test_value_of_another_type() -> None:
    class Wrong(MemoryStore):
        def get(self, key: str, wait: float) -> Any:
            return object()

    with pytest.raises(allcast.StoreError) as caught:
        join(1, 2, Wrong())
    assert isinstance(caught.value.__cause__, TypeError)


def test_attempts() -> None:
    """Jobs with different numbers use the same store at once."""
    store = MemoryStore()

    def run(i: int) -> int:
        with join(i % 2, 2, store, attempt=i // 2) as comm:
            recv = bytearray(2)
            comm.allgather(bytes([i]), recv)
            return sum(recv)

    assert on_threads(4, run) == [1, 1, 5, 5]


def test_no_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 starts no thread in functions of atexit, where programs leave jobs."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "allcast":
            raise RuntimeError("can't create new thread at interpreter shutdown")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    store = MemoryStore()

    def run(rank: int) -> None:
        with join(rank, 2, store) as comm:
            comm.barrier()

    on_threads(2, run)


def test_interrupted_call_of_the_store() -> None:
    """A signal handler may raise an exception right after this thread has taken a call."""
    taken = threading.Event()
    over = threading.Event()

    class Calls(queue.SimpleQueue):  # type: ignore[type-arg]
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            super().get(block, timeout)
            taken.set()
            raise KeyboardInterrupt

    def function() -> None:
        try:
            background.serve(lambda: None)
        finally:
            over.set()

    background: _background.Background[None] = _background.Background(function, lambda _: None)
    background._calls = Calls()
    with pytest.raises(KeyboardInterrupt):
        background.result()
    assert taken.is_set()
    assert over.wait(PATIENCE), "the thread waits for a call that nobody runs"
