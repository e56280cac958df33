"""Real text without a download: the text of every Python installation.

Two sources, both with a heavy tail of lengths. `code` is the standard library, one document per
file. `prose` is the language reference (`pydoc_data.topics`), the docstrings of each module, the
licence and other text files. Modules are parsed, never imported.

The choice is a pure function of what is on disk: candidates are taken in the order of a hash of
their names until a budget of bytes is full, so a small budget is a fair sample of the large one.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import sys
import sysconfig
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from examples.demo.printing import DemoFailed, megabytes, say

if TYPE_CHECKING:
    from examples.demo.world import World

__all__ = ["Document", "code", "find_text", "prose"]

NOT_OURS = {"site-packages", "dist-packages", "__pycache__"}
TESTS = {"test", "tests", "idle_test"}
# `code` leaves out tables that were printed by programs; the topics are prose already
TABLES = ("pydoc_data/", "encodings/", "_sysconfigdata")
TEXT_SUFFIXES = (".txt", ".rst", ".md")
TEXT_NAMES = ("README", "LICENSE", "COPYING", "copyright")


@dataclass(frozen=True, slots=True)
class Document:
    """One text. `id` is unique in its source and has no absolute path in it."""

    id: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A document that is read only if it is chosen; `read` gives None if it cannot be."""

    id: str
    kind: str
    read: Callable[[], str | None]


def find_text(world: World) -> World:
    """The step: find both sources and write them to readable files."""
    folder = world.out / "corpus"
    folder.mkdir()
    stdlib = Path(sysconfig.get_path("stdlib"))
    say(f"the standard library of Python {sys.version.split()[0]}; nothing is downloaded")
    found = {
        "code": code(stdlib, world.sizes.text_bytes["code"]),
        "prose": prose(stdlib, doc_folders(), world.sizes.text_bytes["prose"]),
    }
    inputs = {
        "code": write_jsonl(found["code"], folder / "code.jsonl"),
        "prose": write_parquet(found["prose"], folder / "prose.parquet"),
    }
    for source, documents in found.items():
        if not documents:
            raise DemoFailed(f"there is no text for {source!r} below {stdlib}")
        size = sum(len(one.text.encode()) for one in documents)
        kinds = Counter(one.kind for one in documents)
        counts = ", ".join(f"{kind} {kinds[kind]:,}" for kind in sorted(kinds))
        say(f"{source:<5}  {megabytes(size):>7}  {len(documents):,} documents ({counts})")
    say(f"→ {inputs['code']}, {inputs['prose']}")
    return replace(world, documents=found, inputs=inputs)


# ---------------------------------------------------------------- the two sources


def code(stdlib: Path, budget: int) -> tuple[Document, ...]:
    """The .py files below `stdlib` that are not installed packages, about `budget` bytes."""
    candidates = [
        Candidate(name, "test" if is_test(name) else "library", reader(stdlib / name))
        for name in files(stdlib)
        if name.endswith(".py") and not name.startswith(TABLES)
    ]
    return choose(candidates, budget)


def prose(stdlib: Path, folders: Iterable[Path], budget: int) -> tuple[Document, ...]:
    """English about Python, about `budget` bytes; `folders` may hold further text files."""
    candidates = [Candidate(f"topic/{name}", "topic", lambda t=text: t) for name, text in topics()]
    for name in files(stdlib):
        if is_test(name):
            continue
        if name.endswith(".py") and not name.startswith(TABLES):
            read = docstring_reader(stdlib / name)
            candidates.append(Candidate(f"docstrings/{name}", "docstrings", read))
        elif is_text(name):
            candidates.append(Candidate(f"text/{name}", "text", reader(stdlib / name)))
    for folder in folders:
        names = [f"{folder.name}/{name}" for name in files(folder) if is_text(name)]
        candidates += [
            Candidate(f"text/{name}", "text", reader(folder.parent / name)) for name in names
        ]
    return choose(candidates, budget)


def choose(candidates: Iterable[Candidate], budget: int) -> tuple[Document, ...]:
    """Documents in the order of their ids, every text once, until `budget` bytes are reached."""
    order = sorted(candidates, key=lambda one: hashlib.sha256(one.id.encode()).digest())
    chosen: list[Document] = []
    seen: set[bytes] = set()
    total = 0
    for one in order:
        raw = encoded(one.read())
        digest = hashlib.sha256(raw).digest()
        if not raw or digest in seen:
            continue
        if chosen and total + len(raw) > budget:
            break
        seen.add(digest)
        total += len(raw)
        chosen.append(Document(one.id, one.kind, raw.decode()))
    return tuple(sorted(chosen, key=lambda one: one.id))


def encoded(text: str | None) -> bytes:
    """A text as UTF-8; empty if there is none, or if it holds half a surrogate pair."""
    try:
        return (text or "").encode()
    except UnicodeEncodeError:
        return b""


# ---------------------------------------------------------------- where text is


def files(folder: Path) -> Iterator[str]:
    """Paths of all files below `folder`, relative to it, sorted, with `/` between their parts."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - NOT_OURS)
        for name in sorted(names):
            yield Path(place, name).relative_to(folder).as_posix()


def is_test(name: str) -> bool:
    """Whether a file belongs to the library's own tests."""
    return not TESTS.isdisjoint(name.split("/"))


def is_text(name: str) -> bool:
    """Whether a file's name says that people are meant to read it."""
    last = name.rsplit("/", 1)[-1]
    return last.endswith(TEXT_SUFFIXES) or last.startswith(TEXT_NAMES)


def doc_folders() -> list[Path]:
    """Where distributions put Python's own documentation; often there is none."""
    name = f"*python{sys.version_info.major}.{sys.version_info.minor}*"
    found = sorted(Path(sys.base_prefix, "share", "doc").glob(name))
    return [folder for folder in found if folder.is_dir()]


def topics() -> list[tuple[str, str]]:
    """The chapters that `help("assert")` shows; none if the distribution omits them."""
    try:
        from pydoc_data.topics import topics as found
    except ImportError:
        return []
    return sorted(found.items())


def reader(path: Path) -> Callable[[], str | None]:
    """A function that reads a file, or gives None if it is not readable UTF-8."""

    def read() -> str | None:
        try:
            return path.read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    return read


def docstring_reader(path: Path) -> Callable[[], str | None]:
    """A function that gives all docstrings of a source file, or None if it cannot be parsed."""

    def read() -> str | None:
        source = reader(path)()
        return None if source is None else docstrings(source)

    return read


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


# ---------------------------------------------------------------- files


def write_jsonl(documents: Iterable[Document], path: Path) -> Path:
    """One JSON object per line."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for one in documents:
            file.write(json.dumps(asdict(one), ensure_ascii=False) + "\n")
    return path


def write_parquet(documents: Iterable[Document], path: Path) -> Path:
    """One row per document."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist([asdict(one) for one in documents]), path)
    return path
