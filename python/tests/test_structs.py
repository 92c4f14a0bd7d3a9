"""The structs in Python against the header, as a C compiler reads it."""

import ctypes
import os
import pathlib
import shutil
import subprocess

import pytest

from tern import _structs as structs
from tern import errors

HEADER = pathlib.Path(os.environ.get(
    "TERN_INCLUDE", pathlib.Path(__file__).parents[2] / "client_lib/include")) / "tern/tern.h"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """What C says: name, number."""
    compiler = shutil.which("cc")
    if compiler is None or not HEADER.exists():
        pytest.skip(f"no C compiler, or no {HEADER}")
    folder = tmp_path_factory.mktemp("structs")
    asked = [f"offsetof({name}, {field[0]})" for name, struct in structs.SIZED.items()
             for field in struct._fields_]
    asked += [f"sizeof((({name}*)0)->{field[0]})" for name, struct in structs.SIZED.items()
              for field in struct._fields_]
    asked += ["sizeof(tern_group_id)", "TERN_FOREVER", "TERN_PRODUCT", "TERN_WEIGHTS", "TERN_U8"]
    asked += [name_in_c(kind) for kind in statuses()]
    lines = "\n".join(f'printf("%lld\\n", (long long)({what}));' for what in asked)
    (folder / "ask.c").write_text(
        f'#include <stdio.h>\n#include "{HEADER}"\nint main(void) {{ {lines} }}\n')
    subprocess.run([compiler, folder / "ask.c", "-o", folder / "ask"], check=True)
    numbers = subprocess.run([folder / "ask"], check=True, capture_output=True, text=True).stdout
    return dict(zip(asked, map(int, numbers.split())))


# Where Python's name differs from that of the C header.
RENAMED = {"WaitTimeout": "TIMEOUT", "OperationTimeout": "OP_TIMEOUT",
           "OperationCancelled": "CANCELLED", "Protocol": "PROTOCOL_ERROR",
           "SystemCall": "IO_ERROR"}


def statuses():
    return [kind for kind in errors.TernError.__subclasses__() if kind.status]


def name_in_c(kind):
    name = kind.__name__.removesuffix("Error")
    words = "".join("_" + c if c.isupper() else c for c in name).strip("_").upper()
    return "TERN_ERR_" + RENAMED.get(name, words)


@pytest.mark.parametrize("name", structs.SIZED)
def test_every_field_is_where_c_has_it(compiled, name):
    struct = structs.SIZED[name]
    for field, *_ in struct._fields_:
        descriptor = getattr(struct, field)
        assert descriptor.offset == compiled[f"offsetof({name}, {field})"], field
        assert descriptor.size == compiled[f"sizeof((({name}*)0)->{field})"], field


def test_numbers_are_those_of_c(compiled):
    assert ctypes.sizeof(structs.GroupId) == compiled["sizeof(tern_group_id)"]
    assert compiled["TERN_FOREVER"] == structs.FOREVER
    assert structs.REDUCTIONS["product"] == compiled["TERN_PRODUCT"]
    assert structs.ROLES["weights"] == compiled["TERN_WEIGHTS"]


def test_every_status_has_a_class_of_its_name(compiled):
    for kind in statuses():
        assert kind.status == compiled[name_in_c(kind)], kind
    assert sorted(kind.status for kind in statuses()) == list(range(1, 35))
