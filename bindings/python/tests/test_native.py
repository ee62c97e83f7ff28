"""The declarations, against allcast.h."""

from __future__ import annotations

import ctypes
import pathlib
import re

import pytest
from harness import Process

import allcast
from allcast import _native

REPOSITORY = pathlib.Path(__file__).parents[3]


def header() -> str:
    text = (REPOSITORY / "bindings/c/include/allcast.h").read_text()
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def kind(declaration: str) -> str:
    """Returns "pointer", "double" or the number of bits and the sign of a C type."""
    if "*" in declaration:
        return "pointer"
    words = declaration.replace("const", "").split()
    names = {
        "int": "i4", "int32_t": "i4", "int64_t": "i8", "size_t": "u8", "uint64_t": "u8",
        "double": "double", "void": "void", "allcast_options": "u8", "allcast_comm": "u8",
        "allcast_request": "u8", "allcast_queue": "u8",
    }  # fmt: skip
    return names[words[0]]


def kind_of(declared: object) -> str:
    if declared is None:
        return "void"
    assert isinstance(declared, type)
    names = {
        ctypes.c_int: "i4", ctypes.c_int32: "i4", ctypes.c_int64: "i8", ctypes.c_size_t: "u8",
        ctypes.c_uint64: "u8", ctypes.c_double: "double",
    }  # fmt: skip
    return names.get(declared, "pointer")


def test_functions() -> None:
    lib = _native.load()
    found = re.findall(r"^([\w ]+\*?)\b(allcast_\w+)\(([^)]*)\);", header(), flags=re.MULTILINE)
    assert len(found) >= 70
    for result, name, arguments in found:
        function = getattr(lib, name)
        assert function.argtypes is not None, f"{name} is not declared"
        want = [] if arguments == "void" else [kind(a) for a in arguments.split(",")]
        assert [kind_of(a) for a in function.argtypes] == want, name
        assert kind_of(function.restype) == kind(result), name


@pytest.mark.parametrize(
    ("name", "struct"),
    [
        ("allcast_call", _native.Call),
        ("allcast_message", _native.Message),
        ("allcast_completion", _native.Completion),
    ],
)
def test_structs(name: str, struct: type[ctypes.Structure]) -> None:
    match = re.search(rf"typedef struct {name} {{(.*?)}}", header(), flags=re.DOTALL)
    assert match is not None
    fields = [line.strip() for line in match.group(1).split(";") if line.strip()]
    assert [kind(line) for line in fields] == [kind_of(f[1]) for f in struct._fields_]
    assert [line.split()[-1].lstrip("*") for line in fields] == [f[0] for f in struct._fields_]


def test_codes() -> None:
    codes = dict(re.findall(r"ALLCAST_ERR_(\w+) = (\d+)", header()))
    assert len(codes) == 20
    for name, code in codes.items():
        want = name.title().replace("_", "") + "Error"
        want = {"TimeoutError": "WaitTimeoutError", "OtherError": "Error"}.get(want, want)
        cls = allcast.errors.error_class(int(code))
        assert cls is getattr(allcast, want)
        assert cls.code == int(code)


@pytest.mark.parametrize(("prefix", "enum"), [("type", allcast.DataType), ("op", allcast.Op)])
def test_enums(prefix: str, enum: type[allcast.DataType] | type[allcast.Op]) -> None:
    match = re.search(rf"enum allcast_{prefix} {{(.*?)}}", header(), flags=re.DOTALL)
    assert match is not None
    names = re.findall(r"ALLCAST_(\w+)", match.group(1))
    assert [(member.name, member.value) for member in enum] == [
        (name, i + 1) for i, name in enumerate(names)
    ]


def test_version() -> None:
    match = re.search(r'const Version = "(.*)"', (REPOSITORY / "options.go").read_text())
    assert match is not None
    assert allcast.version == allcast.__version__ == match.group(1)
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        _ = allcast.missing  # type: ignore[attr-defined]


def test_set_parallelism() -> None:
    script = """
        allcast.set_parallelism(2)
        try:
            allcast.set_parallelism(0)
        except allcast.InvalidError as err:
            print(err)
    """
    with Process(script) as process:
        assert "0" in process.end()


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("/nonexistent/liballcast.so", "cannot load its library.*ALLCAST_LIBRARY"),
        ("libm.so.6", "is not the library of allcast"),
    ],
)
def test_wrong_library(path: str, want: str) -> None:
    script = """
        try:
            allcast.Queue()
        except ImportError as err:
            print(err)
    """
    with Process(script, ALLCAST_LIBRARY=path) as process:
        assert re.search(want, process.end())


def test_other_abi(tmp_path: pathlib.Path) -> None:
    script = """
        import ctypes
        class Library:
            def __init__(self, path):
                pass
            def allcast_abi(self):
                return 2
        ctypes.CDLL = Library
        try:
            allcast.Queue()
        except ImportError as err:
            print(err)
    """
    with Process(script) as process:
        assert "version 2 of the C interface, and this package needs version 1" in process.end()
