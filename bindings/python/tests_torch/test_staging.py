"""Staging of device tensors, on a device that runs commands in any order that streams allow."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from fake_device import Buffers, FakeDevice, FakeNetwork

from allcast.torch.pieces import Plan, Settings, Shape, add_call, cut
from allcast.torch.pinned import Flags, Pool
from allcast.torch.staging import StagedCall, Staging

RANKS = 3
SMALL = Settings(
    piece=3 << 18, depth=2, pool=64 << 20
)  # several pieces for a few hundred KiB per rank
MODES = ["streams", "one queue", "host"]
WHOLE = Shape()


@dataclass
class Call:
    """The part of works.Call that plans use."""

    operation: str
    send: list[torch.Tensor]
    recv: list[torch.Tensor]
    in_place: bool = False
    writes: bool = True
    divisible: bool = True


@dataclass
class World:
    """Ranks of one process, each with its own device."""

    devices: list[FakeDevice]
    stagings: list[Staging]
    network: FakeNetwork
    threads: list[threading.Thread] = field(default_factory=list)
    queues: dict[int, list[StagedCall]] = field(default_factory=dict)

    def call(
        self,
        rank: int,
        call: Call,
        apply: Callable[[Buffers], None],
        shape: Shape = WHOLE,
        run: bool = True,
        message: bool = False,
    ) -> StagedCall:
        plan = Plan()

        def start(send: Any, recv: Any, done: Any, timeout: Any) -> None:
            self.network.start(rank, apply, send, recv, done)

        staging = self.stagings[rank]
        add_call(plan, staging.settings, shape, call, start)
        staged = staging.call(plan, 60.0, message)
        self.queues.setdefault(rank, []).append(staged)
        if run:
            self.run(rank)
        return staged

    def run(self, rank: int) -> None:
        """Runs the calls of a rank so far in a thread, in order."""
        calls, self.queues[rank] = self.queues[rank], []

        def serve() -> None:
            for call in calls:
                call.run()

        thread = threading.Thread(target=serve, daemon=True)
        self.threads.append(thread)
        thread.start()

    def finish(self) -> None:
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive(), "a staging thread has not ended after 60 s"
        for device in self.devices:
            device.drain()


def make_world(mode: str, seed: int = 0, settings: Settings = SMALL, ranks: int = RANKS) -> World:
    devices = [
        FakeDevice(seed * 100 + rank, mode != "host", mode == "one queue") for rank in range(ranks)
    ]
    return World(devices, [Staging(d, settings) for d in devices], FakeNetwork(ranks, seed))


@pytest.fixture(params=MODES)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = make_world(request.param)
    yield made
    for device in made.devices:
        device.close()


def data(seed: int, nbytes: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (nbytes,), dtype=torch.uint8, generator=generator)


def gather(buffers: Buffers) -> None:
    """Allgather in place: the block of each rank is in its own buffer."""
    ranks = len(buffers)
    blocks = [recv.view(ranks, -1)[rank].clone() for rank, (_, recv) in enumerate(buffers)]
    for _, recv in buffers:
        recv.view(ranks, -1).copy_(torch.stack(blocks))


def add_up(buffers: Buffers) -> None:
    total = sum(recv.view(torch.int32).clone() for _, recv in buffers)
    for _, recv in buffers:
        recv.view(torch.int32).copy_(total)


def reduce_scatter(buffers: Buffers) -> None:
    total = sum(send.view(torch.int32) for send, _ in buffers).view(len(buffers), -1)
    for rank, (_, recv) in enumerate(buffers):
        recv.view(torch.int32).copy_(total[rank])


def exchange(buffers: Buffers) -> None:
    ranks = len(buffers)
    sent = [send.view(ranks, -1).clone() for send, _ in buffers]
    for rank, (_, recv) in enumerate(buffers):
        recv.view(ranks, -1).copy_(torch.stack([blocks[rank] for blocks in sent]))


def broadcast(buffers: Buffers) -> None:
    for _, recv in buffers[1:]:
        recv.copy_(buffers[0][1])


def wait_all(world: World, calls: list[StagedCall]) -> None:
    """Makes the current stream of each rank wait, from a thread of its own as in a job."""
    threads = [threading.Thread(target=call.wait_stream, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "wait_stream blocks"


SIZES = [0, 4, 4096, 300_004, 1_000_000]


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("in_place", [False, True])
def test_allgather(world: World, nbytes: int, in_place: bool) -> None:
    want = data(1, RANKS * nbytes)
    outputs = [data(2, RANKS * nbytes) for _ in range(RANKS)]
    blocks = want.view(RANKS, nbytes)
    calls, inputs = [], []
    for rank, device in enumerate(world.devices):
        target = (
            outputs[rank].view(RANKS, nbytes)[rank]
            if in_place
            else torch.zeros(nbytes, dtype=torch.uint8)
        )
        inputs.append(target)
        device.compute(lambda target=target, rank=rank: target.copy_(blocks[rank]))
        send = [] if in_place else [target]
        call = Call("allgather", send, [outputs[rank]], in_place)
        calls.append(world.call(rank, call, gather, Shape(1, RANKS, rank)))
    wait_all(world, calls)
    seen = []
    for rank, device in enumerate(world.devices):
        device.compute(lambda rank=rank: seen.append(outputs[rank].clone()))
    world.finish()
    assert len(seen) == RANKS
    for output in [*seen, *outputs]:
        assert torch.equal(output, want)


@pytest.mark.parametrize("nbytes", [4, 300_004, 1_000_000])
def test_allgather_of_a_list(world: World, nbytes: int) -> None:
    want = data(1, RANKS * nbytes)
    outputs = [[torch.zeros(nbytes, dtype=torch.uint8) for _ in range(RANKS)] for _ in range(RANKS)]
    calls = []
    for rank in range(RANKS):
        call = Call("allgather", [want.view(RANKS, -1)[rank].clone()], outputs[rank])
        calls.append(world.call(rank, call, gather, Shape(1, RANKS, rank)))
    wait_all(world, calls)
    world.finish()
    for output in outputs:
        assert torch.equal(torch.cat(output), want)


@pytest.mark.parametrize("nbytes", SIZES)
def test_allreduce(world: World, nbytes: int) -> None:
    tensors = [data(rank, nbytes) for rank in range(RANKS)]
    want = sum(t.view(torch.int32).clone() for t in tensors)
    calls = [
        world.call(rank, Call("allreduce", [], [tensors[rank]], in_place=True), add_up)
        for rank in range(RANKS)
    ]
    wait_all(world, calls)
    world.finish()
    for tensor in tensors:
        assert torch.equal(tensor.view(torch.int32), want)


@pytest.mark.parametrize("nbytes", SIZES)
def test_reduce_scatter(world: World, nbytes: int) -> None:
    inputs = [data(rank, RANKS * nbytes) for rank in range(RANKS)]
    outputs = [data(9, nbytes) for _ in range(RANKS)]
    want = sum(t.view(torch.int32).clone() for t in inputs).view(RANKS, -1)
    calls = [
        world.call(
            rank,
            Call("reduce_scatter", [inputs[rank]], [outputs[rank]]),
            reduce_scatter,
            Shape(RANKS, 1),
        )
        for rank in range(RANKS)
    ]
    wait_all(world, calls)
    world.finish()
    for rank in range(RANKS):
        assert torch.equal(outputs[rank].view(torch.int32), want[rank])


@pytest.mark.parametrize("nbytes", SIZES)
def test_alltoall(world: World, nbytes: int) -> None:
    inputs = [data(rank, RANKS * nbytes) for rank in range(RANKS)]
    outputs = [data(9, RANKS * nbytes) for _ in range(RANKS)]
    calls = [
        world.call(
            rank, Call("alltoall", [inputs[rank]], [outputs[rank]]), exchange, Shape(RANKS, RANKS)
        )
        for rank in range(RANKS)
    ]
    wait_all(world, calls)
    world.finish()
    for rank in range(RANKS):
        want = torch.cat([t.view(RANKS, -1)[rank] for t in inputs])
        assert torch.equal(outputs[rank], want)


@pytest.mark.parametrize("nbytes", SIZES)
def test_broadcast_copies_one_way(world: World, nbytes: int) -> None:
    tensors = [data(rank, nbytes) for rank in range(RANKS)]
    want = tensors[0].clone()
    calls = []
    for rank in range(RANKS):
        root = rank == 0
        call = Call("broadcast", [], [tensors[rank]], in_place=root, writes=not root)
        calls.append(world.call(rank, call, broadcast))
    wait_all(world, calls)
    world.finish()
    for tensor in tensors:
        assert torch.equal(tensor, want)
    pieces = len(cut(nbytes, 1, SMALL.piece)) if nbytes else 0
    assert [device.copies for device in world.devices] == [pieces] * RANKS


def test_strided_tensors(world: World) -> None:
    tensors = [data(rank, 40_000).view(torch.int32).view(100, 100).t() for rank in range(RANKS)]
    want = sum(t.clone() for t in tensors)
    calls = [
        world.call(rank, Call("allreduce", [], [tensors[rank]], in_place=True), add_up)
        for rank in range(RANKS)
    ]
    wait_all(world, calls)
    world.finish()
    for tensor in tensors:
        assert torch.equal(tensor, want)


def test_buffers_of_different_lengths_are_not_cut(world: World) -> None:
    def gather_to_first(buffers: Buffers) -> None:
        assert buffers[0][1] is not None
        assert buffers[1][1] is None
        buffers[0][1].copy_(torch.cat([send for send, _ in buffers]))

    inputs = [data(rank, 400_000) for rank in range(RANKS)]
    output = torch.zeros(RANKS * 400_000, dtype=torch.uint8)
    calls = []
    for rank in range(RANKS):
        call = Call("gather", [inputs[rank]], [output] if rank == 0 else [], divisible=False)
        calls.append(world.call(rank, call, gather_to_first))
    wait_all(world, calls)
    world.finish()
    assert torch.equal(output, torch.cat(inputs))
    assert world.network.started == [1] * RANKS


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(8))
def test_many_collectives_in_order(mode: str, seed: int) -> None:
    """Each operation uses the result of the previous one, without a synchronisation."""
    world = make_world(mode, seed)
    tensors = [data(rank, 600_000).view(torch.int32) for rank in range(RANKS)]
    want = [t.clone() for t in tensors]

    def job(rank: int) -> None:
        device = world.devices[rank]
        for step in range(6):
            device.compute(lambda step=step: tensors[rank].mul_(3).add_(step))
            call = Call("allreduce", [], [tensors[rank]], in_place=True)
            world.call(rank, call, add_up).wait_stream()

    threads = [threading.Thread(target=job, args=(rank,), daemon=True) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    world.finish()
    for step in range(6):
        want = [w * 3 + step for w in want]
        want = [sum(want)] * RANKS
    for rank in range(RANKS):
        assert torch.equal(tensors[rank], want[rank])
    for device in world.devices:
        device.close()


@pytest.mark.parametrize("one_queue", [False, True])
def test_device_that_accepts_few_commands(one_queue: bool) -> None:
    """A thread that is blocked while it enqueues does not keep pieces from ending."""
    devices = [FakeDevice(rank, one_queue=one_queue, limit=24) for rank in range(RANKS)]
    world = World(devices, [Staging(d, SMALL) for d in devices], FakeNetwork(RANKS))
    tensors = [data(rank, 12 << 20) for rank in range(RANKS)]
    want = sum(t.view(torch.int32).clone() for t in tensors)
    calls = [
        world.call(rank, Call("allreduce", [], [tensors[rank]], in_place=True), add_up)
        for rank in range(RANKS)
    ]
    wait_all(world, calls)
    world.finish()
    assert world.network.started[0] >= 12
    for tensor in tensors:
        assert torch.equal(tensor.view(torch.int32), want)
    for device in devices:
        device.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("groups", [1, 2])
def test_waits_in_another_order_than_calls(mode: str, groups: int) -> None:
    """Rank 0 waits for the last operation first, and the other ranks for the first one."""
    world = make_world(mode)
    networks = [world.network, FakeNetwork(RANKS)][:groups]
    stagings = [world.stagings]
    for _ in networks[1:]:
        stagings.append([staging.of_another_group() for staging in world.stagings])
    count = 4
    tensors = [[data(rank + i, 3 << 20) for i in range(count)] for rank in range(RANKS)]
    want = [
        sum(tensors[rank][i].view(torch.int32).clone() for rank in range(RANKS))
        for i in range(count)
    ]
    calls: list[list[StagedCall]] = [[] for _ in range(RANKS)]
    threads = []
    for rank in range(RANKS):
        queues: list[list[StagedCall]] = [[] for _ in networks]
        for i, tensor in enumerate(tensors[rank]):
            group = i % groups

            def start(
                send: Any, recv: Any, done: Any, _: Any, rank: int = rank, group: int = group
            ) -> None:
                networks[group].start(rank, add_up, send, recv, done)

            plan = Plan()
            call = Call("allreduce", [], [tensor], in_place=True)
            add_call(plan, SMALL, WHOLE, call, start)
            calls[rank].append(stagings[group][rank].call(plan, 60.0))
            queues[group].append(calls[rank][-1])
        for queue in queues:
            run = [call.run for call in queue]
            threads.append(threading.Thread(target=lambda run=run: [f() for f in run], daemon=True))
    for rank in range(RANKS):
        order = reversed(calls[rank]) if rank == 0 else calls[rank]
        waits = [call.wait_stream for call in order]
        threads.append(threading.Thread(target=lambda run=waits: [f() for f in run], daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "the operations block each other"
    world.finish()
    for rank in range(RANKS):
        for i in range(count):
            assert torch.equal(tensors[rank][i].view(torch.int32), want[i])
    for device in world.devices:
        device.close()


@pytest.mark.parametrize("mode", ["streams", "one queue"])
def test_neither_call_nor_wait_blocks_the_host(mode: str) -> None:
    world = make_world(mode)
    gates = [threading.Event() for _ in range(RANKS)]
    outputs = [torch.zeros(RANKS * 1_000_000, dtype=torch.uint8) for _ in range(RANKS)]
    inputs = [torch.zeros(1_000_000, dtype=torch.uint8) for _ in range(RANKS)]
    want = data(5, RANKS * 1_000_000)
    calls, seen = [], []
    for rank, device in enumerate(world.devices):
        # The input does not exist yet when the call and wait return.
        block = want.view(RANKS, -1)[rank]
        device.compute(lambda t=inputs[rank], b=block: t.copy_(b), gates[rank])
        call = Call("allgather", [inputs[rank]], [outputs[rank]])
        calls.append(world.call(rank, call, gather, Shape(1, RANKS, rank)))
        calls[-1].wait_stream()
        device.compute(lambda rank=rank: seen.append(outputs[rank].clone()))
    assert world.network.started == [0] * RANKS
    assert not any(call.done() for call in calls)
    for gate, device in zip(gates, world.devices):
        gate.set()
        device.poke()
    world.finish()
    assert len(seen) == RANKS
    assert all(torch.equal(s, want) for s in seen)
    assert all(call.done() for call in calls)
    for device in world.devices:
        device.close()


def test_wait_blocks_the_host_only_until_copies_are_enqueued() -> None:
    world = make_world("host")
    world.network.held = set()
    tensors = [data(rank, 4096) for rank in range(RANKS)]
    want = sum(t.view(torch.int32).clone() for t in tensors)
    calls = [
        world.call(rank, Call("allreduce", [], [tensors[rank]], in_place=True), add_up)
        for rank in range(RANKS)
    ]
    returned = threading.Event()

    def wait() -> None:
        for call in calls:
            call.wait_stream()
        returned.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    for worker in world.threads:
        worker.join(60)
    assert not returned.is_set()
    world.network.release()
    assert returned.wait(60)
    world.finish()
    for tensor in tensors:
        assert torch.equal(tensor.view(torch.int32), want)


def test_pieces_that_end_in_the_wrong_order(world: World) -> None:
    world.network.held = set()
    outputs = [torch.zeros(RANKS * 1_000_000, dtype=torch.uint8) for _ in range(RANKS)]
    want = data(5, RANKS * 1_000_000)
    calls = [
        world.call(
            rank,
            Call("allgather", [want.view(RANKS, -1)[rank].clone()], [outputs[rank]]),
            gather,
            Shape(1, RANKS, rank),
        )
        for rank in range(RANKS)
    ]
    world.network.wait_held(SMALL.depth)
    # No rank starts more pieces than it has memory for.
    assert world.network.started == [SMALL.depth] * RANKS
    world.network.release()
    wait_all(world, calls)
    world.finish()
    for output in outputs:
        assert torch.equal(output, want)


def test_copies_overlap_with_the_network() -> None:
    """While the network works on piece 0, the device copies piece 1."""
    world = make_world("streams")
    world.network.held = set()
    tensors = [data(rank, 3 << 20) for rank in range(RANKS)]
    calls = [
        world.call(rank, Call("allreduce", [], [tensors[rank]], in_place=True), add_up)
        for rank in range(RANKS)
    ]
    for device in world.devices:
        device.drain()
    assert [device.copies for device in world.devices] == [SMALL.depth] * RANKS
    world.network.release()
    wait_all(world, calls)
    world.finish()


@pytest.mark.parametrize("when", ["before wait", "after wait"])
@pytest.mark.parametrize("mode", MODES)
def test_failure_releases_streams(mode: str, when: str) -> None:
    if mode == "host" and when == "after wait":
        pytest.skip("with this device wait returns after the operation, so nothing can fail later")
    world = make_world(mode)
    world.network.held = set()
    world.network.failing[1] = ValueError("rank 2 is lost")
    tensors = [data(rank, 3 << 20) for rank in range(RANKS)]
    calls = [
        world.call(rank, Call("allreduce", [], [tensors[rank]], in_place=True), add_up)
        for rank in range(RANKS)
    ]
    if when == "after wait":
        for call in calls:
            call.wait_stream()
    ran = []
    for device in world.devices:
        device.compute(lambda: ran.append(True))
    world.network.release()
    world.finish()
    assert len(ran) == RANKS
    for call in calls:
        with pytest.raises(ValueError, match="rank 2 is lost"):
            call.wait_host(60)
        with pytest.raises(ValueError, match="rank 2 is lost"):
            call.wait_stream()
        assert call.done()
        assert isinstance(call.failure, ValueError)
    # The memory and the counters serve the next operation.
    world.network.restart()
    tensors = [data(rank, 3 << 20) for rank in range(RANKS)]
    want = sum(t.view(torch.int32).clone() for t in tensors)
    calls = [
        world.call(rank, Call("allreduce", [], [tensors[rank]], in_place=True), add_up)
        for rank in range(RANKS)
    ]
    wait_all(world, calls)
    world.finish()
    for tensor in tensors:
        assert torch.equal(tensor.view(torch.int32), want)


def test_memory_is_not_released_while_the_network_uses_it() -> None:
    """A failed piece ends its operation only after the other pieces that run have ended."""
    device = FakeDevice()
    staging = Staging(device, SMALL)
    tensor = data(1, 3 << 20)
    pieces: list[Callable[[Any], None]] = []
    started = threading.Semaphore(0)

    def start(send: Any, recv: Any, done: Any, timeout: Any) -> None:
        pieces.append(done)
        started.release()

    plan = Plan()
    add_call(plan, SMALL, Shape(), Call("allreduce", [], [tensor], in_place=True), start)
    call = staging.call(plan, 60.0)
    thread = threading.Thread(target=call.run, daemon=True)
    thread.start()
    for _ in range(SMALL.depth):
        assert started.acquire(timeout=60)
    call.wait_stream()
    passed = device.record(device.current_stream())
    pieces[0](ValueError("lost"))
    thread.join(60)
    assert not call.concluded()
    assert not device.query(passed)
    pieces[1](ValueError("lost too"))
    device.synchronize(passed)
    with pytest.raises(ValueError, match="lost"):
        call.wait_concluded(60)
    assert str(call.failure) == "lost"
    device.close()


def test_error_of_a_start_that_raises(world: World) -> None:
    tensor = data(1, 4096)

    def start(send: Any, recv: Any, done: Any, timeout: Any) -> None:
        raise ValueError("closed")

    plan = Plan()
    add_call(plan, SMALL, Shape(), Call("allreduce", [], [tensor], in_place=True), start)
    call = world.stagings[0].call(plan, 60.0)
    call.run()
    with pytest.raises(ValueError, match="closed"):
        call.wait_stream()


def test_error_of_the_device(world: World) -> None:
    """A copy that fails in the thread of a completion ends the operation."""
    device = world.devices[0]
    world.network = FakeNetwork(1)
    world.network.held = set()
    tensor = data(1, 4096)
    call = world.call(0, Call("allreduce", [], [tensor], in_place=True), add_up)
    for thread in world.threads:
        thread.join(60)
    device.failure = RuntimeError("the device is broken")
    world.network.release()
    with pytest.raises(RuntimeError, match="the device is broken"):
        call.wait_host(60)


@pytest.mark.parametrize("when", ["before the network", "during the network"])
def test_device_that_breaks(world: World, when: str) -> None:
    """After an error of CUDA, every call to the device fails. No thread may end or wait forever."""
    device, staging = world.devices[0], world.stagings[0]
    world.network = FakeNetwork(1)
    world.network.held = set()
    tensor = data(1, 4096)
    call = world.call(0, Call("allreduce", [], [tensor], in_place=True), add_up, run=False)
    if when == "before the network":
        device.broken = RuntimeError("the device is broken")
        call.run()
    else:
        call.run()
        device.broken = RuntimeError("the device is broken")
        world.network.release()
    with pytest.raises(RuntimeError, match="the device is broken"):
        call.wait_concluded(60)
    with pytest.raises(RuntimeError, match="the device is broken"):
        call.wait_stream()
    assert call.done()
    alive = threading.Event()
    staging.copies.add(alive.set)
    assert alive.wait(60)


def test_deadline_covers_all_pieces(world: World) -> None:
    seen: list[float] = []
    tensor = data(1, 3 << 20)

    def start(send: Any, recv: Any, done: Any, timeout: float) -> None:
        seen.append(timeout)
        threading.Thread(target=done, args=(None,), daemon=True).start()

    plan = Plan()
    add_call(plan, SMALL, Shape(), Call("allreduce", [], [tensor], in_place=True), start)
    call = world.stagings[0].call(plan, 30.0)
    call.run()
    call.wait_host(60)
    assert len(seen) == len(plan.pieces) > 2
    assert min(seen) > 0
    assert max(seen) <= 30
    assert seen == sorted(seen, reverse=True)


@pytest.mark.parametrize("waits", [False, True])
def test_tensors_live_as_long_as_needed(waits: bool) -> None:
    device = FakeDevice()
    network = FakeNetwork(1)
    network.held = set()
    world = World([device], [Staging(device, SMALL)], network)
    tensor = data(1, 4096)
    alive = weakref.ref(tensor)
    call = world.call(0, Call("allreduce", [], [tensor], in_place=True), add_up)
    del tensor
    world.threads[0].join(60)
    gc.collect()
    assert alive() is not None
    if waits:
        # The current stream now waits for the operation, and so does whoever gets the memory next.
        call.wait_stream()
    network.release()
    assert call.wait_host(60)
    assert bool(device.used) is not waits
    device.used.clear()
    device.drain()
    gc.collect()
    assert alive() is None
    device.close()


def test_messages_overtake_collectives() -> None:
    """A collective that waits for its input does not hold up a message."""
    device = FakeDevice()
    staging = Staging(device, SMALL)
    gate = threading.Event()
    device.compute(lambda: None, gate)
    collective = Plan()
    add_call(
        collective,
        SMALL,
        Shape(),
        Call("allreduce", [], [data(1, 4096)], in_place=True),
        lambda send, recv, done, timeout: done(None),
    )
    blocked = staging.call(collective, 60.0)
    thread = threading.Thread(target=blocked.run, daemon=True)
    thread.start()
    stream = device.new_stream()
    sent, received = data(2, 4096), torch.zeros(4096, dtype=torch.uint8)
    with device.using(stream):
        plan = Plan()
        add_call(
            plan,
            SMALL,
            Shape(),
            Call("recv", [], [received], divisible=False),
            lambda send, recv, done, timeout: (recv.copy_(sent), done(None)),
        )
        # A receive needs no copy to the host, so that the calling thread can start it.
        receive = staging.call(plan, 60.0, message=True)
        receive.run()
        receive.wait_host(60)
    assert torch.equal(received, sent)
    assert not blocked.concluded()
    gate.set()
    device.poke()
    thread.join(60)
    blocked.wait_host(60)
    device.close()


def test_cut_depends_on_sizes_only() -> None:
    for block in (0, 1, 255, 256, 257, 65536, 1 << 20, (5 << 20) + 12, 64 << 20):
        for blocks in (1, 2, 4, 64):
            ranges = cut(block, blocks, 8 << 20)
            assert sum(width for _, width in ranges) == block
            assert all(offset % 256 == 0 for offset, _ in ranges)
            assert [offset for offset, _ in ranges] == [
                sum(width for _, width in ranges[:i]) for i in range(len(ranges))
            ]
            assert len(ranges) <= 48
            if 256 <= block <= 1 << 20:
                assert max(w for _, w in ranges) <= max(2 * (8 << 20) // blocks, 128 << 10)


def test_wrong_sizes_are_refused() -> None:
    call = Call("allgather", [data(1, 100)], [data(2, 200)])
    with pytest.raises(ValueError, match="does not consist of 3 equal blocks"):
        add_call(Plan(), SMALL, Shape(1, 3, 0), call, lambda *_: None)
    call = Call("allgather", [data(1, 100)], [data(2, 600)])
    with pytest.raises(ValueError, match="pass tensors of matching sizes"):
        add_call(Plan(), SMALL, Shape(1, 3, 0), call, lambda *_: None)


def test_pool_reuses_memory() -> None:
    device = FakeDevice()
    pool = Pool(device, 1 << 20)
    first, event = pool.take(100_000)
    assert first.numel() == 131072
    assert event is None
    stream = device.new_stream()
    pool.put(first, device.record(stream))
    device.drain()
    again, event = pool.take(131_072)
    assert again is first
    assert event is None
    device.close()


def test_pool_forgets_memory_that_it_did_not_get(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice()
    pool = Pool(device, 1 << 20)

    def fail(nbytes: int) -> torch.Tensor:
        raise MemoryError(f"{nbytes} bytes")

    monkeypatch.setattr(device, "pinned", fail)
    with pytest.raises(MemoryError):
        pool.take(1 << 16)
    assert pool.owned == 0
    device.close()


def test_pool_is_bounded() -> None:
    device = FakeDevice()
    pool = Pool(device, 1 << 20)
    gate = threading.Event()
    device.compute(lambda: None, gate)
    busy = device.record(device.current_stream())
    taken = [pool.take(1 << 18)[0] for _ in range(4)]
    assert pool.owned == 1 << 20
    pool.put(taken[0], busy)
    # Below the limit, memory whose event has not occurred is left alone. At the limit, it is the
    # next.
    memory, event = pool.take(1 << 18)
    assert memory is taken[0]
    assert event is busy
    # Whoever must not wait for other operations gets memory beyond the limit for the time being.
    pool.put(memory, busy)
    extra, event = pool.take(1 << 18, idle_only=True)
    assert event is None
    assert pool.owned == 5 << 18
    gate.set()
    device.poke()
    device.drain()
    pool.put(extra, None)
    assert pool.owned <= 1 << 20
    device.close()


def test_counters_only_grow() -> None:
    device = FakeDevice()
    flags = Flags(device, slots=1)
    flag = flags.take()
    flag.base = 2**31 - 2
    flag.advance(0)
    stream = device.new_stream()
    passed = []
    for value in range(1, 5):
        device.wait_flag(stream, flag.memory, flag.base + value)
        passed.append(device.record(stream))
    for value in range(1, 5):
        assert not device.query(passed[value - 1])
        flag.advance(value)  # the third value wraps around
        device.synchronize(passed[value - 1])
    flag.base += 4
    flags.put(flag)
    assert flags.take() is flag
    assert int(flag.memory.item()) == -(2**31) + 2
    device.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [("ALLCAST_TORCH_PIECE", "100"), ("ALLCAST_TORCH_PIECES", "0"), ("ALLCAST_TORCH_PIECE", "x")],
)
def test_settings_name_the_variable(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"{name} is '{value}'"):
        Settings.from_environment()
