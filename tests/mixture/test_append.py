"""A source that grew while its run was under way: the past stays, new documents come in evenly."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenloom as tl
from tokenloom.errors import ConfigError
from tokenloom.order import identity
from tokenloom.order.epochs import Bridge
from tokenloom.order.prices import TokenCount
from tokenloom.testing import assert_elastic, assert_resumable


def rows(first, last):
    return [
        {"text": chr(65 + i % 26) * (20 + 7 * i % 31), "id": str(i)} for i in range(first, last)
    ]


def build(path, first, last, **options):
    return tl.build(
        rows(first, last), path, tokenizer="bytes", id_key="id", progress=False, **options
    )


def laid_out(store, kind, order):
    documents = store.split({"x": 0.7, "y": 0.3})["x"] if kind == "split" else store
    made = documents.pack(16) if kind == "pack" else documents.windows(16, tail="keep")
    if order == "full":
        return made.shuffle()
    return made if order == "stored" else made.block_shuffle(io_block_size=3, window_blocks=2)


@pytest.mark.parametrize("order", ["stored", "full", "block"])
@pytest.mark.parametrize("kind", ["windows", "pack", "split"])
def test_ruling_15_new_documents_come_in_and_nothing_before_changes(kind, order, tmp_path):
    old = build(tmp_path / "w", 0, 12)
    other = build(tmp_path / "o", 0, 9).windows(16).shuffle().epochs(None)
    run = tl.mix({"w": laid_out(old, kind, order), "o": other}, weights={"w": 2}).seed(3)
    new = build(tmp_path / "w", 12, 20, append=True)
    for at in (0, 7, 40):
        edited = run.edit(at=at, append={"w": new})
        every = np.arange(at + 80)
        batch = edited.batch(every)
        if at:
            np.testing.assert_array_equal(batch.tokens[:at], run.batch(np.arange(at)).tokens)
        ours = np.array(batch.source)[batch.spans.row] == "w"
        fresh = ours & (batch.spans.document >= 12)
        assert fresh.any()
        assert (batch.spans.row[fresh] >= at).all()
        held_to_every_row_once(edited.run.sources[0])
        names, item = edited.picked(every)
        for name in ("w", "o"):
            here = np.array([one == name for one in names])
            assert edited.index(name, item[here]).tolist() == np.flatnonzero(here).tolist()
        if at == 7:
            assert_resumable(edited, batch_size=8, steps=4)
            assert_elastic(edited.take(64), batch_size=16, steps=2)
        again = tl.from_config(json.loads(json.dumps(edited.describe())))
        assert again.fingerprint == edited.fingerprint != run.fingerprint
        np.testing.assert_array_equal(again.batch(every).tokens, batch.tokens)


def held_to_every_row_once(run):
    """What was shown, the bridge and every later epoch have each row once; tokens are counted."""
    total, phases = int(run.layout.phases.rows[0]), run.phases
    grown = run.epochs
    first = grown._epoch
    before = np.arange(grown._inside) if grown._bridged else np.arange(0)
    shown = [run.order(first - 1).map(before).tolist() if len(before) else []]
    for epoch in range(first, first + 3):
        length = phases.start(epoch + 1) - phases.start(epoch)
        shown.append(run.order(epoch).map(np.arange(length)).tolist())
        back = run.items(epoch, np.array(shown[-1])) - phases.start(epoch)
        assert back.tolist() == list(range(length))
    assert sorted(shown[0] + shown[1]) == list(range(total))
    assert sorted(shown[2]) == sorted(shown[3]) == list(range(total))
    if len(before):  # the epoch that was cut shows what came before the cut, and nothing else
        back = run.items(first - 1, np.arange(total))
        assert (back >= 0).sum() == len(before)
        assert back[shown[0]].tolist() == list(range(phases.start(first - 1), phases.start(first)))
    for count in (0, 5, 30, 60):
        _, row = run.locate(np.arange(count))
        assert TokenCount(run).upto(count) == run.layout.costs(0, row).sum()


@pytest.mark.parametrize("order", ["stored", "full", "block"])
def test_new_documents_come_in_after_a_single_row(order, tmp_path):
    run = tl.mix({"w": laid_out(build(tmp_path / "w", 0, 6), "windows", order)}).seed(3)
    edited = run.edit(at=1, append={"w": build(tmp_path / "w", 6, 10, append=True)})
    assert edited.batch([0]).tokens.tolist() == run.batch([0]).tokens.tolist()
    assert edited.run.sources[0].phases.start(1) == 1, "the epoch that was cut has one row"
    held_to_every_row_once(edited.run.sources[0])


def test_a_store_may_grow_twice(tmp_path):
    old = build(tmp_path / "w", 0, 6)
    run = tl.mix({"w": old.pack(16).shuffle().epochs(None)}).seed(1)
    once = run.edit(at=5, append={"w": build(tmp_path / "w", 6, 9, append=True)})
    twice = once.edit(at=40, append={"w": build(tmp_path / "w", 9, 14, append=True)})
    np.testing.assert_array_equal(
        twice.batch(np.arange(40)).tokens, once.batch(np.arange(40)).tokens
    )
    assert set(twice.batch(np.arange(40, 140)).spans.document.tolist()) == set(range(14))
    assert max(once.batch(np.arange(140)).spans.document.tolist()) == 8
    assert_resumable(twice, batch_size=8, steps=8)


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory):
    """A store of 9 rows that grew by 4, by 1 and by 6."""
    folder, made = tmp_path_factory.mktemp("grown") / "w", []
    for number, count in enumerate((9, 4, 1, 6)):
        texts = [{"text": chr(97 + i) * 2} for i in range(count)]
        options = {"tokenizer": "bytes", "progress": False, "append": number > 0}
        tl.build(texts, folder, duplicates="allow", **options)
        made.append(tl.open(folder))
    return made


CUTS = st.lists(st.integers(0, 40), min_size=1, max_size=3).map(sorted)


@pytest.mark.parametrize("order", ["stored", "full", "block", "lanes"])
@given(cuts=CUTS, mixed=st.booleans())
@settings(max_examples=40)
def test_ruling_44_the_way_back_is_the_way_there_for_every_row_and_epoch(
    snapshots, order, cuts, mixed
):
    """Brute force: the item of each row in each epoch, -1 where the epoch was cut before it."""
    run = snapshots[0].windows(2)
    if order != "stored":
        shuffles = {"full": True, "block": tl.BlockShuffle(io_block_size=2, window_blocks=2)}
        shuffles["lanes"] = tl.BlockShuffle(io_block_size=2, window_blocks=1, lanes=2)
        run = run.shuffle(shuffles[order])
    run = run.epochs(None).seed(3)
    name = "w" if mixed else "main"
    run = tl.mix({"w": run}) if mixed else run
    for cut, grown in zip(cuts, snapshots[1:], strict=False):
        run = run.edit(at=cut, append={name: grown})
    (source,) = run.run.sources
    shown = {}
    epoch, row = source.locate(np.arange(150))
    for index, place in enumerate(zip(epoch.tolist(), row.tolist(), strict=True)):
        shown.setdefault(place, []).append(index)
    assert all(len(indices) == 1 for indices in shown.values())  # no row twice in an epoch
    most = int(source.layout.phases.rows[0])
    for number in range(max(epoch.tolist())):  # the last one may not be whole
        expected = [shown.get((number, one), [-1])[0] for one in range(most)]
        assert source.items(number, np.arange(most)).tolist() == expected
        back = run.index(name, np.array([one for one in expected if one >= 0]))
        assert back.tolist() == [one for one in expected if one >= 0]


JOINED = {
    "windows": lambda store: store.windows(2),
    "tails": lambda store: store.windows(3, tail="keep"),
    "dropped": lambda store: store.windows(5),  # of the part that grew by one row, none is left
    "pack": lambda store: store.pack(5, group_docs=3),
    "one": lambda store: store.pack(5, strategy="one_doc"),
    "aligned": lambda store: store.windows(3, align=True),
}


@pytest.mark.filterwarnings("ignore:seq_len")
@pytest.mark.parametrize("kind", JOINED)
def test_parts_that_were_joined_are_laid_out_one_after_the_other(snapshots, kind):
    run = JOINED[kind](snapshots[0])
    for grown in snapshots[1:]:
        run = run.edit(at=2, append={"main": grown})
    layout = run.run.sources[0].layout
    rows = int(layout.phases.rows[0])
    assert len(layout.parts) == 4
    assert rows == sum(int(part.phases.rows[0]) for part in layout.parts)
    spans = layout.spans(0, np.arange(rows))
    order = np.random.default_rng(1).permutation(rows)
    assert layout.spans(0, order).document.tolist() == spans.take(order).document.tolist()
    assert len(layout.spans(0, order[:0])) == 0
    assert (spans.address + spans.length <= layout.line.tokens).all()
    blocks = layout.blocks()
    edges = [blocks.edges(np.array([number])) for number in range(len(blocks))]
    assert [int(first[0]) for first, _ in edges] == [0, *(int(last[0]) for _, last in edges[:-1])]
    assert int(edges[-1][1][0]) == rows
    for number in range(len(blocks)):
        (low,), (high,) = (one.tolist() for one in layout.stretch(np.array([number]), blocks))
        here = blocks.of(spans.row) == number
        assert here.any()
        assert low == spans.address[here].min()
        assert (spans.address + spans.length)[here].max() <= high <= layout.line.tokens
    for document in range(20):
        wanted = sorted(set(spans.row[spans.document == document].tolist()))
        assert layout.find(0, document).tolist() == wanted
    each = np.bincount(spans.row, spans.length, minlength=rows)
    assert layout.costs(0, np.arange(rows)).tolist() == each.tolist()
    usual = layout.row_tokens
    assert usual is None or set(each.tolist()) == {usual[0]} == {usual[1]}
    assert (usual is None) == (kind in ("tails", "pack", "one"))


@pytest.mark.filterwarnings("ignore:edit.quarantine")
@pytest.mark.parametrize(
    ("epochs", "take", "wanted"),
    [(2, None, 13 + 13), (1, None, 13), (2, 5, 5), (1, 9, 9), (None, 40, 40), (None, None, None)],
)
def test_a_run_that_grew_ends_with_its_epochs_or_with_what_was_taken(
    snapshots, epochs, take, wanted
):
    run = snapshots[0].windows(2).epochs(epochs)
    run = run if take is None else run.take(take)
    grown = run.edit(at=3, append={"main": snapshots[1]})
    assert grown.run.n == wanted
    if wanted is not None:
        last = grown.edit(at=wanted, quarantine=[("main", 0)])  # the end is the last moment
        assert last.run.n == wanted
        with pytest.raises(ConfigError, match=f"at={wanted + 1} is after the end"):
            grown.edit(at=wanted + 1, quarantine=[("main", 0)])
    with pytest.raises(ConfigError, match="at=2 is before the last edit, at 3"):
        grown.edit(at=2, append={"main": snapshots[2]})
    again = grown.edit(at=3, append={"main": snapshots[2]})
    assert again.run.n == {26: 28, 13: 14}.get(wanted, wanted)


def test_ruling_15_a_spliced_source_refuses_an_append_with_the_reason(snapshots):
    spliced = snapshots[0].splice(4, content_length=2)
    for run, name in ((spliced, "main"), (tl.mix({"s": spliced}), "s")):
        with pytest.raises(ConfigError, match=rf"edit\.append\.{name}: it is spliced.*quotas"):
            run.edit(at=1, append={name: snapshots[1]})
    joined = tl.mix({"s": spliced}).edit(
        at=1, add={"new": snapshots[1].select(doc_index=[9, 10]).splice(4, content_length=2)}
    )
    assert "new" in joined.picked(range(len(joined)))[0]


def test_a_split_grows_by_all_of_its_new_documents(tmp_path):
    """The first new one, too, whenever the split has it."""
    half = {"x": 0.5, "y": 0.5}

    def part(store, seed):
        return store.split(half, seed=seed)["x"].windows(16, tail="keep")

    old = build(tmp_path / "w", 0, 12)
    runs = [tl.mix({"w": part(old, seed)}) for seed in range(6)]
    new = build(tmp_path / "w", 12, 20, append=True)
    firsts = []
    for seed, run in enumerate(runs):
        wanted = part(new, seed)
        documents = set(wanted.batch(range(len(wanted))).spans.document.tolist())
        edited = run.edit(at=3, append={"w": new})
        assert set(edited.batch(range(len(edited))).spans.document.tolist()) == documents
        firsts.append(12 in documents)
    assert True in firsts
    assert False in firsts


def test_rows_are_spread_by_their_middles():
    for r in range(9):
        for a in range(9):
            bridge = Bridge(identity(r + 3), 3, identity(a), r + 3)
            wanted = [None] * (r + a)
            for x in range(r):
                wanted[x + sum((2 * y + 1) * r < (2 * x + 1) * a for y in range(a))] = x + 3
            fresh = iter(range(a))
            wanted = [r + 3 + next(fresh) if one is None else one for one in wanted]
            assert bridge.map(np.arange(r + a)).tolist() == wanted
            assert bridge.inverse(np.array(wanted, np.int64)).tolist() == list(range(r + a))


def test_a_place_among_billions_of_rows_is_found_at_once():
    old, new = 10**10, 3 * 10**9 + 7
    bridge = Bridge(identity(old + 5), 5, identity(new), old + 5)
    places = np.array([0, 1, 12345, old, old + new - 1])
    rows = bridge.map(places)
    assert bridge.inverse(rows).tolist() == places.tolist()


def test_a_store_that_did_not_grow_is_refused(tmp_path):
    old = build(tmp_path / "w", 0, 6)
    run = tl.mix({"w": old.pack(16)})
    with pytest.raises(ConfigError, match=r"edit.append.w: found a store of 6 documents, which is"):
        run.edit(at=1, append={"w": old})
    with pytest.raises(ConfigError, match=r"edit.append.w: found a store of 9 documents"):
        run.edit(at=1, append={"w": build(tmp_path / "x", 0, 9)})
    with pytest.raises(ConfigError, match=r"no source named 'v'. Sources: w"):
        run.edit(at=1, append={"v": old})
    chosen = tl.mix({"w": old.select(num_docs=3).pack(16)})
    with pytest.raises(ConfigError, match="selected one by one"):
        chosen.edit(at=1, append={"w": build(tmp_path / "w", 6, 9, append=True)})
