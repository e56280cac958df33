"""Every row of required behavior has a test by name in this folder."""

from pathlib import Path

from rows import CHAPTERS, ELSEWHERE, ROWS, named_rows


def test_every_row_has_a_test_by_name():
    named = named_rows(Path(__file__).parent)
    assert sum(CHAPTERS.values()) == len(set(ROWS)) == 370
    assert [row for row in ROWS if row not in named and row not in ELSEWHERE] == []


def test_a_row_without_a_test_is_noticed(tmp_path):
    (tmp_path / "test_x.py").write_text("def test_ts_01_ts_03_reads():\n    pass\n# test_ts_02_x\n")
    assert set(named_rows(tmp_path)) == {"ts_01", "ts_03"}
