"""Evaluation in a loop of training: when it is due, what is written, and what a resume keeps."""

import csv
import json
import math
import xml.etree.ElementTree

import numpy as np
import pytest
from markov import Markov
from refusals import refused

import tokenloom as tl
from tokenloom.evaluate import Periodic, curves, evaluate, pz


def losses_of(folder, steps, start=0, **how):
    periodic = Periodic(
        {"toy": lambda model: {"loss": 1.0 / (1 + model)}}, folder=folder, every=3, **how
    )
    for step in range(start, steps):
        periodic(step, step, tokens=10 * step)
    return periodic


def test_steps_that_are_due_are_evaluated_and_written(tmp_path):
    periodic = losses_of(tmp_path / "new", 10, also=(0, 1))
    assert [one["step"] for one in periodic.records] == [0, 1, 3, 6, 9]
    lines = (tmp_path / "new/results.jsonl").read_text().splitlines()
    assert [json.loads(one) for one in lines] == periodic.records
    assert json.loads(lines[2]) == {"step": 3, "tokens": 30, "results": {"toy": {"loss": 0.25}}}
    rows = list(csv.DictReader((tmp_path / "new/results.csv").read_text().splitlines()))
    assert [float(row["toy.loss"]) for row in rows] == [1.0, 0.5, 0.25, 1 / 7, 0.1]
    picture = (tmp_path / "new/results.svg").read_text()
    xml.etree.ElementTree.fromstring(picture)
    assert "toy.loss" in picture


def test_a_resume_goes_on_with_its_files_and_replaces_what_came_later(tmp_path):
    losses_of(tmp_path, 10)
    again = losses_of(tmp_path, 14, start=5)
    whole = losses_of(tmp_path / "whole", 14)
    assert again.records == whole.records
    for name in ("results.jsonl", "results.csv", "results.svg"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_only_the_process_that_may_write_does(tmp_path):
    losses_of(tmp_path / "other", 10, write=False)
    assert not (tmp_path / "other").exists()


def test_answers_of_this_room_are_written_with_their_figures(tmp_path):
    rows = [{"input_ids": np.random.default_rng(0).integers(0, 12, 30).tolist()} for _ in range(3)]
    store = tl.build(rows, tmp_path / "store", tokenizer=None, vocab_size=12)
    periodic = Periodic(
        {
            "held out": lambda model: evaluate(model, store, seq_len=16),
            "pz": lambda model: pz(model, store, prefix=3, suffix=3),
        },
        folder=tmp_path / "results",
        every=1,
    )
    periodic(Markov(seed=0), 1)
    periodic(Markov(seed=1), 2)
    values = periodic.figures("held out.all.loss")
    assert [step for step, _ in values] == [1, 2]
    assert values[0][1] != values[1][1]
    assert len(periodic.figures("pz.documents.2.mean_pz")) == 2


def test_values_that_are_not_finite_leave_a_gap_in_their_curve():
    picture = curves("a", {"x": [(0, 1.0), (1, math.inf), (2, math.nan), (3, 2.0)], "none": []})
    xml.etree.ElementTree.fromstring(picture)
    assert "inf" not in picture
    assert "nan" not in picture.replace("none", "")


@pytest.mark.parametrize("text", ["{", "[]", '{"step": 1}', '{"step": NaN, "results": {}}'])
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path, text):
    file = tmp_path / "results.jsonl"
    file.write_text(text + "\n")
    refused(
        lambda: Periodic({"a": lambda model: {}}, folder=tmp_path, every=1), tl.InputError, file
    )
    assert file.read_text() == text + "\n"


def test_settings_and_answers_that_mean_nothing_are_refused():
    refused(lambda: Periodic({}, every=1), tl.ConfigError, "jobs")
    refused(lambda: Periodic({"a": len}, every=0), tl.ConfigError, "every")
    refused(lambda: Periodic({"a": lambda model: 3}, every=1)(None, 1), tl.ConfigError, "int")
