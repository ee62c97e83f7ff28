"""Loads weights into models of four ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import weights

HERE = Path(__file__).parent
RANKS = 4


@pytest.fixture(scope="module", params=["allcast", "gloo"])
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
