"""Overlaps broadcasts with other work in an asyncio event loop.

Start one process per rank, for example with

    allcast run -n 4 -- python3 examples/python/event_loop.py
"""

from __future__ import annotations

import asyncio

import allcast

BLOCKS = 8
BLOCK_BYTES = 256 << 10


class Operations:
    """Turns operations into futures of the running event loop."""

    def __init__(self) -> None:
        self.queue = allcast.Queue()
        self._loop = asyncio.get_running_loop()
        self._futures: dict[int, asyncio.Future[None]] = {}
        self._loop.add_reader(self.queue.fileno(), self._complete)

    def future(self, number: int) -> asyncio.Future[None]:
        """Returns the future of the operation that is started with user=number."""
        self._futures[number] = self._loop.create_future()
        return self._futures[number]

    def _complete(self) -> None:
        for completion in self.queue.next(0):
            future = self._futures.pop(completion.user)
            try:
                completion.request.wait()  # returns or raises at once
                future.set_result(None)
            except allcast.Error as err:
                future.set_exception(err)

    def close(self) -> None:
        """Ends the use of the loop."""
        self._loop.remove_reader(self.queue.fileno())
        self.queue.close()


async def count_ticks() -> None:
    """Is the other work of the loop."""
    while True:
        await asyncio.sleep(0.001)


async def main() -> None:
    """Broadcasts blocks, all at once, while the loop runs other tasks."""
    ticks = asyncio.create_task(count_ticks())
    with allcast.join() as comm:
        operations = Operations()
        blocks = [bytearray(BLOCK_BYTES) for _ in range(BLOCKS)]
        if comm.rank == 0:
            for i, block in enumerate(blocks):
                block[:] = bytes([i + 1]) * BLOCK_BYTES
        futures = []
        for i, block in enumerate(blocks):
            futures.append(operations.future(i))
            comm.start_broadcast(block, root=0, queue=operations.queue, user=i)
        await asyncio.gather(*futures)
        operations.close()
        for i, block in enumerate(blocks):
            if block != bytes([i + 1]) * BLOCK_BYTES:
                raise SystemExit(f"block {i} is wrong")
        print(f"rank {comm.rank} received {BLOCKS} blocks")
    ticks.cancel()


asyncio.run(main())
