"""A batch as a list of rows: what a plain `DataLoader` of torch and other collators get."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, default_collate
from toyruns import toy_store

KEYS = ("input_ids", "labels", "loss_mask", "segment_ids", "position_ids", "index")

WIDE = ("input_ids", "labels")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return toy_store(tmp_path_factory.mktemp("toy")).pack(16)


def test_a_plain_dataloader_delivers_the_rows_of_the_run_in_the_dtypes_of_torch(run):
    for number, made in enumerate(DataLoader(run, batch_size=4)):
        first = 4 * number
        batch = run.batch(range(first, min(first + 4, len(run))))
        assert list(made) == [*KEYS, "use_cache"]
        for name in KEYS:
            wanted = torch.from_numpy(np.ascontiguousarray(batch[name]))
            assert torch.equal(made[name], wanted.long() if name in WIDE else wanted), name
            assert made[name].dtype == (torch.int64 if name in WIDE else wanted.dtype)


def test_other_collators_see_a_list_of_mappings_one_for_each_row(run):
    rows = run.__getitems__(range(3, 8))
    batch = run.batch(range(3, 8))
    assert len(rows) == len(list(rows)) == 5
    for number, row in enumerate(rows):
        assert len(row) == len(KEYS) == len(dict(row))
        for name in KEYS:
            assert row[name].tolist() == batch[name][number].tolist()
            assert row[name].dtype == (np.int64 if name in WIDE else batch[name].dtype)
    assert rows[-1]["input_ids"].tolist() == batch.tokens[4].tolist()
    some = rows[1:4:2]
    assert isinstance(some, list)
    assert [row["input_ids"].tolist() for row in some] == batch.tokens[1:4:2].tolist()
    with pytest.raises(IndexError):
        rows[5]


def test_rows_that_were_taken_apart_are_joined_to_the_same_tensors(run):
    rows = run.__getitems__(range(5))
    whole, parts = default_collate(rows), default_collate(list(rows))
    assert whole.keys() == parts.keys()
    assert whole.pop("use_cache") is parts.pop("use_cache") is False
    for name, value in whole.items():
        assert torch.equal(value, parts[name])
        assert value.dtype == parts[name].dtype
