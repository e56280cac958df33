"""Real text found on this machine, as JSON lines, and a tokenizer trained on some of it.

Figures on repeated text would flatter every encoder that remembers words, so: files are taken once
by content, files that share most of their lines with earlier ones (another version of the same
package) are left out, and if there is too little text, shuffled lines are added and reported.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sysconfig
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Corpus", "find_text", "train_tokenizer", "write_jsonl"]

SUFFIXES = frozenset({".py", ".pyi", ".md", ".rst", ".txt"})
MAX_FILE_BYTES = 1 << 20  # larger ones are tables and word lists rather than text
MAX_DOCUMENT_BYTES = 32 << 10
SAMPLED = 8  # one line in this many is remembered, to find files that are nearly the same


@dataclass(frozen=True, kw_only=True, slots=True)
class Corpus:
    """Texts, and how many bytes of them were found and made of shuffled lines."""

    texts: list[str]
    found: int
    shuffled: int


def default_roots() -> list[str]:
    """Where text is looked for: this Python, its packages, and the system's documentation."""
    paths = sysconfig.get_paths()
    return [paths["stdlib"], paths["purelib"], "/usr/share", "/usr/lib/python3"]


def find_text(wanted: int, roots: Sequence[str] = ()) -> Corpus:
    """At least `wanted` bytes of text, in an order that depends on file names alone."""
    texts: list[str] = []
    found = 0
    for data in _distinct(_candidates(roots or default_roots())):
        for text in _documents(data):
            texts.append(text)
            found += len(text.encode())
        if found >= wanted:
            return Corpus(texts=texts, found=found, shuffled=0)
    made = list(_shuffled(texts, wanted - found))
    return Corpus(texts=texts + made, found=found, shuffled=sum(len(t.encode()) for t in made))


def _candidates(roots: Sequence[str]) -> Iterator[str]:
    paths = {
        os.path.realpath(os.path.join(folder, name))
        for root in roots
        for folder, _, names in os.walk(root)
        for name in names
        if os.path.splitext(name)[1] in SUFFIXES
    }
    # by the hash of the last parts of the name: a mixture that is the same wherever they lie
    return iter(sorted(paths, key=lambda path: hashlib.md5(_tail(path)).digest()))


def _tail(path: str) -> bytes:
    return os.fsencode("/".join(path.split(os.sep)[-4:]))


def _distinct(paths: Iterator[str]) -> Iterator[str]:
    """The texts of files that are not nearly the same as an earlier one."""
    contents: set[bytes] = set()
    lines: set[int] = set()
    for path in paths:
        try:
            data = Path(path).read_bytes()
            text = data.decode()
        except (OSError, UnicodeDecodeError):
            continue
        digest = hashlib.sha256(data).digest()
        if not 0 < len(data) <= MAX_FILE_BYTES or digest in contents or "\0" in text:
            continue
        contents.add(digest)
        sums = {zlib.crc32(line) for line in data.split(b"\n") if len(line) > 20}
        sums = {value for value in sums if value % SAMPLED == 0}
        if 2 * len(sums & lines) > len(sums):
            continue
        lines |= sums
        yield text


def _documents(text: str) -> Iterator[str]:
    """The text in pieces of at most 32 Ki characters, cut after a line where there is one."""
    start = 0
    while start < len(text):
        stop = start + MAX_DOCUMENT_BYTES
        if stop < len(text):
            stop = text.rfind("\n", start, stop) + 1 or stop
        yield text[start:stop]
        start = stop


def _shuffled(texts: Sequence[str], missing: int) -> Iterator[str]:
    """Documents of lines drawn from all texts, until `missing` bytes are there."""
    chance = random.Random(0)
    lines = [line for text in texts for line in text.splitlines(keepends=True)]
    while missing > 0:
        text = "".join(chance.choices(lines, k=200))
        missing -= len(text.encode())
        yield text


def write_jsonl(path: Path, texts: Sequence[str]) -> int:
    """Write texts as JSON lines with an id and a source; gives the bytes of the texts."""
    with path.open("w", encoding="utf-8") as file:
        for number, text in enumerate(texts):
            record = {"id": f"doc-{number}", "text": text, "source": "machine"}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return sum(len(text.encode()) for text in texts)


def train_tokenizer(path: Path, texts: Sequence[str], vocab_size: int) -> None:
    """A byte-level BPE with the cutting of GPT-2, as a tokenizer.json."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        show_progress=False,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))
