"""Gathers one block of numbers per rank, and averages them.

Start one process per rank, for example with

    allcast run -n 4 -- python3 examples/python/allgather.py
"""

from __future__ import annotations

import array

import allcast

NUMBERS = 100_000

with allcast.join() as comm:
    mine = array.array("d", [float(comm.rank)]) * NUMBERS
    everything = array.array("d", bytes(8 * NUMBERS * comm.size))
    comm.allgather(mine, everything)
    for rank in range(comm.size):
        block = everything[rank * NUMBERS : (rank + 1) * NUMBERS]
        if block != array.array("d", [float(rank)]) * NUMBERS:
            raise SystemExit(f"the block of rank {rank} is wrong")

    # In place: the input is in the buffer for the result.
    comm.allreduce(None, mine, "average")
    if comm.rank == 0:
        way = "multicast" if comm.describe()["multicast"]["works"] else "point to point"
        print(f"{comm.size} ranks gathered {everything.itemsize * len(everything)} bytes ({way})")
        print(f"the average of their ranks is {mine[0]}")
