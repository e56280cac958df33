"""Mixes at the edges of their rules: rows that cost less, two lanes that join, two appends."""

from itertools import chain

import numpy as np
import pytest
from toydata import ToyStore, numbered

import tokenloom as tl
from tokenloom import order

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def stores():
    """Two stores of 61 and 45 tokens, each of one document."""
    with ToyStore(numbered([[61]], 1)) as a, ToyStore(numbered([[45]], 1)) as b:
        yield {"a": a.store, "b": b.store}


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("rule", ["weights", "least_consumed"])
def test_a_short_last_row_costs_its_own_tokens_wherever_it_comes(stores, rule, shuffled):
    """The run is the merge of all rows by time; `where` finds each row at its index."""
    weights = {"a": 1.0, "b": 0.37}
    sources = {
        name: store.windows(8, tail="keep").shuffle(shuffled).epochs(3).seed(5)
        for name, store in stores.items()
    }
    run = tl.mix(sources, rule=rule, cost="tokens", weights=weights, stop="all_exhausted")
    timed = []
    for name, source in sources.items():
        size = stores[name].num_tokens
        spans, consumed = run_of(run, name, len(source)), 0
        for item, start in enumerate(spans):
            cost = min(8, size - start)
            half = cost / 2 if rule == "weights" else 0
            timed.append(((consumed + half) / weights[name], name, item, start))
            consumed += cost
    spans = run.spans(range(len(run)))
    names = [spans.sources[number] for number in spans.source.tolist()]
    timed.sort(key=lambda one: (one[0], one[1] != names[0]))  # both begin at 0: a hash decides
    assert names == [name for _, name, _, _ in timed]
    assert spans.start.tolist() == [start for *_, start in timed]
    for name in sources:
        expected = [index for index, one in enumerate(timed) if one[1] == name]
        assert [place.index for place in run.where(name, doc=0)] == expected


def run_of(run, name, items):
    """The first token of each row of one source, in the order in which it comes in the mix."""
    spans = run.spans(range(len(run)))
    which = spans.source == list(spans.sources).index(name)
    starts = spans.start[which].tolist()
    assert len(starts) == items
    return starts


def test_a_mix_in_blocks_of_one_is_a_mix(stores):
    sources = {name: store.windows(4).epochs(None) for name, store in stores.items()}
    run = tl.mix(sources, rule="rounds", block=1, weights={"a": 2, "b": 1}).take(30)
    names = run.batch(range(30)).source
    assert (names.count("a"), names.count("b")) == (20, 10)


def test_rows_before_a_source_with_two_lanes_joins_stand_in_order_of_index(stores):
    joins = stores["b"].windows(1).block_shuffle(io_block_size=2, window_blocks=1, lanes=2)
    run = tl.mix({"a": stores["a"].windows(1).shuffle().epochs(None)}).edit(
        at=24, add={"b": joins.epochs(None)}
    )
    with tl.Loader(run, 8) as loader:
        indices = [next(loader).index.tolist() for _ in range(6)]
    assert indices[:3] == [list(range(8 * step, 8 * step + 8)) for step in range(3)]
    assert indices[3:] != [list(range(8 * step, 8 * step + 8)) for step in range(3, 6)]
    assert sorted(chain(*indices)) == list(range(48))


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_many_bands_of_few_lanes_are_those_asked_one_by_one(lanes):
    blocks = order.block(401, 2, 2, lanes=lanes, seed=3)
    every = np.arange(401)
    rows = blocks.map(every)
    assert rows.tolist() == [int(blocks.map([index])[0]) for index in range(401)]
    assert sorted(rows.tolist()) == every.tolist()
    assert (blocks.inverse(rows) == every).all()


@pytest.mark.parametrize("second", [10, 25])
def test_two_appends_where_epochs_begin_keep_every_epoch_whole(tmp_path, second):
    """10 rows; 5 more from index 10 on; 3 more from there, or from the next epoch on."""
    sizes, stores = (10, 5, 3), []
    for part, size in enumerate(sizes):
        settings = {"tokenizer": None, "vocab_size": 10, "progress": False, "append": part > 0}
        stores.append(tl.build([{"input_ids": [part] * 4 * size}], tmp_path / "s", **settings))
    run = stores[0].windows(4).shuffle().epochs(6).seed(2)
    run = run.edit(at=10, append={"main": stores[1]}).edit(at=second, append={"main": stores[2]})
    epochs = [10, 18, 18] if second == 10 else [10, 15, 18, 18]
    spans, begin = run.spans(range(sum(epochs))), 0
    for rows in epochs:
        here = slice(begin, begin + rows)
        shown = sorted(zip(spans.document[here].tolist(), spans.start[here].tolist(), strict=True))
        expected = [(doc, 4 * row) for doc in range(3) for row in range(sizes[doc])]
        assert shown == expected[:rows]
        begin += rows


@pytest.mark.parametrize("at", [1, 11])
def test_an_append_after_the_first_row_of_an_epoch_goes_into_that_epoch(tmp_path, at):
    stores = []
    for part, size in enumerate((10, 5)):
        settings = {"tokenizer": None, "vocab_size": 10, "progress": False, "append": part > 0}
        stores.append(tl.build([{"input_ids": [part] * 4 * size}], tmp_path / "s", **settings))
    before = stores[0].windows(4).shuffle().epochs(3).seed(2)
    spans = before.edit(at=at, append={"main": stores[1]}).spans(range(at - 1, at + 14))
    old = before.spans(range(at - 1, at))
    assert spans.start[:1].tolist() == old.start.tolist()
    shown = sorted(zip(spans.document.tolist(), spans.start.tolist(), strict=True))
    assert shown == [(0, 4 * row) for row in range(10)] + [(1, 4 * row) for row in range(5)]
