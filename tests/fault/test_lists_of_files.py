"""An index that lists a file twice is refused: its documents would be trained on twice."""

import json

import numpy as np
import pytest
from everyformat import EVERY
from foreignfiles import write_litdata, write_mds

import tokenloom as tl

DOCUMENTS = [[5, 6, 7], [8, 9], [1, 2, 3, 4]]


def test_an_index_that_lists_a_file_twice_is_refused(tmp_path):
    tokens = {"tokens": [np.array(one, np.int32) for one in DOCUMENTS]}
    write_mds(tmp_path / "mds", tokens, files=2)
    write_litdata(tmp_path / "litdata", DOCUMENTS, files=2)
    for folder, key in (("mds", "shards"), ("litdata", "chunks")):
        path = tmp_path / folder / "index.json"
        index = json.loads(path.read_text())
        assert tl.open(path.parent).num_tokens == 9
        index[key].append(index[key][0])
        path.write_text(json.dumps(index))
        name = index[key][0].get("filename") or index[key][0]["raw_data"]["basename"]
        with pytest.raises(tl.StoreCorrupt) as refused:
            tl.open(path.parent)
        assert name in str(refused.value)
        assert str(path) in str(refused.value)


def test_a_shard_that_is_listed_raw_and_compressed_is_refused(tmp_path):
    folder, _, _ = EVERY["mds, compressed"](tmp_path, DOCUMENTS)
    path = folder / "index.json"
    index = json.loads(path.read_text())
    (shard,) = index["shards"]
    other = {**shard, "raw_data": {**shard["raw_data"], "basename": "other.mds"}}
    path.write_text(json.dumps({**index, "shards": [shard, other]}))
    with pytest.raises(tl.StoreCorrupt, match=shard["zip_data"]["basename"]):
        tl.open(folder)


def test_a_saved_dataset_that_lists_a_file_twice_is_refused(tmp_path):
    folder, _, _ = EVERY["a saved dataset"](tmp_path, DOCUMENTS)
    state = json.loads((folder / "state.json").read_text())
    state["_data_files"] *= 2
    (folder / "state.json").write_text(json.dumps(state))
    with pytest.raises(tl.StoreCorrupt, match=r"a\.arrow"):
        tl.open(folder)
