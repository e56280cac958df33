"""P(z) of every window of every document: which text a model can give back.

One idea: windows are rows of an ordinary run. A window of ``prefix + suffix`` tokens starts at
every `stride`-th token of a document that leaves room for it, so 4,096 tokens have 800 windows of
100 at stride 5, 105 have two and 99 have none. A frame offset s puts the window s cells to the
right, after filler, to see whether what was learned depends on the place in the frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.api.documents import Documents
from tokenloom.arguments import integer, wrong
from tokenloom.batch.batch import Batch
from tokenloom.errors import ConfigError, plural, warn
from tokenloom.evaluate.decoding import Decoding
from tokenloom.evaluate.evaluation_sets import content_hash
from tokenloom.evaluate.extraction import Extraction, WindowScores
from tokenloom.evaluate.models import NO_TARGET, scorer_of
from tokenloom.evaluate.probabilities import longest_suffix
from tokenloom.evaluate.scoring import Judged, Range, judged_batches
from tokenloom.layout.splice.spec import SpliceSpec


def window_run(
    documents: Documents, *, prefix: int = 50, suffix: int = 50, stride: int = 5, offset: int = 0
) -> Dataset:
    """The windows of documents as a run of one epoch, in order of documents and starts.

    Args:
        documents: a store, or a selection of it.
        prefix: tokens that the model is given, at least 1.
        suffix: tokens that it is asked for, at least 1.
        stride: tokens from one window to the next.
        offset: cells of filler before each window.

    Raises:
        ConfigError: no document is long enough.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     rows = window_run(store, prefix=2, suffix=2, stride=2)
    ...     [bytes(row.tolist()) for row in rows[:3].tokens]
    [b'abcd', b'cdef', b'efgh']
    """
    integer("prefix", prefix, 1)
    integer("suffix", suffix, 1)
    integer("stride", stride, 1)
    integer("offset", offset)
    length = prefix + suffix
    if not (np.asarray(documents.lengths) >= length).any():
        longest = int(np.max(documents.lengths, initial=0))
        raise ConfigError(
            f"documents: the longest has {plural(longest, 'token')}, allowed: at least {length} "
            f"(prefix {prefix} + suffix {suffix}) in one of them. Ask for shorter windows"
        )
    layout = SpliceSpec(
        seq_len=offset + length,
        content_length=length,
        content_stride=stride,
        min_copy_len=length,
        adaptive_k=False,
        sampler="enumerate",
    )
    # as splice(…), which logs every document; positions are those of the frame
    return documents._laid_out(layout, {"position_scheme": "absolute"}).epochs(1)


def pz(
    model: Any,
    documents: Documents,
    *,
    prefix: int = 50,
    suffix: int = 50,
    stride: int = 5,
    offsets: Sequence[int] = (0,),
    decoding: Decoding = Decoding(),  # noqa: B008 - frozen
    tau: float = 0.5,
    batch_size: int = 64,
    rank: int | None = None,
    world_size: int | None = None,
    progress: bool | None = None,
) -> Extraction:
    """P(z) of every window of the documents.

    Args:
        model: a callable ``(tokens, segment_ids, position_ids) -> logits``, a `torch.nn.Module`, a
            model of Transformers, or `tokenloom.evaluate.in_jax` of a function.
        documents: a store, or a selection of it, for example those that were trained on.
        prefix: tokens that the model is given, at least 1.
        suffix: tokens that it is asked for, at least 1.
        stride: tokens from one window to the next.
        offsets: cells of filler before each window; every window is judged at each of them.
        decoding: the way of decoding.
        tau: the P(z) that a suffix must reach to count for `WindowScores.k_star`.
        batch_size: windows that the model gets at a time.
        rank: the number of this rank, as for `tokenloom.Loader`: each gets its share, and
            `Extraction.joined` or `gathered` puts the shares together.
        world_size: the number of ranks.
        progress: whether to draw a bar; None: on a terminal.

    Returns:
        What was found, window by window.

    Raises:
        ConfigError: an argument is not allowed, no document is long enough, or the model gives NaN.

    >>> import tempfile, tokenloom as tl
    >>> from tokenloom.evaluate import pz
    >>> uniform = lambda tokens, segment_ids, position_ids: np.zeros((*tokens.shape, 256))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = [{"text": "to be or not to be"}, {"text": "that is the question"}]
    ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
    ...     found = pz(uniform, store, prefix=4, suffix=2, stride=4)
    >>> len(found), found.windows.document.tolist(), found.windows.start.tolist()
    (8, [0, 0, 0, 0, 1, 1, 1, 1], [0, 4, 8, 12, 0, 4, 8, 12])
    >>> bool((found.windows.log_pz == -2 * np.log(256)).all())
    True
    """
    scorer = scorer_of(model)
    if not 0 < tau <= 1:
        raise wrong("tau", tau, "a probability above 0")
    if not len(offsets):
        raise wrong("offsets", offsets, "at least one number of cells, for example (0,)")
    short = int((np.asarray(documents.lengths) < prefix + suffix).sum())
    if short:
        warn(
            f"{plural(short, 'document')} of {documents.num_documents:,} shorter than prefix + "
            f"suffix = {prefix + suffix} tokens: no window of them is judged"
        )
    frame = {"prefix": prefix, "suffix": suffix, "stride": stride}
    parts: list[WindowScores] = []
    for offset in offsets:
        rows = window_run(documents, **frame, offset=offset)
        batches = judged_batches(
            scorer,
            rows,
            some=Range.of_rank(len(rows), rank, world_size),
            targets=partial(_suffixes, first=rows.seq_len - suffix),
            decoding=decoding,
            batch_size=batch_size,
            show=progress,
            title=f"P(z), offset {offset}" if offset else "P(z)",
        )
        parts += (_found(one, offset, suffix, np.log(tau)) for one in batches)
    settings = {**frame, "offsets": list(offsets), "decoding": decoding, "tau": tau}
    numbers, lengths = (np.asarray(one).tolist() for one in (documents.indices, documents.lengths))
    return Extraction(
        windows=WindowScores.joined(parts),
        lengths=dict(zip(numbers, lengths, strict=True)),
        settings={**settings, "model": scorer.description},
        content=content_hash(documents),
    )


def _suffixes(batch: Batch, first: int) -> NDArray[np.int32]:
    """The last cells of each row, in the cells that predict them."""
    found = np.full_like(batch.tokens, NO_TARGET)
    found[:, first - 1 : -1] = batch.tokens[:, first:]
    return found


def _found(one: Judged, offset: int, suffix: int, log_tau: float) -> WindowScores:
    """What a batch says about its windows."""
    log_probs = one.scores.log_probs.reshape(-1, suffix)
    spans = one.batch.spans
    return WindowScores(
        example=one.batch.index,
        document=spans.document,
        start=spans.start,
        offset=np.full(len(spans), offset),
        log_pz=log_probs.sum(1),
        greedy=np.asarray(one.scores.greedy.reshape(-1, suffix).all(1)),
        k_star=longest_suffix(log_probs, log_tau),
    )
