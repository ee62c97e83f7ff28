"""Programs on device tensors: on a fake device everywhere, and on a GPU where there is one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent

on_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="torch finds no GPU: run this test on a machine with one"
)


def run(program: str, device: str, ranks: int, **environment: str) -> str:
    """Runs a program under torchrun, and returns what it prints."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc_per_node", str(ranks), str(HERE / program), "--device", device]
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{program} failed:\n{done.stdout}"
    return done.stdout


@pytest.mark.parametrize("wait", ["value", "host"])
def test_operations_of_a_fake_device(wait: str) -> None:
    text = run("device_operations.py", "fake", 3, ALLCAST_TORCH_STREAM_WAIT=wait)
    assert "checks on 3 ranks passed" in text


def test_lost_rank_with_a_fake_device() -> None:
    assert run("device_failure.py", "fake", 3).count("stream released") == 2


@pytest.mark.long
def test_fsdp2_next_to_gloo() -> None:
    assert "torch.bfloat16" in run("device_fsdp2.py", "cpu", 4)


@on_gpu
@pytest.mark.parametrize("wait", ["auto", "host", "value"])
def test_operations_of_a_gpu(wait: str) -> None:
    text = run("device_operations.py", "cuda", 4, ALLCAST_TORCH_STREAM_WAIT=wait)
    assert "checks on 4 ranks passed" in text


@on_gpu
def test_lost_rank_with_a_gpu() -> None:
    assert run("device_failure.py", "cuda", 4).count("stream released") == 3


@on_gpu
def test_fsdp2_on_a_gpu() -> None:
    assert "torch.bfloat16" in run("device_fsdp2.py", "cuda", 4)
