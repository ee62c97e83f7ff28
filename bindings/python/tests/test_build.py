"""Building the package where something is missing."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

PACKAGE = pathlib.Path(__file__).parents[1]


def setup(command: str, directory: pathlib.Path, **environment: str) -> str:
    """Runs a command of setup.py that must fail, and returns its errors."""
    pytest.importorskip("setuptools", "77", reason="setuptools 77 or later is not installed")
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", command],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        env={**os.environ, **environment},
    )
    assert done.returncode != 0
    return done.stderr


def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    """Returns a copy of the package in a checkout without Go sources."""
    package = tmp_path / "bindings/python"
    ignored = shutil.ignore_patterns("build", "_lib", "*.egg-info", "__pycache__")
    shutil.copytree(PACKAGE, package, ignore=ignored)
    shutil.copy(PACKAGE.parents[1] / "options.go", tmp_path)
    return package


def test_without_go(tmp_path: pathlib.Path) -> None:
    errors = setup("build", checkout(tmp_path), GO="/nonexistent/go")
    assert "/nonexistent/go is not installed: building allcast needs Go" in errors


def test_without_checkout(tmp_path: pathlib.Path) -> None:
    package = checkout(tmp_path)
    (tmp_path / "options.go").unlink()
    assert "is not a checkout of Allcast" in setup("build", package)


def test_wheel() -> None:
    """The wheel runs on systems with glibc 2.28, and auditwheel confirms its tag."""
    wheels = list((PACKAGE.parents[1] / "bin/wheel").glob("*.whl"))
    if not wheels or importlib.util.find_spec("auditwheel") is None:
        pytest.skip("make wheel has built none, or auditwheel is not installed")
    (wheel,) = wheels
    found = re.search(r"-(manylinux_2_(\d+)_\w+)\.whl$", wheel.name)
    assert found is not None, wheel.name
    assert int(found[2]) <= 28
    command = [sys.executable, "-m", "auditwheel", "show", str(wheel)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f'following platform tag: "{found[1]}"' in " ".join(shown.split())


def test_build() -> None:
    """python -m build makes a source distribution first, and says what to do instead."""
    pytest.importorskip("build", reason="build is not installed")
    pytest.importorskip("setuptools", "77", reason="setuptools 77 or later is not installed")
    command = [sys.executable, "-m", "build", "--no-isolation", str(PACKAGE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "python -m build --wheel" in " ".join((done.stdout + done.stderr).split())


def test_sdist(tmp_path: pathlib.Path) -> None:
    assert "allcast has no source distribution" in setup("sdist", checkout(tmp_path))
