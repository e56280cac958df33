"""A run file to start from: commented, for the data that is in a folder.

One idea: a person who has a folder of text wants to see a run before reading a manual. The file
names what was found there, says in a comment what each line decides, and loads as it is: a run that
shows every document once, without a warning.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tokenloom.errors import InputError, plural
from tokenloom.ingest.inputs import expand
from tokenloom.runfiles.building import is_store

MOST = 20  # sources of a first file

TOKENIZERS = ("tokenizer.json", "tokenizer.model")


class _Data(NamedTuple):
    """Something in the folder that a source can be made of.

    Attributes:
        name: name of the source.
        store: path of its store, relative to the folder.
        inputs: what it is built from; empty for a store that is there.
    """

    name: str
    store: str
    inputs: str


def starter(folder: str | os.PathLike[str], *, seq_len: int = 2048, batch_size: int = 64) -> str:
    """The text of a run file for a folder of data, with comments.

    Stores in the folder become sources; so do its subfolders with text, and text beside them as one
    source. What must be tokenised first gets a ``build`` section.

    Args:
        folder: the folder; paths in the file are relative to it.
        seq_len: tokens of a frame.
        batch_size: rows of a step.

    Raises:
        InputError: there is no data in it.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "a.jsonl").write_text('{"text": "abc"}')
    ...     print(starter(folder).splitlines()[-2])
      batch_size: 64   # rows of a step, over all ranks
    """
    root = Path(folder)
    if not root.is_dir():
        raise InputError(f"{folder}: no such directory. Name the folder that holds the data.")
    if is_store(root):
        raise InputError(f"{folder}: it is a store. Name the folder that holds it.")
    found = list(_found(root))
    if not found:
        raise InputError(
            f"{folder}: found neither a store nor text (.jsonl, .txt, .parquet, …). Name the "
            "folder that holds the data."
        )
    tokenizer = next((name for name in TOKENIZERS if (root / name).is_file()), None)
    return "\n".join(_lines(found[:MOST], len(found) - MOST, tokenizer, seq_len, batch_size)) + "\n"


def _found(root: Path) -> Iterator[_Data]:
    """Stores, then folders with text, then text that lies in the folder itself."""
    taken: set[str] = set()
    inner = sorted(one for one in root.iterdir() if one.is_dir() and not one.name.startswith("."))
    nested = [one for top in inner for one in sorted(top.iterdir()) if one.is_dir()]
    for one in (*inner, *nested):
        if is_store(one):
            path = one.relative_to(root).as_posix()
            yield _Data(_free(one.name, taken), path, "")
    for one in inner:
        holds = any(is_store(below) for below in one.iterdir() if below.is_dir())
        if not is_store(one) and not holds and _has_text(one):
            yield _Data(_free(one.name, taken), f"stores/{one.name}", one.name)
    kinds = sorted({one.suffix for one in root.iterdir() if one.is_file() and _is_input(one)})
    for kind in kinds:
        name = _free(kind.removeprefix(".") if len(kinds) > 1 else "text", taken)
        yield _Data(name, f"stores/{name}", f"*{kind}")


def _free(name: str, taken: set[str]) -> str:
    """A name for a source that no other one has."""
    found, number = name, 2
    while found in taken:
        found, number = f"{name}-{number}", number + 1
    taken.add(found)
    return found


def _is_input(path: Path) -> bool:
    if path.name in TOKENIZERS or path.name.startswith(".") or path.suffix in RUN_FILES:
        return False
    return _has_text(path)


RUN_FILES = (".yaml", ".yml", ".toml", ".json", ".md", ".py")  # beside the data, not data


def _has_text(path: Path) -> bool:
    try:
        return bool(expand([str(path)]))
    except (InputError, ImportError):
        return False


def _lines(
    found: list[_Data], more: int, tokenizer: str | None, seq_len: int, batch_size: int
) -> Iterator[str]:
    yield "# A run of tokenloom. Check it: tokenloom check run.yaml"
    yield '# Use it: run = tokenloom.load("run.yaml"); loader = tokenloom.Loader(run)'
    yield "# Paths are relative to this file; ${NAME} in them is an environment variable."
    yield ""
    yield "seed: 0          # of every order; another seed is another run"
    yield f"seq_len: {seq_len}    # tokens of a frame"
    built = [one for one in found if one.inputs]
    if built:
        yield ""
        yield "build:           # made once, from text; a store that is there is opened"
        usual = "bytes    # every byte a token: name a tokenizer.json instead"
        yield f"  tokenizer: {tokenizer or usual}"
        yield "  stores:"
        for one in built:
            yield f"    {_quoted(one.store)}: {_quoted(one.inputs)}"
    yield ""
    yield "sources:         # by name; the name is part of a source's order in a mix"
    for one in found:
        yield f"  {_quoted(one.name)}:"
        yield f"    store: {_quoted(one.store)}"
        yield "    pack: {}         # documents packed into frames; or windows: {}, splice: {}"
        yield "    shuffle: block   # or full, none, the rows of an era, {window_blocks: 8}"
        yield "    epochs: 1        # or another number, or endless"
    if more > 0:
        yield f"  # {plural(more, 'source')} more in the folder"
    if len(found) > 1:
        yield ""
        yield "mix:"
        yield "  rule: weights         # shares at every prefix; or least_consumed, rounds"
        yield "  stop: all_exhausted   # each source shows its epochs; or restart, first_exhausted"
        weights = ", ".join(f"{_quoted(one.name)}: 1" for one in found)
        yield f"  temperature: 1        # weights by size; or weights: {{{weights}}}"
        yield "  # stages: {100000: {NAME: 4}}   # other weights from an example on"
    yield ""
    yield "loader:          # more: prefetch, fields, …"
    yield f"  batch_size: {batch_size}   # rows of a step, over all ranks"
    yield "  end: pad         # the short last step is filled up; or drop, wrap"


def _quoted(text: str) -> str:
    """Text as YAML, in quotes where a bare word would be read as something else."""
    plain = all(one.isalnum() or one in "_-/." for one in text) and text[:1].isalpha()
    words = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")
    return text if plain and text.lower() not in words else json.dumps(text, ensure_ascii=False)
