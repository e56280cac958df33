"""A document whose BOS ends a row continues in the next row, with its first token."""

import numpy as np
import pytest

import tokenloom as tl


@pytest.fixture
def packed(tmp_path):
    """Rows of 5: [B abc B] [defgh] [B ijkl] [mnop]; the BOS of the second document is alone."""
    records = [{"text": text} for text in ("abc", "defgh", "ijklmnop")]
    store = tl.build(records, tmp_path / "store", tokenizer="bytes")
    return store.pack(5, strategy="sequential", add_bos=True, bos_id=1)


def test_a_bos_in_the_last_cell_of_a_row_is_no_breach(packed):
    batch = packed.batch(range(4))
    assert batch.tokens[0].tolist() == [1, *b"abc", 1]
    assert batch.tokens[1].tolist() == list(b"defgh")
    assert batch.continues.tolist() == [
        [False, False],
        [True, False],
        [False, False],
        [True, False],
    ]
    report = tl.check_batch(batch)
    assert report.ok, report


def test_an_audit_of_such_rows_holds(packed):
    audit = packed.audit()
    assert audit.ok, audit


@pytest.mark.parametrize("row", [0, 1])
def test_a_wrong_continuation_is_still_found(packed, row):
    batch = packed.batch(range(4))
    names = ("tokens", "segment_ids", "document_starts", "continues", "spans")
    arrays = {name: getattr(batch, name) for name in names}
    arrays["continues"] = np.array(batch.continues)
    arrays["continues"][row, 0] ^= True
    report = tl.check_batch(arrays)
    assert {problem.law for problem in report.problems} == {"continues"}
    assert report.problems[0].row == row
