"""Listings of spliced examples: what each shows, and where a start is shown."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from splicedtoys import BOS, spliced_datasets, token_places, toy_store

from tokenloom.errors import ConfigError
from tokenloom.inspect import places, triples


def rows(found):
    return list(
        zip(
            *(getattr(found, name).tolist() for name in ("index", "epoch", "document", "t", "s")),
            strict=True,
        )
    )


def an_epoch(ds):
    return len(ds) if ds.is_finite else ds.run.phases.end(1)


def first_of(tokens, places_of, bos):
    """(document, offset) of the first token of a splice; its BOS is the offset -1."""
    if bos and tokens[0] == BOS:
        behind = places_of.get(tokens[1]) if len(tokens) > 1 else None
        return (None if behind is None else behind[0]), -1
    return places_of[tokens[0]]


@given(spliced_datasets())
@settings(max_examples=60)
def test_a_listing_names_the_first_token_of_every_segment_and_its_cell(case):
    ds, lengths = case
    spec, where = ds.sources["main"].config.layout, token_places(lengths)
    ds = ds.render(trailing="filler", attend_prefix=False)
    found = triples(ds)
    shown = itertools.groupby(rows(found), key=lambda row: row[0])
    listed = {index: list(group) for index, group in shown}
    assert list(listed) == list(range(an_epoch(ds)))  # every example shows something
    some = list(listed)[:60]
    if not some:
        return
    batch = ds.batch(some)
    epochs = ds.locate(some)[0].tolist()
    for row, index in enumerate(some):
        of_example = listed[index]
        segments, tokens = batch.segment_ids[row].tolist(), batch.tokens[row].tolist()
        cells = [
            [i for i, s in enumerate(segments) if s == one] for one in range(1, max(segments) + 1)
        ]
        assert len(cells) == len(of_example)
        for (_, epoch, document, t, s), here in zip(of_example, cells, strict=True):
            assert epoch == epochs[row]
            assert s == here[0]
            bos = spec.bos_id is not None
            named, offset = first_of([tokens[i] for i in here], where, bos)
            assert named in (document, None)
            assert offset == max(t, -bos)
            if t < offset:  # clipped: what is missing lies before the document
                asked = [pair[1] for pair in spec.content_schedule] or [spec.content_length]
                whole = min(max(one or spec.seq_len for one in asked), spec.seq_len)
                assert len(here) <= whole - (offset - t)


@given(spliced_datasets(), st.data())
@settings(max_examples=25)
def test_any_indices_in_any_order_are_listed_one_by_one(case, data):
    ds, _ = case
    count = an_epoch(ds)
    wanted = data.draw(st.lists(st.integers(0, max(0, count - 1)), max_size=9 if count else 0))
    found = triples(ds, wanted)
    assert rows(found) == [row for index in wanted for row in rows(triples(ds, [index]))]
    assert len(found) == len(rows(found))


@given(spliced_datasets(), st.integers(1, 3))
@settings(max_examples=40)
def test_places_are_the_way_back(case, epochs):
    ds, lengths = case
    last = ds.run.phases.end(epochs)
    last = min(last, len(ds)) if ds.is_finite else last
    listed = rows(triples(ds, np.arange(last)))
    for document in range(len(lengths)):
        shown = sorted({row[0] for row in listed if row[2] == document})
        assert places(ds, document, epochs=epochs).tolist() == shown
        for t in {row[3] for row in listed if row[2] == document} | {-2, 0, lengths[document]}:
            wanted = sorted({row[0] for row in listed if row[2] == document and row[3] == t})
            assert places(ds, document, t, epochs=epochs).tolist() == wanted, t


def test_the_worked_example_is_listed_with_its_offsets():
    ds = toy_store(7, 5, 3).splice(8, content_length=4, adaptive_k=False, sampler="enumerate")
    found = triples(ds)
    assert [row[2:] for row in rows(found)] == [
        *[(0, t, 4) for t in range(4)],
        *[(1, t, 4) for t in range(2)],
    ]
    assert places(ds, 2).tolist() == []  # too short to be spliced


def test_with_bos_the_window_that_begins_with_it_begins_at_minus_1():
    ds = toy_store(5).splice(4, content_length=3, bos=BOS)
    assert triples(ds).t.tolist() == [-1, 0, 1, 2]
    assert ds[0].tokens.tolist() == [[0, BOS, 1, 2]]
    assert places(ds, 0, t=-1).tolist() == [0]


def test_an_endless_dataset_is_listed_for_one_epoch():
    ds = toy_store(9, 6).splice(8, content_length=4, sampler="stream", epoch_length=9)
    assert not ds.is_finite
    assert triples(ds).index.tolist() == list(range(9))
    assert triples(ds, [10**12]).epoch.tolist() == [10**12 // 9]


def test_nothing_of_nothing_is_nothing():
    for fill in ("one", "pack"):
        ds = toy_store(9).splice(8, content_length=4, fill=fill).take(0)
        assert len(triples(ds)) == len(triples(ds, [])) == 0
        assert places(ds, 0).tolist() == []


def test_other_datasets_and_what_is_not_there_are_refused():
    for other in (toy_store(9).windows(4), toy_store(9).pack(4)):
        refused(lambda other=other: triples(other), ConfigError, "store.splice")
        refused(lambda other=other: places(other, 0), ConfigError)
    ds = toy_store(9).splice(8)
    refused(lambda: places(ds, 1), IndexError, 1)
    refused(lambda: triples(ds, [9]), IndexError, 9)
    refused(lambda: places(ds, 0, epochs=0), ConfigError, "epochs")
    refused(lambda: triples(ds, [[0, 1]]), TypeError)
