"""docs/published.md: its exact tables are what the code gives, and every "no" has a reason."""

import doctest
import functools
import re
from pathlib import Path

import numpy as np
import pytest
from benchmarks.figures import Figure, Section

import tokenloom as tl
from benchmarks import figures, packing, published, published_packing, published_times
from tokenloom.evaluate import pz
from tokenloom.testing import write_store

ROOT = Path(__file__).parents[2]
PAGE = published.PAGE.read_text(encoding="utf-8")
REASONS = "## What could not be reproduced, and why"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Makes a table once."""
    return functools.cache(lambda name: published.EXACT[name](tmp_path_factory.mktemp(name)))


def section_of(name):
    """The table of this name in the page, with its comments."""
    (found,) = re.findall(rf"<!-- {name} -->.*?<!-- end of {name} -->", PAGE, re.DOTALL)
    return found


def rows_of(name):
    """The cells of a table of the page, without its head."""
    lines = [line for line in section_of(name).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("name", published.EXACT)
def test_do_10_the_page_holds_what_the_code_gives(made, name):
    assert figures.block(made(name)) == section_of(name), (
        f"run: python -m benchmarks published {name} --write"
    )


def test_the_page_has_every_table_once_and_none_besides():
    names = [*published.EXACT, published.EFFICIENCY, *published.TIMED]
    assert sorted(re.findall(r"<!-- (\w+) -->", PAGE)) == sorted(names)
    for name in names:
        assert rows_of(name), name
        assert f"`python -m benchmarks published {name}" in section_of(name)


def test_every_no_has_a_reason_and_every_reason_a_no():
    tables, reasons = PAGE.split(REASONS)
    asked = set(re.findall(r"\| no \((\w)\) \|", tables))
    assert asked == set(re.findall(r"^- \*\*\((\w)\) ", reasons, re.MULTILINE))
    assert len(asked) > 3


def test_every_test_that_the_page_names_exists():
    written = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/*.py"))
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 40
    assert [name for name in named if f"def {name}(" not in written] == []


# -- the rows behind tables ----------------------------------------------------------------


def test_our_rows_are_those_of_a_scan(made):
    for documents, (_, rows, _) in list(published_packing.SCANNED.items())[:2]:
        sizes = packing.document_lengths(documents, published_packing.LOG_MEDIAN)
        assert packing.scan(sizes.tolist()) == rows
    judged = {line[0]: line[-1] for line in made("scan").lines[1:]}
    assert list(judged.values()) == ["yes"] * 8 + [""] * 4
    assert list(judged)[-2:] == ["1,000,000 documents: rows", "1,000,000 documents: fill"]


def test_all_ways_to_positions_give_the_same():
    for documents in published_times.DOCUMENTS:
        first, *others = [way() for way in packing.position_ways(documents).values()]
        assert (np.diff(first, axis=1) != 1).sum() == 64 * (documents - 1)
        assert all(np.array_equal(first, one) for one in others)


def test_ways_that_differ_are_not_timed(monkeypatch):
    ways = packing.position_ways(2)
    name = "from EOS tokens"
    wrong = {**ways, name: lambda: ways[name]() + 1}
    monkeypatch.setattr(published_times, "position_ways", lambda _: wrong)
    with pytest.raises(ValueError, match="2 documents a row: the ways give different positions"):
        published_times.position_times("tiny")
    monkeypatch.setattr(published_times, "scan", lambda _: 480)
    with pytest.raises(ValueError, match="2,000 documents: the rows are not those of a scan"):
        published_times.scan_times("tiny")


def test_c_24_p_z_is_of_one_document_or_of_several(tmp_path):
    write_store(tmp_path, [[[1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5], [1, 2, 3]]])
    store = tl.open(tmp_path)

    def windows(documents):
        found = pz(lambda t, *_: np.zeros((*t.shape, 8)), documents, prefix=1, suffix=2, stride=1)
        return {number: one["windows"] for number, one in found.by_document().items()}

    assert windows(store) == {0: 5, 1: 3, 2: 1}
    assert windows(store.select(doc_index=1)) == {1: 3}
    assert windows(store.select(num_docs=2, doc_select_mode="shortest")) == {1: 3, 2: 1}


def test_efficiency_is_that_of_rows_counted_one_by_one(monkeypatch):
    """4 sequences of 1 token, 2 of 2 and 1 of 4 in rows of 4: 4 | 2 2 | 1 1 1 | 1 with 3 a row."""
    monkeypatch.setattr(Figure, "same", property(lambda _: ""))  # Wikipedia's figures are others
    found = {line[0]: line[2] for line in published_packing.efficiency([4, 2, 0, 1]).lines[1:]}
    assert found["sequences"] == "7"
    assert found["largest possible speed-up"] == f"{7 * 4 / 12:.4f}"
    assert found["least squares, at most 3 a row (NNLSHP): efficiency"] == "75.00%"
    assert found["best fit, at most 12 a row (LPFHP): efficiency"] == "100.0000%"
    assert found["best fit, at most 12 a row (LPFHP): speed-up"] == f"{7 / 3:.5f}"


def test_a_histogram_is_whole_numbers_with_anything_between(tmp_path):
    (tmp_path / "h").write_text("[0, 3,\n 12]\n")
    assert published_packing.read_histogram(tmp_path / "h").tolist() == [0, 3, 12]
    (tmp_path / "h").write_text("0 0")
    with pytest.raises(ValueError, match="found no count above 0, allowed: the number of sequence"):
        published_packing.read_histogram(tmp_path / "h")


# -- figures and the page ------------------------------------------------------------------


def test_the_examples_of_figures_run():
    assert doctest.testmod(figures).failed == 0


@pytest.mark.parametrize(("ours", "why"), [("13", "a"), ("12", "")])
def test_a_figure_has_a_reason_if_and_only_if_it_differs(ours, why):
    with pytest.raises(ValueError, match=r"rows: found .*allowed: a reason if and only if they di"):
        _ = Figure(what="rows", published="13", ours=ours, why=why).same


@pytest.mark.parametrize("page", ["", "<!-- a --> <!-- end of a --> <!-- a --> <!-- end of a -->"])
def test_a_table_that_has_no_place_of_its_own_is_refused(page):
    with pytest.raises(ValueError, match=r"a -->: found [02] times in the page, allowed: once"):
        figures.replaced(page, [Section(name="a", lines=(("x",), ("1",)))])


def test_write_renews_what_was_asked_for_and_nothing_else(tmp_path, capsys):
    page = tmp_path / "page.md"
    old = PAGE.replace("| `01234` `.0123` `..012` |", "| old |").replace("| 0 50 80 |", "| old |")
    page.write_text(old)
    words = ["boundaries", "--write", "--page", str(page)]
    assert published.main(words) == 0
    assert "## boundaries\n" in capsys.readouterr().out
    assert page.read_text() == PAGE.replace("| `01234` `.0123` `..012` |", "| old |")
    assert old != page.read_text() != PAGE


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["qualty"], "TABLE: found 'qualty', allowed: quality, mixing"),
        (["efficiency"], "efficiency: found no --histogram FILE"),
    ],
)
def test_tables_that_cannot_be_made_are_refused(words, told, capsys):
    with pytest.raises(SystemExit) as error:
        published.main(words)
    assert error.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.slow
def test_every_table_is_printed_by_one_command(tmp_path, capsys):
    (tmp_path / "page.md").write_text(PAGE)
    words = ["--size", "tiny", "--write", "--page", str(tmp_path / "page.md")]
    assert published.main(words) == 0
    out = capsys.readouterr().out
    for name in (*published.EXACT, *published.TIMED):
        assert f"## {name}\n\n| " in out
    assert "## efficiency\n\nLeft out: it needs --histogram FILE." in out
    written = (tmp_path / "page.md").read_text()
    assert written.split(REASONS)[1] == PAGE.split(REASONS)[1]
    assert section_of("efficiency") in written
