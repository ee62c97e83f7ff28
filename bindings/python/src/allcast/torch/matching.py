"""Compares the tensors of a checkpoint with those of a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torch import nn

from .safetensors import Entry
from .targets import Target, targets_of

# Number of names or problems that an error lists.
_LISTED = 5


class MismatchError(ValueError):
    """A checkpoint does not fit a model."""


class Matching(NamedTuple):
    """What this rank loads from a checkpoint."""

    targets: dict[int, Target]  # destinations by the index of the tensor in the checkpoint
    missing: list[str]  # names of the model only
    unexpected: list[str]  # names of the checkpoint only


def match(entries: Sequence[Entry], model: nn.Module, strict: bool) -> Matching:
    """Finds the destinations of all tensors. A MismatchError lists what does not fit."""
    state = model.state_dict(keep_vars=True)
    targets, problems = targets_of(state)
    positions = {entry.name: i for i, entry in enumerate(entries)}

    # Several names may stand for one tensor (tied weights). Files often contain only one of them.
    # If they contain several, the last one counts, as in torch.
    last: dict[object, str] = {}
    for name, target in targets.items():
        if name in positions:
            last[target.identity()] = name
            problem = target.check(entries[positions[name]])
            if problem:
                problems.append(f"tensor {name!r} {problem}")
    matched = {positions[name]: targets[name] for name in last.values()}

    missing = [
        name
        for name in state
        if name not in positions and not (name in targets and targets[name].identity() in last)
    ]
    unexpected = [name for name in positions if name not in state]
    if strict and missing:
        problems.append(f"the checkpoint lacks {_listed(map(repr, missing))}")
    if strict and unexpected:
        problems.append(f"the model lacks {_listed(map(repr, unexpected))}")
    if problems:
        raise MismatchError(_listed(problems, "; "))
    return Matching(matched, missing, unexpected)


def _listed(items: Iterable[str], separator: str = ", ") -> str:
    items = list(items)
    text = separator.join(items[:_LISTED])
    more = len(items) - _LISTED
    return f"{text} and {more} more" if more > 0 else text
