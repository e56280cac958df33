"""What is listed and counted of spliced rows is what their spans hold, in every stage and order."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from refusals import refused
from toydata import ToyStore, numbered

import tokenloom as tl
from tokenloom.inspect import coverage, places, triples

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

SIZES = [[30, 9, 14], [5, 23]]


@pytest.fixture(scope="module")
def toy():
    with ToyStore(numbered(SIZES)) as made:
        yield made


def of_spans(run, indices):
    """(index, document, start, cell) of all spans of some rows, row by row."""
    found = []
    for index in indices:
        spans = run.spans([index])
        columns = spans.document, spans.start, spans.at
        found += [(index, *one) for one in zip(*(x.tolist() for x in columns), strict=True)]
    return found


def listed(run, indices):
    found = triples(run, indices)
    columns = found.index, found.document, found.t, found.s
    return list(zip(*(np.asarray(x).tolist() for x in columns), strict=True))


STAGES = {
    "of one kind": {},
    "of more and more documents": {"doc_growth": {0: 2, 2: 5}},
    "of longer and longer pieces": {"content_length": {0: 4, 33: 7}},
}


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("fill", [None, "pack"])
def test_splices_are_listed_as_rows_have_them_in_every_stage(toy, stages, fill):
    options = {"content_length": 4, "fill": fill} | STAGES[stages]
    run = toy.store.select(num_docs=5).splice(12, **options).epochs(4).shuffle()
    some = np.random.default_rng(1).permutation(len(run))[:60].tolist()
    for indices in ([0], [len(run) - 1, 0], some):
        assert sorted(listed(run, indices)) == sorted(of_spans(run, indices))


WEIGHTED = {
    "plainly": {},
    "near the ends": {"alpha": 0.8, "edge_mode": "duplicate"},
    "near some ends": {"doc_alphas": [0.5, 0.0, 2.0, 0.0, 1.0], "edge_mode": "duplicate"},
    "in other steps": {"doc_strides": [1, 3, 2, 1, 5]},
    "in other steps near the ends": {
        "doc_strides": [1, 3, 2, 1, 5],
        "alpha": 0.8,
        "edge_mode": "duplicate",
    },
    "as often as others": {"balance_mode": "by_document"},
}


@pytest.mark.parametrize("weighted", WEIGHTED)
def test_starts_are_counted_as_the_rows_show_them(toy, weighted):
    options = {"content_length": 5, **WEIGHTED[weighted]}
    run = toy.store.select(num_docs=5).splice(8, **options).epochs(3).shuffle()
    shown = Counter((document, t) for _, document, t, _ in of_spans(run, range(len(run))))
    found = coverage(run, epochs=3)
    assert found.examples == len(run)
    assert sorted(found.documents.tolist()) == list(range(5))
    counted = Counter()
    for document in range(5):
        starts, times = (np.asarray(one).tolist() for one in found.starts(document))
        counted |= {(document, t): n for t, n in zip(starts, times, strict=True)}
    assert {key: n for key, n in counted.items() if n} == shown


def test_a_document_that_is_never_shown_has_no_places(toy):
    run = toy.store.select(num_docs=5).splice(12, content_length=6, adaptive_k=False)
    short = 3  # five tokens: it is no piece of six
    shown = of_spans(run, range(len(run)))
    for document in range(5):
        for t in (0, 2):
            wanted = [index for index, d, start, _ in shown if (d, start) == (document, t)]
            assert sorted(places(run, document, t).tolist()) == wanted
    assert short not in {document for _, document, _, _ in shown}


@pytest.mark.parametrize("content", [True, 10])
@pytest.mark.parametrize("offsets", [False, True])
def test_many_starts_come_in_another_order_and_each_once_an_epoch(content, offsets):
    options = {"sampler": "enumerate", "shuffle_content": content, "shuffle_offsets": offsets}
    with ToyStore(numbered([[150, 80]])) as toy:
        run = toy.store.splice(6, content_length=4, **options).shuffle(False).epochs(2)
        half = len(run) // 2
        first, second = (
            [one[1:] for one in of_spans(run, range(low, low + half))] for low in (0, half)
        )
        plain = toy.store.splice(6, content_length=4, sampler="enumerate").shuffle(False)
        usual = [one[1:] for one in of_spans(plain, range(len(plain)))]
    assert sorted(first) == sorted(second) == sorted(usual)
    assert first != usual
    assert first != second


WRAPPED = {
    "clipped": {"content_length": 6, "edge": "clip"},
    "clipped and side by side": {"content_length": 4, "edge": "clip", "fill": "pack"},
    "with a first token": {"content_length": 5, "bos": 900},
    "wide": {"content_length": 7, "edge": "clip", "doc_strides": [1, 3, 2, 1, 5]},
}


def test_splices_that_cannot_be_are_refused_by_the_setting_that_asks_for_them(toy):
    def splice(**options):
        return toy.store.splice(12, **options)

    growth = {"doc_growth": {0: 2, 2: 5}}
    given = {"doc_schedule": {0: 2, 64: 4}, "schedule_batch_size": 4}
    refused(lambda: splice(content_length=4, **growth, **given), tl.ConfigError, "doc_growth")
    refused(
        lambda: splice(content_length=4, max_epochs=0.001), tl.ConfigError, "max_epochs", "0.001"
    )
    most = 1 << 61
    refused(lambda: splice(content_length=4, epoch_length=most + 1), tl.ConfigError, "epoch_length")


# -- spans by themselves -----------------------------------------------------------------------


def test_spans_print_their_numbers_and_say_that_there_are_more(toy):
    spans = toy.store.windows(5).spans(range(16))
    few = spans.frames(0, 1)
    for shown in (spans, few):
        lines = repr(shown).splitlines()
        names = lines[1].split()
        columns = [[*map(int, line.split())] for line in lines[2:] if line.strip() != "…"]
        every = zip(shown.row, *(getattr(shown, name) for name in names[1:]), strict=True)
        expected = [list(map(int, row)) for row in every]
        assert columns == expected[: len(columns)]
        assert (len(columns) < len(expected)) == (lines[-1].strip() == "…")
    assert len(spans.document) > 12 >= len(few.document)


def test_spans_that_break_a_law_are_refused_by_their_frame(toy):
    spans = toy.store.pack(16, strategy="sequential").spans(range(4))
    spans.check()
    first = int(spans.frame[2])  # of frame 2, which has two spans
    assert int(spans.frame[3]) - first >= 2

    def changed(name, place, value):
        column = getattr(spans, name).copy()
        column[place] = value
        return replace(spans, **{name: column})

    last = int(spans.frame[3]) - 1
    wrong = [
        ("frame", changed("frame", 0, 1)),
        ("frame 1", changed("frame", 1, len(spans.document) + 1)),
        ("frame 2", changed("at", last, 16)),
        ("frame 2", changed("at", last, -1)),
        ("frame 2", changed("start", last, -1)),
        ("frame 2", changed("length", last, -1)),
        ("of frame 2", changed("at", first + 1, int(spans.at[first]))),
        ("a span of frame 2", changed("seen", first, 17)),
    ]
    for named, one in wrong:
        refused(one.check, tl.ConfigError, "spans", named)
