"""Loads weights into models of four ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

import pytest

import weights

HERE = Path(__file__).parent
RANKS = 4


def run(*arguments: str) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc_per_node", str(RANKS), str(HERE / "weights.py"), *arguments]
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Dict[str, str]]:
    """The failed cases by backend, with the tracebacks of all ranks."""
    found: Dict[str, Dict[str, str]] = {}
    for backend in ("allcast", "gloo"):
        directory = tmp_path_factory.mktemp(backend)
        run(backend, str(directory))
        found[backend] = {}
        for rank in range(RANKS):
            for name, text in json.loads((directory / f"failures-{rank}").read_text()).items():
                report = found[backend].setdefault(name, "")
                found[backend][name] = f"{report}\nrank {rank}:\n{text}"
    return found


@pytest.mark.parametrize("backend", ["allcast", "gloo"])
@pytest.mark.parametrize("case", list(weights.CASES))
def test_case(failures: Dict[str, Dict[str, str]], backend: str, case: str) -> None:
    assert case not in failures[backend], failures[backend][case]
