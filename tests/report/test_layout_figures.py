"""Figures about lengths, packing, rows, boundaries and splices: their numbers are the run's."""

import re

import layoutruns
import numpy as np
import pytest
from layoutruns import ONE, SEQ_LEN, store_of, subject_of
from readwords import plain
from virtual import VirtualStore

import tokenloom as tl
from tokenloom.batch.attention import dense_mask
from tokenloom.inspect import coverage
from tokenloom.layout.windows import Windows
from tokenloom.page.figure import figure_html
from tokenloom.page.numbers import plural
from tokenloom.report.figures.attention_row import (
    boundary_figure,
    crossing_share,
    settings_in_words,
)
from tokenloom.report.figures.lengths import length_figure
from tokenloom.report.figures.lost_tokens import lost_figure
from tokenloom.report.figures.packing_table import packing_figure
from tokenloom.report.figures.row_strips import row_figure
from tokenloom.report.figures.splice_maps import splice_figure
from tokenloom.report.some_lengths import some_lengths, some_stretches
from tokenloom.report.ways_to_pack import ways_of, windows_tally
from tokenloom.testing import write_store

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

FIGURES = (length_figure, lost_figure, packing_figure, row_figure, boundary_figure, splice_figure)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return store_of(tmp_path_factory.mktemp("figures") / "one", count=60, longest=30)


class CountingStore(VirtualStore):
    """Counts what is read of a store that is not there."""

    reads = 0
    bytes = 0

    def read(self, ranges):
        self.reads += 1
        self.bytes += sum(count for _, _, count in ranges)
        return super().read(ranges)


def column(figure, name, table=0):
    numbers = figure.numbers[table]
    return [row[numbers.head.index(name)] for row in numbers.rows]


@pytest.mark.parametrize("name", ONE)
def test_every_figure_of_every_layout_is_a_page_without_code(store, name):
    subject = subject_of(ONE[name](store), batch_size=4)
    made = [figure(subject) for figure in FIGURES]
    assert made[0] is not None
    assert made[3] is not None
    assert (made[5] is not None) == ("splice" in name) == (made[2] is None)
    for figure in made:
        if figure is not None:
            page = figure_html(figure)
            assert figure.message.endswith(".")
            assert figure.numbers
            assert figure.code
            assert not re.search(r"\sstyle=|\son\w+=|<script", page)
            assert "nan" not in page
            assert "None" not in page


# -- lengths -------------------------------------------------------------------------------


def test_lengths_are_those_of_the_documents_that_are_selected(store):
    run = store.select(num_docs=20, doc_select_mode="longest").windows(SEQ_LEN)
    lengths = np.sort(store.lengths)[-20:]
    figure = length_figure(subject_of(run))
    row = dict(zip(figure.numbers[0].head, figure.numbers[0].rows[0], strict=True))
    assert (row["documents"], row["tokens"]) == (20, lengths.sum())
    assert (row["min"], row["max"]) == (lengths.min(), lengths.max())
    assert row["median"] == np.percentile(lengths, 50)
    assert row["mean"] == pytest.approx(lengths.mean())
    assert row["std"] == pytest.approx(lengths.std())
    assert sum(column(figure, "documents", 1)) == 20
    assert sum(column(figure, "share of tokens", 1)) == pytest.approx(1)


def test_the_message_tells_the_share_of_tokens_in_documents_longer_than_a_frame(store):
    lengths = store.lengths
    part = lengths[lengths > SEQ_LEN].sum() / lengths.sum()
    said = length_figure(subject_of(store.pack(SEQ_LEN))).message
    assert f"hold {100 * part:.1f} % of all tokens" in said
    whole = length_figure(subject_of(store.pack(64))).message
    assert f"the longest has {lengths.max()} tokens" in whole


def test_two_sources_of_the_same_documents_are_counted_once(store):
    mixed = tl.mix({"a": store.windows(SEQ_LEN), "b": store.pack(SEQ_LEN)})
    figure = length_figure(subject_of(mixed))
    assert column(figure, "source") == ["a", "b"]
    assert sum(column(figure, "documents", 1)) == store.num_documents


def test_many_sources_are_the_largest_and_all_others_together(tmp_path):
    stores = [store_of(tmp_path / str(n), n, 10 + n) for n in range(12)]
    run = tl.mix({f"s{n}": one.windows(SEQ_LEN) for n, one in enumerate(stores)})
    figure = length_figure(subject_of(run))
    assert column(figure, "source")[-1] == "the 4 other sources"
    assert len(column(figure, "source")) == 9
    assert sum(column(figure, "documents", 1)) == sum(one.num_documents for one in stores)
    assert sum(column(figure, "tokens")) == sum(one.num_tokens for one in stores)


def test_a_sample_of_lengths_is_keyed_spread_and_says_so(store):
    line = store.line
    some = some_lengths(line, 24)
    assert some.is_sample
    assert some.looked == 24
    assert int(some.counts.documents.sum()) == pytest.approx(store.num_documents, rel=0.2)
    again = some_lengths(line, 24)
    assert again.counts.length.tolist() == some.counts.length.tolist()
    stretches = some_stretches(line, 20, size=5)
    assert len(stretches) == 4
    assert all(last - first == 5 for first, last in stretches)
    assert sorted(stretches) == list(stretches)
    assert some_stretches(line, 60, size=5) == ((0, 60),)


# -- packing -------------------------------------------------------------------------------


@pytest.mark.parametrize("overflow", ["split", "truncate", "drop"])
def test_the_table_is_what_plan_packing_says(store, overflow):
    run = store.pack(SEQ_LEN, overflow=overflow, add_eos=True, eos_id=2, group_docs=7)
    ways = ways_of(run.run.sources[0].layout)
    assert not ways.is_sample
    for one in ways.ways:
        if one.strategy == "windows":
            continue
        plan = tl.plan_packing(
            store,
            seq_len=SEQ_LEN,
            strategy=one.strategy,
            overflow=one.overflow,
            add_eos=True,
            group_docs=7,
        )
        assert plan.tally == one.tally
        assert one.attention == plan.attention
        assert one.segments == plan.segments_per_row
        assert one.own == (one.strategy == "best_fit_decreasing" and one.overflow == overflow)
    assert ways.own == run.run.sources[0].layout.groups.tally
    assert sum(one.own for one in ways.ways) == 1


@pytest.mark.parametrize(
    "settings",
    [{}, {"tail": "keep"}, {"lookahead": True}, {"lookahead": True, "overlap": 1, "tail": "keep"}],
)
def test_windows_are_tallied_as_their_spans_say(store, settings):
    run = store.windows(SEQ_LEN, **settings)
    layout = run.run.sources[0].layout
    assert isinstance(layout, Windows)
    tally = windows_tally(store.lengths, layout.spec)
    rows = int(layout.phases.rows[0])
    spans = layout.spans(0, np.arange(rows))
    inside = np.clip(SEQ_LEN - spans.at, 0, spans.length)
    times = np.bincount(spans.document, minlength=store.num_documents)
    assert (tally.rows, tally.cells) == (rows, rows * SEQ_LEN)
    assert tally.placed == inside.sum()
    assert tally.segments == (inside > 0).sum()
    assert tally.attention == (inside**2).sum()
    assert tally.cut == (times > 1).sum()
    assert tally.cut_needlessly == ((times > 1) & (store.lengths <= SEQ_LEN)).sum()
    (one,) = (way for way in ways_of(layout).ways if way.own)
    assert one.strategy == "windows"
    assert one.tally == tally


def test_the_message_names_the_way_that_wins(store):
    said = packing_figure(subject_of(store.pack(32, strategy="one_doc"))).message
    plan = tl.plan_packing(store, seq_len=32, strategy="best_fit_decreasing")
    assert said.startswith("The way one_doc fills")
    assert f"{100 * plan.fill:.1f} %" in said
    best = packing_figure(subject_of(store.pack(32))).message
    assert "; no way is better by 0.50 % without a price: sequential would fill" in plain(best)
    assert "more documents cut." in best
    long = packing_figure(subject_of(store.pack(4000, strategy="sequential"))).message
    assert plain(long).endswith(": no other way is better by 0.50 % in anything.")
    lossy = packing_figure(subject_of(store.pack(SEQ_LEN, overflow="drop"))).message
    assert "would keep the lost" in lossy


def test_a_sample_of_groups_is_close_and_says_so(tmp_path):
    made = store_of(tmp_path / "s", 5, 3000)
    layout = made.pack(64, group_docs=100, strategy="greedy").run.sources[0].layout
    exact, some = ways_of(layout), ways_of(layout, 800)
    assert some.is_sample
    assert some.looked < 1000
    for a, b in zip(exact.ways, some.ways, strict=True):
        assert b.tally.fill == pytest.approx(a.tally.fill, abs=0.03)
        assert b.tally.tokens < a.tally.tokens
    assert some.own == exact.own  # of all documents


def test_tiny_frames_have_no_packer(store):
    ways = ways_of(store.windows(1).run.sources[0].layout)
    assert [one.strategy for one in ways.ways] == ["windows"]


# -- rows and boundaries -------------------------------------------------------------------


def test_the_spans_of_the_table_are_those_of_the_run(store):
    run = store.pack(SEQ_LEN, add_bos=True, bos_id=1, add_eos=True, eos_id=2).shuffle().epochs(3)
    subject = subject_of(run, batch_size=5)
    figure = row_figure(subject)
    for index in set(column(figure, "example")):
        listed = [row for row in figure.numbers[0].rows if row[0] == index]
        traced = run.at(index, batch_size=5)
        assert [row[4] for row in listed] == [span.document for span in traced.spans]
        for row, span in zip(listed, traced.spans, strict=True):
            told = dict(zip(figure.numbers[0].head, row, strict=True))
            assert (told["step"], told["row"]) == (traced.step, traced.row)
            stored = [one for one in span.cells if not one.inserted]
            assert told["cells"] == span.tokens
            assert told["tokens"] == sum(one.length for one in stored)
            assert told["first cell"] == span.cells[0].column
            length = len(store.document(span.document))
            assert told["tokens of the document"] == length
            assert told["cut before"] == (bool(stored) and stored[0].start > 0)
    batch = run.batch([row.index for row in subject.rows])
    trained = sum(int(row.trained.sum()) for row in subject.rows)
    assert trained == batch.loss_mask[:, :-1].sum()
    assert [row.filler for row in subject.rows] == (batch.segment_ids == 0).sum(axis=1).tolist()


def test_rows_come_from_the_first_the_middle_and_the_last_step(store):
    subject = subject_of(store.windows(SEQ_LEN).epochs(5), batch_size=6)
    steps = sorted({row.step for row in subject.rows})
    assert steps == [0, (subject.step_count - 1) // 2, subject.step_count - 1]
    assert len(subject.rows) == 12
    tiny = subject_of(store.windows(SEQ_LEN).take(2), batch_size=64)
    assert [row.index for row in tiny.rows] == [0, 1]
    assert row_figure(subject_of(store.windows(SEQ_LEN).take(0))) is None


def test_a_frame_of_a_million_cells_is_read_once(tmp_path):
    write_store(tmp_path / "s", [[list(range(1000)) * 1100, list(range(1000)) * 1100]])
    run = tl.open(tmp_path / "s").windows(1 << 20).epochs(9)
    subject = subject_of(run, batch_size=2)
    assert len(subject.rows) == 3
    assert len(row_figure(subject).drawing) < 20_000


def test_the_share_across_documents_is_that_of_the_masks(store):
    run = store.pack(32).shuffle()
    subject = subject_of(run, batch_size=4)
    segments = run.batch(range(len(run))).segment_ids
    real = segments > 0
    inside = dense_mask(segments) & real[:, :, None]
    every = dense_mask(segments, segment_masking=False) & real[:, :, None]
    part = 1 - inside.sum() / every.sum()
    assert f"{100 * part:.1f} % over {len(run)} rows" in boundary_figure(subject).message
    sizes = np.array([3, 5, 1])
    row = np.repeat([1, 2, 3], sizes)[None]
    here = 1 - dense_mask(row).sum() / dense_mask(row, segment_masking=False).sum()
    assert crossing_share(sizes) == pytest.approx(here)
    assert crossing_share(np.array([7])) == 0  # control: one document has nothing to cross


def test_a_sample_of_rows_is_close_to_all_of_them(store):
    run = store.pack(16).shuffle().epochs(20)

    def told(run):
        said = boundary_figure(subject_of(run)).message
        found = re.search(r"and ([\d.]+) % over|rows, ([\d.]+) % of", said)
        return float(found[1] or found[2])

    assert told(run) == pytest.approx(told(store.pack(16)), abs=3)


def test_settings_are_told_in_words(store):
    run = store.pack(SEQ_LEN, mask_boundary_loss=False, position_scheme="absolute")
    said = " ".join(boundary_figure(subject_of(run)).notes)
    assert "mask_boundary_loss=False" in said
    assert "position_scheme='absolute'" in said
    (source,) = store.pack(SEQ_LEN).sources.values()
    usual = " ".join(settings_in_words(source.render))
    assert "is not predicted" in usual
    assert "start from 0" in usual


def test_names_of_sources_stay_text(store):
    name = "<img src=x onerror=alert(1)>\u202e"
    run = tl.mix({name: store.pack(SEQ_LEN), "b": store.windows(SEQ_LEN)})
    subject = subject_of(run, batch_size=4)
    page = "".join(figure_html(f) for f in (make(subject) for make in FIGURES) if f)
    assert "&lt;img src=x" in page
    assert "<img" not in page
    assert "\u202e" not in page


# -- splices -------------------------------------------------------------------------------


def test_the_table_of_splices_is_the_coverage_of_an_epoch(store):
    run = store.splice(SEQ_LEN, content_length=5).shuffle().epochs(2)
    figure, found = splice_figure(subject_of(run)), coverage(run, epochs=1)
    real = [d for d in found.documents.tolist() if len(store.document(d))]
    assert sorted(column(figure, "document")) == sorted(real)
    for row in figure.numbers[0].rows:
        about = found.about(row[0])
        targets = about["targets"]
        assert row[1:3] == (about["length"], about["splices"])
        assert row[3:7] == (targets["min"], targets["mean"], targets["max"], targets["cv"])
        assert row[7:9] == (about["starts"], about["starts_shown"])
        assert row[9] == about["starts_shown"] / max(1, about["starts"])  # too short for one


@pytest.mark.parametrize(
    "settings", [{}, {"content_start_mode": "cyclic_roll", "roll_loss": True}], ids=["", "rolled"]
)
def test_what_is_said_of_targets_is_said_of_tokens_that_can_be_one(store, settings):
    run = store.splice(SEQ_LEN, content_length=5, **settings)
    figure, found = splice_figure(subject_of(run)), coverage(run, epochs=1)
    document = int(store.lengths.argmax())
    targets = np.asarray(found.targets(document))
    possible = targets if settings else targets[1:]  # a roll goes on with its first
    times = f"{possible.min():,} to {possible.max():,} times"
    if possible.min() == possible.max():
        times = plural(int(possible.max()), "time")
    which = "" if settings else " that can be a target"
    assert f"{len(targets)} tokens){which} is trained {times}" in plain(figure.message)
    assert (targets.min() < possible.min()) == any("can be one" in one for one in figure.notes)


def test_the_longest_the_median_and_the_shortest_are_drawn(store):
    figure = splice_figure(subject_of(store.splice(16, content_start_mode="slide_within")))
    longest = int(store.lengths.argmax())
    assert f"document {longest} (the longest" in figure.message
    for word in ("longest", "median", "shortest"):
        assert f"The {word} document" in figure.drawing
    assert "data:image/png" in figure.drawing  # a map of starts and places


def test_a_spliced_source_of_a_mix_is_counted_by_itself(store):
    spliced = store.splice(SEQ_LEN, content_length=5)
    mixed = tl.mix({"a": store.windows(SEQ_LEN), "copies": spliced})
    alone, inside = splice_figure(subject_of(spliced)), splice_figure(subject_of(mixed))
    assert inside.numbers == alone.numbers
    assert inside.title.endswith("of copies")
    assert splice_figure(subject_of(store.windows(SEQ_LEN))) is None


def test_what_takes_long_to_count_is_left_out_with_the_reason(store, monkeypatch):
    monkeypatch.setattr("tokenloom.report.figures.splice_maps.SPLICES", 3)
    run = store.splice(SEQ_LEN, content_start_mode="slide_within", content_length=4)
    figure = splice_figure(subject_of(run))
    assert "Left out" in figure.notes[0]
    monkeypatch.setattr("tokenloom.report.figures.splice_maps.SPLICES", -1)
    none = splice_figure(subject_of(run))
    assert none.reason
    assert not none.drawing
    listed = splice_figure(subject_of(store.splice(SEQ_LEN, content_length=5)))
    assert "too many for a map" in listed.drawing  # closed forms count the rest


# -- any size ------------------------------------------------------------------------------


def test_figures_of_a_billion_rows_look_at_a_few_places(tmp_path):
    made = CountingStore([(2_000_000, (1 << 32) - 16)] * 4)
    store = tl.open(made.write_manifest(tmp_path / "s"), source=made, verify="never")
    subject = subject_of(store.windows(16), batch_size=1024)
    assert subject.examples > 10**9
    before = made.reads
    lengths, packing = length_figure(subject), packing_figure(subject)
    assert "keyed sample of 786,432 documents of 8 million" in lengths.notes[0]
    assert "estimated from" in packing.notes[0]
    assert made.reads - before < 60
    assert made.bytes < 16 << 20  # all offsets would be 32 MiB, and all tokens 32 GiB
    assert len(row_figure(subject).drawing) < 60_000


@pytest.mark.parametrize("documents", [[], [[]], [[5]], [[], [5, 6], []]])
def test_empty_and_tiny_stores_have_figures(tmp_path, documents):
    write_store(tmp_path / "s", [documents])
    opened = tl.open(tmp_path / "s")
    runs = [opened.windows(4), opened.pack(4), opened.windows(4, tail="keep"), opened.windows(1)]
    if sum(map(len, documents)) > 1:
        runs.append(opened.splice(4))
    for run in runs:
        for make in FIGURES:
            figure = make(subject_of(run))
            assert figure is None or figure_html(figure)


def test_a_thousand_documents_in_a_row_are_a_bounded_drawing(tmp_path):
    write_store(tmp_path / "s", [[[n % 900, 7] for n in range(5000)]])
    run = tl.open(tmp_path / "s").pack(2048)
    subject = subject_of(run, batch_size=2)
    assert len(subject.rows[0].spans) == 1024
    assert len(row_figure(subject).drawing) < 200_000
    assert len(boundary_figure(subject).drawing) < 150_000


def test_reports_of_mixes_have_every_figure(tmp_path):
    for run in layoutruns.mixes(tmp_path).values():
        subject = subject_of(run, batch_size=4)
        assert all(make(subject) is not None for make in FIGURES[:5])
