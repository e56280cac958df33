"""Text that every Python has: the language reference inside `pydoc`, in pieces of a page.

One idea: a study needs documents that are alike, so that those that are held out are a fair
control. All are pieces of about 1,200 characters of one manual, drawn by the hash of their text:
a few that are seen often, more that are seen seldom, and some that are never seen.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from pydoc_data.topics import topics

from examples.demo.tokenizer import train

__all__ = ["GROUPS", "write_corpus", "write_tokenizer"]

GROUPS = {"often": 8, "seldom": 64, "held": 32}  # documents of each

PIECE = 1200  # characters

VOCABULARY = 1024


def write_corpus(folder: Path) -> None:
    """A file of JSON lines for each group."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces = sorted(_pieces(), key=lambda one: hashlib.sha256(one["text"].encode()).digest())
    for name, count in GROUPS.items():
        some, pieces = pieces[:count], pieces[count:]
        text = "".join(json.dumps(one) + "\n" for one in some)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


def _pieces() -> list[dict[str, str]]:
    """Pieces of whole lines, named by their topic."""
    found = []
    for topic, text in sorted(topics.items()):
        lines: list[str] = []
        for line in text.splitlines(keepends=True):
            lines.append(line)
            if sum(map(len, lines)) >= PIECE:
                found.append({"id": f"{topic}-{len(found)}", "text": "".join(lines)})
                lines = []
    return found


def write_tokenizer(corpus: Path, path: Path) -> None:
    """A small byte-level BPE, trained on the texts that are trained on."""
    files = [corpus / f"{name}.jsonl" for name in ("often", "seldom")]
    lines = [line for one in files for line in one.read_text(encoding="utf-8").splitlines()]
    train((json.loads(line)["text"] for line in lines), path, vocab_size=VOCABULARY)
