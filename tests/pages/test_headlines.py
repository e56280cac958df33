"""The large number of an answer is one of its numbers, and its sentence says the same."""

import re

import pytest
from pagetoys import everything_run, texts_of

import tokenloom as tl
from tokenloom.inspect import audit_run
from tokenloom.report import report_on
from tokenloom.report.headlines import headline_of


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("headlines")
    store = tl.build(texts_of(30, 4), folder / "s", tokenizer="bytes", progress=False)
    fast = {"latency": 0.01, "bandwidth": 1e8, "step_seconds": 0.02}
    reports = [
        report_on(everything_run(folder), batch_size=8),
        report_on(store.pack(64).block_shuffle().epochs(2), batch_size=4, **fast),
        report_on(store),
        report_on(audit_run(store.windows(64))),
    ]
    return [one for report in reports for one in report.answers]


def test_every_answer_about_something_has_a_number_that_its_sentence_has_too(answers):
    assert len(answers) == 5 + 5 + 5 + 4
    for one in answers:
        found = headline_of(one.name, one.numbers)
        assert found is not None, one
        said = one.sentence.replace("Every one of", "0 % of")
        said = said.replace("No two documents", "0 documents").replace("Nothing", "0")
        number = re.sub(r"^(below|above) ", "", found[0])
        if one.name != "fed" or "waited" not in one.numbers:
            assert number.lower() in said.lower(), (found, said)


def test_an_answer_about_nothing_has_no_number():
    for name, numbers in {
        "repeated": {"most": 0, "least": 0},
        "lost": {"tokens": 0, "lost": 0, "filler": 0.0},
        "shuffled": {"rows": 0},
        "fed": {"bytes": 0},
        "unknown": {"tokens": 3},
    }.items():
        assert headline_of(name, numbers) is None, name


def test_tokens_that_were_not_counted_are_not_told_as_lost():
    numbers = {"tokens": 100, "lost": 0, "filler": 0.25, "uncounted": 100}
    assert headline_of("lost", numbers) == ("25.0 %", "of the cells are filler")
    assert headline_of("lost", numbers | {"uncounted": 0})[0] == "0 %"  # the control
