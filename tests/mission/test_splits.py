"""Splits: parts that are disjoint, complete, fair, and stay as they are when documents come."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quickfolder import quick_folder
from refusals import refused
from slow_orders import slow_key
from slowhash import slow_hash
from toydata import ToyStore, numbered

import tokenloom as tl
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


# -- the oracle: the rule in Python's integers ------------------------------------------------


def mixed(word):
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
    return word ^ word >> 31


def content_word(ids, seed):
    high, low = (int.from_bytes(slow_hash(ids)[i : i + 8]) for i in (0, 8))
    return mixed(mixed((low + slow_key(seed, "split", "content")) % 2**64) ^ high)


def id_word(number, one, seed):
    return slow_key(seed, "split", number if one is None else str(one))


def slow_part(shares, word):
    """The part of a hash by the rule: edges in units of 2^-64."""
    begins = [min(int(sum(shares[:i]) * 2.0**64), 2**64 - 1) for i in range(len(shares))]
    return max(i for i, begin in enumerate(begins) if i == 0 or word >= begin)


def check_parts(store, shares, words, **options):
    named = {f"part {i}": share for i, share in enumerate(shares)}
    parts = [slow_part(shares, word) for word in words]
    found = store.split(named, **options)
    for number, part in enumerate(found.values()):
        assert part.indices.tolist() == [i for i, one in enumerate(parts) if one == number]


SHARES = [(1.0,), (0.5, 0.5), (0.25, 0.5, 0.25), (0.0, 1.0, 0.0), (0.875, 0.125), (0.05, 0.8, 0.15)]


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=30),
    st.sampled_from(SHARES),
    st.sampled_from([0, 9, 2**64 - 1]),
    st.integers(1, 9),
)
def test_a_split_by_content_is_that_of_the_rule(documents, shares, seed, step):
    """No change may move a document to another part; equal documents stand on one side."""
    with ToyStore([documents[:7], documents[7:]]) as toy, tiny(hash_chunk_documents=step):
        words = [content_word(ids, seed) for ids in documents]
        check_parts(toy.store, shares, words, by="content", seed=seed)
        assert toy.store.reads.bytes == 0


ids = st.one_of(
    st.none(),
    st.text("ab é€7", max_size=4),
    st.integers(-9, 2**40),
    st.booleans(),
    st.sampled_from([1.5, 0.0, 1e300, "tokenloom " * 100]),
)


@settings(max_examples=25)
@given(st.lists(ids, min_size=1, max_size=20), st.sampled_from(SHARES), st.integers(0, 3))
def test_a_split_by_id_is_that_of_the_rule(given_ids, shares, seed):
    """As by a loop over the metadata; the number of a document stands in for no id."""
    rows = [{"text": "ab", **({} if one is None else {"id": one})} for one in given_ids]
    with quick_folder() as folder:
        store = tl.build(rows, folder / "s", tokenizer="bytes", progress=False)
        stored = [store.metadata(number).get("id") for number in range(len(rows))]
        words = [id_word(number, one, seed) for number, one in enumerate(stored)]
        check_parts(store, shares, words, seed=seed)


def test_a_store_without_metadata_is_split_by_number(toy):
    check_parts(toy.store, (0.5, 0.5), [id_word(number, None, 0) for number in range(500)])


@pytest.mark.parametrize("by", ["id", "content"])
@pytest.mark.parametrize("seed", [0, 2**64 - 1])
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
    refused(lambda: toy.store.split(shares), tl.ConfigError, "split")


def test_other_wrong_splits_are_refused_at_once(toy):
    refused(lambda: toy.store.split(THREE, by="text"), tl.ConfigError, "split.by", "'text'")
    for seed in (-1, 2**64, 1.5, "x"):
        refused(lambda s=seed: toy.store.split(THREE, seed=s), tl.ConfigError, "seed", repr(seed))


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


def test_the_list_of_documents_cannot_be_changed_by_its_reader(toy):
    part = toy.store.split(THREE)["train"]
    with pytest.raises(ValueError, match="read-only"):
        part.indices[0] = 5


def split_mix(toy, count):
    """A mix of all parts of a split, and its description."""
    parts = toy.store.split({f"p{i}": 1 / count for i in range(count)})
    some = {name: part.windows(2) for name, part in parts.items() if part.num_tokens > 3}
    run = tl.mix(some).seed(1)
    return run, run.describe()


@pytest.mark.parametrize("count", [4, 30])
def test_a_mix_of_the_parts_of_a_split_is_described_and_opened_again(toy, count):
    """Many parts name their split instead of spelling it out in each."""
    run, described = split_mix(toy, count)
    assert ("splits" in described) == (count > 16)
    again = tl.from_config(described)
    assert again.fingerprint == run.fingerprint
    assert again.plan_digest(0, 50) == run.plan_digest(0, 50)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda choice: choice.update(split="x"), "'x'"),
        (lambda choice: choice.update(split=7), 7),
        (lambda choice: choice.update(part="x"), "'x'"),
        (lambda choice: choice.update(more=1), "more"),
    ],
)
def test_a_part_of_a_split_that_is_not_there_is_refused_by_its_path(toy, change, named):
    _, described = split_mix(toy, 30)

    def choices(node):
        if isinstance(node, dict):
            yield from [node["choice"]] if node.get("choice") else []
            node = list(node.values())
        for one in node if isinstance(node, list) else []:
            yield from choices(one)

    change(list(choices(described))[-1])
    refused(lambda: tl.from_config(described), tl.ConfigError, "choice", named)


def test_a_few_are_chosen_from_pieces_of_the_lengths_as_from_all(toy):
    """A piece of the lengths at a time gives what all lengths give."""
    for mode in ("longest", "shortest", "first", "random"):
        for settings_ in ({"num_docs": 7}, {"num_docs": 40, "min_doc_length": 3}):
            expected = toy.store.select(doc_select_mode=mode, **settings_).indices.tolist()
            with tiny(offset_chunk_documents=16):
                store = tl.open(toy.path)
                found = store.select(doc_select_mode=mode, **settings_).indices.tolist()
            assert found == expected
