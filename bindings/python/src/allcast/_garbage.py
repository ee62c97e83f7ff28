"""Objects of the library whose Python objects were dropped.

Finalisers run at any time: between a failed call and the look at its error, in a forked child, and
while the interpreter exits, when modules are empty. They therefore neither call the library nor use
globals. They add a function and its arguments here, and later calls run it.
"""

from __future__ import annotations

import collections
import ctypes
from collections.abc import Callable

# Functions that release an object and report whether they could. If not, they run again later.
dropped: collections.deque[tuple[Callable[[ctypes.CDLL, int, int], bool], int, int]] = (
    collections.deque()
)
drop = dropped.append

# Number of functions per call, so that a call takes a bounded time.
_BATCH = 4


def collect(lib: ctypes.CDLL, limit: int = _BATCH) -> None:
    """Releases some objects."""
    for _ in range(min(len(dropped), limit)):
        try:
            entry = dropped.popleft()
        except IndexError:  # another thread was faster
            return
        release, first, second = entry
        if not release(lib, first, second):
            drop(entry)
