"""The reference is made of docstrings: each public name has one, which tells of its arguments."""

import builtins
import importlib
import inspect
import pathlib
import pkgutil
import re
import subprocess

import pytest

import tern

MAKE_DOCS = pathlib.Path(__file__).parents[2] / "tools" / "make_docs.sh"
SECONDS = {"timeout", "op_timeout", "every"}
# Explained where they are defined: in the docstring of the class, or by what the type says.
SELF_EVIDENT = {"self", "cls", "args"}


def modules():
    """tern and its modules that say what is public in them. Those that need another package are for
    that package's tests."""
    found = [tern]
    for entry in pkgutil.iter_modules(tern.__path__, "tern."):
        if not entry.name.rpartition(".")[2].startswith("_") and not entry.ispkg:
            found.append(importlib.import_module(entry.name))
    return [module for module in found if hasattr(module, "__all__")]


def members(name, value):
    """(name, function or property, docstring of the class) of what a class defines in public."""
    for key, member in vars(value).items():
        if key.startswith("_") and key != "__init__":
            continue
        if isinstance(member, property):
            yield f"{name}.{key}", member.fget, value.__doc__
        elif inspect.isfunction(member):
            yield f"{name}.{key}", member, value.__doc__


def public():
    """(name, class or function, docstring around it) of the whole package."""
    seen = set()
    for module in modules():
        for key in module.__all__:
            value = getattr(module, key)
            if value in seen or not (inspect.isclass(value) or inspect.isfunction(value)):
                continue
            seen.add(value)
            name = f"{module.__name__}.{key}"
            yield name, value, ""
            if inspect.isclass(value):
                yield from members(name, value)


PUBLIC = sorted(public(), key=lambda entry: entry[0])


def generated(value):
    """Whether dataclass, NamedTuple or Protocol has written the function."""
    code = getattr(value, "__code__", None)
    return code is not None and not code.co_filename.startswith(tern.__path__[0])


def is_made_elsewhere(around):
    """Whether programs get such objects from a function, and do not call the constructor."""
    return re.search(r"\b(makes?|returns?)\b", around)


def test_the_reference_has_what_programs_use():
    names = {name for name, *_ in PUBLIC}
    assert {"tern.connect", "tern.Group.all_reduce", "tern.Ticket.wait", "tern.stats",
            "tern.tensorboard.Scalars.log"} <= names


def test_the_site_has_every_module_whose_names_are_not_those_of_tern():
    """tools/make_docs.sh names them: a page of pdoc has what the module's __all__ has."""
    line, = re.findall(r"^set -- (.*)$", MAKE_DOCS.read_text(), re.MULTILINE)
    pages = line.split()
    assert pages[0] == "tern" and "tern.cuda" in pages
    for module in modules():
        assert module.__name__ in pages or set(module.__all__) <= set(tern.__all__)


def test_the_site_takes_the_place_of_no_other_folder(tmp_path):
    (tmp_path / "page.md").touch()
    made = subprocess.run([MAKE_DOCS, tmp_path.name], cwd=tmp_path.parent, capture_output=True,
                          text=True, check=False)
    assert made.returncode == 1 and str(tmp_path) in made.stderr
    assert (tmp_path / "page.md").exists()


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.__name__)
def test_a_module_says_what_it_is_for(module):
    assert module.__doc__ and module.__doc__.strip().endswith((".", '"', "`", ")"))


@pytest.mark.parametrize("name, value, around", PUBLIC, ids=[name for name, *_ in PUBLIC])
def test_a_public_name_is_explained(name, value, around):
    text = value.__doc__ or ""
    if name.endswith(".__init__"):
        if generated(value) or is_made_elsewhere(around):
            return
        text += around
    assert text.strip(), f"{name} has no docstring"
    if inspect.isfunction(value):
        parameters = set(inspect.signature(value).parameters) - SELF_EVIDENT
        # Words that all methods of a class share are explained in the class.
        silent = {word for word in parameters if not re.search(rf"\b{word}\b", f"{text}{around}")}
        assert not silent, f"{name} says nothing of {', '.join(sorted(silent))}"
        if parameters & SECONDS:
            assert "seconds" in f"{text}{around}", f"{name} does not say the unit of its times"
        if "x" in parameters:
            assert "elements" in text or "in all_gather" in text, f"{name} says no shape"


@pytest.mark.parametrize("name, value, around", PUBLIC, ids=[name for name, *_ in PUBLIC])
def test_errors_that_are_named_exist(name, value, around):
    for error in re.findall(r"\b[A-Z]\w+Error\b", value.__doc__ or ""):
        assert hasattr(tern, error) or hasattr(builtins, error), f"{name} names {error}"


def test_what_waits_or_talks_to_the_daemon_names_its_errors():
    for call in (tern.connect, tern.init, tern.stats, tern.Client.__init__, tern.Client.join,
                 tern.Client.empty, tern.Group.declare, tern.Ticket.wait, tern.Ticket.cancel,
                 tern.Tensor.import_state, tern.Tensor.export_state):
        assert re.search(r"Error\b", call.__doc__ or ""), call
