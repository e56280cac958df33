"""What is trained on: texts that every machine has, and chains whose reachable loss is known.

One idea: where an effect on text would drown in seeds, the text is made, and then the best
possible loss is a number. A chain's documents start from its stationary distribution, so every
token but the first costs exactly its entropy, and `known_loss` is what given documents cost
whoever knows their chains.

Letters are printable ASCII and a token is a byte, so a nat per token is 1.4427 bits per byte. Real
text is this project's licence, the manual pages inside of Python (`pydoc_data`) and the sources of
its standard library, with a byte-level BPE of 512 ids that is trained on the spot.
"""

from __future__ import annotations

import string
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from examples.demo.corpus import code, topics
from examples.demo.tokenizer import train as train_tokenizer
from numpy.typing import ArrayLike, NDArray
from tokenizers import Tokenizer

import tokenloom as tl
from tokenloom.api.documents import Documents

__all__ = [
    "BYTES",
    "LETTERS",
    "PART",
    "WORDS",
    "Chain",
    "Corpus",
    "chains",
    "code_store",
    "held_out",
    "known_loss",
    "letter_store",
    "paragraph_store",
    "piece_store",
    "sampled",
]

Floats = NDArray[np.float64]

LETTERS = string.ascii_letters + string.digits + "!#$%&()*+,-./:;<=>?@[]^_{|}~"  # 90 of them

BYTES, WORDS = 256, 512  # token ids of letters and of the BPE

LICENCE = Path(__file__).parents[1] / "LICENSE"


# -- Markov chains -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Chain:
    """A language in which the next letter depends on the last one.

    Attributes:
        letters: what is written.
        table: probabilities of the next letter [last, next].
    """

    letters: str
    table: Floats

    @property
    def stationary(self) -> Floats:
        """How often each letter comes."""
        found = np.full(len(self.table), 1 / len(self.table))
        for _ in range(512):
            found = found @ self.table
        total: Floats = found / found.sum()
        return total

    @property
    def entropy(self) -> float:
        """Nats per token that no model can do without."""
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.where(self.table > 0, -self.table * np.log(self.table), 0.0).sum(1)
        return float(self.stationary @ each)


def chains(count: int, letters: str, *, seed: int, concentration: float = 0.15) -> list[Chain]:
    """Some chains over the same letters.

    Args:
        count: how many.
        letters: what they write.
        seed: of their tables.
        concentration: of the Dirichlet distribution of each row: the smaller, the easier.

    >>> one, other = chains(2, "abcd", seed=0, concentration=1.0)
    >>> one.table.shape, round(one.entropy, 3), round(other.entropy, 3)
    ((4, 4), 1.064, 1.13)
    """
    rng = np.random.default_rng([seed, len(letters)])
    size = len(letters)
    # a little of everything: no letter is a trap, and every logarithm is finite
    tables = 0.98 * rng.dirichlet(np.full(size, concentration), (count, size)) + 0.02 / size
    return [Chain(letters=letters, table=table) for table in tables]


def sampled(
    languages: Sequence[Chain], which: ArrayLike, lengths: Sequence[int], *, seed: int
) -> list[str]:
    """Documents, each of one chain.

    Args:
        languages: the chains, over the same letters.
        which: the chain of each document.
        lengths: tokens of each.
        seed: of the draws.

    >>> [len(text) for text in sampled(chains(2, "abcd", seed=0), [0, 1], [3, 5], seed=1)]
    [3, 5]
    """
    rng = np.random.default_rng([seed, 77])
    chosen, sizes = np.asarray(which), np.asarray(lengths)
    sums = np.stack([np.cumsum(one.table, 1) for one in languages])
    starts = np.stack([np.cumsum(one.stationary) for one in languages])
    size = sums.shape[-1]
    state = _drawn(rng, starts[chosen], size)
    columns = [state]
    for _ in range(int(sizes.max()) - 1):  # all documents at once, letter after letter
        state = _drawn(rng, sums[chosen, state], size)
        columns.append(state)
    alphabet = np.array(list(languages[0].letters))
    rows = alphabet[np.stack(columns, 1)]
    return ["".join(row[:length]) for row, length in zip(rows, sizes.tolist(), strict=True)]


def _drawn(rng: np.random.Generator, sums: Floats, size: int) -> NDArray[np.int64]:
    """One state for each row of cumulative probabilities."""
    found: NDArray[np.int64] = (rng.random((len(sums), 1)) > sums).sum(1)
    return found.clip(max=size - 1)


def known_loss(languages: Sequence[Chain], which: ArrayLike, texts: Sequence[str]) -> float:
    """Nats per token of a predictor that knows each document's chain: no other does better.

    Args:
        languages: the chains.
        which: the chain of each document.
        texts: the documents; first letters count as well, from the stationary distribution.

    >>> one = chains(1, "abcd", seed=0)
    >>> texts = sampled(one, [0] * 500, [80] * 500, seed=1)
    >>> abs(known_loss(one, [0] * 500, texts) - one[0].entropy) < 0.02
    True
    """
    ids = {letter: number for number, letter in enumerate(languages[0].letters)}
    logs = [np.log(one.table) for one in languages]
    firsts = [np.log(one.stationary) for one in languages]
    total, count = 0.0, 0
    for chain, text in zip(np.asarray(which).tolist(), texts, strict=True):
        row = np.array([ids[letter] for letter in text])
        total -= firsts[chain][row[0]] + logs[chain][row[:-1], row[1:]].sum()
        count += len(row)
    return float(total / count)


def letter_store(texts: Sequence[str], path: Path, **options: Any) -> tl.Store:
    """A store of these documents in this order, one token per letter; made once.

    Args:
        texts: the documents.
        path: where the store is.
        options: further arguments of `tokenloom.build`.
    """
    if path.exists():
        return tl.open(path)
    rows = [{"text": text} for text in texts]
    return tl.build(rows, path, tokenizer="bytes", duplicates="allow", progress=False, **options)


# -- real text ---------------------------------------------------------------------------------


def piece_store(
    folder: Path, *, text: str, pieces: int, length: int, seed: int, held: int = 0
) -> tl.Store:
    """Documents of equal length, cut from a text: other ones for every seed.

    Args:
        folder: where the store is made, once.
        text: "licence" or "manual".
        pieces: documents.
        length: tokens of each.
        seed: which of them, in stretches of the text that no two seeds share if there is room.
        held: documents after them, which nobody trains on.
    """
    path = folder / f"{text}-{pieces}+{held}-{length}-{seed}"
    if path.exists():
        return tl.open(path)
    whole = LICENCE.read_text() if text == "licence" else "\n".join(one for _, one in topics())
    ids = _encoder(folder, text, [whole]).encode(whole).ids
    every = [ids[i : i + length] for i in range(0, len(ids) - length + 1, length)]
    count = pieces + held
    chosen = [every[(seed * count + i) % len(every)] for i in range(count)]
    rows = [{"ids": one} for one in chosen]
    return tl.build(
        rows, path, tokenizer=None, ids_key="ids", vocab_size=WORDS, eos=None, progress=False
    )


def code_store(folder: Path, *, budget: int, chunk_tokens: int) -> tl.Store:
    """The sources of the standard library in order of their paths, which is a strong order.

    Args:
        folder: where the store is made, once.
        budget: bytes of text.
        chunk_tokens: tokens of a block of the store.
    """
    path = folder / f"code-{budget}"
    if path.exists():
        return tl.open(path)
    found = code(Path(sysconfig.get_path("stdlib")), budget)
    texts = [one.text for one in found]
    _encoder(folder, "code", texts)
    rows = [{"text": text} for text in texts]
    return tl.build(
        rows,
        path,
        tokenizer=str(folder / "code.json"),
        add_eos=False,
        chunk_tokens=chunk_tokens,
        progress=False,
    )


def paragraph_store(folder: Path) -> tl.Store:
    """The paragraphs of the manual pages, each a document; 60 letters or more, every text once."""
    path = folder / "paragraphs"
    if path.exists():
        return tl.open(path)
    every = (part.strip() for _, text in topics() for part in text.split("\n\n"))
    texts = list(dict.fromkeys(part for part in every if len(part) >= 60))
    _encoder(folder, "paragraphs", texts)
    rows = [{"text": text} for text in texts]
    tokenizer = str(folder / "paragraphs.json")
    return tl.build(rows, path, tokenizer=tokenizer, add_eos=False, progress=False)


# -- what is held out --------------------------------------------------------------------------

SHARES = {"train": 0.9, "held": 0.1}

PART = "split={shares: {train: 0.9, held: 0.1}, part: train}"  # of a source of a run file


class Corpus(NamedTuple):
    """What is trained on, what is asked, and the best possible loss of that.

    Attributes:
        store: where the training documents are.
        held: documents that are not trained on.
        vocabulary: token ids.
        reachable: nats per token of the held-out documents that no model can do without; None for
            real text.
    """

    store: tl.Store
    held: Documents
    vocabulary: int
    reachable: float | None = None


def held_out(store: tl.Store, vocabulary: int) -> Corpus:
    """A tenth of the documents held out; the run file must say `PART`."""
    return Corpus(store, store.split(SHARES)["held"], vocabulary)


def _encoder(folder: Path, name: str, texts: Sequence[str]) -> Tokenizer:
    path = folder / f"{name}.json"
    if not path.exists():
        train_tokenizer(texts, path, vocab_size=WORDS)
    return Tokenizer.from_file(str(path))
