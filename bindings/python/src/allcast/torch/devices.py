"""The device layer of staging: streams, events, copies and flags.

Staging sees a GPU only through the class Device. Tests replace it by a device that reorders
everything that streams allow, so that staging is tested without a GPU.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import tempfile
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

__all__ = ["CudaDevice", "Device", "Region"]


@dataclass(frozen=True)
class Region:
    """Rows of bytes inside a flat tensor of bytes."""

    tensor: torch.Tensor  # one dimension, contiguous, uint8
    offset: int  # first byte
    width: int  # bytes per row
    rows: int = 1
    pitch: int = 0  # bytes from one row to the next, for more than one row

    @property
    def nbytes(self) -> int:
        return self.width * self.rows

    @property
    def flat(self) -> bool:
        """Whether the rows lie next to each other."""
        return self.rows == 1 or self.pitch == self.width


class Device(Protocol):
    """One device. No method blocks the host, except the two that synchronize."""

    @property
    def stream_waits(self) -> bool:
        """Whether streams should use wait_flag. It may change at any time."""

    def current_stream(self) -> Any:
        """Returns the stream that the calling thread uses."""

    def new_stream(self) -> Any:
        """Returns a stream for copies, which nothing else uses. It lasts as long as the process."""

    def idle(self, stream: Any) -> bool:
        """Returns whether a stream has done everything enqueued so far."""

    def using(self, stream: Any) -> AbstractContextManager[Any]:
        """Makes a stream current on the calling thread."""

    def record(self, stream: Any) -> Any:
        """Returns an event that occurs once the stream has done everything enqueued so far."""

    def wait_event(self, stream: Any, event: Any) -> None:
        """Makes a stream wait for an event."""

    def wait_flag(self, stream: Any, flag: torch.Tensor, value: int) -> None:
        """Makes a stream wait until a number of 32 bits in pinned memory reaches a value.

        Values may wrap around.
        """

    def copy(self, stream: Any, to: Region, source: Region) -> None:
        """Enqueues a copy. Both regions have the same width and number of rows."""

    def assign(self, stream: Any, to: torch.Tensor, source: torch.Tensor) -> None:
        """Enqueues a copy between tensors of the device, which may have different strides."""

    def synchronize(self, event: Any) -> None:
        """Blocks the host until an event occurs."""

    def synchronize_stream(self, stream: Any) -> None:
        """Blocks the host until a stream has done everything enqueued so far."""

    def query(self, event: Any) -> bool:
        """Returns whether an event has occurred."""

    def pinned(self, nbytes: int) -> torch.Tensor:
        """Allocates pinned host memory as a flat uint8 tensor."""

    def record_use(self, tensor: torch.Tensor, stream: Any) -> None:
        """Keeps the memory of a tensor, even if dropped, until the stream has done its work."""


_MEMORY_UNIFIED = 4  # CU_MEMORYTYPE_UNIFIED: the driver knows from the address where memory is
_MAX_PITCH = 2**31 - 1  # limit of cuMemcpy2DAsync
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: not ordered with the default stream, as torch's streams
_WAIT_GEQ = 0  # CU_STREAM_WAIT_VALUE_GEQ: cyclic comparison of 32 bits


class _Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D of the driver API."""

    _fields_ = [
        ("srcXInBytes", ctypes.c_size_t),
        ("srcY", ctypes.c_size_t),
        ("srcMemoryType", ctypes.c_uint),
        ("srcHost", ctypes.c_void_p),
        ("srcDevice", ctypes.c_uint64),
        ("srcArray", ctypes.c_void_p),
        ("srcPitch", ctypes.c_size_t),
        ("dstXInBytes", ctypes.c_size_t),
        ("dstY", ctypes.c_size_t),
        ("dstMemoryType", ctypes.c_uint),
        ("dstHost", ctypes.c_void_p),
        ("dstDevice", ctypes.c_uint64),
        ("dstArray", ctypes.c_void_p),
        ("dstPitch", ctypes.c_size_t),
        ("WidthInBytes", ctypes.c_size_t),
        ("Height", ctypes.c_size_t),
    ]


class _Driver:
    """The few functions of libcuda that torch does not offer, on one device.

    torch has no strided asynchronous copy between host and device, and no way to make a stream wait
    for memory. Its streams are some of 32, so that two users may get the same one. Each call pushes
    the device's primary context, which torch uses too, because a thread that has used no CUDA
    function before has none.
    """

    def __init__(self, index: int) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        arguments = {
            "cuCtxPushCurrent_v2": [ctypes.c_void_p],
            "cuCtxPopCurrent_v2": [ctypes.POINTER(ctypes.c_void_p)],
            "cuDeviceGet": [ctypes.POINTER(ctypes.c_int), ctypes.c_int],
            "cuDevicePrimaryCtxRetain": [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int],
            "cuMemcpyAsync": [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p],
            "cuMemcpy2DAsync_v2": [ctypes.POINTER(_Copy2D), ctypes.c_void_p],
            "cuStreamWaitValue32_v2": [
                ctypes.c_void_p,
                ctypes.c_uint64,
                ctypes.c_uint32,
                ctypes.c_uint,
            ],
            "cuStreamCreate": [ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint],
            "cuGetErrorName": [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)],
        }
        for name, types in arguments.items():
            function = getattr(self._cuda, name, None)
            if function is None:
                raise RuntimeError(
                    f"the CUDA driver has no function {name}: install a driver of CUDA 12 or newer"
                )
            function.argtypes = types
            function.restype = ctypes.c_int
        device = ctypes.c_int()
        self._check("cuDeviceGet", self._cuda.cuDeviceGet(device, index))
        self._context = ctypes.c_void_p()
        code = self._cuda.cuDevicePrimaryCtxRetain(self._context, device)
        self._check("cuDevicePrimaryCtxRetain", code)

    def _check(self, function: str, code: int) -> None:
        if code != 0:
            name = ctypes.c_char_p()
            self._cuda.cuGetErrorName(code, name)
            raise RuntimeError(f"{function} failed: {(name.value or b'?').decode()} ({code})")

    def _call(self, function: str, *arguments: Any) -> None:
        previous = ctypes.c_void_p()
        self._check("cuCtxPushCurrent", self._cuda.cuCtxPushCurrent_v2(self._context))
        try:
            self._check(function, getattr(self._cuda, function)(*arguments))
        finally:
            self._cuda.cuCtxPopCurrent_v2(previous)

    def copy(self, to: int, source: int, nbytes: int, stream: int) -> None:
        self._call("cuMemcpyAsync", to, source, nbytes, stream)

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
        copy = _Copy2D(
            srcMemoryType=_MEMORY_UNIFIED,
            srcDevice=source,
            srcPitch=source_pitch,
            dstMemoryType=_MEMORY_UNIFIED,
            dstDevice=to,
            dstPitch=to_pitch,
            WidthInBytes=width,
            Height=rows,
        )
        self._call("cuMemcpy2DAsync_v2", copy, stream)

    def create_stream(self) -> int:
        stream = ctypes.c_void_p()
        self._call("cuStreamCreate", stream, _NON_BLOCKING)
        return stream.value or 0

    def wait_value(self, stream: int, address: int, value: int) -> None:
        self._call("cuStreamWaitValue32_v2", stream, address, value & 0xFFFFFFFF, _WAIT_GEQ)


class _Users:
    """Finds out whether several processes of this host use a device.

    Each process locks one byte of a file. The system releases the lock when the process ends.
    """

    def __init__(self, device: str) -> None:
        name = "".join(c for c in device if c.isalnum() or c == "-")
        path = os.path.join(tempfile.gettempdir(), f"allcast-gpu-{os.getuid()}-{name}")
        self._file: int | None = None
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, os.getpid())
        except OSError:
            pass  # without the file, the device counts as not shared

    def others(self) -> bool:
        """Returns whether another process uses the device."""
        if self._file is None:
            return False
        # struct flock with 64-bit offsets: type, whence, start, length (0: all), process
        query = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        try:
            answer = fcntl.fcntl(self._file, fcntl.F_GETLK, query)
        except OSError:
            return False
        return int(struct.unpack("hhqqi4x", answer)[0]) != fcntl.F_UNLCK


class CudaDevice:
    """A CUDA device."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._driver = _Driver(index)
        self._mode = os.environ.get("ALLCAST_TORCH_STREAM_WAIT", "auto")
        self._can_wait = self._probe_stream_waits()
        self._users = _Users(str(torch.cuda.get_device_properties(index).uuid))

    @property
    def stream_waits(self) -> bool:
        if self._mode == "auto":
            return self._can_wait and not self._users.others()
        return self._can_wait

    def _probe_stream_waits(self) -> bool:
        mode = self._mode
        if mode not in ("auto", "value", "host"):
            raise ValueError(
                f"ALLCAST_TORCH_STREAM_WAIT is {mode!r}: set it to auto, value or host"
            )
        if mode == "host":
            return False
        flag = self.pinned(4).view(torch.int32)
        flag.fill_(1)
        try:
            self.wait_flag(self.new_stream(), flag, 1)
        except RuntimeError as error:
            if mode == "value":
                raise RuntimeError(
                    f"device {self._index} cannot wait for values in memory: {error}; "
                    "unset ALLCAST_TORCH_STREAM_WAIT"
                ) from error
            return False
        # The stream reads the flag soon, and the memory must outlive that.
        self._probe = flag
        return True

    def current_stream(self) -> torch.cuda.Stream:
        return torch.cuda.current_stream(self._index)

    def new_stream(self) -> torch.cuda.Stream:
        handle = self._driver.create_stream()
        return torch.cuda.ExternalStream(handle, self._index)  # type: ignore[no-untyped-call]

    def idle(self, stream: torch.cuda.Stream) -> bool:
        return bool(stream.query())

    def using(self, stream: torch.cuda.Stream) -> AbstractContextManager[Any]:
        return torch.cuda.stream(stream)

    def record(self, stream: torch.cuda.Stream) -> torch.cuda.Event:
        # A host thread that waits for the event sleeps instead of spinning: the wait may include
        # compute.
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(stream)
        return event

    def wait_event(self, stream: torch.cuda.Stream, event: torch.cuda.Event) -> None:
        stream.wait_event(event)

    def wait_flag(self, stream: torch.cuda.Stream, flag: torch.Tensor, value: int) -> None:
        self._driver.wait_value(stream.cuda_stream, flag.data_ptr(), value)

    def copy(self, stream: torch.cuda.Stream, to: Region, source: Region) -> None:
        target, origin = to.tensor.data_ptr() + to.offset, source.tensor.data_ptr() + source.offset
        if to.flat and source.flat:
            self._driver.copy(target, origin, to.nbytes, stream.cuda_stream)
            return
        to_pitch = to.width if to.rows == 1 else to.pitch
        source_pitch = source.width if source.rows == 1 else source.pitch
        if max(to_pitch, source_pitch) <= _MAX_PITCH:
            self._driver.copy_rows(
                target, to_pitch, origin, source_pitch, to.width, to.rows, stream.cuda_stream
            )
            return
        for row in range(to.rows):
            self._driver.copy(
                target + row * to_pitch, origin + row * source_pitch, to.width, stream.cuda_stream
            )

    def assign(self, stream: torch.cuda.Stream, to: torch.Tensor, source: torch.Tensor) -> None:
        with torch.cuda.stream(stream), torch.no_grad():
            to.copy_(source)

    def synchronize(self, event: torch.cuda.Event) -> None:
        event.synchronize()

    def synchronize_stream(self, stream: torch.cuda.Stream) -> None:
        stream.synchronize()

    def query(self, event: torch.cuda.Event) -> bool:
        return bool(event.query())  # type: ignore[no-untyped-call]

    def pinned(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, device="cpu", pin_memory=True)

    def record_use(self, tensor: torch.Tensor, stream: torch.cuda.Stream) -> None:
        tensor.record_stream(stream)
