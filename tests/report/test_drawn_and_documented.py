"""Maps, lines, marks and tables show what was counted, and docs/report.md explains each figure."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
from layoutruns import store_of
from orderruns import order_runs
from readmaps import columns_in, maps_in, paths_in, rises_with, steps_in
from readwords import plain
from toyruns import toy_store

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.evaluate import Periodic, evaluate, pz, token_page
from tokenloom.inspect import audit_run, coverage
from tokenloom.page.figure import numbers_html
from tokenloom.page.numbers import digits
from tokenloom.report import report_on
from tokenloom.report.consumption import deviations_of
from tokenloom.report.evaluations.read_back import read_evaluations
from tokenloom.report.figures.law_verdicts import laws_figure
from tokenloom.report.figures.loading import loading_figure
from tokenloom.report.figures.mix_shares import gaps_of, mixture_figure, shares_over_steps
from tokenloom.report.figures.shuffle_map import shuffle_figure
from tokenloom.report.figures.splice_maps import splice_figure
from tokenloom.report.subject import Asked, RunSubject
from tokenloom.testing import write_store

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

PAGE = Path(__file__).parents[2] / "docs" / "report.md"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return order_runs(tmp_path_factory.mktemp("marks"))


def subject_of(run, **asked):
    return RunSubject(run, Asked(**({"batch_size": 8} | asked)))


def table(figure, caption):
    (found,) = (one for one in figure.numbers if caption in one.caption)
    return [dict(zip(found.head, row, strict=True)) for row in found.rows]


# -- splices -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spliced(tmp_path_factory):
    store = store_of(tmp_path_factory.mktemp("spliced") / "s", count=5, longest=60)
    return store.splice(32, content_start_mode="slide_within", content_length=7)


def part_of(figure, word):
    """The drawing of one document: from its heading to the next."""
    pieces = str(figure.drawing).split("<h3>")
    (found,) = (one for one in pieces if one.startswith((f"The {word} ", "The only ")))
    return found


def test_the_map_of_splices_has_the_counts_of_the_grid(spliced):
    figure, found = splice_figure(subject_of(spliced)), coverage(spliced, epochs=1)
    document = int(found.documents[found.lengths.argmax()])
    grid = found.grid(document, (120, 60))
    (levels, narrow) = maps_in(part_of(figure, "longest"))
    assert (levels == narrow).all()
    high, wide = levels.shape
    low, length = min(0, int(grid.t.edges[0])), max(found.lengths.max(), int(grid.t.edges[-1]))
    t = (grid.t.edges[:-1] + grid.t.edges[1:]) / 2
    s = (grid.s.edges[:-1] + grid.s.edges[1:]) / 2
    across = ((t - low) / (length - low) * wide).astype(int)
    up = high - 1 - (s / spliced.seq_len * high).astype(int)
    assert rises_with(levels[np.ix_(up, across)].T, grid.density)
    assert not rises_with(levels[np.ix_(up[::-1], across)].T, grid.density)  # upside down


def test_columns_of_starts_are_means_also_in_the_last_bin(tmp_path):
    tl.testing.write_store(tmp_path / "s", [[list(range(5, 131))]])
    run = tl.open(tmp_path / "s").splice(16, content_length=4)
    found = coverage(run, epochs=1).starts(0)
    assert len(set(found.shown.tolist())) == 1  # each start as often as the others
    drawn = part_of(splice_figure(subject_of(run)), "only")
    heights = [height for _, height in columns_in(drawn)]
    assert len(heights) > 20
    assert len(found.t) % len(heights)  # the last bin has fewer starts
    assert max(heights) == min(heights)


def test_the_line_of_targets_has_the_counts_of_every_token(spliced):
    figure, found = splice_figure(subject_of(spliced)), coverage(spliced, epochs=1)
    document = int(found.documents[found.lengths.argmax()])
    targets = found.targets(document)
    drawn = steps_in(part_of(figure, "longest"), "line s1")  # pixels grow downwards
    assert len(drawn) == len(targets)
    slope = np.polyfit(targets, drawn, 1)
    assert slope[0] < 0
    assert np.polyval(slope, targets) == pytest.approx(drawn, abs=0.02)


# -- mixtures ------------------------------------------------------------------------------


@pytest.mark.slow  # forty sources, each a run of its own
def test_steps_without_a_source_that_is_drawn_are_told(tmp_path):
    store = toy_store(tmp_path, rows=400)
    chosen = np.flatnonzero(np.asarray(store.lengths) > 8)[:40].tolist()
    sources = {
        f"s{n}": store.select(doc_index=[d]).windows(8, tail="keep").shuffle().epochs(None)
        for n, d in enumerate(chosen)
    }
    run = tl.mix(sources, cost="rows").take(240)
    subject = subject_of(run, batch_size=4)
    figure = mixture_figure(subject)
    last = subject.consumption.points[-1].taken
    order = sorted(range(40), key=lambda one: -last[one].tokens)
    picked, _ = run.run.pick(np.arange(240))
    drawn = np.isin(picked.reshape(-1, 4), order[:8]).any(axis=1)  # by step
    gaps = gaps_of(shares_over_steps(subject, order))
    empty = np.ones(60, bool)
    for first, end in gaps:
        empty[first:end] = False
    assert 0 < (~drawn).sum() < 60
    assert (drawn == empty).all()  # a stretch is a step here
    (note,) = (one for one in figure.notes if "nothing is drawn there" in one)
    told = ", ".join(f"{first:,} to {last:,}" for first, last in gaps[:3])
    assert note.startswith(f"From step {told}")
    assert f"and {len(gaps) - 3} more times none of the 8 largest sources" in note
    some = mixture_figure(subject_of(tl.mix(dict(list(sources.items())[:9])).take(240)))
    assert not any("nothing is drawn there" in one for one in some.notes)


def test_shares_of_a_table_are_in_per_cent(runs):
    (listed,) = (one for one in mixture_figure(subject_of(runs["mix"])).numbers
                 if one.caption == "share of tokens since the line before")  # fmt: skip
    page = plain(numbers_html(listed))
    for row in listed.rows:
        for share in row[1:]:
            assert f">{digits(100 * share, 4)} %<" in page


def test_starts_before_a_document_have_an_axis_with_round_numbers(tmp_path):
    write_store(tmp_path / "s", [[list(range(1, 2049))]])
    run = tl.open(tmp_path / "s").splice(64, content_length=32, edge="clip", fill="pack")
    drawn = part_of(splice_figure(subject_of(run)), "longest")
    starts = plain(drawn.partition("Splices of each start")[2].partition("How often a token")[0])
    ticks = re.findall(r">(-?[\d,]+)</text>", starts)
    assert coverage(run, epochs=1).starts(0).t[0] < 0
    assert {"0", "500", "1,000"} <= set(ticks)
    assert not {one for one in ticks if one.lstrip("-").endswith("70")}


def test_notes_of_a_page_have_a_space_before_per_cent(runs, monkeypatch):
    found = subject_of(runs["one source"]).simulation
    noted = dataclasses.replace(found, notes=("a standard error of 7.14%",))
    monkeypatch.setattr(RunSubject, "simulation", noted)
    assert loading_figure(subject_of(runs["one source"])).notes[0] == "A standard error of 7.14 %."


def test_the_largest_error_is_told_with_its_source_and_place(runs):
    for name in ("mix", "staged and edited", "endless mix"):
        figure = mixture_figure(subject_of(runs[name]))
        rows = table(figure, "error against the weights")
        (key,) = (one for one in rows[0] if one.startswith("largest error"))
        worst = max(rows, key=lambda row: abs(row[key]))
        said = f"from the weights ({worst['source']} at example {worst['at example']:,})."
        assert figure.message.endswith(said)


def test_stages_and_edits_are_marked_at_their_steps(runs):
    run = runs["staged and edited"]
    subject = subject_of(run)
    figure = mixture_figure(subject)
    (*_, narrow) = str(figure.drawing).partition('class="narrow"')
    area = [x for one in paths_in(narrow, "area s1") or _areas(narrow) for x, _ in one]
    left, right = min(area), max(area)
    marks = sorted({one[0][0] for one in paths_in(narrow, "mark")})
    wanted = [left + (right - left) * -(-at // 8) / subject.step_count for at in (120, 240, 300)]
    assert marks == pytest.approx(wanted, abs=0.5)
    changes = table(figure, "stages and edits")
    assert [(one["from example"], one["from step"]) for one in changes] == [
        (120, 15),
        (240, 30),
        (300, 38),
    ]
    assert changes[0]["what changes"] == "stage 2: weights web 1, code 1"
    assert changes[1]["what changes"] == "edit: weights code 3"


def _areas(drawing):
    found = re.findall(
        r'<path d="([^"]+)" class="area s1"|class="area s1"[^>]*d="([^"]+)"', drawing
    )
    return [
        [(float(x), float(y)) for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", a or b)]
        for a, b in found
    ]


@pytest.mark.parametrize("name", ["mix", "staged and edited", "runs out", "rounds"])
@pytest.mark.parametrize("batch_size", [8, 300])
def test_shares_are_drawn_from_step_to_step(runs, name, batch_size):
    subject = subject_of(runs[name], batch_size=batch_size)
    drawn = shares_over_steps(subject, range(len(runs[name].run.names)))
    assert all(one == int(one) for one in drawn.x)
    starts, ends = drawn.x[::2], drawn.x[1::2]
    assert all(a < b for a, b in zip(starts, ends, strict=True))  # no stretch without a width
    assert starts[1:] == ends[:-1]
    for number, (first, last) in enumerate(zip(starts, ends, strict=True)):
        spans = runs[name].spans(range(int(first) * batch_size, int(last) * batch_size))
        which = np.array(spans.sources)[spans.source][spans.row]
        for source, shares in drawn.shares.items():
            part = spans.length[which == source].sum() / spans.length.sum()
            assert shares[2 * number] == shares[2 * number + 1] == pytest.approx(part)


@pytest.mark.parametrize("name", ["mix", "staged and edited", "taken", "endless mix", "one source"])
def test_repeats_of_the_table_are_those_of_the_simulation(runs, name):
    run = runs[name]
    subject = subject_of(run)
    found = run.simulate(subject.step_count, batch_size=8)
    listed = {one["source"]: one for one in table(mixture_figure(subject), "how often")}
    assert len(listed) == len(found.repeats)
    picked = np.array(run.picked(range(found.examples))[0])
    _, rows = run.locate(range(found.examples))
    for one in found.repeats:
        row = listed[one.name]
        size = run.run.sources[run.run.names.index(one.name)].rows
        times = np.bincount(rows[picked == one.name], minlength=size)  # counted one by one
        assert (row["least times of a row"], row["most times of a row"]) == (
            times.min(),
            times.max(),
        )
        assert (row["rows"], row["rows of an epoch"]) == (times.sum(), size)
        assert row["epochs"] == times.sum() / size
        gaps = one.gaps or (None,) * 4
        told = [row[k] for k in ("steps to its next row: least", "median", "mean", "most")]
        assert told == list(gaps)


def test_errors_of_the_table_are_those_against_the_weights(runs):
    run = runs["mix"]
    subject = subject_of(run)
    listed = {one["source"]: one for one in table(mixture_figure(subject), "error")}
    found = deviations_of(run.run, subject.consumption)
    assert listed.keys() == found.keys() == {"web", "code"}
    assert listed["web"]["share of the weights"] == 0.75
    for name, row in listed.items():
        given = {one["name"]: one["tokens"] for one in run.consumed(row["at example"])}
        part = row["share of the weights"] * sum(given.values())
        assert row["largest error, tokens"] == pytest.approx(given[name] - part)
        worst = max(
            abs(one.tokens - row["share of the weights"] * sum(s.tokens for s in point.taken))
            for point in subject.consumption.points
            for one in point.taken
            if one.name == name
        )
        assert abs(row["largest error, tokens"]) == pytest.approx(worst)


def test_many_sources_are_no_grey_block(tmp_path):
    store = store_of(tmp_path / "s")
    many = tl.mix({f"s{k:03d}": store.windows(8).shuffle() for k in range(60)})
    figure = mixture_figure(subject_of(many))
    drawn = str(figure.drawing)
    assert "among themselves" in drawn
    assert "rank 9 to 32" in drawn
    assert "rank 33 to 60" in drawn
    assert not re.search(r'class="area rest"', drawn)
    few = tl.mix({f"s{k}": store.windows(8).shuffle() for k in range(9)})
    assert re.search(r'class="area rest"', str(mixture_figure(subject_of(few)).drawing))


# -- reading and waiting -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mix", "lanes", "packed"])
def test_tables_of_reads_cache_and_stalls_are_those_of_the_simulation(runs, name):
    speed = {"ranks": 2, "latency": 0.02, "bandwidth": 1e6, "step_seconds": 0.01}
    subject = subject_of(runs[name], **speed)
    found = runs[name].simulate(subject.step_count, batch_size=8, **speed)
    figure = loading_figure(subject)
    for row, one in zip(table(figure, "what each rank reads"), found.ranks, strict=True):
        assert row == {
            "rank": one.rank,
            "how": one.how,
            "rows": one.examples,
            "reads": one.reads,
            "bytes": one.bytes,
            "bytes asked for": one.useful_bytes,
            "bytes of a step": one.bytes / found.steps,
            "cache hits": one.hits,
            "cache misses": one.misses,
            "bytes needed at once": one.needed_bytes,
            "bytes of cache": one.cache_bytes,
        }
    stalls = found.stalls
    told = {one["what"]: one["value"] for one in table(figure, "waiting")}
    assert told == {
        "seconds of a request": 0.02,
        "bytes per second": 1e6,
        "seconds of a step": 0.01,
        "steps simulated": stalls.steps,
        "seconds in all": stalls.seconds,
        "seconds waited": stalls.waited,
        "seconds waited after the first step": max(0.0, stalls.waited - stalls.first_wait),
        "share of the time after it": max(0.0, stalls.waited - stalls.first_wait)
        / (stalls.seconds - stalls.first_wait),
        "seconds until the first step": stalls.first_wait,
        "longest wait after it": stalls.longest_wait,
        "steps that wait": stalls.stalled_steps,
    }
    assert (stalls.waited > stalls.first_wait) == (name != "packed")
    for row, one in zip(
        table(shuffle_figure(subject), "reads of each rank"), found.ranks, strict=True
    ):
        assert (row["rank"], row["reads"], row["bytes"]) == (one.rank, one.reads, one.bytes)
        assert (row["rows"], row["cache hits"]) == (one.examples, one.hits)
        assert row["reads of a row"] == one.reads / one.examples


# -- evaluations and audits ----------------------------------------------------------------


def lucky(tokens, segment_ids, position_ids):
    """Knows the next token of texts that start with a, and hardly that of others."""
    found = np.zeros((*tokens.shape, 256))
    ahead = np.roll(tokens, -1, axis=1)
    known = np.where(tokens[:, :1] == ord("a"), 9.0, 2.0)[..., None]
    np.put_along_axis(found, ahead[..., None], known * np.ones((1, tokens.shape[1], 1)), 2)
    return found


def uniform(tokens, segment_ids, position_ids):
    return np.zeros((*tokens.shape, 256))


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    rows = [{"text": one * 30 + "xyz" * n, "id": n} for n, one in enumerate("abab")]
    return tl.build(rows, tmp_path_factory.mktemp("texts") / "s", tokenizer="bytes", id_key="id")


def test_the_map_of_pz_has_the_values_of_every_token(texts):
    found = pz(lucky, texts, prefix=10, suffix=4, stride=4, progress=False)
    figure, *_ = report_on({"windows": found}).figures
    levels, narrow = maps_in(figure.drawing)
    assert (levels == narrow).all()
    assert levels.shape == (4, max(found.lengths.values()))
    values = np.zeros(levels.shape)
    for document, length in found.lengths.items():
        one = np.exp(found.heat(document))
        values[document, :length] = np.where(np.isnan(one), 0.0, one)
    assert rises_with(levels, values)
    assert levels[0].max() > levels[1].max()
    assert not rises_with(levels[::-1], values)


def test_the_map_of_what_was_learned_has_checkpoints_at_their_steps(texts):
    jobs = {"held": lambda model: evaluate(model, texts, seq_len=64, by=("document",))}
    series = Periodic(jobs, every=10)
    for model, step in ((uniform, 10), (uniform, 20), (lucky, 110)):
        series(model, step)
    figure = next(one for one in report_on({"series": series}).figures if one.name == "learned")
    levels, _ = maps_in(figure.drawing)
    order = [row["document"] for row in table(figure, "held: loss")]
    losses = [record["results"]["held"]["by"]["document"] for record in series.records]
    wide = levels.shape[1]
    places = [0, int(0.049 * wide), int(0.051 * wide) + 1, int(0.54 * wide), int(0.56 * wide) + 1]
    nearest = [0, 0, 1, 1, 2]  # checkpoints meet half-way: at steps 15 and 65
    for place, number in zip(places, nearest, strict=True):
        values = [np.exp(-losses[number][name]["loss"]) for name in order]
        assert rises_with(levels[:, place], values)
        assert (levels[:, place] == levels[:, [0, int(0.3 * wide), wide - 1][number]]).all()
    assert levels[0, -1] == levels.max() > levels[-1, -1]  # those learned first at the top
    first = min(row["learned at step"] for row in table(figure, "held: loss")
                if row["learned at step"] is not None)  # fmt: skip
    about = "" if first in (10, 20, 110) else "about "
    assert f"the first at {about}step {first:,.0f}." in figure.message


def test_an_audit_names_its_last_row(texts):
    run = texts.windows(8).shuffle()
    n = run.run.n
    whole = laws_figure(audit_run(run, progress=False))
    assert f"in rows 0 to {n - 1:,}." in whole.message
    part = laws_figure(audit_run(run, 3, 4, progress=False))
    assert "in row 3." in part.message


# -- warnings ------------------------------------------------------------------------------


def test_the_gravest_warning_comes_first(tmp_path, texts):
    store = store_of(tmp_path / "s", count=200)
    run = store.windows(8).epochs(9).edit(at=0, quarantine=[("main", 7)])
    slow = {"latency": 1.0, "bandwidth": 1e3, "step_seconds": 0.01}
    other = audit_run(run.seed(3) if not run.edits else store.windows(8), progress=False)
    made = report_on(run, batch_size=8, certificate=other, **slow)
    ranks = [one.gravity for one in made.cautions]
    assert ranks == sorted(ranks, reverse=True)
    assert {3, 2, 1} == set(ranks)
    assert "certificate" in made.cautions[0].words
    words = [plain(one.words) for one in made.cautions]
    (stored,) = (n for n, one in enumerate(words) if "stored order" in one)
    (waits,) = (n for n, one in enumerate(words) if "training waits" in one)
    assert stored < waits


# -- evaluations by the command ------------------------------------------------------------


def test_the_command_shows_what_an_evaluation_wrote_alone_and_with_its_run(
    tmp_path, texts, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    run = texts.windows(8).shuffle()
    tl.save(run, "run.yaml")
    jobs = {"held": lambda model: evaluate(model, texts, seq_len=64, by=("document",))}
    series = Periodic(jobs, folder=tmp_path / "results", every=10)
    series(uniform, 10)
    series(lucky, 20)
    (tmp_path / "results" / "windows.npz").write_bytes(
        pz(lucky, texts, prefix=10, suffix=4, stride=4, progress=False).to_bytes()
    )

    def told(*words):
        assert main([*words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    def shown(report):
        return [(one["name"], one["message"], one["numbers"]) for one in report["figures"]]

    read = read_evaluations(Path("results"))
    alone = told("report", "results", "-o", "alone.html")
    assert shown(alone) == shown(report_on(read, name="results").to_dict())
    assert [one[0] for one in shown(alone)] == ["pz", "learned"]
    beside = told("report", "run.yaml", "--eval", "results", "--batch-size", "4")
    assert shown(beside)[-2:] == shown(alone)
    wanted = report_on(tl.load("run.yaml"), batch_size=4, evaluations=read).to_dict()
    assert shown(beside) == shown(wanted)
    assert {one["name"] for one in beside["answers"]} >= {"trained", "given_back", "learned"}


# -- documentation -------------------------------------------------------------------------


def sections():
    """The words of every section of the page, by heading."""
    found = re.split(r"^#{2,3} ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    return {one.partition("\n")[0]: one.partition("\n")[2] for one in found}


NAMED = {"tokens": "Every token of a document", "pz": "What the model gives back"}


def test_every_figure_has_its_section_with_two_sentences(tmp_path, texts, runs):
    store = store_of(tmp_path / "s")
    mix = tl.mix({"a": store.pack(8), "b": store.splice(8, content_length=5)})
    certificate = audit_run(mix, progress=False)
    series = Periodic(
        {"held": lambda model: evaluate(model, texts, seq_len=64, by=("document",))}, every=10
    )
    series(uniform, 10)
    answers = {
        "losses": evaluate(uniform, texts, seq_len=64, progress=False),
        "windows": pz(uniform, texts, prefix=10, suffix=4, stride=4, progress=False),
        "series": series,
        "page": token_page(uniform, texts, 0, seq_len=64),
    }
    reports = [
        report_on(mix, batch_size=4, examples=4, certificate=certificate, evaluations=answers),
        report_on(store.windows(8).shuffle(), batch_size=4),
        report_on(texts),
        report_on(certificate),
    ]
    known, used = sections(), set()
    for figure in (one for report in reports for one in report.figures):
        name = figure.name.partition("-")[0]
        heading = NAMED.get(name) or next(
            (one for one in known if figure.title == one or figure.title.startswith(f"{one} of ")),
            figure.title,
        )
        assert heading in known, f"docs/report.md has no section {figure.title!r}"
        used.add(heading)
        assert len(re.findall(r"[a-z0-9)`][.](?=\s|$)", known[heading])) >= 2, heading
    general = ("Warnings and answers", "The figures of", "In a notebook")
    left = [one for one in known if one not in used and not one.startswith(general)]
    assert left == []  # and no section about a figure that is not there
