"""Staging: interrupts, refused calls, streams of its own, and the bound of pinned memory."""

from __future__ import annotations

import threading
import types
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from fake_device import FakeDevice

import allcast
from allcast.torch import devices
from allcast.torch.devices import CudaDevice
from allcast.torch.pieces import Settings
from allcast.torch.pinned import Pool, Streams
from allcast.torch.staging import StagedWork, Staging, launch_on
from allcast.torch.works import Call, Order

SETTINGS = Settings(piece=3 << 18, depth=2, pool=64 << 20)


class Group:
    """The part of groups.Group that staging uses. The network ends each operation at once."""

    rank, size = 0, 1

    def __init__(self) -> None:
        self.order = Order("test")
        completions = types.SimpleNamespace(forget=lambda user: None)
        self.world = types.SimpleNamespace(completions=completions)

    def options(self, work: Any, requests: int, timeout: float) -> dict[str, Any]:
        return {"work": work, "user": 1}

    def count(self, *unused: Any) -> None:
        pass

    def backend_error(
        self, operation: str, error: BaseException, timeout: float | None = None
    ) -> BaseException:
        return dist.DistBackendError(f"{operation}: {error}")


class Request:
    algorithm = "ring"

    def __init__(self, error: BaseException | None = None) -> None:
        self._error = error

    def wait(self) -> None:
        if self._error is not None:
            raise self._error


def allreduce(error: BaseException | None = None, refuses: bool = False) -> Call:
    tensor = torch.ones(1000)

    def start(send: Any, recv: Any, options: dict[str, Any]) -> Any:
        if error is not None and refuses:
            raise error
        request: Any = Request(error)
        if "work" in options:
            options["work"].begin([request])
            options["work"].settle()
        return request

    return Call("allreduce", (), (tensor,), start, [tensor], 60.0, in_place=True, divisible=True)


@pytest.fixture(params=[True, False], ids=["streams", "host"])
def staging(request: pytest.FixtureRequest) -> Any:
    device = FakeDevice(stream_waits=request.param)
    yield Staging(device, SETTINGS)
    device.close()


def test_a_refused_call_does_not_poison_the_group(staging: Staging) -> None:
    group: Any = Group()
    refused = launch_on(staging, group, [allreduce(allcast.InvalidError("no"), refuses=True)])
    with pytest.raises(dist.DistBackendError, match="no"):
        refused.wait(timedelta(seconds=60))
    launch_on(staging, group, [allreduce()]).wait(timedelta(seconds=60))
    # A failure of the network does: the communicator is broken.
    lost = launch_on(staging, group, [allreduce(allcast.RankLostError("lost"))])
    with pytest.raises(dist.DistBackendError, match="lost"):
        lost.wait(timedelta(seconds=60))
    with pytest.raises(dist.DistBackendError, match="lost"):
        launch_on(staging, group, [allreduce()])


def test_an_interrupt_stays_one(staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    group: Any = Group()
    work = launch_on(staging, group, [allreduce()])
    assert isinstance(work, StagedWork)

    def interrupt(*unused: Any) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(work.call, "wait_stream", interrupt)
        with pytest.raises(KeyboardInterrupt):
            work.wait()
        patched.setattr(work.call, "wait_concluded", interrupt)
        with pytest.raises(KeyboardInterrupt):
            work.wait(timedelta(seconds=60))
    work.wait(timedelta(seconds=60))  # the operation has continued
    with monkeypatch.context() as patched:
        # A synchronous call runs on the thread that Ctrl-C interrupts.
        patched.setattr(staging.device, "synchronize", interrupt)
        direct = StagedWork(group, staging, [allreduce()])
        with pytest.raises(KeyboardInterrupt):
            direct.start_directly()


def test_streams_have_one_user_at_a_time() -> None:
    device = FakeDevice()
    streams = Streams(device)
    first, second = streams.take(), streams.take()
    assert first is not second
    gate = threading.Event()
    with device.using(first):
        device.compute(lambda: None, gate)
    streams.put(first, second)
    assert streams.take() is second
    assert streams.take() not in (first, second)  # the first is busy
    gate.set()
    device.poke()
    device.drain()
    assert streams.take() is first
    device.close()


def test_groups_and_messages_share_no_stream(staging: Staging) -> None:
    others = [staging.of_another_group() for _ in range(40)]
    used = [stream for one in (staging, *others) for stream in one._streams]
    assert len(set(map(id, used))) == len(used)
    # A group that is gone gives its streams back.
    free = {id(stream) for stream in others.pop()._streams}
    assert {id(stream) for stream in staging.of_another_group()._streams} == free


def test_cuda_streams_do_not_come_from_the_pool_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    handles = iter(range(1000, 2000))
    made = CudaDevice.__new__(CudaDevice)
    made._index = 0
    made._driver = types.SimpleNamespace(create_stream=lambda: next(handles))  # type: ignore[assignment]
    monkeypatch.setattr(devices.torch.cuda, "ExternalStream", lambda handle, index: (handle, index))
    streams: list[Any] = [made.new_stream() for _ in range(100)]
    assert streams == [(1000 + i, 0) for i in range(100)]


def test_pinned_memory_of_whole_operations_is_bounded() -> None:
    device = FakeDevice()
    pool = Pool(device, 1 << 20)
    large, _ = pool.take_whole(3 << 20, 60)  # one may exceed the limit
    assert pool.owned == 3 << 20
    with pytest.raises(TimeoutError, match="ALLCAST_TORCH_PINNED"):
        pool.take_whole(1 << 17, 0.01)
    # A message waits for nothing.
    message, _ = pool.take(1 << 17, idle_only=True)
    taken: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: taken.append(pool.take_whole((1 << 20) + 1, 60)[0]))
    thread.start()
    gate = threading.Event()
    device.compute(lambda: None, gate)
    pool.put_whole(large, device.record(device.current_stream()))
    assert not taken  # a copy still uses the memory
    gate.set()
    device.poke()
    thread.join(60)
    assert taken[0].numel() == (1 << 20) + 1  # not rounded up
    assert pool.owned == (1 << 20) + 1 + (1 << 17)
    pool.put(message, None)
    pool.put_whole(taken[0], None)
    assert pool.owned <= 1 << 20
    device.close()
