"""The reference of the site: pages for every public name, and what is wrong with their docstrings.

One idea: nothing is listed by hand. A *door* is a namespace that people may import from: tokenloom
itself, every room whose `__init__` has an `__all__`, the modules of `integrations`, and modules
that a door exports. Their `__all__` says which names there are, the code says what their signatures
are, and the classes that they return are described, too. `problems` finds what a generator would
pass over in silence: a public name or method without a docstring, and a docstring that describes
parameters which the signature does not have.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Door", "doors", "pages", "problems", "without_examples"]

PACKAGE = "tokenloom"
CLOSED = ("cli",)  # rooms with an `__all__` that are no door: people use them on the command line
MACHINERY = ("line", "renderer", "renderer_of", "run")  # members for other rooms, not for people


@dataclass(frozen=True, slots=True)
class Door:
    """A namespace and its public names."""

    name: str
    names: tuple[str, ...]

    @property
    def module(self) -> types.ModuleType:
        """What it is in Python."""
        return importlib.import_module(self.name)

    @property
    def items(self) -> list[tuple[str, Any]]:
        """(name, object) of all that it exports but modules, which are doors themselves."""
        found = [(name, getattr(self.module, name)) for name in self.names]
        return [(name, value) for name, value in found if not inspect.ismodule(value)]


@functools.cache
def doors() -> tuple[Door, ...]:
    """All of them, tokenloom first, in the order of their names."""
    package = importlib.import_module(PACKAGE)
    found = [PACKAGE]
    for info in pkgutil.walk_packages(package.__path__, f"{PACKAGE}."):
        room, _, rest = info.name.removeprefix(f"{PACKAGE}.").partition(".")
        is_adapter = room == "integrations" and "." not in rest
        if room not in CLOSED and (info.ispkg or is_adapter):
            found.append(info.name)
    for name in list(found):
        module = importlib.import_module(name)
        values = [getattr(module, public) for public in getattr(module, "__all__", ())]
        found += [value.__name__ for value in values if inspect.ismodule(value)]
    every = ((name, tuple(getattr(importlib.import_module(name), "__all__", ()))) for name in found)
    return tuple(Door(*one) for one in sorted(every) if one[1])


# -- what is public, and what it returns ---------------------------------------------------


@functools.cache
def described() -> dict[int, str]:
    """Id of each public object → the full name under which it is described, its first one."""
    found: dict[int, str] = {}
    for door in doors():
        for name, value in door.items:
            if callable(value):
                found.setdefault(id(value), f"{door.name}.{name}")
    return found


def public_members(value: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that a class or a parent of ours defines."""
    for name in dir(value):
        owner = next((one for one in value.__mro__ if name in vars(one)), None)
        ours = owner is not None and owner.__module__.split(".")[0] == PACKAGE
        if name.startswith("_") or name in MACHINERY or not ours:
            continue
        member = inspect.getattr_static(value, name)
        member = getattr(member, "func", member)  # of a cached property
        known = callable(member) or isinstance(member, (property, staticmethod, classmethod))
        if known or type(member).__module__.split(".")[0] == PACKAGE:  # a descriptor of ours
            yield name, member


def function_of(member: Any) -> Any:
    """The function behind a method or a property."""
    if isinstance(member, property):
        return member.fget
    return inspect.unwrap(getattr(member, "__func__", member))


@functools.cache
def returned() -> tuple[type, ...]:
    """Classes of ours that public functions and methods return, and no door exports."""
    found: dict[str, type] = {}
    for value in (value for door in doors() for _, value in door.items if callable(value)):
        members = [m for _, m in public_members(value)] if inspect.isclass(value) else [value]
        for kind in (one for member in members for one in _classes_in(_returns(member))):
            ours = kind.__module__.split(".")[0] == PACKAGE and not kind.__name__.startswith("_")
            if ours and id(kind) not in described():
                found[kind.__name__] = kind
    return tuple(found[name] for name in sorted(found))


def _returns(member: Any) -> Any:
    function = function_of(member)
    try:
        return typing.get_type_hints(function).get("return")
    except (NameError, TypeError, AttributeError):  # a type that is there for checkers only
        return None


def _classes_in(hint: Any) -> Iterator[type]:
    if inspect.isclass(hint) and not typing.get_args(hint):
        yield hint
    for part in typing.get_args(hint):
        yield from _classes_in(part)


# -- what is wrong -------------------------------------------------------------------------


def problems() -> list[str]:
    """What must be mended before the reference is true, as sentences."""
    found = []
    for where, value in _everything():
        told = inspect.getdoc(function_of(value)) if not inspect.isclass(value) else value.__doc__
        if not told:
            found.append(f"{where}: no docstring.")
            continue
        found += [
            f"{where}: its docstring describes {name!r}, which is no parameter of it."
            for name in _stale(value, told)
        ]
    for door in doors():
        if not door.module.__doc__:
            found.append(f"{door.name}: no docstring.")
    return found


def without_examples() -> list[str]:
    """Public functions and classes whose docstring has no example; exceptions need none."""
    return [
        f"{door.name}.{name}"
        for door in doors()
        for name, value in door.items
        if callable(value)
        and not is_exception(value)
        and ">>>" not in (inspect.getdoc(value) or "")
    ]


def is_exception(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseException)


def _everything() -> Iterator[tuple[str, Any]]:
    """(full name, object) of all public functions, classes and their public members."""
    tops = [(f"{d.name}.{name}", value) for d in doors() for name, value in d.items]
    tops += [(kind.__qualname__, kind) for kind in returned()]
    for where, value in tops:
        if callable(value):
            yield where, value
        if inspect.isclass(value):
            yield from ((f"{where}.{name}", member) for name, member in public_members(value))


def _stale(value: Any, told: str) -> list[str]:
    section = re.search(r"^Args:\n((?:[ \t]+.*\n?|\n)+)", inspect.cleandoc(told), re.MULTILINE)
    if section is None or not callable(function_of(value)) or isinstance(value, property):
        return []
    indent = len(section[1]) - len(section[1].lstrip())
    named = re.findall(rf"^ {{{indent}}}\*{{0,2}}(\w+)(?:, \w+)*:", section[1], re.MULTILINE)
    parameters = inspect.signature(
        value if inspect.isclass(value) else function_of(value)
    ).parameters
    return [name for name in named if name not in parameters]


# -- pages ---------------------------------------------------------------------------------


def pages() -> dict[str, str]:
    """Name of a page → its text, in reStructuredText; `index` is the first."""
    first, *others = doors()
    made = {}
    for name, value in first.items:
        if callable(value) and not is_exception(value):
            made[f"{first.name}.{name}"] = _title(f"tokenloom.{name}") + _entry(first, name, value)
    errors = [(name, value) for name, value in first.items if is_exception(value)]
    made["exceptions"] = _title("Exceptions") + _exceptions(first, errors)
    for door in others:
        made[door.name] = _door_page(door)
    made["returned"] = _title("What you get back") + (
        "Classes that functions and methods return. Import them for annotations only; their "
        "modules may move.\n\n"
    )
    made["returned"] += "\n".join(
        f".. autoclass:: {kind.__module__}.{kind.__qualname__}()\n{_members(kind)}"
        for kind in returned()
    )
    return {"index": _index(first, others), **made}


def _title(words: str) -> str:
    return f"{words}\n{'=' * len(words)}\n\n"


def _entry(door: Door, name: str, value: Any) -> str:
    """The directive that describes a name; a reference where another door has it already."""
    full, plain = f"{door.name}.{name}", f".. py:data:: {name}\n   :module: {door.name}\n"
    if not callable(value):
        return f"{plain}   :type: {type(value).__name__}\n   :value: {value!r}\n"
    known = described()[id(value)]
    if known != full:
        return f"{plain}   :no-index:\n\n   The same as :py:obj:`{known}`.\n"
    if inspect.isclass(value):
        kind = "exception" if is_exception(value) else "class"
        return f".. auto{kind}:: {full}\n{_members(value)}"
    return f".. autofunction:: {full}\n"


def _members(value: type) -> str:
    """Options: the members that are ours to describe, those of our parents included."""
    foreign = [one.__name__ for one in value.__mro__ if one.__module__.split(".")[0] != PACKAGE]
    return (
        "   :members:\n"
        f"   :inherited-members: {', '.join(foreign)}\n"
        f"   :exclude-members: {', '.join(MACHINERY)}\n"
    )


def _door_page(door: Door) -> str:
    text = _title(door.name) + f".. automodule:: {door.name}\n   :no-members:\n\n"
    modules = [n for n in door.names if inspect.ismodule(getattr(door.module, n))]
    if modules:
        listed = "".join(f"- :doc:`{getattr(door.module, name).__name__}`\n" for name in modules)
        text += f"{listed}\n"
    return text + "\n".join(_entry(door, name, value) for name, value in door.items)


def _exceptions(door: Door, errors: list[tuple[str, Any]]) -> str:
    told = inspect.getdoc(importlib.import_module(f"{PACKAGE}.errors")) or ""
    return f"{told}\n\n" + "\n".join(_entry(door, name, value) for name, value in errors)


def _index(first: Door, others: list[Door]) -> str:
    text = _title("Reference")
    text += "What most people need, after ``import tokenloom as tl``:\n\n"
    named = [n for n, value in first.items if callable(value) and not is_exception(value)]
    text += _summary([f"{first.name}.{name}" for name in named])
    text += (
        "Errors are on :doc:`a page of their own <exceptions>`, and so are the :doc:`classes that "
    )
    text += "functions return <returned>`. Further namespaces, to be imported by name:\n\n"
    text += _summary([door.name for door in others])
    plain = [(name, value) for name, value in first.items if not callable(value)]
    text += "".join(f"{_entry(first, name, value)}\n" for name, value in plain)
    listed = [f"{first.name}.{name}" for name in named] + [door.name for door in others]
    hidden = [f"{one.removeprefix(f'{PACKAGE}.')} <{one}>" for one in listed]
    hidden[len(named) : len(named)] = ["exceptions", "returned"]
    return text + ".. toctree::\n   :hidden:\n\n" + "".join(f"   {one}\n" for one in hidden)


def _summary(names: list[str]) -> str:
    return (
        ".. list-table::\n   :class: summary\n   :widths: auto\n\n"
        + "".join(f"   * - :doc:`{name} <{name}>`\n     - {_first_line(name)}\n" for name in names)
        + "\n"
    )


def _first_line(full: str) -> str:
    module, _, name = full.rpartition(".")
    try:
        value = importlib.import_module(full)
    except ModuleNotFoundError:
        value = getattr(importlib.import_module(module), name)
    if full == f"{PACKAGE}.{name}" and name in doors()[0].names:
        value = getattr(importlib.import_module(PACKAGE), name)
    return (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")
