"""All that users may rely on, as text: names, signatures, commands and their options.

`python tests/house/surface.py > tests/golden/surface.txt` renews the file that the test compares
with. A line that goes or changes there breaks somebody's code: say so in CHANGELOG.md.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import re
import textwrap
import types
from collections.abc import Iterator
from typing import Any

import tokenloom

ROOMS = [
    "order",
    "batch",
    "loader",
    "streams",
    "inspect",
    "evaluate",
    "cluster",
    "exchange",
    "quality",
    "report",
    "runfiles",
    "testing",
    "integrations.grain",
    "integrations.hf",
    "integrations.jax",
    "integrations.levanter",
    "integrations.lightning",
    "integrations.torch",
    "integrations.trainer",
]
SPOKEN = {"__len__", "__getitem__", "__getitems__", "__iter__", "__next__", "__enter__", "__exit__"}
# made by functions of ours, never by users: how they are made is nobody's business
MADE = {
    "tokenloom.api.dataset.Dataset",
    "tokenloom.api.documents.Documents",
    "tokenloom.api.origin.RunFile",
    "tokenloom.api.store.Store",
    "tokenloom.batch.batch.Batch",
    "tokenloom.integrations.grain.StepIterator",
    "tokenloom.integrations.grain.StepSource",
    "tokenloom.integrations.jax.global_batches.GlobalBatches",
    "tokenloom.integrations.levanter.async_rows.AsyncRows",
    "tokenloom.integrations.lightning.StepsOf",
    "tokenloom.layout.pack.compare.PackingChoice",
    "tokenloom.layout.pack.compare.PackingPlan",
    "tokenloom.layout.spans.Spans",
    "tokenloom.order.orders.Order",
    "tokenloom.page.inline.View",
    "tokenloom.streams.buffers.ShuffledStream",
    "tokenloom.streams.interleaved.MixedStream",
    "tokenloom.streams.pack.Row",
    "tokenloom.streams.pack.StreamPacker",
    "tokenloom.streams.samples.Sample",
    "tokenloom.trace.answers.CellRun",
    "tokenloom.trace.answers.Example",
    "tokenloom.trace.answers.Examples",
    "tokenloom.trace.answers.Nowhere",
    "tokenloom.trace.answers.Place",
    "tokenloom.trace.answers.Route",
    "tokenloom.trace.answers.TracedSpan",
    "tokenloom.trace.backward.Places",
}


def surface() -> str:
    """The whole of it, a line each."""
    lines: list[str] = []
    for path in ["tokenloom", *(f"tokenloom.{room}" for room in ROOMS)]:
        lines += [f"# {path}", *module_lines(path, importlib.import_module(path)), ""]
    lines.append("# what they give back")
    for path in sorted(MADE):
        module, _, name = path.rpartition(".")
        kind = getattr(importlib.import_module(module), name)
        if not any(line.startswith("class ") and line.endswith(f".{name}") for line in lines):
            lines += class_lines(name, kind)
    lines += ["", "# the command line", *command_lines()]
    return "\n".join(lines) + "\n"


def module_lines(path: str, module: types.ModuleType) -> Iterator[str]:
    """The names of a module's `__all__`, sorted; modules among them with theirs."""
    for name in sorted(module.__all__):
        value = getattr(module, name)
        if isinstance(value, types.ModuleType):
            yield from module_lines(f"{path}.{name}", value)
        elif path != "tokenloom" and getattr(tokenloom, name, None) is value:
            yield f"{path}.{name} is tokenloom.{name}"
        elif isinstance(value, type):
            yield from class_lines(f"{path}.{name}", value)
        elif inspect.isroutine(value):
            yield f"{path}.{name}{signature(value)}"
        else:  # a constant, or the name of a type
            yield f"{path}.{name}: {type(value).__name__}"


def class_lines(path: str, kind: type) -> Iterator[str]:
    """A class: what makes it, what it is, and its public members, inherited ones of ours too."""
    ours = [one for one in kind.__mro__ if one.__module__.split(".")[0] == "tokenloom"]
    if issubclass(kind, BaseException):
        bases = ", ".join(base.__name__ for base in kind.__bases__)
        yield f"class {path}({bases})"
        return
    made = f"{kind.__module__}.{kind.__qualname__}" in MADE
    yield f"class {path}{'' if made else signature(kind)}"
    members: dict[str, str] = {}
    for one in reversed(ours):
        members |= set_by(one)
        members |= {name: words for name, value in vars(one).items() if (words := member(value))}
    for name, words in sorted(members.items()):
        if not name.startswith("_") or name in SPOKEN:
            yield f"{path}.{name}{words}"


def member(value: Any) -> str:
    """A member of a class as text; nothing for what is no method and no property."""
    if isinstance(value, (classmethod, staticmethod)):
        return signature(value.__func__)
    if inspect.isfunction(value):
        return signature(value)
    for name in ("fget", "func", "_compute"):  # of properties, plain and remembered
        if inspect.isfunction(getattr(value, name, None)):
            return returned(getattr(value, name))
    return ""


def set_by(kind: type) -> dict[str, str]:
    """Attributes that a class sets when it is made, and fields of a dataclass."""
    found = {name: f": {written(one)}" for name, one in inspect.get_annotations(kind).items()}
    if "__init__" not in vars(kind) or hasattr(kind, "__dataclass_fields__"):
        return found
    tree = ast.parse(textwrap.dedent(inspect.getsource(vars(kind)["__init__"])))
    for node in ast.walk(tree):
        stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if stored and ast.unparse(node.value) == "self":
            found[node.attr] = ": an attribute"
    return found


def signature(function: Any) -> str:
    """A signature on one line, with annotations as they are written."""
    found = inspect.signature(function)
    parts, seen_star = [], False
    for one in found.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not seen_star:
            parts.append("*")
        seen_star = seen_star or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        star = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        parts.append(f"{star}{one.name}{annotated(one.annotation)}{default(one.default)}")
    return f"({', '.join(parts)}){'' if isinstance(function, type) else returned(function)}"


def annotated(annotation: Any) -> str:
    return "" if annotation is inspect.Parameter.empty else f": {written(annotation)}"


def returned(function: Any) -> str:
    found = getattr(function, "__annotations__", {}).get("return", inspect.Parameter.empty)
    return "" if found is inspect.Parameter.empty else f" -> {written(found)}"


def written(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def default(value: Any) -> str:
    """A default as it prints; of objects without a word of their own only the class."""
    if value is inspect.Parameter.empty:
        return ""
    return " = " + re.sub(r"<(?:[\w.]+\.)?(\w+) object at 0x\w+>", r"<\1>", repr(value))


def command_lines() -> Iterator[str]:
    """Every command with its arguments and options, and the words they allow."""
    yield from parser_lines("tokenloom", importlib.import_module("tokenloom.cli").parser())


def parser_lines(path: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in sorted(parser._actions, key=lambda one: (one.option_strings, one.dest)):
        if isinstance(action, argparse._SubParsersAction):
            for name, command in sorted(action.choices.items()):
                yield from parser_lines(f"{path} {name}", command)
            continue
        words = "/".join(sorted(action.option_strings)) or action.dest.upper()
        allowed = f" {{{','.join(map(str, action.choices))}}}" if action.choices else ""
        yield f"{path} {words}{allowed}"


if __name__ == "__main__":
    print(surface(), end="")
