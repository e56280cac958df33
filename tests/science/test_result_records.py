"""Results are kept, skipped when they are there, and measured again when the code is another."""

import dataclasses
import json

import pytest
from science.measuring import measure_all
from science.plan import Arm, Experiment, Measured
from science.records import Shelf, code_lines, record_key

from science import measuring, records
from tokenloom.errors import InputError

CALLS = []

IMPORT = "from science.training import train\nfrom science.verdicts import Found\n"


def measure(trial):
    CALLS.append((trial.arm.name, trial.seed))
    if len(CALLS) == 4:
        raise KeyboardInterrupt
    return Measured({"loss": trial.seed + 0.5}, {"c": [(0.0, 1.0)]}, {"content": "x"})


TOY = Experiment(
    name="toy",
    title="A toy",
    asks="?",
    setting=".",
    arms=(Arm(name="a"), Arm(name="b", overrides=("x=1",))),
    quick=("a", "b"),
    steps=3,
    quick_steps=1,
    columns={"loss": "loss"},
    measure=measure,
    judge=lambda found: [],
    picture=lambda found: "",
)


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """The toy as the only experiment; its module is this one."""
    CALLS.clear()
    monkeypatch.setattr(records, "HERE", tmp_path)
    (tmp_path / "test_result_records.py").write_text(f"{IMPORT}VALUE = 1\n")
    (tmp_path / "training.py").write_text("VALUE = 1\n")
    monkeypatch.setattr(measuring, "EXPERIMENTS", {"toy": TOY})
    return Shelf(tmp_path / "results")


def test_a_killed_call_resumes_where_it_was(toy):
    with pytest.raises(KeyboardInterrupt):
        measure_all([TOY], toy, workers=0)
    assert len(CALLS) == 4
    assert [(one["arm"], one["seed"]) for one in toy.read(TOY)] == [("a", 0), ("a", 1), ("a", 2)]
    assert measure_all([TOY], toy, workers=0) == 3
    assert CALLS[4:] == [("b", 0), ("b", 1), ("b", 2)]
    assert measure_all([TOY], toy, workers=0) == 0
    assert len(toy.read(TOY)) == 6


def test_a_file_is_one_json_object_a_line_in_order_of_arms_and_seeds(toy):
    CALLS.extend([None] * 4)
    measure_all([TOY], toy, workers=0)
    lines = [json.loads(line) for line in toy.path(TOY).read_text().splitlines()]
    assert [(one["arm"], one["seed"]) for one in lines] == [(a, s) for a in "ab" for s in range(3)]
    assert lines[0]["figures"] == {"loss": 0.5}
    assert lines[0]["about"]["content"] == "x"
    assert {"cpu_seconds", "torch", "python"} <= lines[0]["about"].keys()


def test_other_code_makes_results_stale_and_comments_do_not(toy, tmp_path):
    CALLS.extend([None] * 4)
    measure_all([TOY], toy, workers=0)
    module = tmp_path / "test_result_records.py"
    module.write_text(
        f'"""Words."""\n# a comment\n{IMPORT}VALUE = 1  # another\n\n\ndef judge():\n    ...\n'
    )
    assert not toy.missing(TOY)
    module.write_text(f"{IMPORT}VALUE = 2\n")
    assert len(toy.missing(TOY)) == 6
    module.write_text(f"{IMPORT}VALUE = 1\n")
    assert not toy.missing(TOY)
    (tmp_path / "training.py").write_text("VALUE = 3\n")  # what it imports counts, too
    assert len(toy.missing(TOY)) == 6


def test_a_key_depends_on_arm_seed_and_steps(toy):
    arm = TOY.arms[0]
    keys = {
        record_key(TOY, arm, 0, 3),
        record_key(TOY, arm, 1, 3),
        record_key(TOY, arm, 0, 4),
        record_key(TOY, dataclasses.replace(arm, isolated=False), 0, 3),
        record_key(dataclasses.replace(TOY, name="other"), arm, 0, 3),
    }
    assert len(keys) == 5
    assert record_key(TOY, arm, 0, 3) in keys


def test_stale_records_are_dropped_when_a_new_one_comes(toy):
    toy.folder.mkdir()
    stale = {"key": "0", "arm": "a", "seed": 0, "figures": {}}
    toy.path(TOY).write_text(json.dumps(stale) + "\n")
    assert toy.read(TOY) == []
    key = record_key(TOY, TOY.arms[0], 0, 3)
    toy.add(TOY, {"key": key, "arm": "a", "seed": 0, "figures": {"loss": 1.0}})
    assert [one["key"] for one in toy._lines(TOY)] == [key]


@pytest.mark.parametrize("line", ["{", '{"key": "1"}', "[]"])
def test_a_damaged_line_is_named(toy, line):
    toy.folder.mkdir()
    toy.path(TOY).write_text(line + "\n")
    with pytest.raises(InputError, match=r"toy\.json, line 1: not a record .* Delete the line"):
        toy.read(TOY)


def test_code_lines_leave_out_words_and_what_reports():
    source = (
        '"""Module."""\n\nX = 1  # why\n\n\ndef f():\n    """Says."""\n    # why\n'
        '    return "a # b"\n'
        "\n\ndef judge():\n    return 2\n\n\nEXPERIMENT = f(\n    1\n)\n"
    )
    found = code_lines(source, records.REPORTING)
    assert found == ("X = 1", "def f():", '    return "a # b"')


def test_the_quick_form_has_one_seed_and_two_arms(toy):
    assert [(arm.name, seed, steps) for arm, seed, steps in TOY.trials(quick=True)] == [
        ("a", 0, 1),
        ("b", 0, 1),
    ]


def test_a_measurement_depends_on_what_its_module_imports():
    names = [code[0] for code in records.measuring_code("exact_mixing")]
    assert names == ["exact_mixing", "models", "plan", "sharing", "texts", "training"]
    assert "samplers" in [code[0] for code in records.measuring_code("scaling")]
