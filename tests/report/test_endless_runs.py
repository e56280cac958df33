"""A report on an endless run counts its start, and every sentence with such a count says so."""

import re

import pytest
from readwords import plain
from toyruns import toy_store

import tokenloom as tl
from tokenloom.report import report_on
from tokenloom.report.headlines import headline_of
from tokenloom.report.reached import is_endless, reached, within
from tokenloom.report.subject import Asked, RunSubject

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Endless runs, and the same of one epoch."""
    folder = tmp_path_factory.mktemp("endless")
    web, code = toy_store(folder / "web", rows=400), toy_store(folder / "code", rows=90)
    pair = {"web": web.windows(8).shuffle(), "code": code.pack(8).shuffle()}
    forever = {name: one.epochs(None) for name, one in pair.items()}
    return {
        "windows": (web.windows(8).shuffle().epochs(None), web.windows(8).shuffle()),
        "packed": (web.pack(8).shuffle().epochs(None), web.pack(8).shuffle()),
        "splices": (
            web.splice(8, content_length=3).shuffle().epochs(None),
            web.splice(8, content_length=3).shuffle(),
        ),
        "mix": (tl.mix(forever, weights={"web": 1, "code": 2}), tl.mix(pair)),
        "one runs out": (tl.mix(forever, max_epochs={"code": 1}), None),
    }


ONE = ("windows", "packed", "splices")

# what only a run that ends can say
ENDS = re.compile(r"ends before|all steps|All steps|of the run\b|No step|not reached(?! in)")


def words_of(report):
    """Answers, warnings, messages and notes."""
    yield from (one.sentence for one in report.answers)
    yield from (one.words for one in report.cautions)
    for figure in report.figures:
        if figure.name != "resume":
            yield from (figure.message, *figure.notes)


@pytest.mark.parametrize("name", ["windows", "packed", "splices", "mix", "one runs out"])
@pytest.mark.parametrize("batch_size", [1, 7, 8, 60])
def test_no_sentence_speaks_of_the_start_as_of_all_of_the_run(runs, name, batch_size):
    run = runs[name][0]
    assert run.run.n is None
    report = report_on(run, batch_size=batch_size)
    said = [plain(one) for one in words_of(report)]
    assert [one for one in said if ENDS.search(one)] == []
    assert report.lead.startswith("endless, rows of 8 tokens ·")
    subject = RunSubject(run, Asked(batch_size=batch_size))
    answers = {one.name: plain(one.sentence) for one in report.answers}
    where = plain(reached(subject))
    assert answers["trained"].startswith(f"The run is endless; its {where} ha")
    assert f" in the {where}" in answers["repeated"]
    assert answers["repeated"].endswith("The run is endless: more epochs follow.")
    assert f"of the cells in the {where} are filler" in answers["lost"]
    assert f"in the {where}" in answers["fed"] or f"The {where} read" in answers["fed"]
    messages = {one.name: plain(one.message) for one in report.figures}
    for figure in ("lost", "loading"):
        assert f" in the {where}" in messages[figure], messages[figure]


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("batch_size", [1, 7])
def test_the_first_epoch_has_the_numbers_of_a_run_of_one_epoch(runs, name, batch_size):
    endless, once = runs[name]
    told = report_on(endless, batch_size=batch_size)
    other = report_on(once, batch_size=batch_size)
    for mine, theirs in zip(told.answers, other.answers, strict=True):
        same = set(theirs.numbers) - {"dropped"}
        assert {k: mine.numbers[k] for k in same} == {k: theirs.numbers[k] for k in same}
        assert mine.sentence != theirs.sentence or mine.name == "shuffled"
    rows = once.run.n
    is_whole = rows % batch_size == 0
    where = "first epoch" if is_whole else f"first {rows // batch_size:,} steps"
    (trained, words), (endless_, _) = (
        headline_of(one.name, one.numbers) for one in told.answers[:2]
    )
    assert plain(trained).replace(",", "") == str(other.answers[0].numbers["tokens"])
    assert words == f"tokens in the {where}"
    assert endless_ == "Endless"


def test_rows_that_the_first_steps_leave_are_told_to_come_later(runs):
    run = runs["windows"][0]
    report = report_on(run, batch_size=7)
    (lost,) = (one for one in report.answers if one.name == "lost")
    assert "1 row (0.25 % of an epoch) comes after the first 57 steps" in plain(lost.sentence)
    (figure,) = (one for one in report.figures if one.name == "lost")
    parts = {row[0]: row[1] for row in figure.numbers[0].rows}
    assert parts["in rows that come later"] == 8
    assert "in rows that are not reached" not in parts
    assert any("come later" in note for note in figure.notes)


def test_a_source_that_runs_out_is_told_without_a_last_step(runs):
    words = [plain(one.words) for one in report_on(runs["one runs out"][0], batch_size=8).cautions]
    (told,) = (one for one in words if "runs out" in one)
    assert re.match(r"code runs out at step \d+; from there on", told), told


@pytest.mark.parametrize("name", ["windows", "mix"])
def test_a_step_larger_than_what_is_looked_at_is_told_as_not_counted(runs, name):
    run = runs[name][0]
    report = report_on(run, batch_size=900)
    (caution,) = (one for one in report.cautions if "endless" in one.words)
    rows = RunSubject(run, Asked()).examples
    assert f"{rows} rows are less than one step of 900 rows" in plain(caution.words)
    assert caution.gravity == 1  # the run itself trains
    answers = {one.name: one for one in report.answers}
    assert "nothing of it is counted here" in answers["trained"].sentence
    for one in ("repeated", "fed"):
        assert answers[one].sentence.startswith("Not counted: ")
    assert headline_of("trained", answers["trained"].numbers) is None
    assert all(one.name != "lost" for one in report.figures)
    assert not any("first 0 steps" in plain(one) for one in words_of(report))


def test_control_a_run_that_ends_says_nothing_of_a_start(runs):
    for _, run in runs.values():
        if run is not None:
            subject = RunSubject(run, Asked(batch_size=8))
            assert (is_endless(subject), within(subject)) == (False, "")
            words = " ".join(map(plain, words_of(report_on(run, batch_size=8))))
            assert "endless" not in words
            assert " in the first epoch" not in words
