"""Conversion of buffers, without a network."""

from __future__ import annotations

import array
import ctypes
import weakref
from typing import Any

import pytest

import allcast
from allcast._buffers import element_type, memory
from allcast._types import parse_op, parse_type

F32 = allcast.DataType.FLOAT32


def test_bytes() -> None:
    data = b"some bytes"
    found = memory(data, "send", False)
    assert ctypes.string_at(found.address, found.nbytes) == data
    assert (found.dtype, found.unit) == (None, 1)


def test_written_bytes_are_refused() -> None:
    with pytest.raises(allcast.InvalidError, match=r"recv: the operation writes .* read-only"):
        memory(b"constant", "recv", True)
    with pytest.raises(ValueError, match="read-only"):
        memory(memoryview(bytearray(4)).toreadonly(), "recv", True)


def test_bytearray_cannot_be_resized() -> None:
    data = bytearray(10)
    found = memory(data, "recv", True)
    with pytest.raises(BufferError):
        data.append(1)
    ctypes.memset(found.address, 7, 10)
    del found
    data.append(8)
    assert data == bytes([7] * 10 + [8])


def test_released_memoryview() -> None:
    """The memory stays valid if the caller releases its view."""
    data = bytearray(b"12345678")
    view = memoryview(data)[2:6]
    found = memory(view, "send", False)
    view.release()
    with pytest.raises(BufferError):
        data.clear()
    assert ctypes.string_at(found.address, found.nbytes) == b"3456"


def test_noncontiguous_buffers_are_refused() -> None:
    with pytest.raises(allcast.InvalidError, match=r"not contiguous.*pass a contiguous copy"):
        memory(memoryview(bytearray(10))[::2], "recv", True)


@pytest.mark.parametrize(
    ("code", "dtype"),
    [
        ("f", "float32"),
        ("d", "float64"),
        ("b", "int8"),
        ("h", "int16"),
        ("i", "int32"),
        ("q", "int64"),
        ("l", "int64"),
        ("B", "uint8"),
        ("H", "uint16"),
        ("I", "uint32"),
        ("Q", "uint64"),
    ],
)
def test_arrays(code: str, dtype: str) -> None:
    data = array.array(code, [1, 2, 3])
    found = memory(data, "send", False)
    assert found.dtype is parse_type(dtype)
    assert found.unit == data.itemsize
    assert found.nbytes == 3 * data.itemsize


def test_empty_buffers_have_an_address() -> None:
    for empty in (b"", bytearray(), array.array("d"), allcast.Memory(0, 0)):
        found = memory(empty, "send", False)
        assert found.address != 0
        assert found.nbytes == 0


def test_memory() -> None:
    block = ctypes.create_string_buffer(b"raw", 8)
    found = allcast.Memory(ctypes.addressof(block), 8, F32, owner=block)
    assert memory(found, "recv", True) is found
    assert element_type(None, found) is F32
    with pytest.raises(allcast.InvalidError, match="address 0"):
        allcast.Memory(0, 8)
    with pytest.raises(allcast.InvalidError, match="-1 bytes"):
        allcast.Memory(1, -1)


def test_mixed_types_are_refused() -> None:
    floats, ints = (
        memory(array.array("f", [1]), "", False),
        memory(array.array("i", [1]), "", False),
    )
    with pytest.raises(allcast.InvalidError, match="different element types: float32 and int32"):
        element_type(None, floats, ints)
    with pytest.raises(allcast.InvalidError, match="different element types: int32 and float32"):
        element_type("int32", floats)


def test_foreign_objects_are_refused() -> None:
    with pytest.raises(allcast.InvalidError, match="type list has neither the buffer protocol"):
        memory([1, 2], "send", False)


def test_names() -> None:
    assert parse_type("bf16") is allcast.DataType.BFLOAT16
    assert parse_op("avg") is allcast.Op.AVERAGE
    with pytest.raises(allcast.InvalidError, match=r"complex64.*want one of float32"):
        parse_type("complex64")
    with pytest.raises(allcast.InvalidError, match=r"median.*want one of sum"):
        parse_op("median")


class Exporter:
    """Exports a numpy array through DLPack only, like tensors of other packages."""

    def __init__(self, data: Any, device: int = 1, versioned: bool = True) -> None:
        self._data = data
        self._device = device
        self._versioned = versioned

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device, 0

    def __dlpack__(self, **arguments: Any) -> object:
        if arguments and not self._versioned:
            raise TypeError("unexpected keyword argument")
        return self._data.__dlpack__(**arguments)


def test_numpy() -> None:
    numpy = pytest.importorskip("numpy", reason="numpy is not installed")
    data = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
    found = memory(data, "recv", True)
    assert (found.address, found.nbytes) == (data.ctypes.data, 24)
    assert (found.dtype, found.unit) == (F32, 4)
    assert memory(data.astype(numpy.float16), "", False).dtype is allcast.DataType.FLOAT16
    assert memory(data.astype(bool), "", False).dtype is allcast.DataType.BOOL
    assert memory(data.astype(numpy.uint8), "", False).dtype is allcast.DataType.UINT8
    with pytest.raises(allcast.InvalidError, match="not contiguous"):
        memory(data.T, "recv", True)
    data.flags.writeable = False
    with pytest.raises(allcast.InvalidError, match="read-only"):
        memory(data, "recv", True)
    # A reduction cannot combine these, but they can be moved.
    for other in (data.astype(numpy.complex64), data.astype(">f4")):
        found = memory(other, "send", False)
        assert found.unit == other.itemsize
        with pytest.raises(allcast.InvalidError, match="cannot combine elements of type"):
            element_type(None, found)
    assert parse_type(numpy.float32) is F32
    assert parse_type(numpy.dtype("int64")) is allcast.DataType.INT64


def test_bfloat16_of_ml_dtypes() -> None:
    numpy = pytest.importorskip("numpy", reason="numpy is not installed")
    types = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    data = numpy.ones((4, 4), dtype=types.bfloat16)
    found = memory(data, "recv", True)
    assert found.dtype is allcast.DataType.BFLOAT16
    assert (found.address, found.nbytes, found.unit) == (data.ctypes.data, 32, 2)
    with pytest.raises(allcast.InvalidError, match="not contiguous"):
        memory(data[:, 1], "recv", True)


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack(versioned: bool) -> None:
    numpy = pytest.importorskip("numpy", reason="numpy is not installed")
    data = numpy.arange(6, dtype=numpy.int64).reshape(2, 3)
    found = memory(Exporter(data, versioned=versioned), "recv", True)
    assert (found.address, found.nbytes) == (data.ctypes.data, 48)
    assert (found.dtype, found.unit) == (allcast.DataType.INT64, 8)
    assert memory(Exporter(data, device=3), "recv", True).nbytes == 48
    assert memory(Exporter(data[:0]), "recv", True).nbytes == 0
    with pytest.raises(allcast.InvalidError, match="not contiguous"):
        memory(Exporter(data.T, versioned=versioned), "recv", True)
    with pytest.raises(allcast.InvalidError, match=r"device type 2.*allcast\.torch"):
        memory(Exporter(data, device=2), "recv", True)
    data.flags.writeable = False
    with pytest.raises(allcast.InvalidError, match=r"read-only|readonly"):
        memory(Exporter(data, versioned=versioned), "recv", True)


def test_dlpack_keeps_the_array() -> None:
    numpy = pytest.importorskip("numpy", reason="numpy is not installed")
    data = numpy.arange(1000)
    gone = weakref.ref(data)
    found = memory(Exporter(data), "send", False)
    del data
    assert gone() is not None
    del found
    assert gone() is None


def test_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for dtype in ("float32", "float64", "float16", "bfloat16", "int8", "int64", "uint8", "bool"):
        data = torch.ones((3, 4), dtype=getattr(torch, dtype))
        found = memory(data, "recv", True)
        assert (found.address, found.nbytes) == (data.data_ptr(), 12 * data.element_size())
        assert found.dtype is parse_type(dtype) is parse_type(data.dtype)
        assert found.unit == data.element_size()
    assert memory(torch.empty(0), "recv", True).nbytes == 0
    with pytest.raises(allcast.InvalidError, match=r"not contiguous.*tensor\.contiguous"):
        memory(torch.ones(3, 4).T, "recv", True)
    with pytest.raises(allcast.InvalidError, match=r"recv: .*gradient"):
        memory(torch.ones(3, requires_grad=True), "recv", True)
