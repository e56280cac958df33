"""Which input a document came from, wherever metadata is shown; a number out of range raises."""

import json

import pytest
from hostile_content import replace_documents

import tokenloom as tl

DOCUMENTS = 6

ASKS = {
    "store.metadata": lambda store: [store.metadata(i)["_input"] for i in range(DOCUMENTS)],
    "batch.metadata": lambda store: [
        one["_input"] for row in store.windows(4).batch(range(DOCUMENTS)).metadata for one in row
    ],
    "run.at": lambda store: [
        span.metadata["_input"]
        for row in store.windows(4).at(range(DOCUMENTS), metadata=True)
        for span in row.spans
    ],
    "a condition": lambda store: [
        name
        for document in range(DOCUMENTS)
        for name in ("a.jsonl", "b.jsonl", "c.jsonl")
        if document in chosen(store, f"_input=={name}")
    ],
    "a function": lambda store: [
        name
        for document in range(DOCUMENTS)
        for name in ("a.jsonl", "b.jsonl", "c.jsonl")
        if document in chosen(store, lambda row, name=name: row["_input"] == name)
    ],
}


def chosen(store, key):
    several = {"num_docs": DOCUMENTS, "on_shortage": "fewer", "doc_select_mode": "first"}
    return store.select(doc_key=key, **several).indices.tolist()


def built(folder, names, **options):
    """Two documents of four tokens from each input."""
    for name in names:
        rows = [json.dumps({"text": f"{name}{i}{name}{i}"}) for i in range(2)]
        (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    paths = [str(folder / f"{name}.jsonl") for name in names]
    tl.build(paths, folder / "s", tokenizer="bytes", **options)
    return folder / "s"


@pytest.mark.parametrize("ask", ASKS)
def test_every_answer_names_the_same_input(tmp_path, ask):
    built(tmp_path, "ab")
    root = built(tmp_path, "c", append=True)
    assert ASKS[ask](tl.open(root)) == [f"{name}.jsonl" for name in "aabbcc"]


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("number", [3, 1 << 30, -1, "x"])
def test_an_input_that_is_not_there_raises_everywhere(tmp_path, ask, number):
    root = built(tmp_path, "abc")
    replace_documents(root, {"_input": [number] * DOCUMENTS, "_record": [0, 1] * 3})
    with pytest.raises(tl.StoreCorrupt) as refused:
        ASKS[ask](tl.open(root))
    assert f"input {number!r}" in str(refused.value)
    assert str(root) in str(refused.value)
