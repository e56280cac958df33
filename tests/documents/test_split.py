import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import quick_folder
from slowhash import slow_hash
from toydata import ToyStore, numbered

import tokenloom as tl
from tokenloom.documents import split
from tokenloom.documents.split import SplitSpec, content_hashes, id_hashes, part_numbers
from tokenloom.random.keys import key
from tokenloom.store import metadata
from tokenloom.testing import tiny

THREE = {"train": 0.8, "valid": 0.15, "test": 0.05}


@pytest.fixture(scope="module")
def toy():
    with ToyStore(numbered([[3] * 300, [2] * 200])) as made:
        yield made


def sides(parts):
    return {document: name for name, part in parts.items() for document in part.indices.tolist()}


@pytest.mark.parametrize("by", ["id", "content"])
def test_parts_are_disjoint_and_complete(toy, by):
    parts = toy.store.split(THREE, by=by)
    together = np.concatenate([part.indices for part in parts.values()])
    assert sorted(together.tolist()) == list(range(500))
    assert list(parts) == list(THREE)
    for part in parts.values():
        assert (np.diff(part.indices) > 0).all()  # in stored order
        assert part.num_documents == len(part.indices)
        lengths = [len(toy.documents[d]) for d in part.indices.tolist()]
        assert part.num_tokens == sum(lengths)


def joined(groups):
    """The hashes of all groups, in one list."""
    return [one for group in groups for one in group.tolist()]


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=6).filter(any),
    st.lists(st.integers(0, 2**64 - 1), max_size=50),
)
def test_every_hash_is_in_one_part(shares, hashes):
    total = sum(shares)
    names = [f"part {i}" for i in range(len(shares))]
    specs = SplitSpec.all_of(
        dict(zip(names, [share / total for share in shares], strict=True)), "id", 0
    )
    edges = [0, 1, 2**63, 2**64 - 2, 2**64 - 1]
    every = np.array([*hashes, *edges], np.uint64)
    parts = {tuple(part_numbers(spec, every).tolist()) for spec in specs.values()}
    (numbers,) = parts  # the same for all
    found = [[i for i, one in enumerate(numbers) if one == part] for part in range(len(names))]
    assert sorted(itertools.chain(*found)) == list(range(len(every)))
    # a hash belongs to the part whose stretch of [0, 1) contains it, up to rounding
    ends = [sum(shares[: i + 1]) / total for i in range(len(shares))]
    for number, here in enumerate(found):
        low = ends[number - 1] if number else 0
        for place in here:
            assert low - 1e-9 <= int(every[place]) / 2**64 <= ends[number] + 1e-9


@pytest.mark.parametrize("by", ["id", "content"])
@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_shares_are_near_what_was_asked(toy, by, seed):
    parts = toy.store.split(THREE, by=by, seed=seed)
    for name, share in THREE.items():
        sigma = math.sqrt(500 * share * (1 - share))
        assert abs(parts[name].num_documents - 500 * share) < 5 * sigma


@pytest.mark.parametrize("by", ["id", "content"])
def test_another_seed_is_another_split_and_the_same_one_the_same(toy, by):
    half = {"a": 0.5, "b": 0.5}
    found = [sides(toy.store.split(half, by=by, seed=seed)) for seed in (0, 1, 2, 0)]
    assert found[0] == found[3]
    for i, j in ((0, 1), (0, 2), (1, 2)):  # unrelated: about half of all documents change sides
        changed = sum(found[i][d] != found[j][d] for d in range(500))
        assert abs(changed - 250) < 5 * math.sqrt(125)


def records(count, start=0):
    places = range(start, start + count)
    return [{"text": f"tale {i % 37} of {i}", "id": f"doc-{i}"} for i in places]


@pytest.mark.parametrize("by", ["id", "content"])
@pytest.mark.parametrize("id_key", ["id", None])
def test_appending_moves_nobody(by, id_key):
    with quick_folder() as folder:
        build = {"tokenizer": "bytes", "id_key": id_key}
        before = tl.build(records(60), folder / "s", **build)
        old = sides(before.split(THREE, by=by))
        tl.build(records(40, 60), folder / "s", append=True, **build)
        new = sides(tl.open(folder / "s").split(THREE, by=by))
        assert len(new) == 100
        assert {d: new[d] for d in range(60)} == old


def test_an_id_decides_wherever_its_document_stands():
    with quick_folder() as folder:
        build = {"tokenizer": "bytes", "id_key": "id"}
        rows = records(50)
        one = tl.build(rows, folder / "one", **build)
        other = tl.build(rows[::-1], folder / "other", **build)
        a, b = sides(one.split(THREE)), sides(other.split(THREE))
        assert [a[d] for d in range(50)] == [b[49 - d] for d in range(50)]


def test_equal_documents_stand_on_one_side_by_content():
    pieces = [[1, 2, 3], [3, 2, 1], [1], [], [2, 2, 2, 2], [1, 2]]
    shards = [[pieces[i % 6] for i in range(40)], [pieces[5 - i % 6] for i in range(40)]]
    with ToyStore(shards) as toy:
        for seed in range(5):
            found = sides(toy.store.split({"a": 0.5, "b": 0.5}, by="content", seed=seed))
            for piece in pieces:
                assert len({found[d] for d in range(80) if toy.documents[d] == piece}) == 1


def test_content_is_all_tokens_in_their_order():
    texts = [[1, 2, 3], [2, 1, 3], [1, 2], [1, 2, 3, 0], [0, 1, 2, 3], [], [0], [0, 0], [6], [1, 5]]
    with ToyStore([texts]) as toy:
        assert len(set(joined(content_hashes(toy.store.reader, 0)))) == len(texts)


def test_content_does_not_depend_on_where_a_document_lies():
    long, short = list(range(50)), [7, 8]
    with ToyStore([[short, long], [[], long, short]]) as toy:
        whole = joined(content_hashes(toy.store.reader, 3))
        for step in (1, 2, 3):  # documents whose hashes are read at a time
            with tiny(hash_chunk_documents=step):
                assert joined(content_hashes(toy.store.reader, 3)) == whole
        assert whole[0] == whole[4]
        assert whole[1] == whole[3]


def test_a_split_by_content_reads_no_token(toy):
    before = toy.store.reads.bytes
    assert toy.store.split(THREE, by="content", seed=71)["train"].num_documents
    assert toy.store.reads.bytes == before


def test_a_split_by_content_is_worked_out_from_the_hashes_of_the_documents():
    """The rule, in Python's integers: no change may move a document to another part."""

    def mixed(word):
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
        return word ^ word >> 31

    documents = [[1, 2, 3], [], [70, 70], list(range(30))]
    with ToyStore([documents]) as toy:
        for seed in (0, 9):
            start, expected = key(seed, "split", "content"), []
            for ids in documents:
                high, low = (int.from_bytes(slow_hash(ids)[i : i + 8]) for i in (0, 8))
                expected.append(mixed(mixed((low + start) % 2**64) ^ high))
            assert joined(content_hashes(toy.store.reader, seed)) == expected


@pytest.mark.parametrize(
    "shares",
    [
        {},
        {"a": 0.5},
        {"a": 0.5, "b": 0.6},
        {"a": -0.5, "b": 1.5},
        {"a": float("nan"), "b": 1.0},
        {"a": float("inf")},
        {"a": float("inf"), "b": float("-inf")},
        {"a": "half", "b": 0.5},
        {"a": None},
    ],
)
def test_shares_that_are_no_parts_of_a_whole_are_refused(toy, shares):
    with pytest.raises(tl.ConfigError, match="add up to 1"):
        toy.store.split(shares)


def test_other_wrong_splits_are_refused_at_once(toy):
    with pytest.raises(tl.ConfigError, match=r"split\.by: found 'text', allowed: id, content"):
        toy.store.split(THREE, by="text")
    for seed in (-1, 2**64, 1.5, "x"):
        with pytest.raises(tl.ConfigError, match="seed"):
            toy.store.split(THREE, seed=seed)


def test_shares_may_be_any_numbers_that_add_up(toy):
    assert toy.store.split({"all": 1})["all"].num_documents == 500
    parts = toy.store.split({"all": 1.0, "none": 0.0})
    assert parts["none"].num_documents == 0
    assert len(parts["none"].windows(4, tail="keep")) == 0
    tenths = toy.store.split({str(i): 0.1 for i in range(10)})  # 0.1 ten times is not quite 1
    assert sum(part.num_documents for part in tenths.values()) == 500


def test_a_part_is_cut_like_a_store_of_its_documents(toy):
    part = toy.store.split(THREE, by="content")["valid"]
    stream = [t for d in part.indices.tolist() for t in toy.documents[d]]
    dataset = part.windows(4)
    assert len(dataset) == len(stream) // 4
    tokens = dataset.batch(range(len(dataset))).tokens
    assert tokens.reshape(-1).tolist() == stream[: 4 * len(dataset)]


def test_parts_in_one_cache_do_not_mix(toy):
    for part in toy.store.split({"a": 0.5, "b": 0.5}).values():
        dataset = part.windows(4).block_shuffle(window_blocks=2)
        renderer, every = dataset.renderer(by_blocks=True), np.arange(len(dataset))
        kept = renderer.batches(renderer.plan(every), [0, len(every)])[0].make()
        np.testing.assert_array_equal(kept.tokens, dataset.batch(every).tokens)


def test_documents_are_hashed_once_for_a_chain_of_settings(toy, monkeypatch):
    calls = []

    def counting(*arguments):
        calls.append(1)
        return content_hashes(*arguments)

    monkeypatch.setattr(split, "content_hashes", counting)
    part = toy.store.split(THREE, by="content", seed=77)["train"]
    dataset = part.windows(4).block_shuffle(window_blocks=2).seed(3).epochs(2)
    dataset.batch([0, 1])
    assert dataset.fingerprint
    assert part.num_documents
    assert part.num_tokens
    assert len(calls) == 1


def test_the_list_of_documents_cannot_be_changed_by_its_reader(toy):
    part = toy.store.split(THREE)["train"]
    with pytest.raises(ValueError, match="read-only"):
        part.indices[0] = 5


@pytest.mark.parametrize("parquet", [True, False])
def test_ids_of_any_kind_are_hashed_as_their_text_and_numbers_stand_in(
    tmp_path, monkeypatch, parquet
):
    """More documents than one group of metadata; checks every id against the key of its path."""
    monkeypatch.setattr(metadata, "have_pyarrow", lambda: parquet)
    given_ids = [None, "", "a", "b", 5, True, 1.5, {"b": [1]}, "long " * 60, "é€"]
    records = [{"text": "x", "id": given_ids[i % 10]} for i in range(metadata.GROUP + 30)]
    store = tl.build(records, tmp_path / "s", tokenizer="bytes", progress=False)
    stored = [store.reader.metadata(i).get("id") for i in range(len(records))]
    expected = [key(3, "split", i if one is None else str(one)) for i, one in enumerate(stored)]
    assert joined(id_hashes(store.reader, 3)) == expected
    assert {str(one) for one in stored} >= {"None", "", "a", "5", "True", "1.5", "é€"}


def test_a_store_without_metadata_is_split_by_number(toy):
    expected = [key(0, "split", i) for i in range(500)]
    assert joined(id_hashes(toy.store.reader, 0)) == expected
