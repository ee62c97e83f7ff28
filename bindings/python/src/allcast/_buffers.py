"""Memory of buffers: the buffer protocol, DLPack and raw memory."""

from __future__ import annotations

import ctypes
import sys
from ctypes import (
    POINTER,
    Structure,
    c_int,
    c_int32,
    c_int64,
    c_ssize_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    py_object,
)
from typing import Any

from ._types import DataType, parse_type
from .errors import InvalidError

# Address of empty buffers. The library takes NULL for "in place" or "no buffer".
_NOTHING = ctypes.create_string_buffer(16)
_NOTHING_ADDRESS = ctypes.addressof(_NOTHING)


class Memory:
    """Raw memory. It has no checks and is the fastest way to pass a buffer.

    `owner` is any object that keeps the memory alive. Operations hold on to it until they end.
    Counts that divide a Memory are in bytes.
    """

    __slots__ = ("address", "dtype", "kind", "nbytes", "owner", "unit")

    address: int
    nbytes: int
    dtype: DataType | None
    owner: object
    kind: str
    """Element type for comparisons, such as "f4"; an empty string if it is unknown."""
    unit: int
    """Number of bytes of one unit of counts."""

    def __init__(
        self, address: int, nbytes: int, dtype: DataType | None = None, owner: object = None
    ) -> None:
        if nbytes < 0:
            raise InvalidError(f"a buffer of {nbytes} bytes")
        self.address = address or _NOTHING_ADDRESS
        if not address and nbytes:
            raise InvalidError(f"a buffer of {nbytes} bytes at address 0")
        self.nbytes = nbytes
        self.dtype = dtype
        self.owner = owner
        self.kind = "" if dtype is None else _KINDS[dtype]
        self.unit = 1


# Kinds of element types, by DataType.
_KINDS = ("", "f4", "f8", "f2", "bf2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1")
_BY_KIND: dict[str, DataType] = {_KINDS[dtype]: dtype for dtype in DataType}

# Anything with the buffer protocol or DLPack. Static types before Python 3.12 cannot describe it.
Buffer = Any


def memory(buffer: Buffer, name: str, writable: bool) -> Memory:
    """Returns the memory of a buffer. name is that of the argument, for errors."""
    if isinstance(buffer, Memory):
        return buffer
    try:
        view = memoryview(buffer)
    except TypeError:
        pass
    except (ValueError, BufferError) as err:
        # numpy cannot describe types of other packages, such as bfloat16, in the buffer protocol.
        interface = getattr(buffer, "__array_interface__", None)
        if interface is None:
            raise InvalidError(f"{name}: {err}") from err
        return _from_interface(buffer, interface, name, writable)
    else:
        return _from_view(buffer, view, name, writable)
    if hasattr(buffer, "__dlpack__"):
        return _from_dlpack(buffer, name, writable)
    raise InvalidError(
        f"{name}: an object of type {type(buffer).__name__} has neither the buffer protocol nor "
        "DLPack: pass bytes, a numpy array, a CPU tensor or allcast.Memory"
    )


def _make(address: int, nbytes: int, kind: str, unit: int, owner: object) -> Memory:
    made = Memory(address if nbytes else 0, nbytes, _BY_KIND.get(kind), owner)
    made.kind = kind
    made.unit = unit
    return made


def _check_access(name: str, writable: bool, readonly: bool, contiguous: bool) -> None:
    if writable and readonly:
        raise InvalidError(f"{name}: the operation writes to this buffer, but it is read-only")
    if not contiguous:
        raise InvalidError(
            f"{name}: the buffer is not contiguous in C order: pass a contiguous copy, for example "
            "numpy.ascontiguousarray(a) or tensor.contiguous()"
        )


# ---- Buffer protocol ----


class _PyBuffer(Structure):
    """Py_buffer."""

    _fields_ = [
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_void_p),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("suboffsets", c_void_p),
        ("internal", c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.restype = c_int
_get_buffer.argtypes = [py_object, POINTER(_PyBuffer), c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.restype = None
_release_buffer.argtypes = [POINTER(_PyBuffer)]

_FORMATS: dict[str, str] = {
    "e": "f", "f": "f", "d": "f", "g": "f",
    "b": "i", "h": "i", "i": "i", "l": "i", "q": "i", "n": "i",
    "B": "u", "H": "u", "I": "u", "L": "u", "Q": "u", "N": "u",
    "?": "b",
}  # fmt: skip


def _from_view(buffer: Buffer, view: memoryview, name: str, writable: bool) -> Memory:
    _check_access(name, writable, view.readonly, view.c_contiguous)
    kind, unit = _kind_of_format(buffer, view)
    if view.nbytes == 0:
        return _make(0, 0, kind, unit, view)
    raw = _PyBuffer()
    _get_buffer(view, raw, 0)
    address = raw.buf
    # The view itself holds the export, so that, for example, a bytearray cannot be resized.
    _release_buffer(raw)
    return _make(address or 0, view.nbytes, kind, unit, view)


def _kind_of_format(buffer: Buffer, view: memoryview) -> tuple[str, int]:
    """Returns the kind and the unit of counts. Bytes without a type have kind ""."""
    order, code = view.format[:1], view.format[1:]
    if order not in "@=<>!":
        order, code = "@", view.format
    if code in ("B", "c") and not (hasattr(buffer, "dtype") or hasattr(buffer, "typecode")):
        return "", 1
    letter = _FORMATS.get(code)
    foreign = view.itemsize > 1 and order in (">!" if sys.byteorder == "little" else "<")
    if letter is None or foreign:
        return view.format, view.itemsize
    return f"{letter}{view.itemsize}", view.itemsize


def _from_interface(buffer: Buffer, interface: dict[str, Any], name: str, writable: bool) -> Memory:
    address, readonly = interface["data"]
    _check_access(name, writable, readonly, interface.get("strides") is None)
    kind = str(buffer.dtype.name)
    unit = int(buffer.dtype.itemsize)
    nbytes = unit
    for extent in interface["shape"]:
        nbytes *= extent
    return _make(address, nbytes, "bf2" if kind == "bfloat16" else kind, unit, buffer)


# ---- DLPack ----


class _DLTensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class _DLManagedTensor(Structure):
    _fields_ = [("tensor", _DLTensor), ("manager", c_void_p), ("deleter", c_void_p)]


class _DLManagedTensorVersioned(Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _DLTensor),
    ]


_DL_CPU = 1
_DL_CUDA_HOST = 3
_DL_READ_ONLY = 1
_DL_CODES: dict[int, str] = {0: "i", 1: "u", 2: "f", 4: "bf", 5: "c", 6: "b"}

_capsule_valid = ctypes.pythonapi.PyCapsule_IsValid
_capsule_valid.restype = c_int
_capsule_valid.argtypes = [py_object, ctypes.c_char_p]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = c_void_p
_capsule_pointer.argtypes = [py_object, ctypes.c_char_p]


def _from_dlpack(buffer: Buffer, name: str, writable: bool) -> Memory:
    device = int(buffer.__dlpack_device__()[0])
    if device not in (_DL_CPU, _DL_CUDA_HOST):
        raise InvalidError(
            f"{name}: the buffer is in memory of a device (DLPack device type {device}), and "
            "allcast needs host memory: copy it to the host, or use allcast.torch for CUDA tensors"
        )
    try:
        capsule = _capsule(buffer)
    except BufferError as err:
        raise InvalidError(f"{name}: {err}") from err
    tensor, readonly = _tensor(capsule, name)
    count, contiguous = _extent(tensor)
    _check_access(name, writable, readonly, contiguous)
    unit = (tensor.bits * tensor.lanes + 7) // 8
    letter = _DL_CODES.get(tensor.code, f"dlpack{tensor.code}.")
    kind = f"{letter}{unit}" if tensor.lanes == 1 else f"{letter}{tensor.bits}x{tensor.lanes}"
    address = (tensor.data or 0) + tensor.byte_offset
    # The capsule is not consumed: its destructor frees the tensor.
    return _make(address, count * unit, kind, unit, capsule)


def _capsule(buffer: Buffer) -> object:
    try:
        return buffer.__dlpack__(max_version=(1, 0))
    except TypeError:  # exporters of DLPack before 1.0
        return buffer.__dlpack__()


def _tensor(capsule: object, name: str) -> tuple[_DLTensor, bool]:
    if _capsule_valid(capsule, b"dltensor_versioned"):
        versioned = _DLManagedTensorVersioned.from_address(
            _capsule_pointer(capsule, b"dltensor_versioned")
        )
        if versioned.major != 1:
            raise InvalidError(f"{name}: DLPack {versioned.major}: allcast supports version 1")
        return versioned.tensor, bool(versioned.flags & _DL_READ_ONLY)
    if not _capsule_valid(capsule, b"dltensor"):
        raise InvalidError(f"{name}: __dlpack__ returned no tensor")
    return _DLManagedTensor.from_address(_capsule_pointer(capsule, b"dltensor")).tensor, False


def _extent(tensor: _DLTensor) -> tuple[int, bool]:
    """Returns the number of elements, and whether they are contiguous."""
    count = 1
    for i in range(tensor.ndim):
        count *= tensor.shape[i]
    if count == 0 or not tensor.strides:
        return count, True
    stride = 1
    for i in reversed(range(tensor.ndim)):
        if tensor.shape[i] != 1 and tensor.strides[i] != stride:
            return count, False
        stride *= tensor.shape[i]
    return count, True


# ---- Checks of several buffers ----


def same_kind(one: Memory, other: Memory) -> None:
    """Raises an error if both buffers have an element type, and they differ."""
    if one.kind and other.kind and one.kind != other.kind:
        raise InvalidError(f"buffers of different element types: {one.kind} and {other.kind}")


def element_type(dtype: DataType | str | None, *buffers: Memory | None) -> DataType:
    """Returns the element type of a reduction: that of its buffers, or dtype if they have none."""
    found = None if dtype is None else parse_type(dtype)
    for buffer in buffers:
        if buffer is None or not buffer.kind:
            continue
        if buffer.dtype is None:
            raise InvalidError(f"a reduction cannot combine elements of type {buffer.kind}")
        if found is not None and found is not buffer.dtype:
            raise InvalidError(
                f"buffers of different element types: {found.name.lower()} and "
                f"{buffer.dtype.name.lower()}"
            )
        found = buffer.dtype
    if found is None:
        raise InvalidError(
            "the buffers have no element type: pass dtype, for example dtype='float32'"
        )
    return found


def check_multiple(buffer: Memory, dtype: DataType) -> None:
    """Raises an error if a buffer does not hold whole elements."""
    if buffer.nbytes % dtype.size:
        raise InvalidError(
            f"a buffer of {buffer.nbytes} bytes does not hold whole {dtype.name.lower()}s"
        )
