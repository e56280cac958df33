"""`at` and `where` against all cells of small runs of every kind, one by one."""

import numpy as np
import pytest
from lookruns import (
    BOS,
    EOS,
    cells_of_examples,
    cells_of_places,
    cells_of_run,
    horizon,
    make_stores,
    random_run,
)

import tokenloom as tl

# what packing loses, and rows that a quarantine leaves blank, are told when runs are made
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return make_stores(tmp_path_factory.mktemp("look"))


def documents_of(run):
    """(source, document) of all documents that a run could show, those it leaves out included."""
    for name, one in zip(run.run.names, run.run.sources, strict=True):
        for document in range(one.layout.line.reader.manifest.documents):
            yield name, document


def held_to_every_cell(run, seen, n):
    """`at` has every cell, `where` has the cells of each document and no other, in order."""
    every = cells_of_run(run, seen, n)
    assert sorted(cells_of_examples(run.at(range(n)))) == sorted(every)
    for source, document in documents_of(run):
        right = [cell for cell in every if (cell.source, cell.document) == (source, document)]
        answer = run.where(source, document, before=n)
        if answer.reason is not None:  # it never comes, and is told at once
            assert not right, answer.reason
        found = list(answer)
        assert [place.index for place in found] == sorted(place.index for place in found)
        assert cells_of_places(found) == sorted(right), (source, document)
    return every


def looked_at(seed, stores):
    run, seen = random_run(seed, stores)
    every = held_to_every_cell(run, seen, horizon(run))
    hold_to_tokens(run, every)
    return run, every


def hold_to_tokens(run, every):
    """The tokens of a batch are those that the cells name; blank cells are filler."""
    wanted = sorted({cell.index for cell in every})
    if not wanted:
        return
    batch = run.batch(wanted)
    place = {index: row for row, index in enumerate(wanted)}
    lines = {}
    for name, one in zip(run.run.names, run.run.sources, strict=True):
        reader = one.layout.line.reader
        begin, end = reader.bounds(np.arange(reader.manifest.documents))
        tokens = np.concatenate(reader.read(np.array([0]), np.array([reader.manifest.tokens])))
        lines[name] = [tokens[a:b].tolist() for a, b in zip(begin, end, strict=True)]
    for cell in every:
        if cell.label_only:
            continue
        found = int(batch.tokens[place[cell.index], cell.column])
        document = lines[cell.source][cell.document]
        if cell.blank:
            assert batch.segment_ids[place[cell.index], cell.column] == 0
        elif cell.offset < 0:
            assert found == BOS
        else:
            assert found == (document[cell.offset] if cell.offset < len(document) else EOS)


@pytest.mark.parametrize("part", range(6))
def test_ruling_44_at_and_where_agree_with_every_cell_of_random_runs(part, stores):
    for seed in range(8 * part, 8 * part + 8):
        looked_at(seed, stores)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(25))
def test_ruling_44_at_and_where_agree_with_every_cell_of_a_thousand_runs(part, stores):
    for seed in range(1000 + 40 * part, 1040 + 40 * part):
        looked_at(seed, stores)


def test_the_comparison_fails_when_a_place_is_lost_or_moved(stores, monkeypatch):
    run, seen = random_run(0, stores)
    original = tl.Dataset.where

    def loses_one(self, *args, **options):
        answer = original(self, *args, **options)
        if answer.reason is None:
            next(answer, None)
        return answer

    monkeypatch.setattr(tl.Dataset, "where", loses_one)
    with pytest.raises(AssertionError):
        held_to_every_cell(run, seen, horizon(run))
