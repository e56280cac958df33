"""Pages of the documentation: sections by their words, tables by their columns, code that runs."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "science", "examples", "benchmarks")


def pages():
    """Every page: its path → its text."""
    paths = [ROOT / "README.md", *(path for one in FOLDERS for path in (ROOT / one).rglob("*.md"))]
    return {path: path.read_text(encoding="utf-8") for path in sorted(paths)}


def sections_of(text):
    """Headings with all below them, down to the next heading of the same level."""
    outside = re.sub(
        r"^```.*?^```", lambda code: "\n" * code[0].count("\n"), text, flags=re.M | re.S
    )
    lines, heads = text.splitlines(), []
    for number, line in enumerate(outside.splitlines()):
        if found := re.match(r"(#+) (.*)", line):
            heads.append((number, len(found[1])))
    for place, (first, level) in enumerate(heads):
        ends = [number for number, other in heads[place + 1 :] if other <= level]
        yield "\n".join(lines[first : ends[0] if ends else len(lines)])


def section(*words):
    """The smallest section of any page that has all of these words, in any case."""
    found = [
        one
        for text in pages().values()
        for one in sections_of(text)
        if all(re.search(rf"(?<!\w){re.escape(word)}", one, re.I) for word in words)
    ]
    assert found, f"no page has a section with {words}"
    return min(found, key=len)


def tables_of(text):
    """Tables as lists of rows; a row is a dict of its cells by column."""
    for block in re.findall(r"(?:^\|.*\|$\n?)+", text, re.M):
        head, _, *rows = (
            [cell.strip() for cell in line[1:-1].split("|")] for line in block.splitlines()
        )
        yield [dict(zip(head, row, strict=False)) for row in rows]


def table(*columns):
    """The rows of all tables, of all pages, whose columns begin with these."""
    found = [
        rows
        for text in pages().values()
        for rows in tables_of(text)
        if rows and [*rows[0]][: len(columns)] == [*columns]
    ]
    assert found, f"no page has a table of {columns}"
    return [row for rows in found for row in rows]


def run_code(text, folder):
    """Runs the Python blocks of a text, in a folder with a small corpus; returns how many.

    The folder must be the working directory.
    """
    (folder / "corpus").mkdir(exist_ok=True)
    lines = [{"id": f"d{n}", "text": f"tale {n} of looms " * (n + 1)} for n in range(40)]
    (folder / "corpus/tales.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    names = {}
    for block in blocks:
        exec(compile(block, "page", "exec"), names)
    return len(blocks)
