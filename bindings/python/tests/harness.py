"""Ranks as threads of the test's process, and ranks as processes."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import allcast

T = TypeVar("T")

# Limit of everything that should end at once, also on a loaded machine.
PATIENCE = 60.0


class MemoryStore:
    """A store for ranks in one process."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: bytes) -> None:
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def get(self, key: str, wait: float) -> bytes | None:
        with self._changed:
            self._changed.wait_for(lambda: key in self._values, wait)
            return self._values.get(key)


class DirectoryStore:
    """A store for ranks in several processes: one file per key."""

    def __init__(self, path: str) -> None:
        self._path = pathlib.Path(path)

    def set(self, key: str, value: bytes) -> None:
        handle, name = tempfile.mkstemp(dir=self._path)
        with os.fdopen(handle, "wb") as file:
            file.write(value)
        os.rename(name, self._file(key))

    def get(self, key: str, wait: float) -> bytes | None:
        end = time.monotonic() + wait
        while True:
            try:
                return self._file(key).read_bytes()
            except FileNotFoundError:
                if time.monotonic() >= end:
                    return None
            time.sleep(0.01)

    def _file(self, key: str) -> pathlib.Path:
        return self._path / key.encode().hex()


def join(rank: int, size: int, store: Any, **options: Any) -> allcast.Comm:
    """Joins a job on the loopback interface."""
    options.setdefault("calibrate", False)
    options.setdefault("interface", "lo")
    options.setdefault("join_timeout", PATIENCE)
    return allcast.join(rank=rank, size=size, store=store, **options)


def on_threads(n: int, function: Callable[[int], T]) -> list[T]:
    """Calls a function once per rank, each on its own thread, and returns the results."""
    results: list[Any] = [None] * n
    errors: list[BaseException | None] = [None] * n

    def run(rank: int) -> None:
        try:
            results[rank] = function(rank)
        except BaseException as err:
            errors[rank] = err

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5 * PATIENCE)
        assert not thread.is_alive(), "a rank does not end"
    for err in errors:
        if err is not None:
            raise err
    return results


class Job:
    """A job whose ranks are in this process."""

    def __init__(self, size: int, **options: Any) -> None:
        store = MemoryStore()
        self.comms = on_threads(size, lambda rank: join(rank, size, store, **options))

    def run(self, function: Callable[[allcast.Comm], T]) -> list[T]:
        """Calls a function for each rank's communicator, each on its own thread."""
        return on_threads(len(self.comms), lambda rank: function(self.comms[rank]))

    def close(self) -> None:
        self.run(lambda comm: comm.close())

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Process:
    """A Python process that runs a script."""

    def __init__(self, script: str, *arguments: str, **environment: str) -> None:
        env = {**os.environ, **environment}
        here = str(pathlib.Path(__file__).parent)
        env["PYTHONPATH"] = os.pathsep.join([here, *sys.path])
        env["PYTHONUNBUFFERED"] = "1"
        prelude = "import contextlib, os, signal, sys, threading, time\nimport allcast, harness\n"
        self._popen = subprocess.Popen(
            [
                sys.executable,
                "-X",
                "faulthandler",
                "-c",
                prelude + textwrap.dedent(script),
                *arguments,
            ],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self._popen.pid

    def line(self) -> str:
        """Returns the next line that the process prints."""
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        assert line, self._popen.communicate()[1]
        return line.strip()

    def tell(self, line: str) -> None:
        """Sends a line to the standard input of the process."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(line + "\n")
        self._popen.stdin.flush()

    def signal(self, number: int) -> None:
        self._popen.send_signal(number)

    def end(self, status: int = 0) -> str:
        """Waits for the process, checks its status, and returns the rest of its output."""
        try:
            out, err = self._popen.communicate(timeout=2 * PATIENCE)
        except subprocess.TimeoutExpired:
            self._popen.send_signal(6)  # faulthandler prints the stacks
            out, err = self._popen.communicate()
            raise AssertionError(f"the process does not end\n{out}\n{err}") from None
        assert self._popen.returncode == status, f"status {self._popen.returncode}\n{out}\n{err}"
        self.errors = err
        return out

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.communicate()
