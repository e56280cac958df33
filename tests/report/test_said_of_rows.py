"""What a report says of rows, lengths, ways to pack and boundaries is what is counted from the run.

The tables of these figures list pieces, ways and segments, so the shares in a message are worked
out here from the rows of the table, or cell by cell from the batches of the run.
"""

import itertools

import layoutruns
import numpy as np
import pytest
from layoutruns import ONE, SEQ_LEN, store_of
from readwords import is_among, numbers_in, plain

import tokenloom as tl
from tokenloom.layout.splice.rows import Spliced
from tokenloom.report.figures.attention_row import EVERY_ROW, boundary_figure
from tokenloom.report.figures.lengths import length_figure
from tokenloom.report.figures.packing_table import WORTH, packing_figure
from tokenloom.report.figures.row_strips import row_figure
from tokenloom.report.subject import Asked, RunSubject
from tokenloom.testing import write_store

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

KINDS = [*ONE, "mix", "mix, take", "mix, shuffled"]


@pytest.fixture(scope="module")
def subjects(tmp_path_factory):
    folder = tmp_path_factory.mktemp("said")
    store = store_of(folder / "one")
    runs = {name: make(store) for name, make in ONE.items()} | layoutruns.mixes(folder)
    return {name: RunSubject(run, Asked(batch_size=4)) for name, run in runs.items()}


def records(figure, table=0):
    """The rows of a table by the names of its columns."""
    listed = figure.numbers[table]
    return [dict(zip(listed.head, row, strict=True)) for row in listed.rows]


def stored_lengths(subject):
    """Tokens of every document that a source of the run selects; a line that two share, once."""
    lines = {one.layout.line.identity: one.layout.line for one in subject.run.run.sources}
    return np.concatenate([lengths_of(line) for line in lines.values()])


def lengths_of(line):
    _, edges = line.bounds(0, line.documents)
    return np.diff(edges)


def of_rows(subject, figure):
    """Rows, pieces, and shares of pieces and cells, from the pieces in the table."""
    pieces = records(figure)
    examples = len({one["example"] for one in pieces})
    cells = examples * subject.run.seq_len
    cut = sum(one["cut before"] or one["cut after"] for one in pieces)
    trained = sum(one["trained"] for one in pieces)
    filler = cells - sum(one["cells"] for one in pieces)
    return [examples, len(pieces), cut / len(pieces), trained / cells, filler / cells]


def of_lengths(subject, figure):
    """The median, the longest, and how much is longer than a frame, from all lengths."""
    lengths, frame = stored_lengths(subject), subject.run.seq_len
    longer = lengths[lengths > frame]
    shares = [len(longer) / len(lengths), longer.sum() / max(1, lengths.sum())]
    return [int(np.median(lengths)), int(lengths.max()), frame, *shares]


def of_packing(subject, figure):
    """What the run's own way of the first source does, and how others differ from it."""
    ways = records(figure)
    first = [one for one in ways if one["source"] == ways[0]["source"]]
    (own,) = (one for one in first if one["this run"])
    values = [WORTH]
    names = {"share of cells filled": 1, "share of tokens lost": 1, "cut needlessly": None}
    for name, per in names.items():
        of = per or len(stored_of(subject, own["source"]))
        values += [one[name] / of for one in first]
        values += [abs(one[name] - own[name]) / of for one in first]
    return [*values, *(1 - one["rows"] / max(1, own["rows"]) for one in first)]


def stored_of(subject, name):
    """Tokens of the documents of a source that have any."""
    (one,) = (one for one in subject.run.run.sources if one.name == name)
    lengths = lengths_of(one.layout.line)
    return lengths[lengths > 0]


def crossing(segments):
    """Causal pairs of a row inside its documents, and all of them, cell by cell."""
    real = segments[segments > 0]
    inside = sum(a == b for a, b in itertools.combinations_with_replacement(real.tolist(), 2))
    return inside, len(real) * (len(real) + 1) // 2


def of_boundaries(subject, figure):
    """Segments of the row in the table, and pairs between documents in it and in all rows."""
    segments = [one for one in records(figure) if one["segment"] != "filler"]
    here = 1 - sum(one["share of all causal pairs"] for one in segments)
    count = subject.examples
    assert count <= EVERY_ROW  # all of them are looked at
    pairs = [crossing(one) for one in subject.run.batch(range(count)).segment_ids]
    inside, every = (sum(one) for one in zip(*pairs, strict=True))
    return [len(segments), here, count, 1 - inside / every]


SAID = {
    "rows": (row_figure, of_rows),
    "lengths": (length_figure, of_lengths),
    "packing": (packing_figure, of_packing),
    "boundaries": (boundary_figure, of_boundaries),
}


def unknown(message, values):
    """Numbers of a message that are none of the values, as far as they are rounded."""
    words = plain(message).replace("below 0.01 %", "").replace("above 99.99 %", "")
    close = [value + shift for value in map(float, values) for shift in (0, -1e-9, 1e-9)]
    return [one for one in numbers_in(words) if not is_among(one, close)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SAID)
def test_numbers_in_a_message_are_counted_from_the_run(subjects, kind, name):
    subject, (make, counted) = subjects[kind], SAID[name]
    if name == "boundaries" and subject.examples > EVERY_ROW:  # of more rows a sample is looked at
        subject = RunSubject(subject.run.take(EVERY_ROW), subject.asked)
    figure = make(subject)
    if figure is None:
        assert name == "packing"
        assert all(isinstance(one.layout, Spliced) for one in subject.run.run.sources)
        return
    assert numbers_in(figure.message)
    assert not unknown(figure.message, counted(subject, figure)), figure.message


@pytest.mark.parametrize("name", SAID)
def test_control_the_message_of_another_run_is_not_what_is_counted(subjects, name):
    make, counted = SAID[name]
    one, other = subjects["pack, sequential"], subjects["mix"]
    assert unknown(make(one).message, counted(other, make(other)))


def wins_of(subject, figure):
    """What each other way of the first source wins, and the run's own: fill, tokens, documents."""
    ways = records(figure)
    first = [one for one in ways if one["source"] == ways[0]["source"]]
    (own,) = (one for one in first if one["this run"])
    count = len(stored_of(subject, own["source"]))
    return {
        one["way"]: (
            one["share of cells filled"] - own["share of cells filled"],
            own["share of tokens lost"] - one["share of tokens lost"],
            (own["cut needlessly"] - one["cut needlessly"]) / count,
        )
        for one in first
        if not one["this run"]
    }


def check_packing_said(subject):
    figure = packing_figure(subject)
    if figure is None:
        return ""
    message, wins = plain(figure.message), wins_of(subject, figure)
    if message.endswith("no other way is better by 0.50 % in anything."):
        assert all(max(one) <= WORTH for one in wins.values()), (message, wins)
    elif "no way is better by 0.50 % without a price: " in message:
        assert all(max(one) <= WORTH or min(one) < 0 for one in wins.values()), (message, wins)
        named = message.partition("without a price: ")[2].split(" would ")[0]
        assert max(wins[named]) > WORTH
        assert ", for " in message
    return message


@pytest.mark.parametrize("kind", KINDS)
def test_what_other_ways_to_pack_win_is_what_the_table_says(subjects, kind):
    check_packing_said(subjects[kind])


def test_a_way_that_fills_more_and_loses_more_is_told_with_its_price(tmp_path):
    lengths = (5, 5, 5, 5)  # packed whole: a row each, 5 of 8 cells; windows: 2 rows, 4 of 20 lost
    write_store(tmp_path / "s", [[list(range(9, 9 + n)) for n in lengths]])
    run = tl.open(tmp_path / "s").pack(SEQ_LEN)
    message = check_packing_said(RunSubject(run, Asked(batch_size=4)))
    assert message.startswith("The way best_fit_decreasing fills 62.5 % of the cells; no way is ")
    assert "windows would fill 100 %" in message
    assert "for 20.0 % of the tokens" in message


def test_the_note_on_ways_to_pack_counts_sources_that_are_not_spliced(tmp_path):
    store = store_of(tmp_path / "one")
    sources = {
        "a": store.windows(SEQ_LEN).shuffle(),
        "b": store.splice(SEQ_LEN, content_length=5).shuffle(),
    }
    made = packing_figure(RunSubject(tl.mix(sources), Asked(batch_size=4)))
    assert {one["source"] for one in records(made)} == {"a"}
    assert not [note for note in made.notes if "largest" in note]
    assert made.message.startswith("In a, windows fill ")
