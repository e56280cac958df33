"""Real text without a download: the text of every Python installation.

Two sources, both with a heavy tail of lengths. `code` is the standard library, one document per
file. `prose` is the language reference (`pydoc_data.topics`) and the docstrings of each module.
Modules are parsed, never imported.

The choice is a pure function of what is on disk: candidates are taken in the order of a hash of
their names until a budget of bytes is full, so a small budget is a fair sample of the large one.
"""

from __future__ import annotations

import ast
import hashlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

__all__ = ["Document", "code", "prose", "topics"]

NOT_OURS = {"site-packages", "dist-packages", "__pycache__"}
TESTS = {"test", "tests", "idle_test"}
# tables that were printed by programs; the topics are prose already
TABLES = ("pydoc_data/", "encodings/", "_sysconfigdata")


class Document(NamedTuple):
    """One text. `id` is unique in its source and has no absolute path in it."""

    id: str
    kind: str
    text: str


def code(stdlib: Path, budget: int) -> tuple[Document, ...]:
    """The .py files below `stdlib` that are not installed packages, about `budget` bytes."""
    readers = {name: partial(read, stdlib / name) for name in modules(stdlib)}
    chosen = choose(readers, budget)
    return tuple(
        Document(name, "test" if is_test(name) else "library", text) for name, text in chosen
    )


def prose(stdlib: Path, budget: int) -> tuple[Document, ...]:
    """English about Python, about `budget` bytes."""
    readers: dict[str, Callable[[], str | None]] = {
        f"topic/{name}": partial(str, text) for name, text in topics()
    }
    for name in modules(stdlib):
        if not is_test(name):
            readers[f"docstrings/{name}"] = partial(read_docstrings, stdlib / name)
    return tuple(Document(name, name.split("/")[0], text) for name, text in choose(readers, budget))


def choose(readers: Mapping[str, Callable[[], str | None]], budget: int) -> list[tuple[str, str]]:
    """(id, text) in the order of ids, every text once, until `budget` bytes are reached."""
    chosen: list[tuple[str, str]] = []
    seen: set[str] = set()
    total = 0
    for name in sorted(readers, key=lambda name: hashlib.sha256(name.encode()).digest()):
        text = readers[name]()
        if not text or text in seen or not is_utf8(text):
            continue
        size = len(text.encode())
        if chosen and total + size > budget:
            break
        seen.add(text)
        total += size
        chosen.append((name, text))
    return sorted(chosen)


def is_utf8(text: str) -> bool:
    """Whether a text can be encoded: it has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def modules(folder: Path) -> Iterator[str]:
    """Paths of Python's own modules, relative to `folder`, with `/` between their parts."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - NOT_OURS)
        for name in sorted(names):
            path = Path(place, name).relative_to(folder).as_posix()
            if path.endswith(".py") and not path.startswith(TABLES):
                yield path


def is_test(name: str) -> bool:
    """Whether a file belongs to the library's own tests."""
    return not TESTS.isdisjoint(name.split("/"))


def topics() -> list[tuple[str, str]]:
    """The chapters that `help("assert")` shows; none if the distribution omits them."""
    try:
        from pydoc_data.topics import topics as found
    except ImportError:
        return []
    return sorted(found.items())


def read(path: Path) -> str | None:
    """A file, or None if it is not readable UTF-8."""
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def read_docstrings(path: Path) -> str | None:
    """All docstrings of a source file, or None if it cannot be parsed."""
    source = read(path)
    return None if source is None else docstrings(source)


def docstrings(source: str) -> str | None:
    r"""The docstrings of a module, its classes and functions, in order; None if not Python.

    >>> docstrings('"about m"\nclass A:\n  "about A"\n  def f(): "about f"')
    'about m\n\nA\nabout A\n\nA.f\nabout f\n'
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old string escapes do not matter here
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError):
            return None
    parts: list[str] = []

    def visit(node: ast.AST, name: str) -> None:
        if text := ast.get_docstring(node):
            parts.append(f"{name}\n{text}" if name else text)
        for child in node.body:
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                visit(child, f"{name}.{child.name}".removeprefix("."))

    visit(tree, "")
    return "\n\n".join(parts) + "\n" if parts else ""
