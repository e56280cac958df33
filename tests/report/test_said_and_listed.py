"""Numbers in the words of a report are those of its tables and of the simulation, for any run."""

import re

import layoutruns
import numpy as np
import pytest
from layoutruns import ONE, store_of
from orderruns import order_runs
from readwords import is_among, numbers_in, plain

from tokenloom.quality.order_sample import TINY
from tokenloom.report.figures.loading import TYPICAL, loading_figure
from tokenloom.report.figures.lost_tokens import lost_figure
from tokenloom.report.figures.mix_shares import mixture_figure
from tokenloom.report.figures.resume_line import resume_figure
from tokenloom.report.figures.shuffle_map import shuffle_figure
from tokenloom.report.figures.splice_maps import splice_figure
from tokenloom.report.headlines import headline_of
from tokenloom.report.questions import (
    fed_fast_enough,
    how_often,
    is_it_shuffled,
    what_is_lost,
    what_is_trained,
)
from tokenloom.report.subject import Asked, RunSubject

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

SHAPES = [*ONE, "mix", "mix, take", "mix, shuffled"]

ORDERS = (
    *("one source", "stored order", "packed", "lanes", "mix", "staged and edited", "endless"),
    *(
        "endless mix",
        "runs out",
        "first ends",
        "rounds",
        "shuffled whole",
        "taken",
        "tiny",
        "empty",
    ),
)

KINDS = [f"layout: {one}" for one in SHAPES] + [f"order: {one}" for one in ORDERS]

FIGURES = {
    "mixture": mixture_figure,
    "lost": lost_figure,
    "shuffle": shuffle_figure,
    "loading": loading_figure,
    "splices": splice_figure,
    "resume": resume_figure,
}

QUESTIONS = (what_is_trained, how_often, what_is_lost, is_it_shuffled, fed_fast_enough)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kinds")
    store = store_of(folder / "one")
    shapes = {name: make(store) for name, make in ONE.items()} | layoutruns.mixes(folder)
    orders = order_runs(folder)
    return {f"layout: {name}": one for name, one in shapes.items()} | {
        f"order: {name}": one for name, one in orders.items()
    }


def subject_of(run, **asked):
    return RunSubject(
        run,
        Asked(
            **({"batch_size": 8, "examples": 8 if run.run.n is None else min(8, run.run.n)} | asked)
        ),
    )


def values_of(figure):
    """All numbers of a figure's tables, sums of columns, and shares of these sums."""
    found = []
    for table in figure.numbers:
        verdicts = [row[1] for row in table.rows if table.head[1] == "verdict"]
        words = " ".join(verdicts)  # an order's has the length of its windows
        found += [(low + high) / 2 for low, high in numbers_in(words)]
        for place in range(len(table.head)):
            column = [row[place] for row in table.rows if place < len(row)]
            known = [
                float(one)
                for one in column
                if isinstance(one, int | float | np.number) and not isinstance(one, bool)
            ]
            total = sum(known)
            found += [*known, total, *(one / total for one in known if total)]
    return [abs(one) for one in found if np.isfinite(one)]


def constants(subject):
    """Numbers of sentences that are settings, not findings."""
    bucket = TYPICAL[-1]
    n = subject.run.run.n
    told = [subject.run.seq_len, subject.steps.size(0), *range(len(subject.run.sources) + 1)]
    told += [bucket.bandwidth / 1e6, bucket.latency, subject.step_count]
    found = subject.simulation
    if found is not None:
        told += [found.bytes / found.steps, found.reads / found.examples]
        told += [float(f"{found.examples / max(1, found.reads):.3g}")]
        told += [found.bytes / found.examples, found.examples / max(1, found.reads), found.bytes]
        told += [len(found.ranks)]
    if n is not None and subject.position is not None:
        told += [n - subject.position, subject.position / max(1, n)]
        told += [subject.step_count - subject.steps.count(subject.position, partial=False)]
    return told


def unknown(text, values):
    """Numbers of a text that are none of the values."""
    words = plain(text).replace("below 0.01 %", "").replace("above 99.99 %", "")
    words = words.replace("below 1 µs", "")
    return [one for one in numbers_in(words) if not is_among(one, values)]


def said_of(figure, subject):
    """A message without what is no finding: the size of a state, and a bound (rounded up)."""
    said = re.sub(r"never further than [\d.,]+( million)?", "", plain(figure.message))
    return said.split("fingerprint:")[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("speed", [{}, {"latency": 0.02, "step_seconds": 0.01, "ranks": 2}])
def test_numbers_of_messages_and_answers_are_in_the_tables(runs, kind, speed):
    subject = subject_of(runs[kind], **speed)
    made = {name: make(subject) for name, make in FIGURES.items()}
    made = {name: one for name, one in made.items() if one is not None}
    for name, figure in made.items():
        assert not unknown(said_of(figure, subject), [*values_of(figure), *constants(subject)]), (
            name,
            figure.message,
        )
    for question in QUESTIONS:
        told = question.answer(subject)
        numbers = [float(one) for one in told.numbers.values()]
        total = told.numbers.get("tokens") or 1
        numbers += [one / total for one in numbers]
        rows = sum(one.rows for one in subject.leftovers.sources)
        numbers += [told.numbers.get("never_rows", 0) / max(1, rows)]
        figure = made.get(told.figure)
        listed = values_of(figure) if figure is not None else []
        assert not unknown(told.sentence, [*numbers, *listed, *constants(subject)]), told.sentence
        if told.figure and subject.simulation is not None:
            assert figure is not None, told.name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch_size", [5, 8])
def test_errors_of_shares_are_never_larger_than_the_message_says(runs, kind, batch_size):
    subject = subject_of(runs[kind], batch_size=batch_size)
    figure = mixture_figure(subject)
    tables = {one.caption: one for one in figure.numbers} if figure is not None else {}
    errors = tables.get("error against the weights at the points looked at")
    if errors is None:
        assert figure is None or "never further" not in figure.message
        return
    (place,) = (n for n, name in enumerate(errors.head) if name.startswith("largest error"))
    most = max(abs(row[place]) for row in errors.rows)
    (said,) = re.findall(r"never further than ([\d.,]+) (?:row|token)s? ", plain(figure.message))
    assert most * (1 - 1e-9) <= float(said.replace(",", "")) <= 1.01 * most  # floats add up


@pytest.mark.parametrize("name", FIGURES)
def test_control_the_words_of_another_run_are_not_in_the_tables(runs, name):
    pairs = {
        "splices": ("layout: splice", "layout: splice, epochs"),
    }
    first, second = pairs.get(name, ("layout: mix", "order: staged and edited"))
    one, other = (subject_of(runs[kind], batch_size=5) for kind in (first, second))
    mine, theirs = FIGURES[name](one), FIGURES[name](other)
    assert not unknown(said_of(mine, one), [*values_of(mine), *constants(one)])
    assert unknown(said_of(mine, one), [*values_of(theirs), *constants(other)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch_size", [4, 8])
def test_what_is_trained_is_what_the_simulation_shows(runs, kind, batch_size):
    run = runs[kind]
    subject = subject_of(run, batch_size=batch_size)
    told = what_is_trained.answer(subject)
    if not subject.step_count:
        assert told.numbers | {"sources": 0} == {
            "tokens": 0,
            "examples": 0,
            "steps": 0,
            "sources": 0,
        }
        return
    found = run.simulate(subject.step_count, batch_size=batch_size)
    counted = {
        "tokens": found.tokens,
        "examples": found.examples,
        "steps": found.steps,
        "sources": len(run.sources),
    }
    assert {name: told.numbers[name] for name in counted} == counted
    rows = (
        f"{found.tokens:,} token{'s' * (found.tokens != 1)} in {found.examples:,} "
        f"row{'s' * (found.examples != 1)} of {run.seq_len}"
    )
    steps = f"{found.steps:,} step{'s' * (found.steps != 1)}"
    sources = f"from {len(run.sources)} source{'s' * (len(run.sources) > 1)}"
    if run.run.n is not None:
        assert found.steps == run.run.n // batch_size
        assert plain(told.sentence) == f"{rows}, {steps}, {sources}."
        assert told.numbers == counted
    elif len(run.sources) == 1:  # an epoch, to the row
        assert found.examples == run.run.sources[0].rows
        first = f"its first epoch has {rows}, {steps}"
        assert plain(told.sentence) == f"The run is endless; {first}, {sources}."
    else:
        first = f"its first {steps} have {rows}"
        assert plain(told.sentence) == f"The run is endless; {first}, {sources}."
    spans = run.spans(range(found.examples))
    inside = np.clip(run.seq_len - spans.at, 0, spans.length)
    if "quarantine" not in kind:
        assert inside.sum() == found.tokens  # counted cell by cell


@pytest.mark.parametrize("kind", [one for one in KINDS if one.startswith("order")])
def test_the_order_is_that_of_all_rows_counted_one_by_one(runs, kind):
    subject = subject_of(runs[kind])
    told, figure = is_it_shuffled.answer(subject), shuffle_figure(subject)
    if not told.numbers["rows"]:
        assert figure is None
        return
    rows = {row[0]: dict(zip(figure.numbers[0].head, row, strict=True)) for row in
            figure.numbers[0].rows}  # fmt: skip
    counted = {}
    for source in runs[kind].run.sources:
        if not source.rows:
            continue
        order = np.asarray(source.order(0).map(np.arange(source.rows)))
        block = np.asarray(source.working.blocks.of(order))
        size = min(subject.steps.size(0), source.rows)
        batches = [block[at : at + size] for at in range(0, len(block) - size + 1, size)]
        moved = np.abs(order - np.arange(len(order))).mean() / max(1, len(order) - 1)
        counted[source.name] = (
            np.mean([len(np.unique(one)) for one in batches]),
            (block[1:] == block[:-1]).mean() if len(block) > 1 else None,
            moved,
        )
    for name, (blocks, neighbours, moved) in counted.items():
        row = rows[name]
        if TINY in row["verdict"]:
            continue
        assert row["blocks in a batch"] == pytest.approx(blocks, rel=0.15), name
        assert row["share of neighbours of one block"] == pytest.approx(neighbours, abs=0.06), name
        assert row["share of an epoch that a row moves"] == pytest.approx(moved, abs=0.06), name
    if "batch_blocks" not in told.numbers:  # of too few rows nothing is measured
        assert told.numbers["rows"] < 4
        assert TINY in told.sentence
        assert headline_of("shuffled", told.numbers) is None
        return
    # the answer is about the gravest order, of several equal ones the largest
    names = [name for name, row in rows.items() if row["blocks in a batch"] ==
             told.numbers["batch_blocks"] and row["rows"] == told.numbers["rows"]]  # fmt: skip
    assert names
    if len(rows) > 1:
        start = f"Before the mix is shuffled as a whole, the order of {names[0]} is "
        whole = subject.is_shuffled_whole
        assert plain(told.sentence).startswith(start if whole else f"The order of {names[0]} is ")
