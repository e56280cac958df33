"""Losses from the files that loggers write."""

import json
import sys
import types

import numpy as np
import pytest

from tokenloom.errors import InputError, MissingExtra
from tokenloom.loader.loss_files import read_losses


def test_json_lines_and_tables_give_the_same_losses(tmp_path):
    records = [{"step": step, "loss": 3.0 - step / 10, "lr": 0.1} for step in (0, 1, 2, 5)]
    lines = [json.dumps(one) for one in records]
    (tmp_path / "log.jsonl").write_text("\n".join([*lines, "", '{"step": 5, "eval_loss": 9}']))
    head = "step,loss,lr\n"
    rows = "".join(f"{one['step']},{one['loss']},0.1\n" for one in records)
    (tmp_path / "log.csv").write_text(head + rows + "6,,0.1\n")
    (tmp_path / "log.tsv").write_text((head + rows).replace(",", "\t"))
    for name in ("log.jsonl", "log.csv", "log.tsv"):
        found = read_losses(tmp_path / name)
        assert found.steps.tolist() == [0, 1, 2, 5]
        np.testing.assert_allclose(found.values, [3.0, 2.9, 2.8, 2.5])
        assert found.examples is None


def test_a_step_that_was_logged_twice_counts_as_logged_last(tmp_path):
    (tmp_path / "log.jsonl").write_text(
        '{"step": 1, "loss": 5}\n{"step": 2, "loss": 6}\n{"step": 1, "loss": 7}\n'
    )
    assert read_losses(tmp_path / "log.jsonl").values.tolist() == [7.0, 6.0]


def test_other_names_and_lists_of_rows_are_read(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"_step": 3, "train/loss": [1, 2, null]}\n{"_step": 4, "train/loss": [3, 4, 5]}\n'
    )
    found = read_losses(path, step_key="_step", loss_key="train/loss")
    assert found.values.shape == (2, 3)
    assert np.isnan(found.values[0, 2])
    path.write_text('{"step": 3, "loss": [1, 2], "index": [9, 4]}\n')
    found = read_losses(path)
    assert found.examples.tolist() == [9, 4]
    assert found.steps is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"step": 1, "los": 2}', "no record has a 'loss'; they have: step, los. Did you mean"),
        ('{"stop": 1, "loss": 2}', "no 'step'; it has: stop, loss. Did you mean"),
        ('{"step": 1.5, "loss": 2}', "'step' is 1.5, allowed: an integer"),
        ('{"step": 1, "loss": "x"}', "'loss' is 'x', allowed: a number"),
        ('{"step": 1, "loss": [1]}\n{"step": 2, "loss": 1}', "a number in some records"),
        ('{"step": 1, "loss": [1]}\n{"step": 2, "loss": [1, 2]}', "steps have 1 to 2 rows"),
        ('{"step": 1, "loss": [1], "index": [1, 2]}', "allowed: the example of each"),
        ("[1]", "found list, allowed: an object"),
        ("{", "no JSON"),
        ("", "they have: none"),
    ],
)
def test_files_without_such_losses_are_refused_with_the_place(tmp_path, text, message):
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        read_losses(path)
    with pytest.raises(InputError, match="there is no such file"):
        read_losses(tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("step,loss\n0,x\n", 2),
        ("step,loss\n0,1\n1,x\n", 3),
        ("step,loss\n\n\n0,1\n\n1,x\n", 6),  # empty lines are lines of the file
        ('step,note,loss\n0,"a\nb",1\n1,,x\n', 4),  # and so are those inside quotes
    ],
)
def test_a_wrong_number_in_a_table_is_told_with_its_line(tmp_path, text, line):
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(InputError) as told:
        read_losses(path)
    assert str(told.value).startswith(f"{path}:{line}: 'loss' is 'x'")


def test_events_need_a_reader_and_only_scalars_are_asked_of_it(tmp_path, monkeypatch):
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(b"")
    name = "tensorboard.backend.event_processing.event_accumulator"
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match="needs the package 'tensorboard'"):
        read_losses(path)

    class Events:
        def __init__(self, path, size_guidance):
            assert size_guidance == {"scalars": 0}  # all of them

        def Reload(self):  # noqa: N802 - the name it has there
            pass

        def Tags(self):  # noqa: N802
            return {"scalars": ["train/loss"], "images": ["loss"]}

        def Scalars(self, tag):  # noqa: N802
            assert tag == "train/loss"
            return [types.SimpleNamespace(step=s, value=float(s)) for s in (4, 2)]

    fake = types.SimpleNamespace(EventAccumulator=Events, SCALARS="scalars")
    for part in ("tensorboard", "tensorboard.backend", "tensorboard.backend.event_processing"):
        monkeypatch.setitem(sys.modules, part, types.ModuleType(part))
    monkeypatch.setitem(sys.modules, name, fake)
    for place in (path, tmp_path):
        found = read_losses(place, loss_key="train/loss")
        assert (found.steps.tolist(), found.values.tolist()) == ([2, 4], [2.0, 4.0])
    with pytest.raises(InputError, match="no scalars of the tag 'loss'; it has: train/loss"):
        read_losses(path)
