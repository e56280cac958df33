"""The page is a function of the records."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from science.__main__ import main
from science.records import HERE, Shelf, record_key
from science.registry import EXPERIMENTS
from science.report import table, write_report
from science.verdicts import Found

ROOT = Path(__file__).parents[2]


class Made(Shelf):
    """Two seeds of every arm, with figures that are as large as their names are long."""

    def read(self, experiment, *, quick=False):
        return [
            {
                "key": record_key(experiment, arm, seed, experiment.steps),
                "experiment": experiment.name,
                "arm": arm.name,
                "seed": seed,
                "figures": {name: 0.01 * len(arm.name + name) + seed for name in experiment.columns}
                | {"excess": 0.5, "off": 0.001},
                "curves": {
                    name: [(0.0, 2.0 + seed), (1.0, 1.0)]
                    for name in ("training", "in one piece", "killed and resumed")
                },
                "about": {"cpu_seconds": 12.3, "torch": "2.13.0"},
            }
            for arm in experiment.arms
            for seed in (0, 1)
        ]


@pytest.fixture
def page(tmp_path):
    return write_report(Made(tmp_path), tmp_path / "docs")


def test_every_section_has_question_table_picture_verdict_and_command(page):
    text = page.read_text()
    for name, one in EXPERIMENTS.items():
        section = text.partition(f"## {one.title}\n")[2].partition("\n## ")[0]
        assert one.asks in section
        assert all(f"| {arm.name} | 2 | " in section for arm in one.arms)
        assert "**Verdict: " in section
        assert f"`python -m science {name}`" in section
        assert f"](pictures/results-{name.replace('_', '-')}.svg)" in section
        assert " ± " in section
    assert str(ROOT) not in text


def test_pictures_are_whole_files_of_their_own(page):
    for name in EXPERIMENTS:
        path = page.parent / f"pictures/results-{name.replace('_', '-')}.svg"
        picture = ElementTree.fromstring(path.read_bytes())
        assert picture.tag.endswith("svg")
        assert b"href" not in path.read_bytes()
        assert b"nan" not in path.read_bytes()


def test_the_same_records_give_the_same_bytes(page, tmp_path):
    before = page.read_bytes()
    assert write_report(Made(tmp_path), tmp_path / "docs").read_bytes() == before


def test_without_records_the_page_says_what_was_not_measured(tmp_path):
    text = write_report(Shelf(tmp_path / "none"), tmp_path / "docs").read_text()
    assert text.count("| not measured |") == len(EXPERIMENTS)
    assert "\n## " not in text


def test_a_table_leaves_out_arms_and_columns_without_records():
    one = EXPERIMENTS["packing"]
    record = {"arm": "packed, split", "seed": 0, "figures": {"loss": 1.5}, "curves": {}}
    lines = list(table(one, Found([record])))
    assert lines == [
        "| arm | seeds | all tokens |",
        "|---|---:|---:|",
        "| packed, split | 1 | 1.5 |",
    ]


def test_the_page_of_the_documentation_is_what_the_results_say(tmp_path):
    made = write_report(Shelf(HERE / "results"), tmp_path)
    assert made.read_text() == (ROOT / "docs/results.md").read_text()
    for picture in (tmp_path / "pictures").iterdir():
        assert picture.read_bytes() == (ROOT / "docs/pictures" / picture.name).read_bytes()


def test_an_unknown_name_is_refused_with_a_near_miss():
    with pytest.raises(ValueError, match="Did you mean 'splice'"):
        main(["splize"])
