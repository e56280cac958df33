"""Losses from the files that loggers write: the same as an array, or refused with the place."""

import json
import sys
import types

import numpy as np
import pytest
from refusals import refused
from toyruns import toy_run, toy_store

import tokenloom as tl

STEPS, SIZE = 24, 4


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return toy_run(toy_store(tmp_path_factory.mktemp("toy")))


@pytest.fixture(scope="module")
def losses():
    found = np.random.Generator(np.random.PCG64(0)).normal(3, 0.1, (STEPS, SIZE))
    found[5] += 4
    return found


def blamed(run, losses, **options):
    found = tl.blame(run, losses, batch_size=SIZE, window=5, **options)
    return repr(found)


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "events"])
def test_files_of_losses_by_step_are_those_losses(run, losses, tmp_path, monkeypatch, kind):
    means = losses.mean(axis=1)
    path, repeated = tmp_path / f"log.{kind}", [(5, 0.0), *enumerate(means)]  # the last 5 counts
    if kind == "jsonl":
        lines = [json.dumps({"step": n, "loss": one, "lr": 0.1}) for n, one in repeated]
        path.write_text("\n".join([*lines, "", '{"step": 5, "eval_loss": 9}']))
    elif kind == "events":
        path = tmp_path / "events.out.tfevents.1.host"
        path.write_bytes(b"")
        events_with(monkeypatch, "loss", repeated)
    else:
        text = "step,loss,lr\n" + "".join(f"{n},{one!r},0.1\n" for n, one in repeated) + "30,,1\n"
        path.write_text(
            text.replace("np.float64(", "")
            .replace(")", "")
            .replace(",", "," if kind == "csv" else "\t")
        )
    assert blamed(run, path) == blamed(run, str(path)) == blamed(run, means)
    if kind == "events":
        assert blamed(run, tmp_path) == blamed(run, means)  # the folder of the events
        refused(lambda: blamed(run, path, loss_key="lss"), tl.InputError, "'lss'", "loss")


def events_with(monkeypatch, tag, values):
    """A reader of TensorBoard's events, which is asked for scalars only."""

    class Events:
        def __init__(self, path, size_guidance):
            assert size_guidance == {"scalars": 0}  # all of them

        def Reload(self):  # noqa: N802 - the name it has there
            pass

        def Tags(self):  # noqa: N802
            return {"scalars": [tag], "images": ["other"]}

        def Scalars(self, tag):  # noqa: N802
            return [types.SimpleNamespace(step=s, value=float(v)) for s, v in values]

    name = "tensorboard.backend.event_processing.event_accumulator"
    for part in ("tensorboard", "tensorboard.backend", "tensorboard.backend.event_processing"):
        monkeypatch.setitem(sys.modules, part, types.ModuleType(part))
    fake = types.SimpleNamespace(EventAccumulator=Events, SCALARS="scalars")
    monkeypatch.setitem(sys.modules, name, fake)


def test_events_without_their_reader_need_an_extra(run, tmp_path, monkeypatch):
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(b"")
    name = "tensorboard.backend.event_processing.event_accumulator"
    monkeypatch.setitem(sys.modules, name, None)
    refused(lambda: blamed(run, path), tl.MissingExtra, "tensorboard")


def test_lists_of_rows_and_other_names_are_read(run, losses, tmp_path):
    path = tmp_path / "log.jsonl"
    lines = [{"_step": n, "train/loss": row} for n, row in enumerate(losses.tolist())]
    path.write_text("\n".join(map(json.dumps, lines)))
    keys = {"step_key": "_step", "loss_key": "train/loss"}
    assert blamed(run, path, **keys) == blamed(run, losses)
    index = np.arange(STEPS * SIZE)[::-1].reshape(STEPS, SIZE)
    lines = [
        {"step": n, "loss": row, "index": which}
        for n, (row, which) in enumerate(zip(losses.tolist(), index.tolist(), strict=True))
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    found = tl.blame(run, path, window=5)
    assert repr(found) == repr(tl.blame(run, losses.reshape(-1), index=index.reshape(-1), window=5))


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("log.jsonl", '{"step": 1, "los": 2}', ("'loss'", "los")),
        ("log.jsonl", '{"stop": 1, "loss": 2}', ("'step'", "stop")),
        ("log.jsonl", '{"step": 1.5, "loss": 2}', (":1", "'step'", 1.5)),
        ("log.jsonl", '{"step": 1, "loss": "x"}', (":1", "'loss'", "'x'")),
        ("log.jsonl", '{"step": 1, "loss": [1]}\n{"step": 2, "loss": 1}', ("number",)),
        ("log.jsonl", '{"step": 1, "loss": [1]}\n{"step": 2, "loss": [1, 2]}', ("1 to 2",)),
        ("log.jsonl", '{"step": 1, "loss": [1], "index": [1, 2]}', ("'index'",)),
        ("log.jsonl", "[1]", (":1", "list")),
        ("log.jsonl", "{", (":1",)),
        ("log.jsonl", "", ("log.jsonl",)),
        ("log.csv", "step,loss\n0,x\n", (":2", "'loss'", "'x'")),
        ("log.csv", "step,loss\n\n\n0,1\n\n1,x\n", (":6", "'x'")),  # empty lines are lines
        ("log.csv", 'step,note,loss\n0,"a\nb",1\n1,,x\n', (":4", "'x'")),  # also inside quotes
    ],
)
def test_files_without_such_losses_are_refused_with_the_place(run, tmp_path, name, text, named):
    (tmp_path / name).write_text(text)
    refused(lambda: blamed(run, tmp_path / name), tl.InputError, name, *named)
    refused(lambda: blamed(run, tmp_path / "none.csv"), tl.InputError, "none.csv")
