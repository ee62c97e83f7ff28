"""The command allcast."""

from __future__ import annotations

import os
import pathlib
import sys


def main() -> None:
    """Replaces this process with the command, so that signals and the exit status are its own."""
    command = pathlib.Path(__file__).parent / "_lib" / "allcast"
    if not command.exists():
        sys.exit(
            f"allcast: {command} is missing: install the allcast wheel, or build the command with "
            "go install github.com/allcast/allcast/cmd/allcast@latest"
        )
    os.execv(command, ["allcast", *sys.argv[1:]])


if __name__ == "__main__":
    main()
