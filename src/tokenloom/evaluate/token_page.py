"""A document with the probability of every token: as lines, and as a page to look at.

One idea: what a model has learned of a text is best seen in the text. Each token has the colour of
its log-probability, and its number, probability and rank of surprise when the mouse is over it. The
page stands alone (`tokenloom.page.document`): no network, and nothing in a text is run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.documents import Documents
from tokenloom.api.store import Store
from tokenloom.evaluate.decoding import Decoding
from tokenloom.evaluate.evaluation_sets import one_document_rows
from tokenloom.evaluate.models import scorer_of
from tokenloom.evaluate.scoring import Range, judged_batches, places, trained_targets
from tokenloom.page.document import document, theme_button
from tokenloom.page.markup import Markup, tag
from tokenloom.page.numbers import share
from tokenloom.page.token_cells import directed, extra_classes, whole_letters

SURPRISING = 12.0  # nats at which a token has the strongest colour


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenPage:
    """The tokens of a document and how likely each was.

    Attributes:
        document: its number in its store.
        tokens: its ids.
        strings: what each token stands for; its number, where no tokenizer is known.
        log_probs: natural logarithms; NaN for the first token, which nothing predicts.
        greedy: whether greedy decoding gives the token.
        model: what the model is.

    >>> page = TokenPage(
    ...     document=3, tokens=np.array([7, 9], np.int32), strings=["a", "b"],
    ...     log_probs=np.log([np.nan, 0.5]), greedy=np.array([False, True]), model="toy",
    ... )
    >>> list(page.lines())[2]
    "      1       9  0.500 'b' #"
    """

    document: int
    tokens: NDArray[np.int32]
    strings: list[str]
    log_probs: NDArray[np.float64]
    greedy: NDArray[np.bool_]
    model: str

    def lines(self) -> Iterator[str]:
        """A line for each token: place, id, probability, and a bar of its surprise in nats."""
        yield f"document {self.document}, {len(self.tokens):,} tokens; {self.model}"
        for place, (token, log_prob) in enumerate(
            zip(self.tokens.tolist(), self.log_probs.tolist(), strict=True)
        ):
            chance = "      " if math.isnan(log_prob) else f"{math.exp(log_prob):6.3f}"
            bar = "#" * round(min(20.0, _surprise(log_prob)))
            yield f"{place:>7} {token:>7} {chance} {self.strings[place]!r} {bar}".rstrip()

    @property
    def words(self) -> str:
        """What the model knows of it, in one line."""
        known = self.log_probs[1:]
        mean = -float(known.mean()) if len(known) else math.nan
        greedy = float(self.greedy[1:].mean()) if len(known) else 0.0
        return (
            f"document {self.document}: {len(self.tokens):,} tokens, mean loss {mean:.3f} nats, "
            f"{share(greedy)} greedy; {self.model}"
        )

    def html(self) -> str:
        """The page, one element for each token; it stands alone and runs no code of a text."""
        title = f"document {self.document}"
        head = tag("header", tag("div", theme_button(), class_="top"), tag("h1", title))
        told = tag("p", self.words, class_="lead")
        body = tag("main", told, surprise_legend(), self.cells())
        return document(title, tag("div", head, body, class_="page"))

    def cells(self, most: int | None = None) -> Markup:
        """The text, each token in the colour of its surprise; the first `most` tokens."""
        count = len(self.tokens) if most is None else min(most, len(self.tokens))
        shown = whole_letters(self.strings)[:count]
        cells = (
            self._cell(place, *one)
            for place, one in enumerate(zip(shown, extra_classes(shown), strict=True))
        )
        return tag("div", directed(cells, shown), class_="cells surprise")

    def _cell(self, place: int, letters: str, extra: str) -> Markup:
        log_prob = float(self.log_probs[place])
        chance = "no prediction" if math.isnan(log_prob) else f"p = {math.exp(log_prob):.3g}"
        first = ", greedy" if self.greedy[place] else ""
        title = f"token {place}, id {self.tokens[place]}, {chance}{first}"
        return tag("i", letters, title=title, class_=_level(log_prob) + extra)


def token_page(
    model: Any,
    documents: Documents,
    document: int,
    *,
    seq_len: int,
    overlap: int | None = None,
    batch_size: int = 8,
) -> TokenPage:
    """How likely every token of a document is.

    Args:
        model: as for `tokenloom.evaluate.pz`.
        documents: a store, or a selection that has the document.
        document: its number in the store.
        seq_len: tokens that the model takes at once; a longer document is read in several rows.
        overlap: tokens that these rows share; default: half of them, so that every token is judged
            with at least half a row before it.
        batch_size: rows at once.

    >>> import tempfile, tokenloom as tl
    >>> uniform = lambda tokens, segment_ids, position_ids: np.zeros((*tokens.shape, 256))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "to be"}], folder + "/toy", tokenizer="bytes")
    ...     page = token_page(uniform, store, 0, seq_len=4)
    >>> page.strings, page.log_probs.round(3).tolist()
    (['t', 'o', ' ', 'b', 'e'], [nan, -5.545, -5.545, -5.545, -5.545])
    """
    scorer, line = scorer_of(model), documents.line
    store = Store(line.reader, line.reader.root)
    chosen = documents.select(doc_index=document, doc_index_policy="honor")
    rows = one_document_rows(chosen, seq_len, seq_len // 2 if overlap is None else overlap)
    tokens = store[document]
    log_probs = np.full(len(tokens), np.nan)
    greedy = np.zeros(len(tokens), bool)
    for one in judged_batches(
        scorer,
        rows,
        some=Range(0, len(rows)),
        targets=trained_targets,
        decoding=Decoding(),
        batch_size=batch_size,
        show=False,
    ):
        at = places(one, tuple(rows.sources)).place
        log_probs[at], greedy[at] = one.scores.log_probs, one.scores.greedy
    decoder = store.tokenizer
    return TokenPage(
        document=document,
        tokens=tokens,
        strings=decoder.token_strings(tokens) if decoder else [f" {t}" for t in tokens.tolist()],
        log_probs=log_probs,
        greedy=greedy,
        model=scorer.description,
    )


def _surprise(log_prob: float) -> float:
    return 0.0 if math.isnan(log_prob) else min(-log_prob, 1e6)


def _level(log_prob: float) -> str:
    """The class of a token: u0 for one that was certain, u10 for one that surprised most.

    >>> _level(0.0), _level(-3.0), _level(-12.0), _level(math.nan)
    ('u0', 'u2', 'u10', 'unknown')
    """
    if math.isnan(log_prob):
        return "unknown"
    return f"u{round(10 * min(1.0, _surprise(log_prob) / SURPRISING))}"


def surprise_legend() -> Markup:
    """Which colour stands for which probability."""
    chances = (1.0, 0.5, 0.1, 0.01, 0.001, 0.0001)
    marks = (tag("i", f" {p:g} ", class_=_level(math.log(p))) for p in chances)
    return tag("p", "probability of each token: ", *marks, class_="legend surprise")
