"""Allcast as a backend of torch.distributed.

    import allcast.torch
    torch.distributed.init_process_group("allcast")

Importing the module registers the backend "allcast" for CPU and CUDA tensors.
"""

from __future__ import annotations

import importlib
from typing import Any

from .backend import register
from .groups import worlds
from .weights import WeightsError, load_state_dict

__all__ = ["WeightsError", "load_state_dict", "register", "stats"]

register()


def __getattr__(name: str) -> Any:
    # fsdp needs parts of torch that not every release has.
    if name == "fsdp":
        return importlib.import_module(".fsdp", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def stats() -> dict[str, Any]:
    """Returns what the process groups of this process have done so far.

    `groups` has rank, size and operations of each group, by name. The operations map a name, such
    as "allgather", and an algorithm, such as "mcast", to the count of operations and to their
    bytes: the size of the larger buffer of each. `counters` has the counters of
    `allcast.Comm.stats` for each job, by the name of its first group.
    """
    result: dict[str, Any] = {"groups": {}, "counters": {}}
    for world in worlds():
        groups = world.groups()
        for group in groups:
            result["groups"][group.name] = {
                "rank": group.rank,
                "size": group.size,
                "operations": group.counts(),
            }
        if groups:
            result["counters"][groups[0].name] = world.comm.stats()
    return result
