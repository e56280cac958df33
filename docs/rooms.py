"""The table of rooms in docs/architecture.md, made from what the rooms say of themselves.

::

    python docs/rooms.py

Each room starts with *Takes … → gives …* (`__init__.py`); that line and the names of its modules
are its row. The order is that of the floors in `tests/house/rules.py`, so the page, the code and
the rules cannot tell three stories. A test compares; after a change, run this again.
"""

from __future__ import annotations

import ast
import re
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/architecture.md"
START, END = "<!-- rooms: made by docs/rooms.py -->", "<!-- end of rooms -->"
HEAD = "| room | takes | gives | modules |\n|---|---|---|---|\n"


def floors(root: Path) -> list[str]:
    """The rooms from the ground up: the flow, then the annexes."""
    house = root / "tests/house"
    sys.path.insert(0, str(house))
    try:
        rules = runpy.run_path(str(house / "rules.py"))
    finally:
        sys.path.remove(str(house))
    return [*rules["FLOW"], *rules["ANNEXES"]]


def rooms(root: Path) -> list[Path]:
    """Folders with an `__init__`, each before the rooms inside it."""
    package = root / "src/tokenloom"
    found = sorted(path.parent for path in package.glob("*/**/__init__.py"))
    order = floors(root)
    return sorted(found, key=lambda folder: order.index(folder.relative_to(package).parts[0]))


def row(folder: Path, name: str) -> str:
    """A line of the table: what a room takes and gives, and its modules."""
    told = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    line = told.split("\n")[0].removesuffix(".")
    said = re.fullmatch(r"Takes (.*?) → gives (.*)", line)
    takes, gives = said.groups() if said else ("", line)
    modules = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    return f"| `{name}/` | {takes} | {gives} | {', '.join(modules)} |\n"


def table(root: Path = ROOT) -> str:
    """The whole table."""
    package = root / "src/tokenloom"
    rows = [row(folder, folder.relative_to(package).as_posix()) for folder in rooms(root)]
    return HEAD + "".join(rows)


def renewed(page: str, root: Path = ROOT) -> str:
    """The page with the table between its two markers.

    Raises:
        ValueError: a marker is missing.
    """
    before, found, rest = page.partition(START)
    _, ended, after = rest.partition(END)
    if not (found and ended):
        raise ValueError(f"{PAGE.name}: the lines {START!r} and {END!r} must both be there.")
    return f"{before}{START}\n\n{table(root)}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
