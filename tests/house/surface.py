"""All that users may rely on, as text, for tests/golden/surface.txt."""

import importlib
import inspect
import re
import types

ROOMS = ["order", "batch", "loader", "streams", "inspect", "evaluate", "cluster", "exchange"]
ROOMS += ["quality", "report", "runfiles", "testing", "cli"]
ROOMS += [f"integrations.{one}" for one in ("grain", "hf", "jax", "levanter", "lightning", "torch")]
ROOMS += ["integrations.trainer"]
INTERNAL = {"renderer", "run", "sources", "rule", "reader", "line"}  # attributes of our own use


def lines():
    for path in ["tokenloom", *(f"tokenloom.{room}" for room in ROOMS)]:
        yield from module_lines(path, importlib.import_module(path))


def module_lines(path, module):
    root = importlib.import_module("tokenloom")
    for name in sorted(module.__all__):
        value = getattr(module, name)
        if isinstance(value, types.ModuleType):
            yield from module_lines(f"{path}.{name}", value)
        elif module is root or getattr(root, name, None) is not value:
            yield from value_lines(f"{path}.{name}", value)


def value_lines(path, value):
    if not isinstance(value, type):
        yield f"{path}{signature(value) if inspect.isroutine(value) else ''}"
        return
    if issubclass(value, BaseException):
        yield f"{path}({', '.join(base.__name__ for base in value.__bases__)})"
        return
    members = {
        name: one
        for kind in reversed(value.__mro__[:-1])
        for name, one in vars(kind).items()
        if not name.startswith("_") and name not in INTERNAL
    }
    calls = {name: signature(one) for name, one in members.items() if inspect.isfunction(one)}
    plain = [f"{n}()" if calls.get(n) == "(self)" else n for n in sorted(members)]
    plain = [name for name in plain if name not in calls]
    yield f"{path}: {', '.join(plain)}" if plain else path
    for name, words in sorted(calls.items()):
        if words != "(self)":
            yield f"{path}.{name}{words}"


def signature(function):
    """Names and defaults; annotations are the type checker's."""
    found = inspect.signature(function)
    plain = [one.replace(annotation=one.empty) for one in found.parameters.values()]
    text = str(found.replace(parameters=plain, return_annotation=found.empty))
    return re.sub(r"<(?:[\w.]+\.)?(\w+) object at 0x\w+>", r"<\1>", text)


if __name__ == "__main__":
    print("\n".join(lines()))
