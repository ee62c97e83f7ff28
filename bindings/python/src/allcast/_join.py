"""Joining a job."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from . import _native
from ._background import Background
from ._comm import Comm, close
from ._options import Options
from ._store import Callbacks, Store


def join(
    *,
    rank: int | None = None,
    size: int | None = None,
    addr: str | None = None,
    store: Store | None = None,
    attempt: int | None = None,
    key: bytes | None = None,
    secure: bool | None = None,
    integrity: bool | None = None,
    aggregators: str | None = None,
    site_key: bytes | None = None,
    interface: str | None = None,
    fabric: str | None = None,
    device: str | None = None,
    rack: str | None = None,
    rate: str | None = None,
    timeout: float | None = None,
    join_timeout: float | None = None,
    deadline: float | None = None,
    subgroups: int | None = None,
    groups: Sequence[str] | None = None,
    comm_groups: str | None = None,
    chunk: int | None = None,
    ttl: int | None = None,
    dscp: int | None = None,
    receive_buffer: int | None = None,
    plain_sockets: bool | None = None,
    no_multicast: bool | None = None,
    datapath: str | None = None,
    hook: str | None = None,
    receive_cores: Sequence[int] | None = None,
    pin: Sequence[int] | None = None,
    tuning: str | None = None,
    calibrate: bool | None = None,
    log: str | None = None,
) -> Comm:
    """Connects this process to the other ranks of the job. All ranks call it.

    Arguments that are None come from the environment, as torchrun, mpirun, srun or `allcast run`
    set it. Durations are in seconds. docs/settings.md describes the arguments.
    """
    values = {name: value for name, value in locals().items() if name != "store"}
    lib = _native.load()
    options = Options(lib, values)
    callbacks: Callbacks | None = None

    def run() -> int:
        out = ctypes.c_uint64()
        try:
            struct = None if callbacks is None else callbacks.struct
            code = lib.allcast_join(options.handle, struct, out)
            if code:
                err = _native.last_error(lib, code)
                if callbacks is not None and callbacks.failure is not None:
                    raise callbacks.explain(err)
                raise err
        finally:
            options.free()
        return out.value

    background = Background(run, lambda handle: close(lib, handle))
    if store is not None:
        callbacks = Callbacks(store, background.serve)
    return Comm(lib, background.result(), None)
