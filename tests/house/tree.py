"""The package as text: modules, imports and names, read without running anything."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src/tokenloom"


@dataclass(frozen=True)
class Tree:
    """Sources by dotted module name; a package is `room.__init__`."""

    sources: dict[str, str]

    @staticmethod
    def of(folder: Path = SRC) -> Tree:
        return Tree(
            {
                ".".join(path.relative_to(folder).with_suffix("").parts): path.read_text()
                for path in sorted(folder.rglob("*.py"))
            }
        )

    def parsed(self, module: str) -> ast.Module:
        return _parse(self.sources[module])

    def nodes(self, module: str) -> tuple[ast.AST, ...]:
        """Every node of a module; walked once, however many rules look at it."""
        return _nodes(self.sources[module])

    def calls(self, module: str) -> tuple[tuple[str, ast.Call], ...]:
        """(what is called, the call) of each call."""
        return _calls(self.sources[module])

    @property
    def rooms(self) -> list[str]:
        """Packages, sub-rooms included."""
        return [
            name.removesuffix(".__init__")
            for name in self.sources
            if "." in name and name.endswith(".__init__")
        ]

    def imports(self, module: str) -> list[tuple[str, bool]]:
        """(imported module of ours, is it inside a function) of each import."""
        found = []
        for base, name, lazy in _imports(self.sources[module]):
            full = f"{base}.{name}".strip(".")
            known = name is None or full in self.sources or f"{full}.__init__" in self.sources
            found.append((full if known and name else base or "__init__", lazy))
        return found

    def public(self, module: str) -> list[str]:
        """What a module says it exports."""
        for node in self.parsed(module).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                return list(ast.literal_eval(node.value))
        return []


@functools.cache
def _parse(source: str) -> ast.Module:
    return ast.parse(source)


@functools.cache
def _nodes(source: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(_parse(source)))


@functools.cache
def _calls(source: str) -> tuple[tuple[str, ast.Call], ...]:
    return tuple(
        (ast.unparse(node.func), node) for node in _nodes(source) if isinstance(node, ast.Call)
    )


@functools.cache
def names_in(source: str) -> tuple[str, ...]:
    """Dotted names that are used, and those imported by themselves, with their module."""
    found, alone = [], {}
    for node in _nodes(source):
        if isinstance(node, ast.ImportFrom) and node.module in ("threading", "functools", "queue"):
            alone |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
        if isinstance(node, ast.Attribute | ast.Name):
            name = ast.unparse(node)
            found.append(alone.get(name, name))
    return tuple(found)


@functools.cache
def _imports(source: str) -> list[tuple[str, str | None, bool]]:
    """(module of ours, name taken from it, is it inside a function) of each import."""
    found = []
    inside = {
        id(node)
        for f in _nodes(source)
        if isinstance(f, ast.FunctionDef)
        for node in ast.walk(f)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    for node in _nodes(source):
        lazy = id(node) in inside
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tokenloom":
            base = node.module.partition(".")[2]
            found += [(base, alias.name, lazy) for alias in node.names]
        if isinstance(node, ast.Import):
            ours = [one.name for one in node.names if one.name.split(".")[0] == "tokenloom"]
            found += [(name.partition(".")[2], None, lazy) for name in ours]
    return found
