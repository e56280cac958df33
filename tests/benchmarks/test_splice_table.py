"""The table of splices: what it times is the published construction, or it is refused."""

import numpy as np
import pytest

import tokenloom as tl
from benchmarks import splice


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("splices") / "store"
    splice.write_documents(root, 2)
    return tl.open(root)


def first_batch(store, name):
    data = store.splice(splice.SEQ, pad_id=splice.PAD, **splice.SPLICES[name]).shuffle()
    return data, data.batch([5, 0, 3])


@pytest.mark.parametrize("name", splice.SPLICES)
@pytest.mark.parametrize("array", splice.ALL)
def test_one_wrong_cell_is_refused(store, name, array):
    documents = store.documents([0, 1])
    data, batch = first_batch(store, name)
    splice._check(data, batch, documents)
    values = getattr(batch, array)
    where = np.argwhere(batch.loss_mask)[17]
    values[tuple(where)] = 1 - values[tuple(where)]
    with pytest.raises(ValueError, match=array):
        splice._check(data, batch, documents)


@pytest.mark.parametrize("fields", splice.KINDS.values())
def test_the_rival_gives_windows_of_the_documents_at_the_right_end(store, fields):
    documents = store.documents([0, 1])
    batch = next(splice._one_by_one(documents, fields))
    assert tuple(batch) == fields
    assert {value.shape for value in batch.values()} == {(splice.BATCH, splice.SEQ)}
    left = splice.SEQ - splice.HALF
    assert (batch["tokens"][:, :left] == splice.PAD).all()
    for row in batch["tokens"]:
        starts = [(one, t) for one in documents for t in np.flatnonzero(one == row[left])]
        assert any(np.array_equal(one[t : t + splice.HALF], row[left:]) for one, t in starts)
