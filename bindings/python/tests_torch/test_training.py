"""Compares training with Allcast to training with gloo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent
CASES = ["ddp", "fsdp2", "hsdp", "checkpoint", "tensors"]

# Without a rule, the size from which multicast is used depends on what the ranks measure when they
# join.
THRESHOLD = 16 << 10
TUNING = "allgather:16K-inf:mcast"


def run(backend: str, out: Path) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "4",
    ]
    done = subprocess.run(
        [*command, str(HERE / "training.py"), backend, str(out), *CASES],
        env={**os.environ, "OMP_NUM_THREADS": "1", "ALLCAST_TUNING": TUNING},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    if done.returncode != 0:
        raise AssertionError(f"training with {backend} failed:\n{done.stdout}")
    result: dict[str, Any] = torch.load(out, weights_only=False)
    return result


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What one run with gloo and two with Allcast ended with."""
    at = tmp_path_factory.mktemp("training")
    runs = {"gloo": "gloo", "allcast": "allcast", "again": "allcast"}
    return {name: run(backend, at / name) for name, backend in runs.items()}


@pytest.mark.parametrize("case", CASES)
def test_copies_are_exact(results: dict[str, dict[str, Any]], case: str) -> None:
    want, got = results["gloo"][case]["exact"], results["allcast"][case]["exact"]
    assert len(want) == len(got)
    for i, (a, b) in enumerate(zip(want, got)):
        assert torch.equal(a, b), f"tensor {i} of {case} differs from gloo's"


@pytest.mark.parametrize("case", CASES)
def test_sums_are_close(results: dict[str, dict[str, Any]], case: str) -> None:
    want, got = results["gloo"][case]["sums"], results["allcast"][case]["sums"]
    assert len(want) == len(got)
    for i, (a, b) in enumerate(zip(want, got)):
        error = ((a - b).norm() / a.norm()).item()
        assert error < 1e-5, f"tensor {i} of {case} differs from gloo's by {error:.1e}"


@pytest.mark.parametrize("case", CASES)
def test_runs_are_identical(results: dict[str, dict[str, Any]], case: str) -> None:
    for kind in ("exact", "sums"):
        first, second = results["allcast"][case][kind], results["again"][case][kind]
        assert len(first) == len(second)
        for i, (a, b) in enumerate(zip(first, second)):
            assert torch.equal(a, b), f"tensor {i} of {case} differs between two runs"


def test_stats_show_multicast(results: dict[str, dict[str, Any]]) -> None:
    before, after = (
        results["allcast"][f"{case} stats"]["groups"]["0"]["operations"]
        for case in ("ddp", "fsdp2")
    )
    ran: dict[str, dict[str, int]] = after["allgather"]
    for algorithm, counters in ran.items():
        known = before.get("allgather", {}).get(algorithm, {"count": 0, "bytes": 0})
        count = counters["count"] - known["count"]
        size = (counters["bytes"] - known["bytes"]) / max(count, 1)
        if algorithm == "mcast":
            # Every step gathers the weights of four large layers for the forward pass, and some of
            # them again.
            assert count >= 4 * 20
            assert size >= THRESHOLD
        else:
            assert size < THRESHOLD, f"{count} large all-gathers ran as {algorithm}"
