"""FSDP2 with all-gathers over multicast, next to another backend.

    torch.distributed.init_process_group("nccl")
    ...
    fully_shard(model)
    allcast.torch.fsdp.use_multicast(model)

FSDP2 then gathers parameters with Allcast. Everything else, such as reduce-scatter, stays with the
backend of the default group.
"""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule

import allcast

from . import backend

try:
    from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather
except ImportError as error:
    raise ImportError(
        f"allcast.torch.fsdp needs the class AllGather of FSDP2, which torch {torch.__version__} "
        "does not have: use torch 2.9 to 2.15"
    ) from error

__all__ = ["MulticastAllGather", "use_multicast"]

_KEPT_BYTES = 256 << 20  # registered memory that a process keeps for reuse


def use_multicast(model: nn.Module, group: dist.ProcessGroup | None = None) -> None:
    """Makes every FSDP module of a model gather its parameters with Allcast.

    All ranks call it, after fully_shard and before the first forward. It makes one group of Allcast
    for each group of ranks that shards parameters. Instead, `group` can be a group of the backend
    "allcast" with the same ranks in the same order.

    On CUDA tensors, the all-gather blocks no other stream. It blocks the host only on a GPU that
    several processes share.
    """
    if not hasattr(FSDPModule, "set_custom_all_gather"):
        raise RuntimeError(
            "use_multicast needs FSDPModule.set_custom_all_gather, which torch "
            f"{torch.__version__} does not have: use torch 2.9 or newer"
        )
    modules = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not modules:
        raise ValueError(
            "use_multicast found no FSDP module: call fully_shard before use_multicast"
        )
    gather = MulticastAllGather()
    for module in modules:
        for shards in _shard_groups(module):
            gather.add(shards, group)
    for module in modules:
        module.set_custom_all_gather(gather)


def _shard_groups(module: FSDPModule) -> Iterator[dist.ProcessGroup]:
    """Yields the groups in which a module gathers, before and after forward."""
    params = module._get_fsdp_state()._fsdp_param_group
    if params is None:
        return  # all parameters belong to other FSDP modules
    for mesh_info in (params.mesh_info, params.post_forward_mesh_info):
        shards = getattr(mesh_info, "shard_process_group", None)
        if shards is not None:
            yield shards


def _communicator(group: dist.ProcessGroup) -> allcast.Comm | None:
    """Returns the communicator of a group whose only backend is Allcast, None for other groups."""
    served = [backend.group_of(group, device) for device in group._device_types]
    return served[0].comm if served and served[0] is not None and None not in served else None


class MulticastAllGather(AllGather):
    """The all-gather of FSDP2 over Allcast."""

    def __init__(self) -> None:
        self._groups: dict[tuple[int, ...], dist.ProcessGroup] = {}
        self._memory: _Registered | None = None

    def add(self, shards: dist.ProcessGroup, group: dist.ProcessGroup | None = None) -> None:
        """Prepares all-gathers of the ranks of a group. All of its ranks call it."""
        ranks = tuple(dist.get_process_group_ranks(shards))
        if ranks in self._groups:
            return
        if group is not None:
            given = tuple(dist.get_process_group_ranks(group))
            if given != ranks:
                raise ValueError(
                    f"use_multicast got a group of ranks {list(given)}, but ranks {list(ranks)} "
                    "share parameters: pass a group of these ranks, or none"
                )
            if _communicator(group) is None:
                raise ValueError(
                    "use_multicast got a group of another backend: make it with "
                    'new_group(backend="allcast"), or pass none'
                )
            made = group
        elif _communicator(shards) is not None:
            made = shards
        else:
            # Only the members make the group: other ranks shard other copies of the parameters.
            made = cast(
                dist.ProcessGroup,
                dist.new_group(list(ranks), backend=backend.NAME, use_local_synchronization=True),
            )
        self._groups[ranks] = made
        if self._memory is None:
            comm = _communicator(made)
            assert comm is not None
            self._memory = _Registered(comm)

    def allocate(
        self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Returns the memory into which FSDP gathers.

        For CUDA, FSDP needs memory of the device. Staging pins the host memory in between.
        """
        if torch.device(device).type != "cpu" or self._memory is None:
            return torch.empty(*size, dtype=dtype, device=device)
        return self._memory.empty([int(n) for n in size], dtype)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        ranks = tuple(dist.get_process_group_ranks(group))
        multicast = self._groups.get(ranks)
        if multicast is None:
            raise RuntimeError(
                f"ranks {list(ranks)} had no FSDP module when use_multicast was called: call it "
                "after the last fully_shard"
            )
        work: dist.Work | None = dist.all_gather_into_tensor(
            output_tensor, input_tensor, group=multicast, async_op=async_op
        )
        return work


class _Registered:
    """Memory that the network uses without a copy or a registration, for reuse.

    A tensor of it gives its memory back when its storage is freed.
    """

    def __init__(self, comm: allcast.Comm) -> None:
        self._comm = comm
        # Garbage collection gives memory back in any thread, also in one that holds the lock.
        self._lock = threading.RLock()
        self._free: dict[int, list[Any]] = {}  # allocations, by size
        self._kept = 0

    def empty(self, size: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        nbytes = math.prod(size) * dtype.itemsize
        if nbytes == 0:
            return torch.empty(*size, dtype=dtype)
        with self._lock:
            free = self._free.get(nbytes)
            allocation = free.pop() if free else None
            if allocation is not None:
                self._kept -= nbytes
        if allocation is None:
            allocation = self._comm.alloc(nbytes)
        # torch holds the buffer as long as a tensor uses the memory.
        buffer = (ctypes.c_ubyte * nbytes).from_address(allocation.address)
        weakref.finalize(buffer, self._give_back, allocation, nbytes).atexit = False
        return torch.frombuffer(buffer, dtype=dtype).view(size)

    def _give_back(self, allocation: Any, nbytes: int) -> None:
        with self._lock:
            if self._kept + nbytes <= _KEPT_BYTES:
                self._kept += nbytes
                self._free.setdefault(nbytes, []).append(allocation)
