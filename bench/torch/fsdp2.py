"""Measures the time inside collectives during FSDP2 steps, with gloo and with Allcast.

    torchrun --nproc_per_node 4 bench/torch/fsdp2.py --device cpu
    torchrun --nproc_per_node 4 bench/torch/fsdp2.py --device cuda

Each layer is one matrix of 1, 4 or 16 MiB, and each step trains a batch of 1, so that collectives
dominate. Both backends run in the same processes, in turns: a pair is some steps with one backend
and then with the other one. The backend that goes first alternates. All ranks may share one GPU.

The time inside collectives is measured in the same way for both backends, by a wrapper around the
functions of torch.distributed that FSDP2 calls. A collective begins when its input exists and it
has been called. It ends when the program can use its output. For CPU tensors, that is from the call
until it returns. CUDA calls may return before either, so the wrapper records one event on the
current stream before the call and one behind it: the first occurs when the input exists, the second
when kernels that use the output may run. A host that blocks inside the call delays the second
event, so that blocking counts too.

"inside" is the time per step during which at least one collective is in progress. No moment counts
twice, even if collectives of several streams overlap. "sum" adds up all collectives. For a backend
that blocks the host the two are equal. Values are means over the ranks.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import allcast.torch

WRAPPED = [
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
    "all_gather_single",
    "reduce_scatter_single",
]


class Clock:
    """Measures collectives and steps of this rank."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._spans: list[tuple[Any, Any]] = []
        self._depth = 0
        for name in WRAPPED:
            if hasattr(dist, name):
                setattr(dist, name, self._wrap(getattr(dist, name)))

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*arguments: Any, **options: Any) -> Any:
            if self._depth:  # a function of torch that calls another one of the list
                return function(*arguments, **options)
            self._depth += 1
            begin = self._now()
            try:
                work = function(*arguments, **options)
                if work is not None:
                    raise RuntimeError(
                        "FSDP2 called an asynchronous collective, which is not measured"
                    )
            finally:
                self._depth -= 1
            self._spans.append((begin, self._now()))
            return None

        return measured

    @contextmanager
    def measure(self, result: dict[str, float], steps: int) -> Iterator[None]:
        """Adds the values per step of what runs inside to a result."""
        if self._cuda:
            torch.cuda.synchronize()
        self._spans.clear()
        began = time.perf_counter()
        reference = self._now()
        yield
        if self._cuda:
            torch.cuda.synchronize()
        result["step"] = (time.perf_counter() - began) / steps
        spans = [(self._at(reference, a), self._at(reference, b)) for a, b in self._spans]
        result["sum"] = sum(end - begin for begin, end in spans) / steps
        result["inside"] = union(spans) / steps
        result["collectives"] = len(spans) / steps
        if not spans:
            raise RuntimeError(f"FSDP2 called none of {WRAPPED}: add the function that it calls")

    def _at(self, reference: Any, moment: Any) -> float:
        return reference.elapsed_time(moment) / 1000 if self._cuda else moment - reference


def union(spans: list[tuple[float, float]]) -> float:
    """Returns how long at least one of the spans is in progress."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


class Trainer:
    """A model that FSDP2 shards over a group."""

    def __init__(
        self, mib: int, layers: int, device: torch.device, group: dist.ProcessGroup
    ) -> None:
        torch.manual_seed(1)
        width = int((mib * (1 << 20) // 4) ** 0.5)
        self._width, self._device = width, device
        mesh = DeviceMesh.from_group(group, device.type)
        self.model = nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(layers)])
        self.model.to(device)
        for layer in self.model:
            fully_shard(layer, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self._batch = torch.Generator().manual_seed(dist.get_rank())

    def step(self) -> None:
        input = torch.randn(1, self._width, generator=self._batch).to(self._device)
        self.model(input).square().mean().backward()
        self._optimizer.step()
        self._optimizer.zero_grad()

    def parameters(self) -> torch.Tensor:
        return torch.cat(
            [p.to_local().detach().double().flatten() for p in self.model.parameters()]
        )


def measure(
    arguments: argparse.Namespace, mib: int, clock: Clock, groups: dict[str, Any]
) -> dict[str, Any]:
    device = torch.device("cuda", 0) if arguments.device == "cuda" else torch.device("cpu")
    trainers = {
        name: Trainer(mib, arguments.layers, device, group) for name, group in groups.items()
    }
    for trainer in trainers.values():
        for _ in range(arguments.warmup):
            trainer.step()
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in groups}
    for pair in range(arguments.pairs):
        for name in list(groups) if pair % 2 == 0 else list(groups)[::-1]:
            result: dict[str, float] = {}
            dist.barrier()
            with clock.measure(result, arguments.steps):
                for _ in range(arguments.steps):
                    trainers[name].step()
            rounds[name].append(mean_of_ranks(result))
    names = list(trainers)
    first, second = (trainers[name].parameters() for name in names)
    error = float((first - second).abs().max() / first.abs().max())
    if not error < 1e-4:
        raise RuntimeError(f"the parameters of {names} differ by {error:.1e} after the same steps")
    return {"mib": mib, "rounds": rounds, "difference": error}


def mean_of_ranks(result: dict[str, float]) -> dict[str, float]:
    values = torch.tensor(list(result.values()), dtype=torch.float64)
    dist.all_reduce(values)
    return dict(zip(result, (values / dist.get_world_size()).tolist()))


def spread(values: list[float]) -> dict[str, float]:
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def summarize(case: dict[str, Any]) -> dict[str, Any]:
    rounds = case["rounds"]
    summary: dict[str, Any] = {"mib": case["mib"], "difference": case["difference"]}
    for name, measured in rounds.items():
        summary[name] = {key: spread([r[key] for r in measured]) for key in measured[0]}
    for key in ("inside", "sum", "step"):
        pairs = zip(rounds["gloo"], rounds["allcast"])
        summary[f"{key} speedup"] = spread([gloo[key] / ours[key] for gloo, ours in pairs])
    return summary


def table(summaries: list[dict[str, Any]]) -> Iterator[str]:
    yield "| layer | per step | gloo ms | allcast ms | gloo / allcast |"
    yield "|---|---|---|---|---|"
    for summary in summaries:
        for key in ("inside", "sum", "step"):
            cells = [
                " / ".join(
                    f"{1000 * summary[name][key][of]:.1f}" for of in ("min", "median", "max")
                )
                for name in ("gloo", "allcast")
            ]
            ratio = summary[f"{key} speedup"]
            cells.append(" / ".join(f"{ratio[of]:.2f}" for of in ("min", "median", "max")))
            yield f"| {summary['mib']} MiB | {key} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measures the time inside collectives during FSDP2 steps."
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--mib", type=int, nargs="+", default=[1, 4, 16], help="sizes of a layer")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=5, help="steps per backend and pair")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--json", help="file for the results")
    arguments = parser.parse_args()
    if arguments.pairs < 5:
        parser.error("--pairs must be at least 5")
    if arguments.device == "cuda":
        if not torch.cuda.is_available():
            sys.exit("no CUDA device")
        torch.cuda.set_device(0)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    groups = {
        "gloo": dist.new_group(backend="gloo"),
        "allcast": dist.new_group(backend="allcast"),
    }
    clock = Clock(torch.device(arguments.device))
    summaries = [summarize(measure(arguments, mib, clock, groups)) for mib in arguments.mib]
    if dist.get_rank() == 0:
        text = "\n".join(table(summaries))
        print(
            f"FSDP2, {dist.get_world_size()} ranks, {arguments.device} tensors, "
            f"{arguments.layers} layers, batch 1, {arguments.pairs} pairs of {arguments.steps} "
            f"steps, torch {torch.__version__}; min / median / max of the pairs\n{text}"
        )
        operations = [group["operations"] for group in allcast.torch.stats()["groups"].values()]
        print(f"operations of Allcast: {json.dumps(operations)}")
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump({"arguments": vars(arguments), "cases": summaries}, file, indent=1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
