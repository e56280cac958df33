"""A source that grew while its run was under way: the past stays, new documents come in evenly."""

import json

import numpy as np
import pytest
from refusals import refused

import tokenloom as tl
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
    assert grown.is_finite == (wanted is not None)
    if wanted is not None:
        hidden = {"quarantine": [("main", 0)]}
        assert len(grown.edit(at=wanted, **hidden)) == len(grown) == wanted  # the last moment
        late = wanted + 1
        refused(lambda: grown.edit(at=late, **hidden), tl.ConfigError, f"at={late}")
        again = grown.edit(at=3, append={"main": snapshots[2]})
        assert len(again) == {26: 28, 13: 14}.get(wanted, wanted)
    early = {"append": {"main": snapshots[2]}}
    refused(lambda: grown.edit(at=2, **early), tl.ConfigError, "at=2", 3)


def test_ruling_15_a_spliced_source_refuses_an_append_with_the_reason(snapshots):
    spliced = snapshots[0].splice(4, content_length=2)
    for run, name in ((spliced, "main"), (tl.mix({"s": spliced}), "s")):
        append = {name: snapshots[1]}
        refused(
            lambda run=run, append=append: run.edit(at=1, append=append),
            tl.ConfigError,
            f"edit.append.{name}",
            "splice",
        )
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


@pytest.mark.parametrize("at", range(1, 9))
def test_ruling_15_new_rows_are_spread_evenly_among_those_that_remain(snapshots, at):
    """By their middles."""
    run = snapshots[0].windows(2).shuffle(False)
    old, new = 9 - at, 4
    edited = run.edit(at=at, append={"main": snapshots[1]})
    wanted = [None] * (old + new)
    for x in range(old):
        earlier = sum((2 * y + 1) * old < (2 * x + 1) * new for y in range(new))
        wanted[x + earlier] = at + x
    fresh = iter(range(9, 13))
    wanted = [next(fresh) if one is None else one for one in wanted]
    spans = edited.spans(range(at, 13))
    assert spans.document.tolist() == wanted


@pytest.mark.filterwarnings("ignore:edit.quarantine")
@pytest.mark.parametrize("together", [False, True])
def test_a_document_that_was_appended_may_be_hidden(snapshots, together):
    run, hidden = snapshots[0].windows(2).epochs(2), [("main", 10)]
    if together:
        run = run.edit(at=4, append={"main": snapshots[1]}, quarantine=hidden)
    else:
        run = run.edit(at=4, append={"main": snapshots[1]}).edit(at=4, quarantine=hidden)
    shown = run.batch(range(len(run))).spans.document
    assert set(shown.tolist()) == set(range(13)) - {10}


@pytest.mark.parametrize(
    ("cap", "at", "rows"), [(0.5, 3, 6), (1.5, 12, 15), (1.5, 5, 19), (2.25, 20, 21), (2, 15, 22)]
)
def test_a_cap_counts_epochs_that_grew(snapshots, cap, at, rows):
    """9 rows an epoch, 13 in the one that grows and later: half an epoch is of one of those."""
    run = tl.mix({"w": snapshots[0].windows(2).epochs(None)}, max_epochs=cap)
    assert len(run.edit(at=at, append={"w": snapshots[1]})) == rows


def test_a_store_that_did_not_grow_is_refused(tmp_path):
    old = build(tmp_path / "w", 0, 6)
    run = tl.mix({"w": old.pack(16)})
    other = build(tmp_path / "x", 0, 9)
    for store, named in ((old, ("edit.append.w", 6)), (other, ("edit.append.w", 9))):
        refused(lambda store=store: run.edit(at=1, append={"w": store}), tl.ConfigError, *named)
    chosen = tl.mix({"w": old.select(num_docs=3).pack(16)})
    grown = build(tmp_path / "w", 6, 9, append=True)
    refused(lambda: chosen.edit(at=1, append={"w": grown}), tl.ConfigError, "edit.append.w")


@pytest.mark.parametrize(("first", "added"), [(24, 13), (13, 24)])
def test_a_short_last_row_of_one_part_costs_what_it_has(first, added, tmp_path):
    def build_text(name, length, **options):
        text = [{"text": "x" * length, "id": f"{length}"}]
        return tl.build(text, tmp_path / name, tokenizer="bytes", id_key="id", **options)

    def windows(store):
        return store.windows(8, tail="keep").epochs(None)

    run = tl.mix({"w": windows(build_text("w", first)), "o": windows(build_text("o", 64))})
    edited = run.edit(at=0, append={"w": build_text("w", added, append=True)})
    batch = edited.batch(np.arange(60))
    names = np.array(batch.source)[batch.spans.row]
    for count in (1, 7, 30, 60):
        here = batch.spans.row < count
        tokens = {
            name: int(batch.spans.length[here & (names == name)].sum()) for name in ("w", "o")
        }
        consumed = {one["name"]: one["tokens"] for one in edited.consumed(count)}
        assert consumed == tokens
        assert abs(tokens["w"] - tokens["o"]) <= 8
