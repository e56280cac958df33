"""Thirty errors letter for letter: typical ones from every part of the package, reviewed as prose.

`python tests/api/test_messages.py` writes tests/golden/messages.txt anew. Read the difference: a
message says where, what is wrong with the value seen, what is allowed, and what to do.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.exchange import export
from tokenloom.loader import read_state
from tokenloom.streams import interleave

GOLDEN = Path(__file__).parents[1] / "golden/messages.txt"

RUN = """\
seed: 7
sources:
  wiki: {store: wiki, pack: 32, shuffle: blok}
  code: {store: code, windows: 32}
mix: {weights: {wkii: 3}}
loader: {batch_size: "4"}
"""


def make_folder(root: Path) -> SimpleNamespace:
    """Two stores, a damaged one, runs of them, and the files that are named below."""
    rows = [{"id": f"d{n}", "text": "abcdefgh " * (n % 5 + 1)} for n in range(24)]
    wiki = tl.build(rows, root / "wiki", tokenizer="bytes", id_key="id", progress=False)
    code = tl.build(rows[:9], root / "code", tokenizer="bytes", progress=False)
    ids = tl.build([{"input_ids": [1, 2, 3]}], root / "ids", tokenizer=None, vocab_size=9)
    shutil.copytree(root / "wiki", root / "damaged")
    (payload,) = (root / "damaged").glob("shard-*/input_ids/c/0")
    raw = bytearray(payload.read_bytes())
    raw[100] ^= 1
    payload.write_bytes(raw)
    (root / "run.yaml").write_text(RUN)
    (root / "more").mkdir()
    (root / "records.jsonl").write_text('{"text": "fine"}\n{"text": 7}\n{"body": "a"}\n')
    (root / "more/keys.jsonl").write_text('{"body": "some text", "id": 3}\n')
    (root / "more/broken.jsonl").write_text('{"text": "fine"}\n{"text": \n')
    (root / "notes").mkdir()
    (root / "notes/thesis.tex").write_text("x")
    np.arange(40, dtype="<u2").tofile(root / "train.bin")
    run = wiki.windows(8).shuffle().seed(7)
    mixed = tl.mix({"wiki": run, "code": code.pack(8)}, weights={"wiki": 3, "code": 1})
    return SimpleNamespace(root=root, wiki=wiki, code=code, ids=ids, run=run, mixed=mixed)


class CommandFailed(Exception):
    """What a command printed to standard error."""


def typed(line: str) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed), contextlib.suppress(SystemExit):
        main(line.split())
    raise CommandFailed(printed.getvalue().strip())


def load_other_state(toy: SimpleNamespace) -> None:
    loader = tl.Loader(toy.run.seed(8), 4)
    next(loader)
    tl.Loader(toy.run, 4).load_state_dict(loader.state_dict())


def without(module: str, call: Callable[[], object]) -> None:
    """Calls where a package is not installed."""
    kept = sys.modules.get(module)
    sys.modules[module] = None
    try:
        call()
    finally:
        if kept is None:
            del sys.modules[module]
        else:
            sys.modules[module] = kept


MESSAGES: dict[str, Callable[[SimpleNamespace], object]] = {
    # -- arguments
    "an unknown option": lambda t: t.wiki.windows(32, tial="keep"),
    "a name that people bring along": lambda t: t.run.shuffle(seed=3),
    "a value of the wrong type": lambda t: t.wiki.pack("2048"),
    "a word that is not allowed": lambda t: t.wiki.pack(32, strategy="best_fitt"),
    "a store in place of a dataset": lambda t: tl.Loader(t.wiki, 4),
    "an index out of range": lambda t: t.run[10_000],
    # -- files and stores
    "a store that is not there": lambda t: tl.open(t.root / "wikki"),
    "a damaged store": lambda t: tl.open(t.root / "damaged").documents(range(24)),
    "a file without a header": lambda t: tl.open(t.root / "train.bin"),
    "a missing extra": lambda t: without(
        "pyarrow", lambda: export("wiki", "parquet", to="parquet")
    ),
    # -- building
    "a bad record": lambda t: tl.build("records.jsonl", "new", tokenizer="bytes"),
    "a missing key": lambda t: tl.build("more/keys.jsonl", "new", tokenizer="bytes"),
    "a line that is not JSON": lambda t: tl.build("more/broken.jsonl", "new", tokenizer="bytes"),
    "a missing input": lambda t: tl.build("recrods.jsonl", "new", tokenizer="bytes"),
    "a folder with other files": lambda t: tl.build("records.jsonl", "notes", tokenizer="bytes"),
    "another build in the same place": lambda t: tl.build(
        "records.jsonl", "code", tokenizer="bytes"
    ),
    # -- documents and layouts
    "a document longer than a row": lambda t: t.wiki.pack(32, overflow="error"),
    # -- mixing
    "a weight of an unknown source": lambda t: tl.mix({"wiki": t.run}, weights={"wkii": 1}),
    "different tokenizers": lambda t: tl.mix({"wiki": t.run, "ids": t.ids.windows(8)}),
    "an edit of the past": lambda t: t.mixed.edit(at=9, weights={"code": 2}).edit(
        at=4, weights={"code": 3}
    ),
    # -- loading
    "a batch smaller than the ranks": lambda t: tl.Loader(t.run, 4, rank=0, world_size=8),
    "a state of another run": load_other_state,
    "a missing state": lambda t: read_state("state.json"),
    # -- run files
    "a run file with three problems": lambda t: tl.load("run.yaml"),
    "a description of another version": lambda t: tl.from_config(
        t.run.describe() | {"format": "tokenloom.dataset/9"}
    ),
    # -- around
    "a question without a place": lambda t: t.run.at(step=2),
    "what a format cannot hold": lambda t: export("wiki", "exported", to="npy"),
    "a stream that never ends": lambda t: interleave({"a": itertools.cycle([[1]])}),
    "a mistyped command": lambda t: typed("shwo wiki"),
    "an id in place of a number": lambda t: typed("show wiki --doc d17"),
}


def messages() -> str:
    """Class and text of every error, in the order of the table."""
    found = []
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        toy = make_folder(Path(folder))
        with contextlib.chdir(folder):
            for name, call in MESSAGES.items():
                try:
                    call(toy)
                except (tl.TokenloomError, IndexError, CommandFailed) as error:
                    text = str(error).replace(folder, "/data")
                    found.append(f"# {name}\n{type(error).__name__}: {text}\n")
                else:
                    raise AssertionError(f"{name}: nothing was raised")
    return "\n".join(found)


def test_thirty_messages_are_what_they_were():
    assert messages() == GOLDEN.read_text(encoding="utf-8")


if __name__ == "__main__":
    GOLDEN.write_text(messages(), encoding="utf-8")
