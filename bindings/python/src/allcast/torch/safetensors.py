"""Reads checkpoints in the safetensors format, and trusts nothing in them.

The package safetensors maps files into memory or copies whole tensors. This reader fills the
caller's memory with any part of a file instead, and needs no memory of its own. A file that is
truncated meanwhile is an error here, but a fatal signal in a process that has mapped it.

A file holds the length of its header (8 bytes, little endian), the header (JSON) and the data of
all tensors. The header maps names to an element type, a shape and a range of the data.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from typing import Any, NamedTuple, Union

# Bytes per element. Types with less than a byte per element are not supported.
ITEM_SIZES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E4M3FNUZ": 1,
    "F8_E5M2": 1,
    "F8_E5M2FNUZ": 1,
    "F8_E8M0": 1,
    "U16": 2,
    "I16": 2,
    "F16": 2,
    "BF16": 2,
    "U32": 4,
    "I32": 4,
    "F32": 4,
    "U64": 8,
    "I64": 8,
    "F64": 8,
    "C64": 8,
}

# Limits of sizes in a file. They bound the memory that a hostile header can take.
MAX_HEADER = 16 << 20
MAX_INDEX = 64 << 20
MAX_BYTES = 1 << 62

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

Paths = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]


class FormatError(ValueError):
    """A file is not a valid safetensors checkpoint."""


class Entry(NamedTuple):
    """A tensor in a checkpoint."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    file: int  # index of the file in the checkpoint
    offset: int  # position of the first byte in the file


class _Identity(NamedTuple):
    """What stays the same as long as nobody changes a file."""

    device: int
    inode: int
    size: int
    modified: int


def _identity(fd: int) -> _Identity:
    status = os.fstat(fd)
    return _Identity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class Checkpoint:
    """One or several safetensors files. It lists their tensors and reads their data in pieces."""

    def __init__(self, path: Paths) -> None:
        self.files, index = _find(path)
        self.entries: list[Entry] = []
        self._identities: list[_Identity] = []
        self._fd = -1
        self._open_file = -1
        seen: dict[str, int] = {}
        for number, file in enumerate(self.files):
            fd = _open(file)
            try:
                entries = _read_header(fd, file, number)
                self._identities.append(_identity(fd))
            finally:
                os.close(fd)
            for entry in entries:
                if entry.name in seen:
                    other = self.files[seen[entry.name]]
                    raise FormatError(f"{file} and {other} both contain the tensor {entry.name!r}")
                seen[entry.name] = number
            self.entries += entries
        for name, file in index.items():
            if name not in seen or self.files[seen[name]] != file:
                raise FormatError(f"{file} lacks the tensor {name!r} that the index expects there")

    def read(self, file: int, offset: int, into: memoryview) -> None:
        """Fills memory from a file, and fails if the file has changed since its header was read."""
        if file != self._open_file:
            self.close()
            self._fd = _open(self.files[file])
            self._open_file = file
            self._check_unchanged()
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        _fill(self._fd, self.files[file], offset, into)

    def close(self) -> None:
        """Closes the open file, and fails if it has changed since its header was read."""
        if self._fd < 0:
            return
        try:
            self._check_unchanged()
        finally:
            os.close(self._fd)
            self._fd, self._open_file = -1, -1

    def _check_unchanged(self) -> None:
        if _identity(self._fd) != self._identities[self._open_file]:
            raise FormatError(f"{self.files[self._open_file]} changed while it was read")


def _find(path: Paths) -> tuple[list[str], dict[str, str]]:
    """Returns the files of a checkpoint, and the file of each tensor where an index says so."""
    if not isinstance(path, (str, os.PathLike)):
        files = [os.fspath(p) for p in path]
        if not files:
            raise FormatError("the list of safetensors files is empty")
        return files, {}
    path = os.fspath(path)
    if not os.path.isdir(path):
        return [path], {}
    index = os.path.join(path, INDEX)
    if os.path.exists(index):
        return _read_index(index)
    single = os.path.join(path, SINGLE)
    if os.path.exists(single):
        return [single], {}
    raise FileNotFoundError(
        f"{path} contains neither {INDEX} nor {SINGLE}; pass a list of the files instead"
    )


def _read_index(index: str) -> tuple[list[str], dict[str, str]]:
    fd = _open(index)
    try:
        size = os.fstat(fd).st_size
        if size > MAX_INDEX:
            raise FormatError(f"{index} has {size} bytes; the limit is {MAX_INDEX}")
        document = _parse(_read(fd, index, 0, size), index)
    finally:
        os.close(fd)
    weight_map = document.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise FormatError(f'{index}: "weight_map" must be an object that maps tensors to files')
    directory = os.path.dirname(index)
    files: dict[str, str] = {}
    for name, file in weight_map.items():
        # An index must not make this process read files elsewhere.
        if not isinstance(file, str) or file in ("", ".", "..") or "/" in file or "\0" in file:
            raise FormatError(
                f"{index}: the file of the tensor {name!r} must be next to the index, not {file!r}"
            )
        files[file] = os.path.join(directory, file)
    return list(files.values()), {name: files[file] for name, file in weight_map.items()}


def _open(file: str) -> int:
    # O_NONBLOCK: opening a pipe by mistake must not block.
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FormatError(f"{file} is not a regular file")
    return fd


def _fill(fd: int, file: str, offset: int, into: memoryview) -> None:
    while into:
        n = os.preadv(fd, [into], offset)
        if n == 0:
            raise FormatError(f"{file} became shorter while it was read")
        into = into[n:]
        offset += n


def _read(fd: int, file: str, offset: int, size: int) -> bytearray:
    data = bytearray(size)
    _fill(fd, file, offset, memoryview(data))
    return data


def _read_header(fd: int, file: str, number: int) -> list[Entry]:
    """Returns the tensors of a file in the order of their data."""
    size = os.fstat(fd).st_size
    if size < 8:
        raise FormatError(f"{file} has {size} bytes, too few for a safetensors file")
    length = int.from_bytes(_read(fd, file, 0, 8), "little")
    if length > size - 8:
        raise FormatError(f"{file} is truncated: {size} bytes, with a header of {length} bytes")
    if length > MAX_HEADER:
        raise FormatError(f"{file} has a header of {length} bytes; the limit is {MAX_HEADER}")
    header = _parse(_read(fd, file, 8, length), file)
    _check_metadata(header.pop("__metadata__", None), file)
    entries = [_entry(name, value, file, number, 8 + length) for name, value in header.items()]
    entries.sort(key=lambda e: (e.offset, e.nbytes))
    end = 8 + length
    for e in entries:
        if e.offset != end:
            what = "overlaps another tensor" if e.offset < end else "follows data of no tensor"
            raise FormatError(f"{file}: the tensor {e.name!r} {what}")
        end += e.nbytes
    if end > size:
        raise FormatError(f"{file} is truncated: {size} bytes, and its tensors end at {end}")
    if end < size:
        raise FormatError(f"{file} has data of no tensor at its end")
    return entries


def _parse(text: bytearray, file: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise FormatError(f"{file}: the name {name!r} appears twice")
            found[name] = value
        return found

    def reject(constant: str) -> Any:
        raise FormatError(f"{file}: {constant} is not valid JSON")

    try:
        document = json.loads(text.decode("utf-8"), object_pairs_hook=unique, parse_constant=reject)
    except FormatError:
        raise
    except (ValueError, RecursionError) as e:
        raise FormatError(f"{file}: invalid JSON: {e}") from None
    if not isinstance(document, dict):
        raise FormatError(f"{file}: the JSON must be an object")
    return document


def _check_metadata(metadata: Any, file: str) -> None:
    if metadata is None:
        return
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise FormatError(f'{file}: "__metadata__" must map names to texts')


def _integers(value: Any) -> list[int] | None:
    """Returns a list of sizes, or None if value is something else, such as [true] or [1.0]."""
    if not isinstance(value, list):
        return None
    return value if all(type(n) is int and 0 <= n <= MAX_BYTES for n in value) else None


def _entry(name: str, value: Any, file: str, number: int, data: int) -> Entry:
    where = f"{file}: the tensor {name!r}"
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise FormatError(f'{where} must have "dtype", "shape" and "data_offsets" and nothing else')
    dtype = value["dtype"]
    if not isinstance(dtype, str) or dtype not in ITEM_SIZES:
        raise FormatError(f"{where} has the unsupported type {dtype!r}")
    shape = _integers(value["shape"])
    if shape is None or len(shape) > 64:
        raise FormatError(f"{where}: its shape must be a list of at most 64 sizes")
    offsets = _integers(value["data_offsets"])
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise FormatError(f"{where}: its data_offsets must be the ends of a range of bytes")
    nbytes = ITEM_SIZES[dtype]
    for n in shape:
        nbytes *= n
    if nbytes != offsets[1] - offsets[0]:
        raise FormatError(
            f"{where} has {offsets[1] - offsets[0]} bytes of data; "
            f"shape {shape} of type {dtype} needs {nbytes}"
        )
    return Entry(name, dtype, tuple(shape), nbytes, number, data + offsets[0])
