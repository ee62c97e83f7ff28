"""Operations on device tensors that the calling thread runs from start to end.

A synchronous operation of one piece needs no stream of its own, no event between streams and no
other thread if the host waits for it anyway. Without them it takes about half the time.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import allcast

from .pieces import Done, Plan, add_call, shape_of
from .staging import Staging, host_memory
from .works import Call, Work

if TYPE_CHECKING:
    from .groups import Group


def plan(staging: Staging, group: Group, call: Call) -> Plan:
    """Cuts an operation into pieces."""
    result = Plan()
    shape = shape_of(call.operation, group.size, group.rank)
    add_call(result, staging.settings, shape, call, _never)
    return result


def run(staging: Staging, group: Group, call: Call, plan: Plan) -> Work:
    """Runs an operation of one piece, and enqueues its last copies on the current stream."""
    (piece,) = plan.pieces
    device = staging.device
    stream = device.current_stream()
    memory, free = staging.pool.take(max(piece.nbytes, 1))
    if free is not None:
        device.wait_event(stream, free)
    for to, source in plan.local:
        device.copy(stream, to, source)
    for copy in piece.copies_in:
        device.copy(stream, copy.host_region(memory), copy.device)
    if piece.copies_in or free is not None:
        device.synchronize_stream(stream)
    work = Work(group, call.operation, call.results, call.nbytes, call.timeout)
    try:
        request = _start(
            group, call, host_memory(memory, piece.send), host_memory(memory, piece.recv)
        )
        group.count(call.operation, request.algorithm, call.nbytes)
        request.wait()
    except allcast.Error as error:
        # The operation has ended, so nothing uses the memory.
        staging.pool.put(memory, None)
        raised = group.backend_error(call.operation, error, call.timeout)
        if not isinstance(error, allcast.InvalidError):  # which is refused before it begins
            staging.failure = raised
        raise raised from error
    except BaseException:
        staging.pool.forget(memory)  # the operation continues
        raise
    for copy in piece.copies_out:
        device.copy(stream, copy.device, copy.host_region(memory))
    for tensor, result in plan.results:
        device.assign(stream, tensor, result)
    staging.pool.put(memory, device.record(stream))
    work.complete()
    return work


def _never(send: object, recv: object, done: Done, timeout: float) -> None:
    raise AssertionError("an inline operation starts its piece itself")


def _start(
    group: Group, call: Call, send: allcast.Memory | None, recv: allcast.Memory | None
) -> allcast.Request:
    """Starts an operation in the order of the group."""
    started: list[allcast.Request] = []
    failed: list[BaseException] = []
    over = threading.Event()

    def start() -> None:
        started.append(call.start(send, recv, {"timeout": call.timeout}))

    def later() -> None:
        try:
            start()
        except BaseException as error:
            failed.append(error)
        over.set()

    if not group.order.run(start, later):
        over.wait()
    if failed:
        raise failed[0]
    return started[0]
