"""Long calls of the library on a thread of their own, so that Ctrl-C ends the waiting."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_SLICE = 0.1


class Background(Generic[T]):
    """A function that runs on a thread of its own.

    If a signal handler raises an exception while `result` waits, the function continues alone, and
    its result goes to `abandoned`.
    """

    def __init__(self, function: Callable[[], T], abandoned: Callable[[T], None]) -> None:
        self._function = function
        self._abandoned = abandoned
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        # Calls without a result. One is missing in _calls if a signal handler raises an exception
        # right after it was taken.
        self._waiting: set[_Call] = set()
        self._alone = False
        self._given_up = False
        self._over = False
        self._value: T | None = None
        self._failure: BaseException | None = None

    def result(self) -> T:
        """Runs the function and returns its result."""
        try:
            threading.Thread(target=self._run, name="allcast", daemon=True).start()
        except RuntimeError:  # Python 3.12 starts no thread while the interpreter exits
            self._alone = True
            return self._function()
        try:
            self._serve_all()
        except BaseException:
            self._give_up()
            raise
        if self._failure is not None:
            raise self._failure
        return self._value  # type: ignore[return-value]

    def serve(self, function: Callable[[], object]) -> object:
        """Runs a function on the thread that called `result`, and returns its result."""
        if self._alone:
            return function()
        call = _Call(function)
        with self._lock:
            if self._given_up:
                raise AbandonedError
            self._waiting.add(call)
            self._calls.put(call)
        try:
            return call.result()
        finally:
            with self._lock:
                self._waiting.discard(call)

    def _serve_all(self) -> None:
        """Runs calls until the function has ended."""
        while True:
            # A signal right before the wait, or on another thread, does not end it, and Python runs
            # handlers afterwards only. The wait is therefore short.
            try:
                call = self._calls.get(timeout=_SLICE)
            except queue.Empty:
                continue
            if call is None:
                return
            call.run()

    def _run(self) -> None:
        try:
            self._value = self._function()
        except BaseException as err:
            self._failure = err
        with self._lock:
            self._over = True
            given_up = self._given_up
        if given_up:
            self._discard()
        else:
            self._calls.put(None)

    def _give_up(self) -> None:
        with self._lock:
            self._given_up = True
            over = self._over
            waiting = list(self._waiting)
        if over:
            self._discard()
        for call in waiting:
            call.abandon()

    def _discard(self) -> None:
        if self._failure is None:
            self._abandoned(self._value)  # type: ignore[arg-type]


class AbandonedError(Exception):
    """The thread that should serve a call has given up."""


class _Call:
    """A function that another thread runs."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._over = threading.Event()
        self._value: object = None
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._value = self._function()
        except BaseException as err:
            self._failure = err
        finally:
            self._over.set()

    def abandon(self) -> None:
        if self._over.is_set():
            return
        self._failure = AbandonedError()
        self._over.set()

    def result(self) -> object:
        self._over.wait()
        if self._failure is not None:
            raise self._failure
        return self._value
