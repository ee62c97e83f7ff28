"""Runs functions on several ranks, each in a process of its own."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing

import allcast.torch  # noqa: F401  registers the backend

# Limit for a job. Nothing waits for it unless a test has failed.
LIMIT = 120.0


class DeadError(Exception):
    """A rank ended without a result."""


@contextlib.contextmanager
def rendezvous() -> Iterator[str]:
    """Yields a method for init_process_group."""
    with tempfile.TemporaryDirectory() as folder:
        yield f"file://{pathlib.Path(folder) / 'store'}"


def init(
    rank: int, size: int, method: str, backend: str = "allcast", timeout: float = LIMIT
) -> None:
    dist.init_process_group(
        backend, init_method=method, rank=rank, world_size=size, timeout=timedelta(seconds=timeout)
    )


def _main(
    function: Callable[..., Any],
    rank: int,
    size: int,
    method: str,
    backend: str | None,
    timeout: float,
    arguments: tuple[Any, ...],
    pipe: Connection,
) -> None:
    torch.set_num_threads(1)
    try:
        if backend is None:
            result = function(rank, size, method, *arguments)
        else:
            init(rank, size, method, backend, timeout)
            result = function(rank, size, *arguments)
            if dist.is_initialized():
                dist.destroy_process_group()
        pipe.send((True, result))
    except BaseException:
        pipe.send((False, traceback.format_exc()))
    pipe.close()
    os._exit(0)


def run(
    function: Callable[..., Any],
    *arguments: Any,
    size: int = 4,
    backend: str | None = "allcast",
    timeout: float = LIMIT,
    killed: tuple[int, ...] = (),
    limit: float = LIMIT,
) -> list[Any]:
    """Runs function(rank, size, *arguments) on all ranks and returns the results.

    With backend None, the function makes the process group itself, and its third argument is the
    method. Ranks that kill themselves have no result. Processes are forked, because importing
    torch takes seconds; the library is loaded after the fork.
    """
    context = torch.multiprocessing.get_context("fork")
    with rendezvous() as method:
        started = []
        for rank in range(size):
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(
                target=_main,
                args=(function, rank, size, method, backend, timeout, arguments, theirs),
            )
            process.start()
            theirs.close()
            started.append((process, mine))
        results, failures = [], []
        for rank, (_, pipe) in enumerate(started):
            try:
                if not pipe.poll(limit):
                    raise DeadError(f"no result after {limit:g} s")
                passed, value = pipe.recv()
            except (EOFError, DeadError) as error:
                passed, value = rank in killed, str(error) or "the process ended"
                value = None if passed else value
            results.append(value)
            if not passed:
                failures.append(f"rank {rank}: {value}")
        for process, _ in started:
            process.join(1 if failures else limit)
            if process.exitcode is None:
                process.kill()
                process.join()
    assert not failures, "\n".join(failures)
    return results
