"""What a run loses: the answer equals what rows, simulations and audits say, cell by cell."""

import layoutruns
import numpy as np
import pytest
from layoutruns import ONE, SEQ_LEN, covered, shown, store_of, subject_of
from readwords import plain

import tokenloom as tl
from tokenloom.api.origin import RunFile
from tokenloom.report.figures.lost_tokens import lost_figure
from tokenloom.report.headlines import headline_of
from tokenloom.report.questions import what_is_lost, what_is_trained
from tokenloom.testing import write_store

# what packing loses, and rows that a quarantine leaves blank, are told when runs are made
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lost")
    store = store_of(folder / "one")
    return {name: make(store) for name, make in ONE.items()} | layoutruns.mixes(folder)


NAMES = [*ONE, "mix", "mix, take", "mix, shuffled"]


@pytest.mark.parametrize("name", NAMES)
def test_tokens_in_no_row_are_those_that_no_row_holds(runs, name):
    run = runs[name]
    found = subject_of(run).leftovers
    for number, one in enumerate(found.sources):
        epochs = 1
        if one.kind == "splice":
            epochs = run.sources[one.name].config.epochs
        assert one.lost == one.tokens - covered(run, number, epochs), one
        manifest = run.sources[one.name].reader.manifest
        assert one.tokens + one.unselected_tokens == manifest.tokens
        assert one.documents + one.unselected_documents == manifest.documents


def test_control_a_tail_that_is_not_counted_would_be_noticed(runs, monkeypatch):
    monkeypatch.setattr("tokenloom.report.ways_to_pack._tail", lambda *_: {"short_row_tokens": 0})
    (one,) = subject_of(runs["windows"]).leftovers.sources
    assert one.lost != one.tokens - covered(runs["windows"], 0, 1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("batch_size", [1, 7])
def test_rows_documents_and_cells_are_counted_as_they_are_shown(runs, name, batch_size):
    run = runs[name]
    subject = subject_of(run, batch_size=batch_size)
    found = subject.leftovers
    assert found.examples == run.run.n // batch_size * batch_size
    assert found.dropped == run.run.n - found.examples
    rows, documents, filler = shown(run, found.examples)
    for number, one in enumerate(found.sources):
        layout = run.run.sources[number].layout
        every, edges = layout.line.bounds(0, layout.line.documents)
        real = {int(d) for d in every[np.diff(edges) > 0]}
        assert one.never_documents == len(real - documents[one.name])
        if one.kind != "splice":
            gone = sorted(set(range(one.rows)) - rows[one.name])
            assert one.never_rows == len(gone)
            assert one.never_tokens == layout.costs(0, np.array(gone, np.int64)).sum()
    whole = name not in ("pack, specials", "quarantine") or batch_size == 1
    if whole and name != "quarantine":
        assert found.filler * found.cells == pytest.approx(filler)


@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_are_those_of_the_audit_and_the_simulation(runs, name):
    run = runs[name]
    found = subject_of(run).leftovers
    simulated, audit = run.simulate(batch_size=1), run.audit(arrays=False, progress=False)
    assert audit.ok
    for one, told in zip(found.sources, simulated.sources, strict=True):
        counted = audit.counts["sources"][one.name]
        assert (one.shown, one.shown_tokens) == (told.rows, told.tokens)
        assert counted["rows"] == one.shown
        repeats = next(r for r in simulated.repeats if r.name == one.name)
        if one.kind != "splice" and name != "mix, shuffled":
            assert (one.never_rows > 0) == (repeats.least == 0)
        # every stored token of a row is in its frame, where rows have no look-ahead cell
        if "look-ahead" not in name and "overlap" not in name and name != "quarantine":
            assert counted["tokens"] == one.shown_tokens


def test_an_epoch_shows_what_is_not_lost(runs):
    for name in ("windows", "pack", "pack, truncate", "pack, lengths", "select", "split"):
        run = runs[name]
        (one,) = subject_of(run).leftovers.sources
        coverage = run.audit(arrays=False, progress=False).laws["coverage"]
        assert coverage.looked_at == one.tokens - one.lost, name


def test_reasons_are_those_of_the_tally(runs):
    for name in ("pack, truncate", "pack, drop", "pack, lengths", "pack, short rows"):
        run = runs[name]
        (one,), tally = subject_of(run).leftovers.sources, run.run.sources[0].layout.groups.tally
        told = {
            "truncated": tally.truncated_tokens,
            "overlong": tally.overlong_tokens,
            "filtered": tally.filtered_tokens,
            "short rows": tally.short_row_tokens,
        }
        assert one.lost == tally.lost > 0
        assert one.reasons == {reason: tokens for reason, tokens in told.items() if tokens}


def test_closed_forms_count_what_visiting_every_row_counts(runs, monkeypatch):
    visited = {name: subject_of(run).leftovers for name, run in runs.items()}
    monkeypatch.setattr("tokenloom.report.leftovers.VISITED", -1)
    for name, run in runs.items():
        if name == "mix, shuffled":  # a row may come twice before another comes at all
            continue
        found = subject_of(run).leftovers
        assert not found.visited
        for one, slow in zip(found.sources, visited[name].sources, strict=True):
            assert (one.never_rows, one.never_tokens) == (slow.never_rows, slow.never_tokens), name
            assert one.never_documents <= slow.never_documents


@pytest.mark.parametrize("name", NAMES)
def test_the_sentence_has_the_numbers(runs, name):
    subject = subject_of(runs[name], batch_size=7)
    told, found = what_is_lost.answer(subject), subject.leftovers
    assert told.numbers["lost"] == found.lost
    assert told.numbers["dropped"] == found.dropped
    assert told.numbers["filler"] == found.filler
    assert told.numbers["never_rows"] == sum(one.never_rows for one in found.sources)
    assert ("in no row" in told.sentence) == (found.lost > 0)
    assert ("no whole step" in told.sentence) == (found.dropped > 0)
    assert ("quarantined" in told.sentence) == (name == "quarantine")
    assert ("selection leaves out" in told.sentence) == (name in ("select", "split", "pack, error"))


def test_warnings_name_the_loss_and_the_remedy(runs):
    def said(name):
        return " ".join(
            f"{c.words} {c.remedy}" for c in what_is_lost.cautions(subject_of(runs[name]))
        )

    assert "overflow='split'" in said("pack, drop")
    assert "cut off the ends of documents" in said("pack, truncate")
    assert "min_len" in said("pack, lengths")
    assert "min_row_len" in said("pack, short rows")
    assert "best_fit_decreasing" in said("pack, sequential")
    assert "b: " in said("mix")
    assert "truncate" not in said("windows")
    assert said("pack") == ""  # loses nothing, cuts nothing needlessly, and is full


def test_every_warning_has_a_remedy_and_a_figure(runs):
    for name, run in runs.items():
        for one in what_is_lost.cautions(subject_of(run, batch_size=7)):
            assert one.remedy, name
            assert one.words.endswith("."), name
            assert one.figure in ("lost", "packing", "rows")


def test_a_source_that_no_step_shows_is_named(tmp_path):
    a, b = store_of(tmp_path / "a", 1), store_of(tmp_path / "b", 2)
    run = tl.mix(
        {"often": a.windows(SEQ_LEN), "never": b.windows(SEQ_LEN)},
        weights={"often": 1000, "never": 1},
    ).take(1)
    words = [one.words for one in what_is_lost.cautions(subject_of(run))]
    assert "No step shows never." in words


@pytest.mark.parametrize("documents", [[], [[]], [[5]], [[], [5, 6], []]])
@pytest.mark.parametrize("batch_size", [1, 64])
def test_empty_and_tiny_runs_have_an_answer(tmp_path, documents, batch_size):
    write_store(tmp_path / "s", [documents])
    store = tl.open(tmp_path / "s")
    for run in (store.windows(4), store.pack(4), store.windows(4, tail="keep")):
        subject = subject_of(run, batch_size=batch_size)
        told, found = what_is_lost.answer(subject), subject.leftovers
        tokens = sum(map(len, documents))
        assert told.numbers["tokens"] == tokens
        assert found.lost == (tokens if not run.run.n else 0)
        assert list(what_is_lost.cautions(subject)) is not None
        assert told.sentence.endswith(".")


def test_a_short_last_step_is_kept_if_the_run_file_says_so(tmp_path):
    run = store_of(tmp_path / "s").pack(SEQ_LEN)
    assert subject_of(run, batch_size=7).leftovers.dropped
    padded = run._but(file=RunFile(path="", dialect="run file", loader={"end": "pad"}))
    assert subject_of(padded, batch_size=7).leftovers.dropped == 0


def test_a_large_spliced_source_is_estimated_and_says_so(tmp_path, monkeypatch):
    run = store_of(tmp_path / "s", count=60).splice(SEQ_LEN, content_length=3, content_stride=4)
    (exact,) = subject_of(run).leftovers.sources
    assert not exact.notes
    monkeypatch.setattr("tokenloom.report.leftovers.DOCUMENTS", 30)
    (some,) = subject_of(run).leftovers.sources
    assert "estimated from 30 of" in some.notes[0]
    assert some.lost == pytest.approx(exact.lost, rel=0.5)
    monkeypatch.setattr("tokenloom.report.leftovers.TOKENS", 1)
    subject = subject_of(run)
    (none,) = subject.leftovers.sources
    assert not none.counted
    assert "are not counted" in none.notes[0]
    assert "100 % were not counted" in plain(what_is_lost.answer(subject).sentence)
    figure = lost_figure(subject)
    assert "100 % were not counted" in plain(figure.message)
    assert "shown at least once" not in figure.message.replace(
        "known to be shown at least once", ""
    )
    parts = {row[0]: row[1] for row in figure.numbers[0].rows}
    assert parts["not counted"] == none.tokens
    assert parts["shown at least once"] == 0


def parts_of(subject):
    return {row[0]: row[1] for row in lost_figure(subject).numbers[0].rows}


def kept_once(run, examples):
    """(source, document, offset) of every token that the first examples show."""
    batch, found = run.spans(range(examples)), set()
    names = np.array(batch.sources)[batch.source][batch.row]
    for name, document, start, length in zip(
        names, batch.document.tolist(), batch.start.tolist(), batch.length.tolist(), strict=True
    ):
        found |= {(name, document, start + n) for n in range(length)}
    return found


@pytest.mark.parametrize("name", [one for one in NAMES if one != "quarantine"])
@pytest.mark.parametrize("batch_size", [1, 7])
def test_the_parts_are_all_tokens_of_the_stores_and_those_that_are_shown(runs, name, batch_size):
    run = runs[name]
    subject = subject_of(run, batch_size=batch_size)
    parts, found = parts_of(subject), subject.leftovers
    stores = {
        one.reader.manifest.digest: one.reader.manifest.tokens for one in run.sources.values()
    }
    assert sum(parts.values()) == sum(stores.values())
    assert parts["shown at least once"] == len(kept_once(run, found.examples))


def test_a_spliced_run_that_ends_early_does_not_show_everything(tmp_path, monkeypatch):
    run = store_of(tmp_path / "s").splice(SEQ_LEN, content_length=5).take(3)
    subject = subject_of(run)
    parts = parts_of(subject)
    assert parts["shown at least once"] == len(kept_once(run, 3)) > 0
    assert parts["in rows that are not reached"] > 0
    monkeypatch.setattr("tokenloom.report.leftovers.VISITED", -1)
    many = subject_of(run)
    assert parts_of(many)["not counted"] == many.leftovers.tokens
    assert "ends in its first epoch" in " ".join(lost_figure(many).notes)


def halves(store, overlap=0):
    """A run of two sources that select the first and the second half of one store."""
    full = np.flatnonzero(np.asarray(store.lengths)).tolist()
    half = len(full) // 2
    return both_of(store, full[:half], full[half - overlap :])


def both_of(store, first, second):
    sources = {
        name: store.select(doc_index=some).windows(SEQ_LEN, tail="keep")
        for name, some in (("one", first), ("two", second))
    }
    return tl.mix(sources, stop="all_exhausted")


def test_two_selections_of_a_store_are_judged_together(tmp_path):
    store = store_of(tmp_path / "s")
    subject = subject_of(halves(store))
    answer, figure = what_is_lost.answer(subject), lost_figure(subject)
    empty = int((np.asarray(store.lengths) == 0).sum())
    assert answer.numbers["unselected_documents"] == empty
    assert ("leaves out" in answer.sentence) == (empty > 0)
    assert parts_of(subject) == {"shown at least once": store.num_tokens}
    assert f"Of {store.num_tokens} tokens, 100 % are shown at least once" in plain(figure.message)
    lengths = np.asarray(store.lengths)
    full = np.flatnonzero(lengths).tolist()
    some = subject_of(both_of(store, full[:20], [*full[:2], full[25]])).leftovers
    assert some.unselected_documents == store.num_documents - 21
    assert some.unselected_tokens == store.num_tokens - lengths[[*full[:20], full[25]]].sum()


@pytest.mark.parametrize("fraction", [2, 3])
def test_the_answer_its_number_and_its_figure_have_the_same_share_of_tokens(tmp_path, fraction):
    store = store_of(tmp_path / "s", count=60)
    lengths = np.asarray(store.lengths)
    some = np.flatnonzero(lengths)[::fraction].tolist()
    run = store.select(doc_index=some).pack(SEQ_LEN, overflow="truncate")
    subject = subject_of(run)
    selected, held = int(lengths[some].sum()), covered(run, 0, 1)
    lost = f"{100 * (selected - held) / selected:.1f} %"
    assert 0.02 < (selected - held) / store.num_tokens < 0.9 * (selected - held) / selected
    answer, figure = what_is_lost.answer(subject), lost_figure(subject)
    assert plain(answer.sentence).startswith(f"{lost} of {selected:,} selected tokens are in no ")
    number, words = headline_of("lost", answer.numbers)
    assert (plain(number), words) == (lost, "of the selected tokens are in no row")
    message = plain(figure.message)
    assert message.startswith(f"Of {selected:,} selected tokens, ")
    assert f" {lost} are in no row" in message
    left = 1 - selected / store.num_tokens
    assert f"{100 * left:.1f} % of the tokens in the stores are not selected." in message
    for row in figure.numbers[0].rows:
        assert row[2] == row[1] / store.num_tokens
        assert row[3] == (None if row[0] == "not selected" else row[1] / selected)
    assert "of all" in figure.drawing  # bars are shares of the stores, and say so


def test_control_a_run_that_selects_all_tokens_speaks_of_tokens(runs):
    subject = subject_of(runs["pack, truncate"])
    told, figure = what_is_lost.answer(subject), lost_figure(subject)
    assert "selected" not in told.sentence + figure.message
    assert headline_of("lost", told.numbers)[1] == "of the tokens are in no row"
    assert "of all" not in figure.drawing


def test_documents_that_two_sources_select_are_counted_in_each_and_that_is_told(tmp_path):
    store = store_of(tmp_path / "s")
    subject = subject_of(halves(store, overlap=3))
    lengths = np.asarray(store.lengths)
    full = np.flatnonzero(lengths)
    half = len(full) // 2
    twice = int(lengths[full[half - 3 : half]].sum())
    assert sum(parts_of(subject).values()) == store.num_tokens + twice
    assert "3 documents are selected by several sources" in " ".join(lost_figure(subject).notes)
    alone = " ".join(lost_figure(subject_of(halves(store))).notes)
    assert "several sources" not in alone


def test_remedies_are_not_what_a_run_does_already(tmp_path):
    def said(question, run, **settings):
        found = question.cautions(subject_of(run, **settings))
        return " ".join(f"{one.words} {one.remedy}" for one in found)

    write_store(tmp_path / "few", [[[5, 6, 7]]])
    few = tl.open(tmp_path / "few")
    assert "best_fit_decreasing" not in said(what_is_lost, few.pack(SEQ_LEN))
    assert "a shorter seq_len" in said(what_is_lost, few.pack(SEQ_LEN))
    assert "best_fit_decreasing" in said(what_is_lost, few.pack(SEQ_LEN, strategy="greedy"))
    cut = few.pack(SEQ_LEN, max_doc_tokens=2)
    assert "overflow" not in said(what_is_lost, cut)
    assert "a larger max_doc_tokens" in said(what_is_lost, cut)
    filled = few.splice(SEQ_LEN, content_length=2, fill="pack")
    assert "fill='pack'" not in said(what_is_lost, filled)
    write_store(tmp_path / "none", [[[]]])
    empty = said(what_is_trained, tl.open(tmp_path / "none").windows(4))
    assert "no row" in empty
    assert "batch size" not in empty
    assert "epochs" not in empty
    short = said(what_is_trained, few.windows(2), batch_size=64)
    assert "1 row, less than one step of 64 rows. Use a smaller batch size" in short
