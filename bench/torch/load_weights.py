"""Compares load_state_dict with a plain Broadcast of as many bytes.

load_weights.sh runs it on the hosts of the lab. Every rank holds a model, and a buffer of the same
size. Each round measures one Broadcast of the buffer and one load of the model, in turn. Rank 0
prints the times and their ratio, and the largest growth of the memory of a rank during a load.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

import allcast
from allcast.torch import load_state_dict
from allcast.torch.safetensors import Checkpoint

MIB = 1 << 20


HIDDEN, KEYS, INNER, WORDS = 2048, 512, 8192, 12288


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False, dtype=torch.bfloat16)


class Layer(nn.Module):
    """A layer of a transformer with the shapes of Llama 3.2 1B: 116 MiB in seven matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.o = linear(HIDDEN, HIDDEN), linear(HIDDEN, HIDDEN)
        self.k, self.v = linear(HIDDEN, KEYS), linear(HIDDEN, KEYS)
        self.gate, self.up = linear(HIDDEN, INNER), linear(HIDDEN, INNER)
        self.down = linear(INNER, HIDDEN)
        self.norms = nn.Parameter(torch.ones(2, HIDDEN, dtype=torch.bfloat16))


class Model(nn.Module):
    """Layers, and an embedding of 48 MiB. Four layers make 512 MiB."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, HIDDEN, dtype=torch.bfloat16)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))


def memory(field: str) -> int:
    """Returns a field of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) << 10
    raise KeyError(field)


def growth(function: Callable[[], object]) -> int:
    """Returns by how much the resident memory of this process grows while a function runs."""
    Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM to VmRSS
    before = memory("VmRSS")
    function()
    return memory("VmHWM") - before


def verify(model: nn.Module, path: Path) -> None:
    """Compares a model with a file, byte by byte."""
    checkpoint = Checkpoint(path)
    state = model.state_dict()
    assert set(state) == {entry.name for entry in checkpoint.entries}
    for entry in checkpoint.entries:
        want = bytearray(entry.nbytes)
        checkpoint.read(entry.file, entry.offset, memoryview(want))
        got = state[entry.name].view(-1).view(torch.uint8)
        assert torch.equal(got, torch.frombuffer(want, dtype=torch.uint8)), entry.name
    checkpoint.close()


def timed(comm: allcast.Comm, function: Callable[[], object]) -> float:
    """Returns the seconds until a function has ended on all ranks."""
    comm.barrier()
    start = time.perf_counter()
    function()
    comm.barrier()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=4, help="layers of 116 MiB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--window", type=int, default=64, help="MiB per Broadcast of a load")
    parser.add_argument("--directory", default=tempfile.gettempdir())
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    comm = allcast.join()
    with torch.device("meta"):
        model = Model(arguments.layers)
    model.to_empty(device="cpu")
    path = Path(arguments.directory) / f"allcast-weights-{os.environ['MASTER_PORT']}"
    if comm.rank == 0:
        for tensor in model.state_dict().values():
            tensor.view(torch.uint8).random_()
        save_file(model.state_dict(), path)
    for tensor in model.state_dict().values():
        tensor.zero_()
    size = sum(tensor.nbytes for tensor in model.state_dict().values())
    buffer = torch.zeros(size, dtype=torch.uint8)

    def load() -> None:
        load_state_dict(path, model, group=comm, window=arguments.window * MIB)

    def broadcast() -> None:
        comm.broadcast(allcast.Memory(buffer.data_ptr(), size, owner=buffer), algorithm="mcast")

    # The first load counts for memory, because it allocates; not for time, because pages are new.
    comm.barrier()
    grown = [growth(load)]
    verify(model, path)
    broadcast()
    plain, loads = [], []
    for number in range(arguments.rounds):
        for kind in ("plain", "load") if number % 2 == 0 else ("load", "plain"):
            if kind == "plain":
                plain.append(timed(comm, broadcast))
            else:
                grown.append(growth(lambda: loads.append(timed(comm, load))))
    verify(model, path)
    comm.barrier()

    everyone = torch.zeros(comm.size, dtype=torch.int64)
    comm.allgather(torch.tensor([max(grown)]), everyone)
    if comm.rank == 0:
        path.unlink()
        ratios = [a / b for a, b in zip(loads, plain)]
        print(f"{size / MIB:.0f} MiB to {comm.size - 1} ranks, {arguments.rounds} rounds")
        for name, values, unit in (
            ("Broadcast", plain, "s"),
            ("load_state_dict", loads, "s"),
            ("ratio", ratios, ""),
        ):
            middle = f"{statistics.median(values):.2f} {unit}".rstrip()
            print(f"{name:16}median {middle}, {min(values):.2f} to {max(values):.2f}")
        print(f"memory          at most {max(everyone.tolist()) / MIB:.0f} MiB more per rank")
    comm.close()


if __name__ == "__main__":
    main()
