"""Memory that the network can use without a copy or a registration."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from . import _garbage, _native
from .errors import ClosedError

if TYPE_CHECKING:
    from ._comm import Comm


class Allocation:
    """Zeroed memory of `Comm.alloc`, with the buffer protocol.

    It is freed when the last reference to it is gone. Views, such as
    `numpy.frombuffer(allocation)`, refer to it.
    """

    _drop = _garbage.drop
    _address: int
    _comm: Comm
    _freed: bool

    if TYPE_CHECKING:

        def __buffer__(self, flags: int) -> memoryview: ...

        def __len__(self) -> int: ...

    @property
    def address(self) -> int:
        """Address of the first byte."""
        if self._freed:
            raise ClosedError("the memory was freed")
        return self._address

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return ctypes.sizeof(self)  # type: ignore[arg-type]

    def free(self) -> None:
        """Frees the memory at once. Views of it must not be used afterwards.

        It raises InUseError while an operation uses the memory.
        """
        if self._freed:
            return
        lib = _native.load()
        _native.check(lib, lib.allcast_free(self._comm._handle, self.address))
        self._freed = True

    def __del__(self) -> None:
        if not getattr(self, "_freed", True):
            self._drop((self._free, self._comm._handle, self._address))

    @staticmethod
    def _free(lib: ctypes.CDLL, comm: int, address: int) -> bool:
        return bool(lib.allcast_free(comm, address) != _native.ERR_IN_USE)


def allocate(comm: Comm, nbytes: int) -> Allocation:
    """Allocates memory of a communicator."""
    lib = comm._lib
    address = ctypes.c_void_p()
    _native.check(lib, lib.allcast_alloc(comm._handle, nbytes, address))
    # Only ctypes arrays have the buffer protocol in all versions of Python.
    kind = type("Allocation", (Allocation, ctypes.c_ubyte * nbytes), {})
    allocation = kind.from_address(address.value)  # type: ignore[attr-defined]
    allocation._address = address.value
    allocation._comm = comm
    allocation._freed = False
    return allocation  # type: ignore[no-any-return]
