"""Fixtures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import Job

RANKS = 3


@pytest.fixture(scope="session")
def job() -> Iterator[Job]:
    """A job of three ranks. Tests must not break it."""
    with Job(RANKS) as made:
        yield made


@pytest.fixture
def pair() -> Iterator[Job]:
    """A job of two ranks that a test may break. Lost ranks are noticed soon."""
    with Job(2, timeout=2.0, log="off") as made:
        yield made
