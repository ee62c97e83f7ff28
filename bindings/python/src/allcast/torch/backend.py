"""The process group and the backend of torch.distributed.

torch calls the same operations under several names: those of torch 2.9, such as `_allgather_base`,
and those of newer releases, such as `all_gather_single`. `Operations` has both.

`ProcessGroup` serves groups whose only backend is Allcast. Calls from Python then reach it without
torch's dispatcher, and programs get its Works. `Backend` serves groups that use other backends for
other devices, and groups that torch's flight recorder sees. Python can subclass torch's Backend
since torch 2.14. torch wraps the Works of such a group: only wait and get_future reach them, and
is_completed of the wrapper stays false.
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C import _distributed_c10d as c10d
from torch.distributed import distributed_c10d

import allcast
from allcast import DataType, Memory, Op

from . import groups, tracing
from .groups import Group
from .works import Batch, Call, Work

NAME = "allcast"
DEVICES = ["cpu", "cuda"]


# Element types of reductions. A complex number is a pair of floats.
_TYPES: dict[torch.dtype, DataType] = {
    torch.float32: DataType.FLOAT32,
    torch.float64: DataType.FLOAT64,
    torch.float16: DataType.FLOAT16,
    torch.bfloat16: DataType.BFLOAT16,
    torch.int8: DataType.INT8,
    torch.int16: DataType.INT16,
    torch.int32: DataType.INT32,
    torch.int64: DataType.INT64,
    torch.uint8: DataType.UINT8,
    torch.uint16: DataType.UINT16,
    torch.uint32: DataType.UINT32,
    torch.uint64: DataType.UINT64,
    torch.bool: DataType.BOOL,
    torch.complex32: DataType.FLOAT16,
    torch.complex64: DataType.FLOAT32,
    torch.complex128: DataType.FLOAT64,
}

_RedOpType: Any = c10d.ReduceOp.RedOpType

_OPS: dict[Any, Op] = {
    _RedOpType.SUM: Op.SUM,
    _RedOpType.AVG: Op.AVERAGE,
    _RedOpType.PRODUCT: Op.PRODUCT,
    _RedOpType.MIN: Op.MIN,
    _RedOpType.MAX: Op.MAX,
    _RedOpType.BAND: Op.AND,
    _RedOpType.BOR: Op.OR,
    _RedOpType.BXOR: Op.XOR,
    _RedOpType.PREMUL_SUM: Op.PREMULTIPLIED_SUM,
}

# A sum of truth values is true if one of them is, a product if all are.
_BOOL_OPS: dict[Op, Op] = {
    Op.SUM: Op.OR,
    Op.MAX: Op.OR,
    Op.OR: Op.OR,
    Op.PRODUCT: Op.AND,
    Op.MIN: Op.AND,
    Op.AND: Op.AND,
    Op.XOR: Op.XOR,
}

_COMPLEX_OPS = (Op.SUM, Op.AVERAGE, Op.PREMULTIPLIED_SUM)


class _Reduction:
    """Operator, element type and factor of a reduction."""

    __slots__ = ("arguments",)

    def __init__(self, reduce_op: Any, tensor: Tensor) -> None:
        kind = reduce_op.op if isinstance(reduce_op, c10d.ReduceOp) else reduce_op
        op = _OPS[kind]
        dtype = _TYPES.get(tensor.dtype)
        if dtype is None:
            raise TypeError(
                f"allcast cannot reduce tensors of type {tensor.dtype}: convert them, for example "
                "to float32"
            )
        if dtype is DataType.BOOL:
            if op not in _BOOL_OPS:
                raise TypeError(f"allcast cannot reduce tensors of type torch.bool with {kind}")
            op = _BOOL_OPS[op]
        if tensor.is_complex() and op not in _COMPLEX_OPS:
            raise TypeError(
                f"allcast cannot reduce tensors of type {tensor.dtype} with {kind}: "
                "use SUM, AVG or PREMUL_SUM"
            )
        self.arguments: dict[str, Any] = {"op": op, "dtype": dtype}
        if op is Op.PREMULTIPLIED_SUM:
            # The state of a ReduceOp is its kind and the factor, a number or a tensor.
            self.arguments["factor"] = float(reduce_op.__getstate__()[1])


def _as_list(tensors: Tensor | Sequence[Tensor]) -> Sequence[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else tensors


def _one(tensors: Tensor | Sequence[Tensor], operation: str) -> Tensor:
    if isinstance(tensors, Tensor):
        return tensors
    if len(tensors) != 1:
        raise ValueError(f"{operation} takes one tensor per rank, and got {len(tensors)}")
    return tensors[0]


def _check_tensors(operation: str, first: Tensor, *others: Tensor) -> None:
    """Checks that the tensors of an operation have a layout, type and device in common."""
    for tensor in (first, *others):
        if tensor.layout is not torch.strided:
            raise TypeError(
                f"allcast cannot move tensors with layout {tensor.layout}: convert them with "
                "to_dense()"
            )
        if tensor.dtype != first.dtype:
            raise TypeError(
                f"{operation} of tensors of type {first.dtype} and {tensor.dtype}: convert them to "
                "one type"
            )
        _check_devices(operation, first, tensor)


def _check_devices(operation: str, tensor: Tensor, other: Tensor) -> None:
    if tensor.device != other.device:
        raise ValueError(
            f"{operation} of tensors on {tensor.device} and {other.device}: move them to one device"
        )


def _check_sizes(operation: str, tensors: Sequence[Tensor], nbytes: int) -> None:
    """Checks that tensors have the same size."""
    for tensor in tensors:
        if tensor.nbytes != nbytes:
            raise ValueError(
                f"{operation} of a tensor of {nbytes} bytes per rank, and of one of "
                f"{tensor.nbytes}: pass tensors of equal size"
            )


def _pairs(operation: str, outputs: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Returns the outputs and inputs of the parts of a coalesced operation."""
    if len(outputs) != len(inputs):
        raise ValueError(
            f"{operation} got {len(outputs)} outputs for {len(inputs)} inputs: pass as many"
        )
    return list(zip(outputs, inputs))


def _check_lists(operation: str, lists: Sequence[Any], size: int) -> Sequence[Tensor]:
    """Returns the only list of tensors of an operation, which has one tensor per rank."""
    if len(lists) != 1:
        raise ValueError(f"{operation} takes one list of tensors, and got {len(lists)}")
    tensors: Sequence[Tensor] = lists[0]
    if len(tensors) != size:
        raise ValueError(
            f"{operation} in a group of {size} ranks takes a list of {size} tensors, and got "
            f"{len(tensors)}"
        )
    return tensors


class Operations:
    """The operations of c10d on a group."""

    _group: Group

    # ---- One tensor ----

    def broadcast(self, tensors: Any, opts: Any = None) -> Work:
        if isinstance(opts, int):
            root, opts = opts, c10d.BroadcastOptions()
        else:
            opts = opts or c10d.BroadcastOptions()
            root = opts.rootRank
        tensor = _one(tensors, "broadcast")
        _check_tensors("broadcast", tensor)
        comm = self._group.comm

        def start(send: Memory | None, recv: Memory | None, options: dict[str, Any]) -> Any:
            return comm.start_broadcast(recv, root, **options)

        is_root = root == self._group.rank
        return self._group.launch(
            Call(
                "broadcast",
                (),
                (tensor,),
                start,
                [tensor],
                self._seconds(opts),
                sync=not opts.asyncOp,
                in_place=is_root,
                writes=not is_root,
                divisible=True,
            )
        )

    def allreduce(self, tensors: Any, opts: Any = None) -> Work:
        opts = self._reduce_options(opts, c10d.AllreduceOptions)
        tensor = _one(tensors, "allreduce")
        if tensor.is_sparse:
            return self._allreduce_sparse(tensor, opts)
        return self._group.launch(self._allreduce(tensor, opts))

    def _allreduce(self, tensor: Tensor, opts: Any) -> Call:
        _check_tensors("allreduce", tensor)
        reduction = _Reduction(opts.reduceOp, tensor).arguments
        comm = self._group.comm

        def start(send: Memory | None, recv: Memory | None, options: dict[str, Any]) -> Any:
            return comm.start_allreduce(None, recv, **reduction, **options)

        return Call(
            "allreduce",
            (),
            (tensor,),
            start,
            [tensor],
            self._seconds(opts),
            sync=not opts.asyncOp,
            in_place=True,
            divisible=True,
        )

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Work:
        opts = self._reduce_options(opts, c10d.AllreduceCoalescedOptions)
        return self._many([self._allreduce(tensor, opts) for tensor in tensors], tensors)

    def reduce(self, tensors: Any, opts: Any = None, op: Any = None) -> Work:
        if isinstance(opts, int):
            root = opts
            opts = c10d.ReduceOptions()
            opts.rootRank = root
            if op is not None:
                opts.reduceOp = op
        opts = opts or c10d.ReduceOptions()
        tensor = _one(tensors, "reduce")
        _check_tensors("reduce", tensor)
        reduction = _Reduction(opts.reduceOp, tensor).arguments
        comm, root = self._group.comm, opts.rootRank
        is_root = root == self._group.rank

        def start(send: Memory | None, recv: Memory | None, options: dict[str, Any]) -> Any:
            # The root reduces in place, and the other ranks keep their input.
            return comm.start_reduce(send, recv, root=root, **reduction, **options)

        return self._group.launch(
            Call(
                "reduce",
                () if is_root else (tensor,),
                (tensor,) if is_root else (),
                start,
                [tensor],
                self._seconds(opts),
                sync=not opts.asyncOp,
                in_place=is_root,
                divisible=True,
            )
        )

    # ---- Gather ----

    def _allgather(
        self, outputs: Sequence[Tensor], tensor: Tensor, results: Sequence[Tensor], opts: Any
    ) -> Call:
        """Describes an allgather. The outputs make up the receive buffer."""
        _check_tensors("allgather", tensor, *outputs)
        comm, rank, size = self._group.comm, self._group.rank, self._group.size
        own = tensor.nbytes
        counts: list[int] | None = None
        if len(outputs) == 1:
            if outputs[0].nbytes != own * size:
                raise ValueError(
                    f"allgather of {own} bytes per rank into a tensor of {outputs[0].nbytes} "
                    f"bytes: {size} ranks need {own * size}"
                )
        else:
            counts = [output.nbytes for output in outputs]
            if counts[rank] != own:
                raise ValueError(
                    f"allgather of a tensor of {own} bytes, but the output of this rank has "
                    f"{counts[rank]}"
                )
            if all(count == own for count in counts):
                counts = None

        def start(send: Memory | None, recv: Memory | None, options: dict[str, Any]) -> Any:
            if counts is not None:
                return comm.start_allgatherv(send, recv, counts, **options)
            return comm.start_allgather(send, recv, **options)

        return Call(
            "allgather",
            (tensor,),
            outputs,
            start,
            results,
            self._seconds(opts),
            sync=not opts.asyncOp,
            divisible=counts is None,
        )

    def allgather(self, output_lists: Any, inputs: Any, opts: Any = None) -> Work:
        opts = opts or c10d.AllgatherOptions()
        if isinstance(inputs, Tensor):
            output_lists = [output_lists]
        outputs = _check_lists("allgather", output_lists, self._group.size)
        tensor = _one(inputs, "allgather")
        return self._group.launch(self._allgather(outputs, tensor, outputs, opts))

    def all_gather_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Work:
        opts = opts or c10d.AllgatherOptions()
        return self._group.launch(self._allgather((output,), tensor, [output], opts))

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        opts = opts or c10d.AllgatherOptions()
        pairs = _pairs("allgather_into_tensor_coalesced", outputs, inputs)
        calls = [self._allgather((o,), i, [o], opts) for o, i in pairs]
        return self._many(calls, outputs)

    def allgather_coalesced(self, output_lists: Any, inputs: Any, opts: Any = None) -> Work:
        """Gathers several tensors. output_lists has one list per rank."""
        opts = opts or c10d.AllgatherOptions()
        if len(output_lists) != self._group.size:
            raise ValueError(
                f"allgather_coalesced takes one list of outputs for each of the {self._group.size} "
                f"ranks, and got {len(output_lists)}"
            )
        for outputs in output_lists:
            _pairs("allgather_coalesced", outputs, inputs)
        calls = [
            self._allgather([outputs[i] for outputs in output_lists], tensor, [], opts)
            for i, tensor in enumerate(inputs)
        ]
        return self._many(calls, [output for outputs in output_lists for output in outputs])

    def _gather(self, outputs: Sequence[Tensor], tensor: Tensor, opts: Any) -> Work:
        _check_tensors("gather", tensor, *outputs)
        if len(outputs) > 1:
            _check_sizes("gather", outputs, tensor.nbytes)
        comm, root = self._group.comm, opts.rootRank

        def start(send: Memory | None, recv: Memory | None, options: dict[str, Any]) -> Any:
            return comm.start_gather(send, recv, root, **options)

        total = sum(output.nbytes for output in outputs)
        if root == self._group.rank and total != tensor.nbytes * self._group.size:
            raise ValueError(
                f"gather of {tensor.nbytes} bytes per rank into {total} bytes: "
                f"{self._group.size} ranks need {tensor.nbytes * self._group.size}"
            )
        return self._group.launch(
            Call(
                "gather",
                (tensor,),
                outputs,
                start,
                outputs,
                self._seconds(opts),
                sync=not opts.asyncOp,
                divisible=True,
            )
        )

    def gather(
        self, output_lists: Any, inputs: Any, opts: Any = None, root: int | None = None
    ) -> Work:
        if isinstance(inputs, Tensor):
            output_lists = [output_lists] if output_lists else []
        opts = self._root_options(opts, root, c10d.GatherOptions)
        outputs: Sequence[Tensor] = ()
        if opts.rootRank == self._group.rank:
            outputs = _check_lists("gather", output_lists, self._group.size)
        elif any(output_lists):
            raise ValueError("gather takes outputs on the root only")
        return self._gather(outputs, _one(inputs, "gather"), opts)

    def gather_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Work:
        opts = opts or c10d.GatherOptions()
        outputs = (output,) if opts.rootRank == self._group.rank else ()
        return self._gather(outputs, tensor, opts)

    # ---- Scatter ----

    def scatter(
        self, outputs: Any, input_lists: Any, opts: Any = None, root: int | None = None
    ) -> Work:
        if isinstance(outputs, Tensor):
            input_lists = [input_lists] if input_lists else []
        opts = self._root_options(opts, root, c10d.ScatterOptions)
        tensor = _one(outputs, "scatter")
        inputs: Sequence[Tensor] = ()
        if opts.rootRank == self._group.rank:
            inputs = _check_lists("scatter", input_lists, self._group.size)
        elif any(input_lists):
            raise ValueError("scatter takes inputs on the root only")
        _check_tensors("scatter", tensor, *inputs)
        _check_sizes("scatter", inputs, tensor.nbytes)
        comm, scatter_root = self._group.comm, opts.rootRank

        def start(send: Memory | None, recv: Memory | None, options: dict[str, Any]) -> Any:
            return comm.start_scatter(send, recv, scatter_root, **options)

        return self._group.launch(
            Call(
                "scatter",
                inputs,
                (tensor,),
                start,
                [tensor],
                self._seconds(opts),
                sync=not opts.asyncOp,
                divisible=True,
            )
        )

    def _reduce_scatter(
        self, output: Tensor, inputs: Sequence[Tensor], results: Sequence[Tensor], opts: Any
    ) -> Call:
        """Describes a reduce-scatter. The inputs make up the send buffer."""
        _check_tensors("reduce_scatter", output, *inputs)
        reduction = _Reduction(opts.reduceOp, output).arguments
        comm, rank, size = self._group.comm, self._group.rank, self._group.size
        own = output.nbytes
        counts: list[int] | None = None
        if len(inputs) == 1:
            if inputs[0].nbytes != own * size:
                raise ValueError(
                    f"reduce_scatter of {inputs[0].nbytes} bytes into {own} bytes per rank: "
                    f"{size} ranks need {own * size}"
                )
        else:
            counts = [tensor.nbytes for tensor in inputs]
            if counts[rank] != own:
                raise ValueError(
                    f"reduce_scatter into a tensor of {own} bytes, but the input for this rank has "
                    f"{counts[rank]}"
                )
            if all(count == own for count in counts):
                counts = None

        def start(send: Memory | None, recv: Memory | None, options: dict[str, Any]) -> Any:
            if counts is not None:
                return comm.start_reduce_scatterv(send, recv, counts, **reduction, **options)
            return comm.start_reduce_scatter(send, recv, **reduction, **options)

        return Call(
            "reduce_scatter",
            inputs,
            (output,),
            start,
            results,
            self._seconds(opts),
            sync=not opts.asyncOp,
            divisible=counts is None,
        )

    def reduce_scatter(self, outputs: Any, input_lists: Any, opts: Any = None) -> Work:
        if isinstance(outputs, Tensor):
            input_lists = [input_lists]
        opts = self._reduce_options(opts, c10d.ReduceScatterOptions)
        inputs = _check_lists("reduce_scatter", input_lists, self._group.size)
        output = _one(outputs, "reduce_scatter")
        return self._group.launch(self._reduce_scatter(output, inputs, [output], opts))

    def reduce_scatter_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Work:
        opts = self._reduce_options(opts, c10d.ReduceScatterOptions)
        return self._group.launch(self._reduce_scatter(output, (tensor,), [output], opts))

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        opts = self._reduce_options(opts, c10d.ReduceScatterOptions)
        pairs = _pairs("reduce_scatter_tensor_coalesced", outputs, inputs)
        calls = [self._reduce_scatter(o, (i,), [o], opts) for o, i in pairs]
        return self._many(calls, outputs)

    # ---- All-to-all ----

    def _alltoall(
        self,
        outputs: Sequence[Tensor],
        inputs: Sequence[Tensor],
        recv_counts: list[int],
        send_counts: list[int],
        opts: Any,
    ) -> Work:
        _check_tensors("alltoall", *outputs, *inputs)
        comm, rank = self._group.comm, self._group.rank
        if recv_counts[rank] != send_counts[rank]:
            raise ValueError(
                f"alltoall of {send_counts[rank]} bytes from this rank to itself into "
                f"{recv_counts[rank]} bytes: pass equal sizes"
            )

        def start(send: Memory | None, recv: Memory | None, options: dict[str, Any]) -> Any:
            # Ranks cannot know whether the counts of others are equal, so that all use alltoallv.
            return comm.start_alltoallv(send, recv, send_counts, recv_counts, **options)

        return self._group.launch(
            Call(
                "alltoall",
                inputs,
                outputs,
                start,
                outputs,
                self._seconds(opts),
                sync=not opts.asyncOp,
            )
        )

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        opts = opts or c10d.AllToAllOptions()
        outputs = _check_lists("alltoall", [outputs], self._group.size)
        inputs = _check_lists("alltoall", [inputs], self._group.size)
        recv_counts = [output.nbytes for output in outputs]
        send_counts = [tensor.nbytes for tensor in inputs]
        return self._alltoall(outputs, inputs, recv_counts, send_counts, opts)

    def all_to_all_single(
        self,
        output: Tensor,
        tensor: Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> Work:
        opts = opts or c10d.AllToAllOptions()
        size = self._group.size
        recv_counts = _split_bytes("output", output, output_splits, size)
        send_counts = _split_bytes("input", tensor, input_splits, size)
        return self._alltoall((output,), (tensor,), recv_counts, send_counts, opts)

    # ---- Messages ----

    def send(self, tensors: Any, peer: int, tag: int = 0) -> Work:
        tensor = _one(tensors, "send")
        _check_tensors("send", tensor)
        comm = self._group.comm

        def start(send: Memory | None, recv: Memory | None, options: dict[str, Any]) -> Any:
            return comm.start_send(send, peer, tag, **options)

        return self._group.launch(
            Call("send", (tensor,), (), start, [tensor], self._group.timeout, ordered=False)
        )

    def recv(self, tensors: Any, peer: int, tag: int = 0) -> Work:
        tensor = _one(tensors, "recv")
        _check_tensors("recv", tensor)
        comm = self._group.comm

        def start(send: Memory | None, recv: Memory | None, options: dict[str, Any]) -> Any:
            return comm.start_recv(recv, peer, tag, **options)

        return self._group.launch(
            Call("recv", (), (tensor,), start, [tensor], self._group.timeout, ordered=False)
        )

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work:
        return self.recv(tensors, allcast.ANY_SOURCE, tag)

    # ---- Barriers ----

    def barrier(self, opts: Any = None) -> Work:
        opts = opts or c10d.BarrierOptions()
        comm = self._group.comm

        def start(send: Memory | None, recv: Memory | None, options: dict[str, Any]) -> Any:
            return comm.start_barrier(**options)

        return self._group.launch(
            Call("barrier", (), (), start, [], self._seconds(opts), sync=not opts.asyncOp)
        )

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """A barrier that names the ranks that did not reach it in time."""
        if isinstance(timeout, c10d.BarrierOptions):
            seconds = self._seconds(timeout)
        elif timeout is None or timeout < timedelta(0):
            seconds = self._group.timeout
        else:
            seconds = timeout.total_seconds()
        self._group.sequence += 1
        _monitored_barrier(self._group, seconds, wait_all_ranks)

    # ---- Sparse tensors ----

    def _allreduce_sparse(self, tensor: Tensor, opts: Any) -> Work:
        """Adds sparse tensors. Their sizes differ, so that the ranks exchange them first."""
        if opts.reduceOp != _RedOpType.SUM:
            raise TypeError("allcast reduces sparse tensors with SUM only")
        if tensor.device.type != "cpu":
            raise TypeError("allcast reduces sparse tensors on the CPU only: move them there")
        group, seconds = self._group, self._seconds(opts)
        group.sequence += 1
        tensor_in = tensor.coalesce()
        work = Work(group, "allreduce", [tensor], tensor_in.values().nbytes, seconds)

        def run() -> None:
            try:
                tensor.copy_(_sum_sparse(group, tensor_in, seconds))
            except Exception as error:
                work.fail(error)
            else:
                work.complete()

        work.defer()
        group.order.stage(run)
        return work

    # ---- Helpers ----

    def _seconds(self, opts: Any) -> float:
        """The time limit of a call in seconds."""
        timeout = opts.timeout
        if timeout.days < 0 or not timeout:
            return self._group.timeout
        return float(timeout.total_seconds())

    def _many(self, calls: list[Call], results: Sequence[Tensor]) -> Work:
        if not calls:
            raise ValueError("a coalesced operation takes at least one tensor")
        first = calls[0]
        for call in calls:
            _check_devices(call.operation, first.recv[0], call.recv[0])
        first.results = results
        return self._group.launch(*calls)

    @staticmethod
    def _reduce_options(opts: Any, kind: Any) -> Any:
        """Options of a reduction, for callers that pass an operator or nothing."""
        if opts is None:
            return kind()
        if isinstance(opts, (c10d.ReduceOp, _RedOpType)):
            made = kind()
            made.reduceOp = opts
            return made
        return opts

    @staticmethod
    def _root_options(opts: Any, root: int | None, kind: Any) -> Any:
        """Options of an operation with a root, for callers that pass a rank."""
        if isinstance(opts, int):
            root, opts = opts, None
        opts = opts or kind()
        if root is not None:
            opts.rootRank = root
        return opts

    # Names of older releases.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    gather_into_tensor = gather_single
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single


def _split_bytes(name: str, tensor: Tensor, splits: Sequence[int], size: int) -> list[int]:
    """Number of bytes per rank of a tensor that is split along its first dimension."""
    rows = tensor.size(0) if tensor.dim() else 0
    if not splits:
        # Equal splits must be equal on all ranks.
        if tensor.dim() == 0 or rows % size:
            raise ValueError(
                f"all_to_all of an {name} of shape {tuple(tensor.shape)}: the first dimension must "
                f"be divisible by {size}, or pass split sizes"
            )
        return [tensor.nbytes // size] * size
    if len(splits) != size or sum(splits) != rows or min(splits) < 0:
        raise ValueError(
            f"{name} split sizes {list(splits)}: want {size} numbers that add up to the first "
            f"dimension of shape {tuple(tensor.shape)}"
        )
    row = tensor.nbytes // rows if rows else 0
    return [count * row for count in splits]


def _sum_sparse(group: Group, tensor: Tensor, seconds: float) -> Tensor:
    """Exchanges coalesced sparse tensors of one shape and returns their sum."""
    indices, values = tensor.indices().contiguous(), tensor.values().contiguous()
    comm, end = group.comm, time.monotonic() + seconds

    def left() -> float:
        return max(end - time.monotonic(), 0.001)

    sizes = torch.empty(group.size, dtype=torch.int64)
    comm.allgather(_memory(torch.tensor([indices.size(1)])), _memory(sizes), timeout=left())
    counts = sizes.tolist()
    gathered = []
    for part in (indices.t().contiguous(), values):
        row = part[:1].nbytes if part.size(0) else part.new_empty((1, *part.shape[1:])).nbytes
        whole = part.new_empty((sum(counts), *part.shape[1:]))
        comm.allgatherv(
            _memory(part), _memory(whole), [row * count for count in counts], timeout=left()
        )
        gathered.append(whole)
    total = torch.sparse_coo_tensor(
        gathered[0].t(), gathered[1], tensor.shape, check_invariants=False
    )
    return total.coalesce()


def _memory(tensor: Tensor) -> Memory:
    return Memory(tensor.data_ptr(), tensor.nbytes, None, tensor)


# Tag of the messages of monitored barriers. Programs use smaller tags.
_BARRIER_TAG = 0x7FFFFFFF
_PASSED = -1

# Time that rank 0 may take to tell the others which rank was late.
_ANSWER_SECONDS = 1.0


def _monitored_barrier(group: Group, seconds: float, wait_all_ranks: bool) -> None:
    """Rank 0 hears from every rank, and then tells all of them which rank was late, if any.

    Messages carry the number of the barrier, so that a rank that is late for one cannot pass the
    next.
    """
    group.barriers += 1
    number = group.barriers
    end = time.monotonic() + seconds
    comm = group.comm

    def receive(source: int, slack: float = 0) -> int:
        """Receives the message of this barrier from a rank, and returns what it says."""
        message = bytearray(16)
        while True:
            left = max(end + slack - time.monotonic(), 0.001)
            comm.recv(message, source, _BARRIER_TAG, timeout=left)
            sent, late = struct.unpack("<qq", message)
            if sent == number:
                return int(late)

    def send(peer: int, late: int) -> None:
        comm.send(struct.pack("<qq", number, late), peer, _BARRIER_TAG, timeout=seconds + 1)

    def failed(text: str) -> BaseException:
        return group.backend_error("monitored_barrier", RuntimeError(text))

    if group.rank != 0:
        try:
            send(0, _PASSED)
            late = receive(0, _ANSWER_SECONDS)
        except allcast.Error as error:
            raise failed(f"rank 0 did not answer in {seconds * 1000:.0f} ms: {error}") from error
        if late != _PASSED:
            raise failed(f"rank 0 reports that rank {late} failed to pass monitoredBarrier")
        return
    missing: dict[int, str] = {}
    for rank in range(1, group.size):
        try:
            receive(rank)
        except allcast.Error as error:
            missing[rank] = str(error)
            if not wait_all_ranks:
                break
    for rank in range(1, group.size):
        if rank not in missing:
            try:
                send(rank, next(iter(missing), _PASSED))
            except allcast.Error as error:
                missing[rank] = str(error)
    if missing:
        ranks = ", ".join(map(str, missing))
        label = "Rank" if len(missing) == 1 else "Ranks"
        raise failed(
            f"{label} {ranks} failed to pass monitoredBarrier in {seconds * 1000:.0f} ms: "
            + next(iter(missing.values()))
        )


class _Lifecycle(Operations):
    """What process groups and backends of torch have in common besides operations."""

    def shutdown(self) -> None:
        self._group.close()

    def abort(self) -> None:
        self._group.abort()

    def set_timeout(self, timeout: timedelta) -> None:
        self._group.timeout = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def getBackendName(self) -> str:  # noqa: N802
        return NAME

    def _get_backend_name(self) -> str:
        return NAME

    @property
    def options(self) -> Any:
        return c10d.Backend.Options(NAME, timedelta(seconds=self._group.timeout))

    @property
    def supports_splitting(self) -> bool:
        return True

    @property
    def supports_coalescing(self) -> bool:
        return False

    def supports_tensor_alloc(self, device: Any) -> bool:
        return False

    def eager_connect_single_device(self, device: Any) -> None:
        pass

    def perform_nocolor_split(self, device: Any) -> None:
        pass  # only the members of a group make it

    def _get_sequence_number_for_group(self) -> int:
        return self._group.sequence

    def _set_sequence_number_for_group(self) -> None:
        pass


class ProcessGroup(_Lifecycle, dist.ProcessGroup):  # type: ignore[misc]
    """A process group that uses Allcast for all devices."""

    def __init__(self, group: Group, store: c10d.Store) -> None:
        dist.ProcessGroup.__init__(self, group.rank, group.size)
        self._group = group
        if Backend is not None:
            # Parts of torch ask the group for its backend instead of the group itself.
            kind = dist.ProcessGroup.BackendType.CUSTOM
            backend = Backend(group)
            self._set_default_backend(kind)
            for device in DEVICES:
                self._register_backend(torch.device(device), kind, backend)
        self._store = store
        self._name = group.name
        self._desc = "undefined"

    def _get_backend(self, device: Any) -> Any:
        return self

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device(device) for device in DEVICES]

    def name(self) -> str:
        return NAME

    def getGroupName(self) -> str:  # noqa: N802
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._name = name

    def getGroupDesc(self) -> str:  # noqa: N802
        return self._desc

    def setGroupDesc(self, desc: str) -> None:  # noqa: N802
        self._desc = desc

    _set_group_name = setGroupName
    _set_group_desc = setGroupDesc
    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)

    def get_group_store(self) -> c10d.Store:
        return self._store

    def _has_hooks(self) -> bool:
        return False

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> ProcessGroup | None:
        """Makes a group of some ranks of this group. Other ranks get None."""
        if self._group.rank not in ranks:
            return None
        name = group_name or f"{self._name}:split:{','.join(map(str, ranks))}"
        limit = timeout or timedelta(seconds=self._group.timeout)
        made = ProcessGroup(
            self._group.subgroup(ranks, name, limit), c10d.PrefixStore(f"{name}/", self._store)
        )
        made.setGroupDesc(group_desc or f"{self._desc}:split")
        return made

    def _start_coalescing(self, device: Any) -> None:
        self._group.start_batch()

    def _end_coalescing(self, device: Any) -> Any:
        return self._group.end_batch()


def _make_backend_class() -> type | None:
    """Returns the class for groups with several backends, None if this torch does not have it."""
    if not hasattr(c10d.Backend, "all_gather_single"):
        return None  # torch before 2.14

    class Backend(_Lifecycle, c10d.Backend):
        """The part of a process group that serves some devices."""

        def __init__(self, group: Group) -> None:
            c10d.Backend.__init__(self, group.rank, group.size)
            self._group = group

        def name(self) -> str:
            return NAME

        def split(self, store: c10d.Store, ranks: Sequence[int], opts: Any) -> Backend | None:
            if self._group.rank not in ranks:
                return None
            name = opts.group_name or f"{self._group.name}:split:{','.join(map(str, ranks))}"
            return Backend(self._group.subgroup(ranks, name, opts.timeout))

        def start_coalescing(self) -> None:
            self._group.start_batch()

        def end_coalescing(self) -> Batch | None:
            return self._group.end_batch()

    return Backend


Backend = _make_backend_class()


def group_of(process_group: dist.ProcessGroup, device: torch.device) -> Group | None:
    """Returns the group that serves a device, None if another backend does."""
    group = getattr(process_group._get_backend(device), "_group", None)
    return group if isinstance(group, Group) else None


def _device_backends() -> dict[str, str]:
    """Names of the backends of the group that torch is making, by device.

    torch does not pass them to a backend, so this looks at the variables of its function that calls
    the backend.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is distributed_c10d._new_process_group_helper.__code__:
            config = frame.f_locals["backend_config"]
            return {device: str(name) for device, name in config.get_device_backend_map().items()}
        frame = frame.f_back
    return {}


def create(options: Any, pg_options: Any) -> Any:
    """Makes a process group or a backend. torch calls it on the members of the group."""
    backends = _device_backends()
    mixed = any(name != NAME for name in backends.values())
    if mixed and Backend is None:
        listed = ",".join(f"{device}:{name}" for device, name in backends.items())
        raise RuntimeError(
            f"allcast cannot share a process group with other backends ({listed}) in torch "
            f"{torch.__version__}: use torch 2.14 or newer, or make two groups, for example "
            'init_process_group("nccl") and new_group(backend="allcast")'
        )
    group = groups.create(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        options.group_id,
        options.global_ranks_in_group,
    )
    if mixed or tracing.flight_recorder():
        assert Backend is not None
        return Backend(group)
    return ProcessGroup(group, options.store)


def register() -> None:
    """Makes the backend known to torch."""
    if NAME.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(NAME, create, extended_api=True, devices=DEVICES)
