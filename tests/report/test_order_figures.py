"""The shuffle, the mixture, the position and the loading of a run, drawn with the run's numbers."""

import numpy as np
import pytest
from orderruns import order_runs
from toyruns import toy_store

import tokenloom as tl
from tokenloom.layout.allowance import about_to_visit, at_most
from tokenloom.report import subject as subject_module
from tokenloom.report.assembled import report_on
from tokenloom.report.consumption import deviation_of, ends_of
from tokenloom.report.figures.loading import loading_figure
from tokenloom.report.figures.mix_shares import changes_of, mixture_figure, shares_of
from tokenloom.report.figures.resume_line import deciding_part, resume_figure
from tokenloom.report.figures.row_strips import row_figure
from tokenloom.report.figures.shuffle_map import block_map, shuffle_figure
from tokenloom.report.subject import Asked, RunSubject

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return order_runs(tmp_path_factory.mktemp("drawn"))


def subject_of(run, **settings):
    return RunSubject(run, Asked(**({"batch_size": 8} | settings)))


@pytest.mark.parametrize("speed", [{}, {"latency": 0.01, "step_seconds": 0.1}])
def test_every_run_gets_a_page(runs, speed):
    for name, run in runs.items():
        page = report_on(run, examples=0, **speed).html
        assert len(page) < 3_000_000
        assert ("Which source is trained when" in page) == (len(run.run.names) > 1), name


def test_the_map_of_blocks_is_where_their_rows_come(runs):
    source = runs["lanes"].run.sources[0]
    found = block_map(source, lines=5, bins=10)
    blocks, rows = source.working.blocks, source.order(0).map(np.arange(source.rows))
    for name, counts in zip(found.names, found.counts, strict=True):
        number = int(name.removeprefix("block ").replace(",", ""))
        places = np.flatnonzero(blocks.of(rows) == number)
        assert counts.tolist() == np.bincount(places * 10 // source.rows, minlength=10).tolist()
    assert found.whole
    assert found.rows.sum() == found.counts.sum()


def test_control_rows_in_stored_order_land_in_one_place(runs):
    stored, shuffled = (runs[one].run.sources[0] for one in ("stored order", "one source"))
    assert ((block_map(stored, bins=8).counts > 0).sum(axis=1) <= 2).all()
    assert (block_map(shuffled, lines=2, bins=2).counts > 0).all()
    assert "in stored order" in shuffle_figure(subject_of(runs["stored order"])).message
    assert "like random" in shuffle_figure(subject_of(runs["one source"])).message


def test_a_source_of_few_blocks_is_cut_into_stretches(runs):
    source = runs["packed"].run.sources[0]
    assert len(source.working.blocks) == 1
    found = block_map(source)
    assert len(found.names) == 12
    assert found.rows.sum() == source.rows


@pytest.mark.parametrize("name", ["mix", "staged and edited", "runs out", "rounds", "endless mix"])
def test_shares_are_those_of_the_spans(runs, name):
    subject = subject_of(runs[name])
    points, shares = subject.consumption.points, shares_of(subject.consumption)
    assert subject.consumption.missing is None
    for k in range(0, len(points) - 1, 9):
        low, high = points[k].examples, points[k + 1].examples
        spans = runs[name].spans(np.arange(low, high))
        which = np.array(spans.sources)[spans.source][spans.row]
        tokens = np.array([spans.length[which == one].sum() for one in runs[name].run.names])
        assert shares[k] == pytest.approx(tokens / tokens.sum())
    assert {at for at, _ in changes_of(subject)} <= {one.examples for one in points}


def test_the_totals_of_the_mixture_are_those_of_the_simulation(runs):
    for name in ("mix", "staged and edited", "taken", "rounds", "shuffled whole"):
        subject = subject_of(runs[name])
        table = mixture_figure(subject).numbers[0]
        told = {row[0]: (row[3], row[2]) for row in table.rows}
        assert told == {one.name: (one.rows, one.tokens) for one in subject.simulation.sources}


def test_sources_end_where_their_last_row_comes(runs):
    for name in ("mix", "runs out", "first ends", "staged and edited", "taken"):
        run = runs[name].run
        source, item = run.pick(np.arange(run.n))
        for number, end in enumerate(ends_of(run, run.n, range(len(run.names)))):
            rows = run.sources[number].rows
            here = np.flatnonzero((source == number) & (item == rows - 1))
            assert end.first_epoch == (int(here[0]) + 1 if len(here) else None), name
    (_, out) = ends_of(runs["runs out"].run, runs["runs out"].run.n, [0, 1])
    assert out.runs_out == out.first_epoch  # one epoch, and no more
    (on, _) = ends_of(runs["mix"].run, runs["mix"].run.n, [0, 1])
    assert on.runs_out is None


def test_the_error_of_shares_is_small_and_that_of_other_weights_is_not(runs):
    run = runs["mix"].run
    subject = subject_of(runs["mix"])
    worst = deviation_of(run, subject.consumption)
    assert abs(worst.amount) <= 2 * 8  # a row or two of 8 tokens
    other = subject_of(runs["staged and edited"]).consumption
    assert abs(deviation_of(run, other).amount) > 100  # what another run took
    assert deviation_of(runs["one source"].run, subject.consumption) is None


def test_stages_and_edits_are_named(runs):
    words = [one for _, one in changes_of(subject_of(runs["staged and edited"]))]
    assert words == ["stage 2", "edit: weights code 3", "edit: removes code"]
    page = report_on(runs["staged and edited"], batch_size=8).html
    for one in words:
        assert one in page


def test_many_sources_are_eight_and_the_rest(tmp_path):
    store = toy_store(tmp_path, rows=20)
    many = tl.mix({f"s{k:03d}": store.windows(8).shuffle() for k in range(250)})
    subject = subject_of(many)
    figure = mixture_figure(subject)
    assert len(figure.numbers[0].rows) == 200
    assert figure.numbers[0].more == 50
    assert figure.numbers[1].head[-1] == "share of the rest"
    assert all(sum(row[1:]) == pytest.approx(1) for row in figure.numbers[1].rows)
    assert len(str(figure.drawing)) < 200_000


def test_the_position_is_on_the_line(runs):
    run = runs["mix"]
    figure = resume_figure(subject_of(run, examples=80))
    assert f"80 rows are trained, 10 steps: 14.7 % of the run; {run.run.n - 80}" in figure.message
    told = {row[0]: row[1:4] for row in figure.numbers[1].rows}
    assert told == {one.name: tuple(one[1:]) for one in run.run.consumed(80)}
    nowhere = resume_figure(subject_of(run))
    assert "No position was given" in nowhere.message
    assert len(nowhere.numbers) == 1


def test_what_decides_is_what_a_state_has(runs):
    for name in ("mix", "packed", "endless", "empty"):
        run = runs[name]
        examples = 0 if name == "empty" else 16
        subject = subject_of(run)
        decides, missing = deciding_part(subject, examples)
        state = run.state(examples, step=decides["step"])
        assert decides == {key: state[key] for key in decides}
        assert missing is None
        assert len(str(decides)) < 1000


def test_loading_has_the_ranks_of_the_simulation(runs):
    subject = subject_of(runs["mix"], ranks=2)
    found = subject.simulation
    table = loading_figure(subject).numbers[0]
    assert [(row[0], row[4]) for row in table.rows] == [
        (one.rank, one.bytes) for one in found.ranks
    ]
    assert "assumed" in " ".join(loading_figure(subject).notes)
    waits = subject_of(runs["mix"], ranks=2, latency=0.1, step_seconds=0.1)
    assert "Training waits" in loading_figure(waits).message
    assert loading_figure(subject_of(runs["empty"])) is None


def test_what_is_not_kept_is_greyed_with_the_reason_and_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr("tokenloom.report.consumption.at_most", lambda: at_most(50))
    store, other = toy_store(tmp_path / "a", rows=400), toy_store(tmp_path / "b", rows=300)
    run = tl.mix({"a": store.pack(8).shuffle(), "b": other.pack(8).shuffle()}, cost="tokens")
    _ = run.run
    fresh = tl.from_config(run.describe())
    figure = mixture_figure(subject_of(fresh))
    assert "the costs of epoch 0" in figure.reason
    assert "run.consumed(examples)" in figure.code
    assert "about" in figure.message
    assert not figure.drawing
    about, exact = (one.run.consumed(333) for one in (fresh, run))
    assert about == exact  # asked without a limit


def test_a_report_goes_through_no_epoch(tmp_path, monkeypatch):
    """However many rows a run has, as many are looked at."""
    store = toy_store(tmp_path, rows=5000)
    asked = []
    monkeypatch.setattr("tokenloom.report.subject.EXACT_EXAMPLES", 256)
    run = store.windows(8).shuffle().epochs(40)
    kind = type(run.run.sources[0].order(0))
    for name in ("map", "inverse"):
        method = getattr(kind, name)

        def counted(self, rows, method=method):
            asked.append(np.size(rows))
            return method(self, rows)

        monkeypatch.setattr(kind, name, counted)
    report_on(run, batch_size=8)
    assert sum(asked) < 60_000 < run.run.n


def test_rows_of_a_report_stay_within_its_allowance(runs, monkeypatch):
    """Rows in the middle of a long mix need the sums of epochs: 10^9 rows took 45 s and 1.3 GB."""
    pick = subject_module.picked_rows

    def visiting(run, steps, examples, count):
        if count > 1:
            about_to_visit(1 << 30, "the costs of epoch 0")
        return pick(run, steps, examples, count)

    subject = subject_of(runs["mix"])
    assert {row.step for row in subject.rows} > {0}
    monkeypatch.setattr(subject_module, "picked_rows", visiting)
    hurried = subject_of(runs["mix"])
    assert {row.step for row in hurried.rows} == {0}
    assert row_figure(hurried) is not None
