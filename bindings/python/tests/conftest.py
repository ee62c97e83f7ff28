"""Fixtures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import PATIENCE, Job

RANKS = 3


@pytest.fixture(scope="session")
def job() -> Iterator[Job]:
    """A job of three ranks. Tests must not break it."""
    with Job(RANKS) as made:
        yield made


@pytest.fixture
def pair() -> Iterator[Job]:
    """A job of two ranks that a test may break. Only a rank that ends counts as lost."""
    with Job(2, timeout=PATIENCE, log="off") as made:
        yield made
