"""Builds liballcast.so and the command allcast from the Go sources into the wheel."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist
from setuptools.errors import ExecError

PACKAGE = pathlib.Path(__file__).resolve().parent
REPOSITORY = PACKAGE.parent.parent

# Oldest glibc that the library of a wheel runs with, if zig compiles it: that of manylinux_2_17.
OLDEST_GLIBC = (2, 17)

# Names of architectures in wheels, by those of Go.
MACHINES = {"amd64": "x86_64", "arm64": "aarch64", "386": "i686", "arm": "armv7l"}


def version() -> str:
    """Returns the version of the Go module, which is the only place that has it."""
    try:
        source = (REPOSITORY / "options.go").read_text()
    except OSError as err:
        raise ExecError(
            f"{REPOSITORY} is not a checkout of Allcast: the package is built from the Go sources, "
            "so run pip install ./bindings/python in a whole checkout, or install a wheel"
        ) from err
    match = re.search(r'^const Version = "(.*)"$', source, re.MULTILINE)
    if match is None:
        raise ExecError(f"{REPOSITORY / 'options.go'} does not define the version")
    return match.group(1)


def run(*command: str, **environment: str) -> str:
    """Runs a command in the checkout and returns its output."""
    try:
        return subprocess.run(
            command,
            cwd=REPOSITORY,
            env={**os.environ, **environment},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
    except FileNotFoundError as err:
        raise ExecError(
            f"{command[0]} is not installed: building allcast needs Go (https://go.dev/dl) and "
            "gcc; without them, install a wheel of allcast"
        ) from err
    except subprocess.CalledProcessError as err:
        raise ExecError(f"{' '.join(command)} failed with status {err.returncode}") from err


def machine() -> str:
    """Returns the name of the architecture in wheels."""
    goarch = run(os.environ.get("GO", "go"), "env", "GOARCH").strip()
    return MACHINES.get(goarch, goarch)


def compiler() -> dict[str, str]:
    """Returns variables for the C compiler: zig, where it is installed and CC names no other.

    gcc links with the glibc of this system, so that the library needs one that is as new.
    """
    zig = importlib.util.find_spec("ziglang")
    if zig is None or "CC" in os.environ or machine() not in ("x86_64", "aarch64"):
        return {}
    target = f"{machine()}-linux-gnu.{OLDEST_GLIBC[0]}.{OLDEST_GLIBC[1]}"
    return {"CC": f"'{sys.executable}' -m ziglang cc -target {target}"}


def build_go(target: pathlib.Path) -> None:
    """Builds the library and the command into a directory."""
    go = os.environ.get("GO", "go")
    target.mkdir(parents=True, exist_ok=True)
    build = (go, "build", "-trimpath", "-buildvcs=false")
    # The library exports only its own functions, so that it does not clash with another Go library.
    exports = REPOSITORY / "bindings/c/allcast.map"
    run(
        *build,
        "-buildmode=c-shared",
        f'-ldflags=-s -w -extldflags "-Wl,--version-script={exports}"',
        f"-o={target / 'liballcast.so'}",
        "./bindings/c",
        CGO_ENABLED="1",
        **compiler(),
    )
    (target / "liballcast.h").unlink(missing_ok=True)
    run(*build, "-ldflags=-s -w", f"-o={target / 'allcast'}", "./cmd/allcast", CGO_ENABLED="0")
    shutil.copy(REPOSITORY / "LICENSE", target)


def platform(library: pathlib.Path) -> str:
    """Returns the platform of a wheel, with the oldest glibc that has all symbols it uses."""
    symbols = run("readelf", "--version-info", "--wide", str(library), LC_ALL="C")
    versions = re.findall(r"\bGLIBC_(\d+)\.(\d+)", symbols)
    if not versions:  # another C library
        return f"linux_{machine()}"
    # Nothing supports older ones.
    needed = max(OLDEST_GLIBC, *((int(major), int(minor)) for major, minor in versions))
    return f"manylinux_{needed[0]}_{needed[1]}_{machine()}"


class GoDistribution(Distribution):
    """A distribution with binaries, although it has no extension modules of Python."""

    def has_ext_modules(self) -> bool:
        """Lets the wheel be specific to its platform."""
        return True


class BuildPy(build_py):
    """Adds the binaries to the package."""

    def run(self) -> None:
        """Builds the package."""
        if self.editable_mode:
            build_go(PACKAGE / "src/allcast/_lib")
            super().run()
            return
        package = pathlib.Path(self.build_lib) / "allcast"
        shutil.rmtree(package, ignore_errors=True)  # files of earlier builds
        super().run()
        build_go((package / "_lib").resolve())


class BdistWheel(bdist_wheel):
    """Names the wheel after the platform that its library needs."""

    def get_tag(self) -> tuple[str, str, str]:
        """Returns the tag, which does not depend on the version of Python."""
        build: Any = self.get_finalized_command("build_py")
        directory = PACKAGE / "src" if build.editable_mode else pathlib.Path(build.build_lib)
        return "py3", "none", platform((directory / "allcast/_lib/liballcast.so").resolve())


class Sdist(sdist):
    """Refuses to make a source distribution."""

    def run(self) -> None:
        """Fails, because a source distribution would lack the Go sources."""
        raise ExecError(
            "allcast has no source distribution, because it is built from the Go sources of the "
            "whole checkout: build a wheel with make wheel or python -m build --wheel, or run "
            "pip install ./bindings/python"
        )


setup(
    version=version(),
    distclass=GoDistribution,
    cmdclass={"build_py": BuildPy, "bdist_wheel": BdistWheel, "sdist": Sdist},
)
