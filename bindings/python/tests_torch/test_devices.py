"""The device layer of CUDA, as far as it works without a GPU."""

from __future__ import annotations

import ctypes
import multiprocessing
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

from allcast.torch import devices
from allcast.torch.devices import CudaDevice, Region, _Copy2D, _Users


class Driver:
    """Copies host memory at once, like the functions of the driver do later."""

    def __init__(self) -> None:
        self.calls = 0

    def copy(self, to: int, source: int, nbytes: int, stream: int) -> None:
        self.calls += 1
        ctypes.memmove(to, source, nbytes)

    def copy_rows(
        self,
        to: int,
        to_pitch: int,
        source: int,
        source_pitch: int,
        width: int,
        rows: int,
        stream: int,
    ) -> None:
        self.calls += 1
        for row in range(rows):
            ctypes.memmove(to + row * to_pitch, source + row * source_pitch, width)


class Stream:
    cuda_stream = 0


def make_device(driver: Driver) -> CudaDevice:
    device = CudaDevice.__new__(CudaDevice)
    device._driver = driver  # type: ignore[assignment]
    return device


@pytest.mark.parametrize("max_pitch", [2**31 - 1, 10])
def test_copies_of_rows(monkeypatch: pytest.MonkeyPatch, max_pitch: int) -> None:
    monkeypatch.setattr(devices, "_MAX_PITCH", max_pitch)
    source = torch.arange(200, dtype=torch.uint8)
    for rows, width, to_pitch, source_pitch in [
        (1, 40, 0, 0),
        (3, 20, 20, 20),
        (3, 20, 50, 30),
        (4, 5, 5, 7),
        (4, 5, 7, 5),
    ]:
        driver = Driver()
        target = torch.zeros(200, dtype=torch.uint8)
        make_device(driver).copy(
            Stream(),  # type: ignore[arg-type]
            Region(target, 8, width, rows, to_pitch),
            Region(source, 16, width, rows, source_pitch),
        )
        want = torch.zeros(200, dtype=torch.uint8)
        for row in range(rows):
            to, at = 8 + row * to_pitch, 16 + row * source_pitch
            want[to : to + width] = source[at : at + width]
        assert torch.equal(target, want)
        flat = rows == 1 or to_pitch == source_pitch == width
        slow = not flat and max(to_pitch, source_pitch) > max_pitch
        assert driver.calls == (rows if slow else 1)


def test_layout_of_the_driver() -> None:
    assert ctypes.sizeof(_Copy2D) == 128
    assert _Copy2D.dstMemoryType.offset == 72
    assert _Copy2D.WidthInBytes.offset == 112


def _use(name: str, pipe: Connection) -> None:
    users = _Users(name)
    pipe.send(users.others())
    pipe.recv()
    pipe.send(users.others())


def test_users_of_a_device_see_each_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    name = "GPU-1"
    context = multiprocessing.get_context("fork")
    users = _Users(name)
    assert not users.others()
    mine, theirs = context.Pipe()
    process = context.Process(target=_use, args=(name, theirs))
    process.start()
    assert mine.recv() is True
    assert users.others()
    mine.send(None)
    assert mine.recv() is True
    process.join(60)
    # The lock of a process ends with the process.
    assert not users.others()
