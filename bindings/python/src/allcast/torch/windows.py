"""Divides the tensors of a checkpoint into windows, each of which is one Broadcast.

All ranks compute the same windows from the same list of tensors, whatever they do with the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .safetensors import ITEM_SIZES, Entry

# Pieces in a window start at a multiple of this, so that every element type can be read in place.
ALIGNMENT = 16


class Piece(NamedTuple):
    """A part of a tensor that is contiguous in the file.

    It is a range of one dimension, with one index in all earlier dimensions, and complete in all
    later ones.
    """

    entry: int  # index of the tensor
    prefix: tuple[int, ...]  # indices in the dimensions before the range
    start: int  # range in the dimension after them; 0 and 1 for a tensor without dimensions
    stop: int
    offset: int  # position in the data of the tensor, in bytes
    nbytes: int
    at: int  # position in the window, in bytes


class Window(NamedTuple):
    """The data of one Broadcast."""

    pieces: list[Piece]
    nbytes: int


def cut(
    shape: Sequence[int], item: int, limit: int, prefix: tuple[int, ...] = (), offset: int = 0
) -> Iterator[tuple[tuple[int, ...], int, int, int, int]]:
    """Cuts a tensor into pieces of at most limit bytes.

    Yields prefix, start, stop, offset and nbytes of each piece, in the order of the data.
    """
    rows, row = (shape[0], math.prod(shape[1:]) * item) if shape else (1, item)
    if rows * row == 0:
        return
    if row > limit:
        for i in range(rows):
            yield from cut(shape[1:], item, limit, (*prefix, i), offset + i * row)
        return
    count = -(-rows // (limit // row))
    step = -(-rows // count)  # pieces of about the same size instead of a short one at the end
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        yield prefix, start, stop, offset + start * row, (stop - start) * row


def plan(entries: Sequence[Entry], wanted: Sequence[int], limit: int, small: int) -> list[Window]:
    """Returns the windows of the wanted tensors.

    A piece of at least small bytes is a window of its own, so that a rank can receive it at its
    destination. Smaller pieces share windows, because each Broadcast has a cost of its own.
    """
    windows: list[Window] = []
    shared: list[Piece] = []
    end = 0
    for number, entry in enumerate(entries):
        if not wanted[number]:
            continue
        item = ITEM_SIZES[entry.dtype]
        for prefix, start, stop, offset, nbytes in cut(entry.shape, item, limit):
            if nbytes >= small:
                piece = Piece(number, prefix, start, stop, offset, nbytes, 0)
                windows.append(Window([piece], nbytes))
                continue
            at = -(-end // ALIGNMENT) * ALIGNMENT
            if at + nbytes > limit:
                windows.append(Window(shared, end))
                shared, at = [], 0
            shared.append(Piece(number, prefix, start, stop, offset, nbytes, at))
            end = at + nbytes
    if shared:
        windows.append(Window(shared, end))
    return windows
