"""Which `raise` of the package the tests reach: a plugin of pytest, to find errors nobody provokes.

::

    PYTHONPATH=tests/shared RAISED=/tmp/raised.txt python -m pytest -p raised -n0 tests/store
    PYTHONPATH=tests/shared python tests/shared/raised.py /tmp/raised.txt

The first line adds the places that were reached to the file, run by run; the second one prints
those that are not in it. Modules are compiled with one call before every `raise`, so a run is as
fast as without; processes that tests start are not seen.
"""

from __future__ import annotations

import ast
import atexit
import builtins
import importlib.machinery
import os
import sys
from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src/tokenloom"

seen: set[str] = set()


class Marked(ast.NodeTransformer):
    """Puts a call before every `raise`, with its place: module, function, and which one of it.

    Lines are no places: they move while a message is mended.
    """

    def __init__(self, module: str) -> None:
        self.path = [module.removesuffix(".__init__")]
        self.places: dict[str, ast.Raise] = {}

    def visit(self, node: ast.AST) -> ast.AST | list[ast.stmt]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self.path.append(node.name)
            self.generic_visit(node)
            self.path.pop()
            return node
        return super().visit(node)

    def visit_Raise(self, node: ast.Raise) -> list[ast.stmt]:
        name = ".".join(self.path)
        place = next(f"{name}#{n}" for n in range(999) if f"{name}#{n}" not in self.places)
        self.places[place] = node
        call = ast.parse(f"__raised__({place!r})").body[0]
        return [ast.copy_location(call, node), node]


class MarkingLoader(importlib.machinery.SourceFileLoader):
    """Compiles a module of ours with those calls, and leaves nothing on disk."""

    def get_code(self, fullname):
        source = self.get_data(self.path)
        tree = Marked(fullname.removeprefix("tokenloom.")).visit(ast.parse(source))
        return compile(ast.fix_missing_locations(tree), self.path, "exec")


class MarkingFinder:
    """Finds modules of tokenloom before anybody else does."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] != "tokenloom":
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path, target)
        if found is not None and isinstance(found.loader, importlib.machinery.SourceFileLoader):
            found.loader = MarkingLoader(found.loader.name, found.loader.path)
        return found


def start(file: str) -> None:
    """Mark the modules that are imported from now on; keep what is reached when Python ends."""
    builtins.__raised__ = seen.add
    sys.meta_path.insert(0, MarkingFinder)

    def keep():
        with open(file, "a", encoding="utf-8") as out:
            out.writelines(f"{one}\n" for one in sorted(seen))

    atexit.register(keep)


def places() -> dict[str, str]:
    """Every `raise` that makes an exception: its place → its text."""
    found = {}
    for path in sorted(SRC.rglob("*.py")):
        marked = Marked(".".join(path.relative_to(SRC).with_suffix("").parts))
        marked.visit(ast.parse(path.read_text()))
        for place, node in marked.places.items():
            if isinstance(node.exc, ast.Call):
                found[place] = ast.unparse(node.exc)
    return found


if __name__ == "__main__":
    reached = set(Path(sys.argv[1]).read_text().split())
    missed = {place: text for place, text in places().items() if place not in reached}
    for place, text in missed.items():
        print(f"{place} {text:.200}")
    print(f"{len(missed)} of {len(places())} are not reached")
elif "RAISED" in os.environ:
    start(os.environ["RAISED"])
