"""Reads valid and hostile safetensors files."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from allcast.torch import safetensors
from allcast.torch.safetensors import Checkpoint, FormatError
from allcast.torch.targets import DTYPES


def encode(header: Any, data: bytes = b"") -> bytes:
    """Returns a file with a header, which is JSON unless it is bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def tensor(shape: list[int], start: int, stop: int, dtype: str = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


ONE = tensor([4], 0, 4)

# What a file contains, and a part of the error.
HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "too few"),
    "short length": (b"\1\0\0\0\0\0\0", "too few"),
    "length beyond the end": (b"\x10" + bytes(7) + b"{}", "truncated"),
    "length of 2^64 - 1": (b"\xff" * 8 + b"{}", "truncated"),
    "no JSON": (encode(b"{"), "invalid JSON"),
    "no header": (encode(b""), "invalid JSON"),
    "not UTF-8": (encode(b'{"\xff": 1}'), "invalid JSON"),
    "a list": (encode([]), "must be an object"),
    "a number": (encode(1), "must be an object"),
    "deep nesting": (encode(b'{"a":' + b"[" * 200_000), "invalid JSON"),
    "NaN": (encode(b'{"a": NaN}'), "not valid JSON"),
    "a long number": (encode(b'{"a": ' + b"9" * 10_000 + b"}"), "invalid JSON"),
    "a name twice": (encode(b'{"a": 1, "a": 2}'), "appears twice"),
    "a key twice": (encode(b'{"a": {"dtype": "U8", "dtype": "I8"}}'), "appears twice"),
    "metadata is a list": (encode({"__metadata__": []}), "__metadata__"),
    "metadata has numbers": (encode({"__metadata__": {"a": 1}}), "__metadata__"),
    "tensor is a list": (encode({"a": []}), "must have"),
    "no type": (encode({"a": {"shape": [], "data_offsets": [0, 1]}}), "must have"),
    "an extra key": (encode({"a": {**ONE, "strides": [1]}}, bytes(4)), "must have"),
    "unknown type": (encode({"a": tensor([4], 0, 4, "F4")}, bytes(4)), "unsupported type 'F4'"),
    "type is a list": (encode({"a": {**ONE, "dtype": []}}, bytes(4)), "unsupported type"),
    "shape is a number": (encode({"a": {**ONE, "shape": 4}}, bytes(4)), "shape"),
    "negative size": (encode({"a": tensor([-4], 0, 4)}, bytes(4)), "shape"),
    "two negative sizes": (encode({"a": tensor([-2, -2], 0, 4)}, bytes(4)), "shape"),
    "size is true": (encode({"a": {**ONE, "shape": [True]}}, bytes(4)), "shape"),
    "size is 4.0": (encode({"a": {**ONE, "shape": [4.0]}}, bytes(4)), "shape"),
    "many dimensions": (encode({"a": tensor([1] * 65, 0, 1)}, b"1"), "shape"),
    "sizes overflow": (encode({"a": tensor([1 << 32] * 2, 0, 0)}), "needs 18446744073709551616"),
    "a huge size": (encode({"a": tensor([1 << 64], 0, 0)}), "shape"),
    "one offset": (encode({"a": {**ONE, "data_offsets": [0]}}, bytes(4)), "data_offsets"),
    "offsets reversed": (encode({"a": tensor([4], 4, 0)}, bytes(4)), "data_offsets"),
    "negative offset": (encode({"a": tensor([4], -4, 0)}, bytes(4)), "data_offsets"),
    "too few bytes": (encode({"a": tensor([4], 0, 3)}, bytes(3)), "3 bytes of data"),
    "too many bytes": (encode({"a": tensor([4], 0, 5)}, bytes(5)), "5 bytes of data"),
    "beyond the end": (encode({"a": ONE}, bytes(3)), "truncated"),
    "data missing": (encode({"a": ONE}), "truncated"),
    "bytes at the end": (encode({"a": ONE}, bytes(5)), "at its end"),
    "overlap": (encode({"a": ONE, "b": tensor([4], 2, 6)}, bytes(6)), "overlaps"),
    "the same range": (encode({"a": ONE, "b": ONE}, bytes(4)), "overlaps"),
    "a hole": (encode({"a": ONE, "b": tensor([4], 8, 12)}, bytes(12)), "no tensor"),
    "a hole at the start": (encode({"a": tensor([4], 4, 8)}, bytes(8)), "no tensor"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file(tmp_path: Path, name: str) -> None:
    data, want = HOSTILE[name]
    file = tmp_path / "model.safetensors"
    file.write_bytes(data)
    with pytest.raises(FormatError) as error:
        Checkpoint(file)
    assert want in str(error.value)
    assert str(file) in str(error.value)


def test_header_limit(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    with open(file, "wb") as f:
        f.write((safetensors.MAX_HEADER + 1).to_bytes(8, "little"))
        f.truncate(safetensors.MAX_HEADER + 100)
    with pytest.raises(FormatError, match="the limit is"):
        Checkpoint(file)


def test_mutations_never_escape(tmp_path: Path) -> None:
    """Any change of a valid file is either valid or a FormatError."""
    header = {"__metadata__": {"a": "b"}, "a": ONE, "b": tensor([2, 2], 4, 20, "F32")}
    good = encode(header, bytes(20))
    file = tmp_path / "model.safetensors"
    chance = random.Random(1)
    for _ in range(3000):
        bad = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(bad))
            change = chance.randrange(3)
            if change == 0:
                bad[at] = chance.randrange(256)
            elif change == 1:
                del bad[at]
            else:
                bad.insert(at, chance.choice(b'0123456789-{}[],:"e.'))
        file.write_bytes(bad)
        try:
            checkpoint = Checkpoint(file)
        except FormatError:
            continue
        size = file.stat().st_size
        for entry in checkpoint.entries:
            assert 0 <= entry.offset <= entry.offset + entry.nbytes <= size


def read(checkpoint: Checkpoint, entry: safetensors.Entry) -> torch.Tensor:
    data = bytearray(entry.nbytes)
    checkpoint.read(entry.file, entry.offset, memoryview(data))
    if not data:
        return torch.empty(entry.shape, dtype=DTYPES[entry.dtype])
    return torch.frombuffer(data, dtype=DTYPES[entry.dtype]).view(entry.shape)


def test_files_of_the_package_safetensors(tmp_path: Path) -> None:
    tensors = {}
    for dtype in DTYPES.values():
        if dtype == torch.float8_e8m0fnu:
            continue  # the package cannot write it
        tensors[f"{dtype}"] = torch.randint(0, 2, (3, 5)).to(dtype)
        tensors[f"{dtype} scalar"] = torch.ones((), dtype=dtype)
        tensors[f"{dtype} empty"] = torch.ones((2, 0, 3), dtype=dtype)
    file = tmp_path / "model.safetensors"
    save_file(tensors, file, metadata={"format": "pt"})
    for path in (file, str(file), [file], tmp_path):
        checkpoint = Checkpoint(path)
        assert {e.name for e in checkpoint.entries} == set(tensors)
        for entry in checkpoint.entries:
            want = tensors[entry.name]
            got = read(checkpoint, entry)
            assert got.dtype == want.dtype
            assert got.shape == want.shape
            assert torch.equal(
                got.reshape(-1).view(torch.uint8), want.reshape(-1).view(torch.uint8)
            )
        checkpoint.close()


def shards(directory: Path) -> dict[str, torch.Tensor]:
    tensors = {f"t{i}": torch.full((i + 1,), float(i)) for i in range(6)}
    weight_map = {}
    for number in range(3):
        file = f"model-{number}.safetensors"
        part = {name: t for name, t in tensors.items() if int(name[1:]) % 3 == number}
        save_file(part, directory / file)
        weight_map.update(dict.fromkeys(part, file))
    index = {"metadata": {"total_size": 84}, "weight_map": weight_map}
    (directory / safetensors.INDEX).write_text(json.dumps(index))
    return tensors


def test_directory_with_index(tmp_path: Path) -> None:
    tensors = shards(tmp_path)
    for path in (tmp_path, sorted(tmp_path.glob("*.safetensors"))):
        checkpoint = Checkpoint(path)
        assert len(checkpoint.files) == 3
        assert {e.name: read(checkpoint, e).tolist() for e in checkpoint.entries} == {
            name: t.tolist() for name, t in tensors.items()
        }
        checkpoint.close()


@pytest.mark.parametrize(
    ("weight_map", "want"),
    [
        ({"t0": "../secret"}, "next to the index"),
        ({"t0": "/etc/passwd"}, "next to the index"),
        ({"t0": ".."}, "next to the index"),
        ({"t0": ""}, "next to the index"),
        ({"t0": "a\0b"}, "next to the index"),
        ({"t0": 1}, "next to the index"),
        ({"t0": "model-1.safetensors"}, "lacks the tensor 't0'"),
        ({"t0": "model-0.safetensors", "no": "model-0.safetensors"}, "lacks the tensor 'no'"),
        ({}, "weight_map"),
        ([], "weight_map"),
    ],
)
def test_hostile_index(tmp_path: Path, weight_map: Any, want: str) -> None:
    shards(tmp_path)
    (tmp_path / safetensors.INDEX).write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(FormatError) as error:
        Checkpoint(tmp_path)
    assert want in str(error.value)


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="neither"):
        Checkpoint(tmp_path)
    with pytest.raises(FileNotFoundError, match="absent"):
        Checkpoint(tmp_path / "absent")
    with pytest.raises(FormatError, match="empty"):
        Checkpoint([])
    shards(tmp_path)
    os.remove(tmp_path / "model-1.safetensors")
    with pytest.raises(FileNotFoundError, match="model-1"):
        Checkpoint(tmp_path)


def test_same_tensor_in_two_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_file({"weight": torch.ones(1)}, tmp_path / name)
    with pytest.raises(FormatError, match="both contain the tensor 'weight'"):
        Checkpoint([tmp_path / "a", tmp_path / "b"])


def test_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FormatError, match="not a regular file"):
        Checkpoint(tmp_path / "pipe")


def rewrite(file: Path, data: bytes) -> None:
    """Replaces the contents of a file, with another time of modification."""
    before = file.stat().st_mtime_ns
    with open(file, "r+b") as f:
        f.truncate(0)
        f.write(data)
    os.utime(file, ns=(before + 1, before + 1))


def test_file_truncated_while_reading(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_file({"a": torch.arange(1000)}, file)
    checkpoint = Checkpoint(file)
    entry = checkpoint.entries[0]
    buffer = bytearray(entry.nbytes)
    checkpoint.read(0, entry.offset, memoryview(buffer)[:100])
    rewrite(file, file.read_bytes()[:500])
    with pytest.raises(FormatError, match="became shorter"):
        checkpoint.read(0, entry.offset, memoryview(buffer))


@pytest.mark.parametrize("opened", [False, True])
def test_file_changed_while_reading(tmp_path: Path, opened: bool) -> None:
    file = tmp_path / "model.safetensors"
    save_file({"a": torch.arange(1000)}, file)
    checkpoint = Checkpoint(file)
    entry = checkpoint.entries[0]
    buffer = bytearray(entry.nbytes)
    if opened:
        checkpoint.read(0, entry.offset, memoryview(buffer))
    rewrite(file, file.read_bytes())

    def read_all() -> None:
        checkpoint.read(0, entry.offset, memoryview(buffer))
        checkpoint.close()

    with pytest.raises(FormatError, match="changed while it was read"):
        read_all()
