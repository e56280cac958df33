"""Spliced toy datasets of every kind, and what they show, cell by cell.

Every token of a toy store is another number, so a cell says by itself which token of which document
it holds: the loops here ask no span and no layout.
"""

import functools
import itertools
import tempfile
import warnings
from collections import defaultdict

from hypothesis import assume
from hypothesis import strategies as st
from kit import QUICK
from toystore import write_store

import tokenloom as tl
from tokenloom.errors import ConfigError

BOS, EOS = 998, 999
FOLDERS = []


@functools.lru_cache(maxsize=64)
def toy_store(*lengths):
    """A store of documents of these lengths; tokens count from 1, and 0 is filler."""
    folder = tempfile.TemporaryDirectory()
    FOLDERS.append(folder)  # until the tests end
    count = itertools.count(1)
    documents = [[next(count) for _ in range(length)] for length in lengths]
    write_store(f"{folder.name}/toy", [documents], files=QUICK)
    return tl.open(f"{folder.name}/toy")


def token_places(lengths):
    """{token: (document, offset)} of a toy store."""
    tokens = ((d, j) for d, length in enumerate(lengths) for j in range(length))
    return dict(zip(itertools.count(1), tokens, strict=False))


def some(draw, **fields):
    """A value for some of the fields; the others keep their default."""
    return {name: draw(values) for name, values in fields.items() if draw(st.booleans())}


@st.composite
def options(draw, documents):
    """Arguments of `store.splice` but for the length of a frame; not all can be meant."""
    mode = draw(
        st.sampled_from(
            ("slide_within", "anchor_start", "cyclic_roll", *["coverage_balanced"] * 4, "grid")
        )
    )
    found = some(
        draw,
        content_length=st.integers(2, 9),
        content_stride=st.integers(1, 4),
        min_copy_len=st.integers(1, 3),
        balance_mode=st.sampled_from(("by_coverage", "by_document", "by_temperature")),
        balance_tau=st.sampled_from((0.0, 0.5, 1.0)),
        sampler=st.sampled_from(("enumerate", "quota", "stream")),
        bos=st.just(BOS),
        eos_before=st.just(EOS),
        trailing=st.just("doc"),
        attend_prefix=st.booleans(),
        mask_boundary_loss=st.booleans(),
        doc_strides=st.lists(st.integers(1, 3), min_size=documents, max_size=documents),
    )
    if found.get("sampler") == "stream":
        found["epoch_length"] = draw(st.integers(1, 30))  # it has thousands else
    if mode == "grid":
        return found | {"grid": draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))}
    found["content_start_mode"] = mode
    if mode != "coverage_balanced":
        found |= some(
            draw,
            placement=st.sampled_from(("fit", "truncate")),
            offset_stride=st.integers(1, 3),
            shuffle_offsets=st.booleans(),
            shuffle_content=st.sampled_from((True, 2)),
        )
        return found | ({"roll_loss": draw(st.booleans())} if mode == "cyclic_roll" else {})
    found |= some(
        draw,
        mode=st.sampled_from(("splice", "slide")),
        edge=st.sampled_from(("inside", "clip")),
        fill=st.sampled_from(("one", "pack")),
        alpha=st.sampled_from((0.4, 1.0)),
        edge_mode=st.just("duplicate"),
        adaptive_k=st.booleans(),
        include_tail=st.booleans(),
        offset_jitter=st.integers(1, 3),
        jitter_mode=st.sampled_from(("uniform", "low_discrepancy")),
        epoch_length=st.integers(1, 30),
        max_epochs=st.sampled_from((0.5, 2.0)),
    )
    kind = draw(st.sampled_from(("none", "none", "content", "documents", "growth")))
    if kind == "content":
        found["content_length"] = {0: draw(st.integers(2, 6)), 7: draw(st.integers(2, 9))}
    if kind == "documents":
        found["doc_schedule"] = {0: draw(st.integers(1, documents)), 5: documents}
    if kind == "growth":
        found["doc_growth"] = {0: draw(st.integers(1, documents)), 2: documents}
    return found


@st.composite
def spliced_datasets(draw):
    """(dataset, lengths of the documents of its store)."""
    lengths = draw(st.lists(st.sampled_from([0, 1, 2, 3, 5, 8, 13, 21]), min_size=1, max_size=4))
    arguments = draw(options(len(lengths)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = toy_store(*lengths).splice(draw(st.integers(2, 16)), **arguments)
        except ConfigError:
            assume(False)
    return draw(ordered(found)), lengths


@st.composite
def ordered(draw, dataset):
    """A dataset in some order, for some epochs, cut somewhere."""
    dataset = dataset.seed(draw(st.integers(0, 3)))
    dataset = dataset.shuffle(draw(st.sampled_from((True, False))))
    if draw(st.booleans()):
        dataset = dataset.epochs(draw(st.sampled_from((1, 2, 3, None))))
    return dataset.take(draw(st.integers(0, 40))) if draw(st.booleans()) else dataset


def slow_counts(dataset, lengths, examples):
    """How often each (document, offset) is context and target, from the arrays of batches."""
    places, context, targets = token_places(lengths), defaultdict(int), defaultdict(int)
    if not examples:
        return context, targets
    batch = dataset.batch(range(examples))
    for tokens, trained in zip(batch.tokens.tolist(), batch.trained().tolist(), strict=True):
        for cell, token in enumerate(tokens):
            if token in places:
                context[places[token]] += 1
                targets[places[token]] += cell > 0 and trained[cell - 1]
    return context, targets
