"""Every c10d operation on device tensors, verified byte by byte. Run it under torchrun:

    torchrun --nproc_per_node 4 device_operations.py --device cuda

The ranks may share one GPU. With --device fake, the tensors are CPU tensors that take the path of
device tensors, on the device of fake_device.py. This runs the code between torch and the network
without a GPU.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from allcast.torch import pieces, staging
from allcast.torch.groups import Group

SIZES = [0, 1, 17, 100_003, 6_000_000]  # elements; the last one takes several pieces
TYPES = [torch.float32, torch.bfloat16, torch.int64]


class Checks:
    """Runs checks on one rank, on a device or a fake of it."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.device = torch.device("cuda", 0) if kind == "cuda" else torch.device("cpu")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.count = 0
        self.synchronize: Callable[[], None] = torch.cuda.synchronize
        if kind == "fake":
            self.synchronize = _use_fake_device(self.rank)

    def make(self, count: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
        """Returns small whole numbers, whose sums are exact in every type."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(0, 8, (count,), generator=generator).to(dtype).to(self.device)

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.full((count,), 99, dtype=dtype, device=self.device)

    def equal(self, name: str, got: torch.Tensor | list[torch.Tensor], want: torch.Tensor) -> None:
        self.synchronize()
        self.count += 1
        if isinstance(got, list):
            got = torch.cat(got)
        if not torch.equal(got.cpu(), want.cpu()):
            wrong = (got.cpu() != want.cpu()).flatten().nonzero()
            raise AssertionError(
                f"{name} on rank {self.rank}: {len(wrong)} of {got.numel()} elements are wrong, "
                f"the first one is {int(wrong[0])}"
            )

    def inputs(self, count: int, dtype: torch.dtype, salt: int = 0) -> list[torch.Tensor]:
        """Returns what each rank contributes."""
        return [self.make(count, dtype, 1000 * salt + rank) for rank in range(self.size)]

    def collectives(self, count: int, dtype: torch.dtype) -> None:
        rank, size = self.rank, self.size
        label = f"of {count} x {dtype}"
        parts = self.inputs(count, dtype)
        total = sum(part.to(torch.float64) for part in parts)

        tensor = parts[rank].clone()
        dist.broadcast(tensor, src=size - 1)
        self.equal(f"broadcast {label}", tensor, parts[size - 1])

        for op, want in (
            (dist.ReduceOp.SUM, total),
            (dist.ReduceOp.MAX, torch.stack(parts).amax(0) if count else total),
        ):
            tensor = parts[rank].clone()
            dist.all_reduce(tensor, op)
            self.equal(f"all_reduce {op} {label}", tensor, want.to(dtype))
        if dtype is torch.float32:
            tensor = parts[rank].clone()
            dist.all_reduce(tensor, dist.ReduceOp.AVG)
            self.equal(f"all_reduce AVG {label}", tensor, (total / size).to(dtype))

        tensor = parts[rank].clone()
        dist.reduce(tensor, dst=1 % size)
        self.equal(f"reduce {label}", tensor, total.to(dtype) if rank == 1 % size else parts[rank])

        gathered = torch.cat(parts)
        output = self.empty(size * count, dtype)
        dist.all_gather_into_tensor(output, parts[rank])
        self.equal(f"all_gather_into_tensor {label}", output, gathered)
        output = self.empty(size * count, dtype)
        own = output[rank * count : (rank + 1) * count]
        own.copy_(parts[rank])
        dist.all_gather_into_tensor(output, own)
        self.equal(f"all_gather_into_tensor in place {label}", output, gathered)
        outputs = [self.empty(count, dtype) for _ in range(size)]
        dist.all_gather(outputs, parts[rank])
        self.equal(f"all_gather {label}", outputs, gathered)

        outputs = [self.empty(count, dtype) for _ in range(size)]
        dist.gather(parts[rank], outputs if rank == 0 else None, dst=0)
        if rank == 0:
            self.equal(f"gather {label}", outputs, gathered)
        output = self.empty(count, dtype)
        dist.scatter(output, parts if rank == 0 else None, src=0)
        self.equal(f"scatter {label}", output, parts[rank])

        whole = [torch.cat(self.inputs(count, dtype, 1 + r)) for r in range(size)]
        reduced = sum(w.to(torch.float64) for w in whole).view(size, count)[rank].to(dtype)
        output = self.empty(count, dtype)
        dist.reduce_scatter_tensor(output, whole[rank])
        self.equal(f"reduce_scatter_tensor {label}", output, reduced)
        output = self.empty(count, dtype)
        dist.reduce_scatter(output, list(whole[rank].view(size, count)))
        self.equal(f"reduce_scatter {label}", output, reduced)

        exchanged = torch.cat([w.view(size, count)[rank] for w in whole])
        output = self.empty(size * count, dtype)
        dist.all_to_all_single(output, whole[rank])
        self.equal(f"all_to_all_single {label}", output, exchanged)
        outputs = [self.empty(count, dtype) for _ in range(size)]
        dist.all_to_all(outputs, list(whole[rank].view(size, count)))
        self.equal(f"all_to_all {label}", outputs, exchanged)

    def uneven(self) -> None:
        rank, size = self.rank, self.size
        sends = [[100 * (r + 1) + t for t in range(size)] for r in range(size)]
        inputs = [self.make(sum(sends[r]), torch.float32, r) for r in range(size)]
        receives = [sends[r][rank] for r in range(size)]
        output = self.empty(sum(receives), torch.float32)
        dist.all_to_all_single(output, inputs[rank], receives, sends[rank])
        want = torch.cat([inputs[r].split(sends[r])[rank] for r in range(size)])
        self.equal("all_to_all_single with splits", output, want)
        outputs = [self.empty(1000 * (r + 1), torch.float32) for r in range(size)]
        blocks = [self.make(1000 * (r + 1), torch.float32, r) for r in range(size)]
        dist.all_gather(outputs, blocks[rank])
        self.equal("all_gather of different sizes", outputs, torch.cat(blocks))

    def strided(self) -> None:
        parts = [part.view(300, 100).t() for part in self.inputs(30_000, torch.float32)]
        tensor = parts[self.rank].clone(memory_format=torch.preserve_format)
        assert not tensor.is_contiguous()
        dist.all_reduce(tensor)
        self.equal("all_reduce of a strided tensor", tensor, sum(parts))

    def messages(self, count: int) -> None:
        rank, size = self.rank, self.size
        right, left = (rank + 1) % size, (rank - 1) % size
        parts = self.inputs(count, torch.float32)
        output = self.empty(count, torch.float32)
        receive = dist.irecv(output, left)
        send = dist.isend(parts[rank], right)
        for work in (receive, send):
            work.wait()
        self.equal(f"irecv and isend of {count}", output, parts[left])
        outputs = [self.empty(count, torch.float32) for _ in range(4)]
        works = []
        for i in range(4):
            works.append(dist.isend(parts[rank] + i, right))
        for i in range(4):
            works.append(dist.irecv(outputs[i], left))
        for work in works:
            work.wait()
        for i in range(4):
            self.equal(f"message {i} of {count} in order", outputs[i], parts[left] + i)
        # Whoever sends next is not known, so that the receiver has to wait for it.
        output = self.empty(count, torch.float32)
        send = dist.isend(parts[rank], right)
        assert dist.recv(output) == left
        send.wait()
        self.equal(f"recv from any rank of {count}", output, parts[left])
        output = self.empty(count, torch.float32)
        operations = [
            dist.P2POp(dist.isend, parts[rank], right),
            dist.P2POp(dist.irecv, output, left),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        self.equal(f"batch_isend_irecv of {count}", output, parts[left])

    def asynchronous(self) -> None:
        """Many operations in flight, waited for in the wrong order. Works may be dropped."""
        parts = self.inputs(200_000, torch.float32)
        total = sum(parts)
        tensors = [parts[self.rank] * (i + 1) for i in range(8)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work in reversed(works):
            work.wait()
        for i, tensor in enumerate(tensors):
            self.equal(f"asynchronous all_reduce {i}", tensor, total * (i + 1))
        tensor = parts[self.rank].clone()
        dist.all_reduce(tensor, async_op=True)  # nobody waits
        other = parts[self.rank].clone()
        work = dist.all_reduce(other, async_op=True)
        work.wait()
        self.synchronize()
        assert work.is_completed()
        assert work.is_success()
        self.equal("all_reduce after a dropped one", other, total)
        self.equal("all_reduce whose Work was dropped", tensor, total)
        tensor = parts[self.rank].clone()
        future = dist.all_reduce(tensor, async_op=True).get_future()
        doubled = future.then(lambda f: f.value()[0] * 2).wait()
        self.equal("all_reduce with a future", tensor, total)
        if self.kind == "cuda":  # a stream of the fake device does not order what torch computes
            self.equal("future of all_reduce", doubled, total * 2)

    def timeouts(self) -> None:
        """A wait with a timeout ends, and the operation continues."""
        parts = self.inputs(1000, torch.float32)
        tensor, message = parts[self.rank].clone(), self.empty(1, torch.float32)
        if self.rank == 0:
            work = dist.all_reduce(tensor, async_op=True)
            text = "wait returned"
            try:
                work.wait(timedelta(milliseconds=10))
            except dist.DistBackendError as error:
                text = str(error)
            assert "has not ended after 0.01 s" in text, text
            for rank in range(1, self.size):
                dist.send(message, rank)
        else:
            dist.recv(message, 0)
            self.synchronize()
            work = dist.all_reduce(tensor, async_op=True)
        assert work.wait(timedelta(seconds=60))
        self.equal("all_reduce after a wait that timed out", tensor, sum(parts))

    def refused(self) -> None:
        """A call with wrong arguments, whose end the host waits for, fails. Later ones work."""
        parts = self.inputs(1000, torch.float32)
        tensor = parts[self.rank].clone()
        text = "no error"
        try:
            dist.all_reduce(tensor, op=dist.ReduceOp.BAND)
        except dist.DistBackendError as error:
            text = str(error)
        assert "invalid argument" in text, text
        dist.all_reduce(tensor)
        self.equal("all_reduce after one that was refused", tensor, sum(parts))

    def objects(self) -> None:
        got: list[Any] = [None] * self.size
        dist.all_gather_object(got, {"rank": self.rank})
        assert got == [{"rank": rank} for rank in range(self.size)]
        dist.barrier()
        self.count += 1

    def stream_order(self) -> None:
        """The call and wait return before the input exists, and the result still is right."""
        long = 1_000_000_000  # cycles, about half a second
        blocks_host = not _current_staging().device.stream_waits
        for count in (1000, 6_000_000):
            for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
                parts = self.inputs(count, torch.float32)
                self.synchronize()
                with torch.cuda.stream(stream):
                    tensor = self.empty(count, torch.float32)
                    torch.cuda._sleep(long)
                    tensor.copy_(parts[self.rank])
                    filled = torch.cuda.Event()
                    filled.record()
                    work = dist.all_reduce(tensor, async_op=True)
                    assert not filled.query(), "the call blocks the host"
                    work.wait()
                    assert blocks_host or not filled.query(), "wait blocks the host"
                    result = tensor * 2
                    tensor.zero_()
                    output = self.empty(self.size * count, torch.float32)
                    own = output[self.rank * count :][:count]
                    torch.cuda._sleep(long // 8)
                    own.copy_(parts[self.rank])
                    dist.all_gather_into_tensor(output, own)
                    copy = output.clone()
                    output.zero_()
                self.equal(f"stream order of all_reduce of {count}", result, sum(parts) * 2)
                self.equal(f"stream order of all_gather of {count}", copy, torch.cat(parts))

    def chain(self) -> None:
        """Each operation needs the previous one's result, without a synchronisation of the host."""
        parts = self.inputs(500_000, torch.float32)
        tensor = parts[self.rank].clone()
        want = [part.double() for part in parts]
        for step in range(20):
            tensor.mul_(0.25).add_(self.rank + step)
            dist.all_reduce(tensor)
            want = [w * 0.25 + rank + step for rank, w in enumerate(want)]
            want = [sum(want)] * self.size
        self.synchronize()
        torch.testing.assert_close(tensor.double(), want[0], rtol=1e-5, atol=1e-5)
        self.count += 1

    def groups(self) -> None:
        """Groups of their own, whose operations are in flight at the same time."""
        others = dist.new_group(list(range(self.size)))
        parts = self.inputs(1_000_000, torch.float32)
        first, second = parts[self.rank].clone(), parts[self.rank] * 2
        works = [
            dist.all_reduce(first, async_op=True),
            dist.all_reduce(second, group=others, async_op=True),
        ]
        for work in works:
            work.wait()
        self.equal("all_reduce of the first group", first, sum(parts))
        self.equal("all_reduce of the second group", second, sum(parts) * 2)


def _current_staging() -> staging.Staging:
    group = dist.distributed_c10d._get_default_group()._group
    return staging._devices.staging(group, 0)


def _use_fake_device(rank: int) -> Callable[[], None]:
    """Makes CPU tensors take the path of device tensors, and returns the wait for the device."""
    from fake_device import FakeDevice

    device = FakeDevice(rank, os.environ.get("ALLCAST_TORCH_STREAM_WAIT") != "host")
    settings = pieces.Settings(depth=2)
    stagings: dict[Group, staging.Staging] = {}

    def launch(group: Group, *calls: Any) -> Any:
        if calls[0].device is None:
            return plain(group, *calls)
        if group not in stagings:
            stagings[group] = staging.Staging(device, settings)
        return group._collect(staging.launch_on(stagings[group], group, calls))

    plain = Group.launch
    Group.launch = launch  # type: ignore[method-assign]
    return device.drain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cuda", "fake"], default="cuda")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device: run with --device fake")
    dist.init_process_group("allcast", timeout=timedelta(seconds=60))
    checks = Checks(arguments.device)
    began = time.monotonic()
    for dtype in TYPES:
        for count in SIZES:
            if count <= 100_003 or dtype is torch.float32:
                checks.collectives(count, dtype)
    checks.uneven()
    checks.strided()
    for count in (17, 3_000_000):
        checks.messages(count)
    checks.asynchronous()
    checks.timeouts()
    if os.environ.get("ALLCAST_TORCH_STREAM_WAIT") == "host":
        checks.refused()
    checks.groups()
    if arguments.device == "cuda":
        checks.objects()
        checks.chain()
        checks.stream_order()
    dist.barrier()
    if checks.rank == 0:
        mode = os.environ.get("ALLCAST_TORCH_STREAM_WAIT", "auto")
        print(
            f"{checks.count} checks on {checks.size} ranks passed in "
            f"{time.monotonic() - began:.1f} s: device {arguments.device}, stream wait {mode}, "
            f"torch {torch.__version__}"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
