"""Questions to a run: what is trained there, and where is that document trained?

One idea: both directions are arithmetic on the same run (`tokenloom.trace`), so nothing is logged
while a run trains, and any step of it can be asked about before, while and after it is trained.

Questions that judge a run (`tokenloom.inspect`) or show it (`tokenloom.report`) are passed on to an
annex (`tokenloom.batch.views.annexes`).
"""

from __future__ import annotations

import heapq
import operator
from abc import ABC
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex, overload

import numpy as np

from tokenloom.api.source import Source
from tokenloom.arguments import check_names, integer, near_misses
from tokenloom.arrays import checked, sliced
from tokenloom.batch.views.annexes import annex
from tokenloom.errors import ConfigError
from tokenloom.mixture.spec import Edit
from tokenloom.order.run import Run
from tokenloom.order.schedule import Steps, examples_of_step, row_of_step
from tokenloom.store.derived.id_index import find_id
from tokenloom.trace.answers import Example, Examples, Nowhere, Place
from tokenloom.trace.backward import Places, Search, places_of
from tokenloom.trace.forward import look_at

__all__ = ["Questions"]

WITHIN = 1000  # epochs


class Questions(ABC):
    """What may be asked of a dataset.

    Attributes:
        sources: its sources by name; a single source is called "main".
        edits: the changes made during the run, oldest first.
        run: index → spans.
    """

    sources: dict[str, Source]
    edits: tuple[Edit, ...]
    run: Run

    @overload
    def at(
        self,
        index: int,
        *,
        batch_size: int | Sequence[tuple[int, int]] | None = None,
        text: bool = False,
        metadata: bool = False,
    ) -> Example: ...

    @overload
    def at(
        self,
        index: range | slice | Sequence[int],
        *,
        batch_size: int | Sequence[tuple[int, int]] | None = None,
        text: bool = False,
        metadata: bool = False,
    ) -> Examples: ...

    @overload
    def at(
        self,
        *,
        step: int,
        row: int,
        batch_size: int | Sequence[tuple[int, int]],
        text: bool = False,
        metadata: bool = False,
    ) -> Example: ...

    @overload
    def at(
        self,
        *,
        step: int,
        batch_size: int | Sequence[tuple[int, int]],
        text: bool = False,
        metadata: bool = False,
    ) -> Examples: ...

    @near_misses("at")
    def at(
        self,
        index: int | range | slice | Sequence[int] | None = None,
        *,
        step: int | None = None,
        row: int | None = None,
        batch_size: int | Sequence[tuple[int, int]] | None = None,
        text: bool = False,
        metadata: bool = False,
    ) -> Example | Examples:
        """What is trained at an index, or at a row of a step, and how it came to be there.

        Nothing is read unless `text` or `metadata` asks for it.

        Args:
            index: an index; or several, as a range, a slice or a list.
            step: instead of `index`: a step of a loader with this `batch_size`.
            row: the row of the step; default: all of them, in order.
            batch_size: rows of a step over all ranks, or pairs (examples, rows), as for
                `tokenloom.Loader`; with an index it only tells its step and row.
            text: also the text of each span.
            metadata: also what was kept about each document.

        >>> import tempfile, tokenloom as tl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     texts = [{"text": "abc"}, {"text": "defgh"}]
        ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
        ...     store.windows(4).at(0, text=True)
        Example 0: source main, epoch 0
          stage 0 → item 0 → epoch 0 → row 0
          cells  document  tokens
          0–2    0         0–2     'abc'
          3      1         0       'd'
        """
        steps = None if batch_size is None else Steps(batch_size)
        options = {"steps": steps, "text": text, "metadata": metadata}
        if (index is None) == (step is None):
            raise ConfigError("at: found both or neither of index and step, allowed: one of them.")
        if step is not None:
            if steps is None:
                raise ConfigError(
                    f"at: step={step} needs batch_size, the rows of a step. Pass both."
                )
            number = integer("step", step)
            if row is None:
                return self._examples(examples_of_step(self.run, steps, number), options)
            one = row_of_step(self.run, steps, number, integer("row", row))
            return self._examples([one], options)[0]
        if row is not None:
            raise ConfigError("at: found row with an index, allowed: with step=….")
        if isinstance(index, SupportsIndex):
            return self._examples([operator.index(index)], options)[0]
        wanted = sliced(index, self.run.n) if isinstance(index, slice) else index
        return self._examples(wanted, options)

    def _examples(self, indices: Any, options: dict[str, Any]) -> Examples:
        wanted = np.atleast_1d(checked(list(indices), self.run.n, "index"))
        edits = [edit.at for edit in self.edits]
        return Examples(tuple(look_at(self.run, wanted, edits=edits, **options)))

    @near_misses("where")
    def where(
        self,
        source: str | None = None,
        doc: int | None = None,
        *,
        id: str | int | None = None,
        tokens: int | range | tuple[int, int] | None = None,
        epochs: int | Iterable[int] | None = None,
        after: int = -1,
        before: int | None = None,
        batch_size: int | Sequence[tuple[int, int]] | None = None,
    ) -> Places:
        """Every place where a document is trained, in order of index, computed as asked for.

        `at` and `where` are inverse: each cell of each place is found by `at`, and no other cell
        holds the document. A document that no row can show gives an empty answer with its `reason`.

        Args:
            source: name of the source; a single source need not be named.
            doc: number of the document in its store.
            id: instead of `doc`: every document with this id, in `source` or in all sources.
            tokens: only places that hold these document offsets, cut to them: one, a range, or a
                pair (first, after the last).
            epochs: how many epochs of the source, from the first on; or which ones. Costs of other
                epochs are not added up.
            after: only examples after this index; epochs before it are not visited.
            before: only examples before this index.
            batch_size: also tell the step and the row, as in `at`.

        >>> import tempfile, tokenloom as tl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     texts = [{"text": "abc"}, {"text": "defgh"}]
        ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
        ...     run = store.windows(4).shuffle().epochs(None)
        ...     for place in run.where(doc=1, epochs=1):
        ...         place
        Place 0: cells 0–3 hold tokens 1–4 of main document 1, epoch 0
        Place 1: cell 3 holds token 0 of main document 1, epoch 0
        """
        if (doc is None) == (id is None):
            raise ConfigError("where: found both or neither of doc and id, allowed: one of them.")
        settings: dict[str, Any] = {
            "tokens": _offsets(tokens),
            "epochs": _epochs(epochs),
            "after": integer("after", after, least=-1),
            "before": None if before is None else integer("before", before),
            "steps": None if batch_size is None else Steps(batch_size),
        }
        if id is None:
            assert doc is not None
            return places_of(self._search(source, doc, **settings))
        names = self.run.names if source is None else (self._named(source),)
        found = [
            places_of(self._search(name, document, **settings))
            for name in names
            for document in self._with_id(name, id)
        ]
        words = f"the documents with id {id!r}"
        if not found:
            return Places(words, iter(()), f"no document of {', '.join(names)} has the id {id!r}.")
        merged = heapq.merge(*found, key=operator.attrgetter("index", "column"))
        reasons = [one.reason for one in found]
        return Places(words, merged, None if None in reasons else reasons[0])

    @near_misses("next")
    def next(
        self,
        source: str | None = None,
        doc: int | None = None,
        *,
        after: int,
        within: int = WITHIN,
        tokens: int | range | tuple[int, int] | None = None,
        batch_size: int | Sequence[tuple[int, int]] | None = None,
    ) -> Place | Nowhere:
        """Where a document is trained next after an index; false, with a reason, if nowhere.

        Args:
            source: name of the source; a single source need not be named.
            doc: number of the document in its store.
            after: an index, such as that of the last trained example; it is not searched itself.
            within: how many epochs of the source are searched.
            tokens: as in `where`.
            batch_size: also tell the step and the row, as in `at`.

        >>> import tempfile, tokenloom as tl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     texts = [{"text": "abc"}, {"text": "defgh"}]
        ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
        ...     run = store.windows(4).shuffle().epochs(2)
        ...     run.next(doc=0, after=0)
        ...     run.next(doc=0, after=100)
        Place 1: cells 0–2 hold tokens 0–2 of main document 0, epoch 0
        Nowhere: the run ends before 101.
        """
        if doc is None:
            raise ConfigError("next: doc is missing, allowed: the number of a document.")
        index = integer("after", after, least=-1)
        steps = None if batch_size is None else Steps(batch_size)
        asked = self._search(source, doc, tokens=_offsets(tokens), after=index, steps=steps)
        first = asked.first_epoch
        epochs = range(first, first + integer("within", within, least=1))
        found = places_of(asked.over(epochs))
        if found.reason is not None:
            return Nowhere(found.reason)
        for place in found:
            return place
        if not asked.reaches(epochs.stop):
            return Nowhere(f"after index {index:,} the run does not show {asked.words} again.")
        return Nowhere(
            f"{asked.words} is not shown in epochs {first:,} to {epochs.stop - 1:,} of its source; "
            "within=… searches more of them."
        )

    # -- judged by an annex ----------------------------------------------------------------

    @near_misses("audit")
    def audit(
        self,
        first: int | None = None,
        last: int | None = None,
        *,
        arrays: bool | str = True,
        sample: int | None = None,
        seed: int = 0,
        progress: bool | None = None,
    ) -> Any:
        """Whether the run shows what it promises, as a `tokenloom.inspect.Certificate`.

        Args:
            first: the first example to look at; default: 0.
            last: the example after the last one; default: the end of the run, or of the first epoch
                of an endless run of one source.
            arrays: True renders every row and judges every cell; "sample" renders a keyed 64th of
                them; False reads no token.
            sample: look at this many rows only, a keyed sample of the range.
            seed: names the samples.
            progress: show a bar; default: if standard error is a terminal.

        >>> import tempfile, tokenloom as tl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
        ...     store.windows(2).shuffle().audit().ok
        True
        """
        options = {"arrays": arrays, "sample": sample, "seed": seed, "progress": progress}
        return annex("inspect").audit_run(self, first, last, **options)

    @near_misses("simulate")
    def simulate(
        self,
        steps: int | None = None,
        *,
        batch_size: int | Sequence[tuple[int, int]],
        ranks: int = 1,
        first: int = 0,
        cache_bytes: int | None = None,
        latency: float | None = None,
        bandwidth: float | None = None,
        step_seconds: float | None = None,
        parallel: int = 1,
    ) -> Any:
        """What steps will show, read and wait for, as a `tokenloom.inspect.Simulation`.

        Nothing is read. `tokenloom.inspect.simulate_run` has further settings.

        Args:
            steps: how many steps; None is all that remain of a finite run.
            batch_size: rows of a step over all ranks, or a schedule, as for `tokenloom.Loader`.
            ranks: processes that share every step.
            first: the step to start with, as after a resume.
            cache_bytes: memory for decoded blocks of each store; default: as its stores have it.
            latency: seconds from a request to its first byte.
            bandwidth: bytes per second that a rank's source delivers.
            step_seconds: time that a step takes once it has its data; needed to tell stalls.
            parallel: requests of a rank that are answered at the same time.

        >>> import tempfile, tokenloom as tl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
        ...     store.windows(2).shuffle().simulate(batch_size=2).steps
        2
        """
        options = {"ranks": ranks, "first": first, "cache_bytes": cache_bytes, "latency": latency}
        options |= {"bandwidth": bandwidth, "step_seconds": step_seconds, "parallel": parallel}
        return annex("inspect").simulate_run(self, steps, batch_size=batch_size, **options)

    @near_misses("view")
    def view(
        self,
        *,
        step: int | None = None,
        batch_size: int | Sequence[tuple[int, int]] | None = None,
        rows: int = 8,
    ) -> Any:
        """The run for a notebook: answers and figures of its report, or the rows of a step.

        Args:
            step: show the rows of this step instead.
            batch_size: rows of a step over all ranks, or a schedule, as for `tokenloom.Loader`;
                default: what the run file says, or 64.
            rows: how many rows of the step.

        >>> import tempfile, tokenloom as tl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
        ...     store.windows(4).view(step=0, batch_size=2)
        step 0, 2 rows
        row 0, index 0: a b c d
        row 1, index 1: e f g h
        """
        return annex("report").view_run(self, step=step, batch_size=batch_size, rows=rows)

    def _search(self, source: str | None, doc: int, **settings: Any) -> Search:
        name = self._named(source)
        number = self.run.names.index(name)
        known = self.run.sources[number].layout.line.reader.manifest.documents
        document = int(checked(operator.index(doc), known, f"{name} document"))
        return Search(run=self.run, number=number, document=document, **settings)

    def _named(self, source: str | None) -> str:
        """The name of a source; a single one need not be named."""
        names = self.run.names
        if source is None and len(names) == 1:
            return names[0]
        if source is None:
            raise ConfigError(f"source: missing, allowed: {', '.join(names)}.")
        check_names("source", [source], names)
        return source

    def _with_id(self, name: str, id: str | int) -> list[int]:
        """The documents of a source that have an id."""
        run = self.run.sources[self.run.names.index(name)]
        found: list[int] = find_id(run.layout.line.reader, id).tolist()
        return found


def _offsets(tokens: int | range | tuple[int, int] | None) -> tuple[int, int] | None:
    """Document offsets as (first, after the last)."""
    if tokens is None:
        return None
    if isinstance(tokens, range):
        if tokens.step != 1:
            raise ConfigError(f"tokens: found {tokens}, allowed: a range of adjacent offsets.")
        first, last = tokens.start, tokens.stop
    elif isinstance(tokens, SupportsIndex):
        first = operator.index(tokens)
        last = first + 1
    else:
        first, last = (integer("tokens", one, least=-1) for one in tokens)
    if not -1 <= first < last:
        raise ConfigError(
            f"tokens: found {first} to {last}, allowed: a first offset of -1 (an inserted BOS) or "
            "more, and one after the last."
        )
    return first, last


def _epochs(epochs: int | Iterable[int] | None) -> Sequence[int] | None:
    """Epochs, ascending; a number means the first ones."""
    if epochs is None:
        return None
    if isinstance(epochs, range) and epochs.step > 0 and epochs.start >= 0:
        return epochs
    if isinstance(epochs, SupportsIndex):
        return range(integer("epochs", epochs))
    return sorted({integer("epochs", one) for one in epochs})
