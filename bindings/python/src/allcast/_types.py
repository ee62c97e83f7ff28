"""Element types and reduction operators."""

from __future__ import annotations

import enum

from .errors import InvalidError


class DataType(enum.IntEnum):
    """Element type of a buffer, with the values of allcast.h."""

    FLOAT32 = 1
    FLOAT64 = 2
    FLOAT16 = 3
    BFLOAT16 = 4
    INT8 = 5
    INT16 = 6
    INT32 = 7
    INT64 = 8
    UINT8 = 9
    UINT16 = 10
    UINT32 = 11
    UINT64 = 12
    BOOL = 13

    @property
    def size(self) -> int:
        """Size of an element in bytes."""
        return _SIZES[self]


_SIZES: dict[DataType, int] = {
    DataType.FLOAT32: 4,
    DataType.FLOAT64: 8,
    DataType.FLOAT16: 2,
    DataType.BFLOAT16: 2,
    DataType.INT8: 1,
    DataType.INT16: 2,
    DataType.INT32: 4,
    DataType.INT64: 8,
    DataType.UINT8: 1,
    DataType.UINT16: 2,
    DataType.UINT32: 4,
    DataType.UINT64: 8,
    DataType.BOOL: 1,
}


class Op(enum.IntEnum):
    """Operator that combines the elements of different ranks, with the values of allcast.h."""

    SUM = 1
    AVERAGE = 2
    MIN = 3
    MAX = 4
    PRODUCT = 5
    AND = 6
    OR = 7
    XOR = 8
    PREMULTIPLIED_SUM = 9


_DATA_TYPES: dict[str, DataType] = {t.name.lower(): t for t in DataType}
_DATA_TYPES.update(
    f32=DataType.FLOAT32,
    f64=DataType.FLOAT64,
    f16=DataType.FLOAT16,
    bf16=DataType.BFLOAT16,
    i8=DataType.INT8,
    i16=DataType.INT16,
    i32=DataType.INT32,
    i64=DataType.INT64,
    u8=DataType.UINT8,
    u16=DataType.UINT16,
    u32=DataType.UINT32,
    u64=DataType.UINT64,
)

_OPS: dict[str, Op] = {o.name.lower(): o for o in Op}
_OPS.update(
    {
        "avg": Op.AVERAGE,
        "minimum": Op.MIN,
        "maximum": Op.MAX,
        "prod": Op.PRODUCT,
        "band": Op.AND,
        "bor": Op.OR,
        "bxor": Op.XOR,
        "premul_sum": Op.PREMULTIPLIED_SUM,
        "premul-sum": Op.PREMULTIPLIED_SUM,
        "premultiplied-sum": Op.PREMULTIPLIED_SUM,
    }
)


def parse_type(value: object) -> DataType:
    """Returns the element type of a `DataType`, a name, or a type of numpy or torch."""
    if isinstance(value, DataType):
        return value
    if isinstance(value, str):
        name = value
    elif isinstance(value, type):
        name = value.__name__  # numpy.float32
    else:
        name = str(value).rpartition(".")[2]  # numpy.dtype("float32"), torch.float32
    found = _DATA_TYPES.get(name)
    if found is None:
        names = ", ".join(t.name.lower() for t in DataType)
        raise InvalidError(f"dtype {value!r} is not an element type: want one of {names}")
    return found


def parse_op(value: Op | str) -> Op:
    """Returns the operator of an `Op` or of a name such as "sum" or "avg"."""
    if isinstance(value, Op):
        return value
    found = _OPS.get(value)
    if found is None:
        names = ", ".join(o.name.lower() for o in Op)
        raise InvalidError(f"op {value!r} is not an operator: want one of {names}")
    return found
