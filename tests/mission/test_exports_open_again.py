"""An export opens with the digest, the columns and the metadata of the store it came from."""

import pytest
from exports import COLUMNS, same
from toystore import toy

import tokenloom as tl
from tokenloom.exchange import export

OPENED = ("megatron", "levanter", "parquet", "mds", "npy")


@pytest.mark.parametrize("documents", [[[5, 2, 6, 2], [2], [2, 2, 7]], [[1, 2**31 - 1]]])
@pytest.mark.parametrize("to", OPENED)
def test_eos_inside_a_document_and_the_largest_id_come_back(tmp_path, to, documents):
    """So an export has no reason to refuse them, as docs/stores.md says."""
    rows = [{"input_ids": ids} for ids in documents]
    store = tl.build(rows, tmp_path / "s", tokenizer=None, vocab_size=2**31)
    export(store, tmp_path / "out", to=to)
    again = tl.open(tmp_path / "out", vocab_size=2**31)
    assert same(again.documents(range(len(documents))), documents)
    assert again.digest == store.digest


@pytest.mark.parametrize("to", OPENED)
def test_an_export_opens_with_the_same_digest_and_is_exported_again(tmp_path, to):
    documents = [[1, 2, 3], [70_000], [4, 5] * 30, [6]]
    columns = dict(COLUMNS) if to in ("parquet", "mds", "npy") else None
    if to == "levanter":  # its other leaves are written, and not read here
        columns = {name: COLUMNS[name] for name in ("loss_mask", "loss_weights")}
    store = toy(tmp_path / "s", [documents[:1], documents[1:]], vocab_size=100_000, columns=columns)
    export(store, tmp_path / "out", to=to)
    again = tl.open(tmp_path / "out")
    assert again.digest == store.digest
    assert again.columns == store.columns
    assert same(again.documents(range(4)), documents)
    export(tmp_path / "out", tmp_path / "second", to=to)
    assert tl.open(tmp_path / "second").digest == store.digest


@pytest.mark.parametrize("to", ["parquet", "mds"])
def test_metadata_comes_back(tmp_path, to):
    rows = [
        {"input_ids": [1, 2], "id": "a", "n": 1, "deep": {"k": [1, None, "é"]}},
        {"input_ids": [3], "id": "b", "n": 2},
    ]
    store = tl.build(rows, tmp_path / "s", tokenizer=None, vocab_size=9, id_key="id")
    export(store, tmp_path / "out", to=to)
    again = tl.open(tmp_path / "out")
    wanted = [{k: v for k, v in store.metadata(i).items() if k[0] != "_"} for i in range(2)]
    assert [again.metadata(i) for i in range(2)] == wanted
    assert (again.digest, again.vocab_size) == (store.digest, 9)
