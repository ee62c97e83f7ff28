"""The command of the wheel."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

import allcast

PACKAGE = pathlib.Path(allcast.__file__).parent


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs python -m allcast."""
    return subprocess.run(
        [sys.executable, "-m", "allcast", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=PACKAGE.parent,
    )


@pytest.fixture
def _wheel() -> None:
    if not (PACKAGE / "_lib/allcast").exists():
        pytest.skip("the package is not installed from a wheel, which has the command")


@pytest.mark.usefixtures("_wheel")
def test_command() -> None:
    done = command("version")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("allcast ")
    assert command("perf", "allgather", "--algo", "carrier-pigeon").returncode == 2


@pytest.mark.usefixtures("_wheel")
def test_run() -> None:
    """The command starts ranks that use the package."""
    script = "import allcast\nwith allcast.join() as c: c.barrier(); print('rank', c.rank)"
    done = command("run", "-n", "2", "--", sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    assert "rank 0" in done.stdout
    assert "rank 1" in done.stdout


def test_missing_command(tmp_path: pathlib.Path) -> None:
    package = tmp_path / "allcast"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_bytes((PACKAGE / "__main__.py").read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "allcast"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 1
    assert "is missing: install the allcast wheel" in done.stderr
