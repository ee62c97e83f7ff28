"""Loads weights into models of four ranks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import weights
from ranks import run
from torch import nn

import allcast
from allcast.torch import load_state_dict
from allcast.torch.groups import worlds
from allcast.torch.safetensors import Checkpoint
from allcast.torch.targets import Target

HERE = Path(__file__).parent
RANKS = 4


@pytest.fixture(scope="module", params=["allcast", pytest.param("gloo", marks=pytest.mark.long)])
def results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, str]]:
    """The error of each case that was run, "" for none, per rank."""
    at = tmp_path_factory.mktemp(request.param)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc_per_node", str(RANKS), str(HERE / "weights.py"), request.param, str(at)]
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    print(done.stdout)
    files = [at / f"rank-{rank}" for rank in range(RANKS)]
    return [json.loads(file.read_text()) if file.exists() else {} for file in files]


@pytest.mark.parametrize("case", list(weights.CASES))
def test_case(results: list[dict[str, str]], case: str) -> None:
    for rank, errors in enumerate(results):
        assert errors.get(case, "the job ended before this case") == "", f"rank {rank}"


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _load_until_a_rank_dies(rank: int, size: int, at: Path, victim: int) -> None:
    model = weights.make_model()
    path = weights.write(at / "model", weights.contents(model))
    method = (Checkpoint, "read") if victim == 0 else (Target, "copy")
    with weights.failing(*method, victim, _die), pytest.raises(allcast.RankLostError) as lost:
        load_state_dict(path, model, window=4096)
    assert lost.value.rank == victim


@pytest.mark.parametrize("victim", [0, 2])
def test_survivors_name_a_killed_rank(tmp_path: Path, victim: int) -> None:
    run(_load_until_a_rank_dies, tmp_path, victim, killed=(victim,))


def _load_with_communicator(rank: int, size: int, at: Path) -> None:
    comm = worlds()[0].comm
    model = nn.Linear(100, 100)
    want = weights.contents(model)
    path = weights.write(at / "model", want, reader=1)
    load_state_dict(path, model, group=comm, reader=1)
    weights.check(model, want)
    comm.barrier()  # the communicator of the caller is intact


def test_communicator(tmp_path: Path) -> None:
    run(_load_with_communicator, tmp_path)
