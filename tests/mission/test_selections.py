"""Selections of documents against lists and sorts, and what can be done with them."""

import itertools
import json
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from slow_orders import slow_key
from slowhash import slow_hash
from toydata import ToyStore, numbered

import tokenloom as tl
from tokenloom.testing import tiny, write_flat

MODES = ("longest", "shortest", "first", "random")

pytestmark = pytest.mark.filterwarnings("ignore:seq_len")


@pytest.fixture
def stores():
    """Makes stores from the lengths of their documents; all tokens differ."""
    opened = []

    def make(*lengths, first=0, **options):
        opened.append(ToyStore(numbered([list(lengths)], first), **options))
        return opened[-1].store

    yield make
    for one in opened:
        one.__exit__()


def chosen(store, **settings):
    return store.select(**settings).indices.tolist()


TEN = (4, 9, 2, 7, 7, 1, 8, 3, 6, 5)


# -- the oracle: lists and sorts, from the requirement ---------------------------------------------


class Refused(Exception):
    pass


def slow_select(
    lengths,
    digest="",
    num_docs=None,
    doc_index=None,
    doc_select_mode="longest",
    min_doc_length=None,
    max_doc_length=None,
    training_tokens=None,
    on_shortage=None,
    doc_index_policy="fallback",
    seed=0,
):
    """(documents in order, whether there is a warning); raises Refused where an error is due."""
    ends = list(itertools.accumulate(lengths))
    pool = [
        d
        for d in range(len(lengths))
        if lengths[d] > 0 and (training_tokens is None or ends[d] <= training_tokens)
    ]

    def fits(d):
        return (min_doc_length is None or lengths[d] >= min_doc_length) and (
            max_doc_length is None or lengths[d] <= max_doc_length
        )

    asked = [str(one) for one in (num_docs, min_doc_length, max_doc_length)]
    ranks = {
        "longest": lambda d: (-lengths[d], d),
        "shortest": lambda d: (lengths[d], d),
        "random": lambda d: slow_key(seed, "select", digest, *asked, d),
    }
    single = num_docs is None and (doc_index is None or len(doc_index) == 1)
    shortage = on_shortage or ("backfill_longest" if single else "error")

    def pick(count, taken):
        candidates = [d for d in pool if fits(d) and d not in taken]
        if doc_select_mode != "first":
            candidates.sort(key=ranks[doc_select_mode])
        found = candidates[:count]
        if shortage == "backfill_longest":
            others = sorted((d for d in pool if not fits(d)), key=ranks["longest"])
            found += others[: count - len(found)]
        if len(found) == count or (shortage == "fewer" and (found or taken)):
            return found
        raise Refused

    if doc_index is None:
        found = pick(num_docs or 1, [])
        return found, num_docs is None and not fits(found[0])
    if any(d >= len(lengths) or lengths[d] == 0 for d in doc_index):
        raise Refused
    good = [d for d in doc_index if d in pool and (fits(d) or doc_index_policy == "honor")]
    if good == list(doc_index):
        return good, False
    if doc_index_policy != "fallback":
        raise Refused
    others = iter(pick(len(doc_index) - len(good), good))
    placed = [d if d in good else next(others, None) for d in doc_index]
    return [d for d in placed if d is not None], True


sizes = st.lists(st.sampled_from([0, 0, 1, 2, 3, 3, 5, 8, 13]), max_size=12)


@st.composite
def requests(draw, lengths):
    """Settings of a selection, most of which are valid."""
    maybe = st.none() | st.integers(1, 14)
    low, high = draw(maybe), draw(maybe)
    if low is not None and high is not None and high < low:
        low, high = high, low
    found = {
        "num_docs": draw(st.none() | st.integers(1, 6)),
        "doc_select_mode": draw(st.sampled_from(MODES)),
        "min_doc_length": low,
        "max_doc_length": high,
        "training_tokens": draw(st.none() | st.integers(1, 60)),
        "on_shortage": draw(st.sampled_from([None, None, "error", "fewer", "backfill_longest"])),
        "doc_index_policy": draw(st.sampled_from(["fallback", "honor", "error"])),
        "seed": draw(st.integers(0, 3)),
    }
    if draw(st.booleans()):
        places = st.integers(0, max(0, len(lengths) - 1) + draw(st.integers(0, 1)))
        found["doc_index"] = tuple(
            draw(st.lists(places, min_size=1, max_size=4, unique=True)),
        )
        found["num_docs"] = draw(st.sampled_from([None, len(found["doc_index"])]))
    return found


def settings_of(request):
    """A request as arguments of `select`."""
    found = dict(request)
    cutoff = found.pop("training_tokens")
    if cutoff is not None:
        found |= {"restrict_to_training_subset": True, "max_train_batches": cutoff}
        found |= {"initial_batch_size": 1, "seq_len": 1}
    return found


@settings(max_examples=60)
@given(st.data(), sizes)
@pytest.mark.parametrize("many", [False, True])
def test_a_selection_is_what_lists_and_sorts_say(many, data, lengths):
    """Of some documents, and of more than are listed to choose a few."""
    lengths = lengths + [3, 5, 0, 2] * 10 * many
    request = data.draw(requests(lengths))
    with ToyStore(numbered([lengths])) as toy, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with tiny(offset_chunk_documents=7):
            try:
                expected, warned = slow_select(lengths, toy.store.digest, **request)
            except Refused:
                with pytest.raises(tl.ConfigError):
                    toy.store.select(**settings_of(request))
                return
            made = toy.store.select(**settings_of(request))
            assert made.indices.tolist() == expected
            assert bool(seen) == warned
            dataset = made.windows(3, tail="keep").shuffle().seed(1)
            text = json.dumps(dataset.describe())
            seen.clear()
            for there in (tl.from_config(json.loads(text)), pickle.loads(pickle.dumps(dataset))):
                assert json.dumps(there.describe()) == text
                assert there.fingerprint == dataset.fingerprint
                every = range(len(dataset))
                assert (there.batch(every).tokens == dataset.batch(every).tokens).all()


def test_the_oracle_can_fail():
    assert slow_select([3, 5, 7], min_doc_length=5) == ([2], False)
    assert slow_select([3, 5], min_doc_length=100) == ([1], True)
    with pytest.raises(Refused):
        slow_select([3, 5, 7], min_doc_length=5, num_docs=3)


def test_random_draws_are_fair(stores):
    store, counts = stores(*[3] * 40), np.zeros(40)
    for seed in range(400):
        counts[chosen(store, num_docs=10, doc_select_mode="random", seed=seed)] += 1
    sigma = np.sqrt(400 * 0.25 * 0.75)
    assert abs(counts - 100).max() < 4.5 * sigma
    assert 0.5 < (counts.var() / sigma**2) < 1.8


# -- the training subset ---------------------------------------------------------------------------

SUBSET = {
    "restrict_to_training_subset": True,
    "max_train_batches": 1,
    "initial_batch_size": 128,
    "seq_len": 16,
}


@pytest.mark.parametrize("name", ["max_train_batches", "initial_batch_size", "seq_len"])
def test_what_the_subset_needs_is_named(stores, name):
    store = stores(3, 5)
    for wrong in (None, 0, 1.5, "8", True):
        shown = "restrict_to_training_subset" if wrong is None else repr(wrong)
        refused(lambda w=wrong: store.select(**SUBSET | {name: w}), tl.ConfigError, name, shown)


# -- keys, functions, hashes -----------------------------------------------------------------------

RECORDS = [
    {"text": "a" * (i + 1), "id": f"a{i}", "n": i, "lang": "de" if i % 3 else "en"}
    for i in range(10)
]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A store with metadata."""
    rows = [dict(row) for row in RECORDS]
    rows[4] |= {"title": "war and peace", "old": True, "share": 0.5}
    rows[7] |= {"title": "a=b", "old": False, "share": 2, "tags": ["x"]}
    folder = tmp_path_factory.mktemp("kept")
    return tl.build(rows, folder / "s", tokenizer="bytes", progress=False)


@pytest.mark.parametrize(
    ("condition", "meet"),
    [
        ("n==3", [3]),
        ("n == 3.0", [3]),
        ("n != 3", [0, 1, 2, 4, 5, 6, 7, 8, 9]),
        ("n<2", [0, 1]),
        ("n <= 2", [0, 1, 2]),
        ("n>8", [9]),
        ("n >= 10", []),
        ("n == three", []),
        ("n != three", list(range(10))),
        ("lang == en", [0, 3, 6, 9]),
        ("lang=='en' and n > 2", [3, 6, 9]),
        ('lang!="en"  and  n<=4 and id >= a2', [2, 4]),
        ("title == 'war and peace'", [4]),
        ('title=="a=b"', [7]),
        ("title != x", [4, 7]),
        ("old == true", [4]),
        ("old==False", [7]),
        ("share > 0.5", [7]),
        ("share <= 2", [4, 7]),
        ("tags == x", []),
        ("_record >= 8", [8, 9]),
    ],
)
def test_conditions_on_metadata(kept, condition, meet):
    if not meet:
        refused(lambda: kept.select(doc_key=condition), tl.ConfigError, "doc_key", 10)
        return
    spec = {"doc_select_mode": "first", "num_docs": 10, "on_shortage": "fewer"}
    made = kept.select(doc_key=condition, **spec)
    assert made.indices.tolist() == meet
    assert kept.reads.bytes == 0


def test_inputs_are_known_by_their_names(tmp_path):
    for name in ("one", "two"):
        lines = [json.dumps({"text": f"{name} {i}"}) + "\n" for i in range(3)]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    paths = [str(tmp_path / f"{name}.jsonl") for name in ("one", "two")]
    store = tl.build(paths, tmp_path / "s", tokenizer="bytes", progress=False)
    more = {"append": True, "duplicates": "allow", "progress": False}
    store = tl.build(paths[:1], tmp_path / "s", tokenizer="bytes", **more)
    several = {"num_docs": 9, "on_shortage": "fewer", "doc_select_mode": "first"}
    name = store.metadata(0)["_input"]
    expected = [d for d in range(9) if store.metadata(d)["_input"] == name]
    assert expected == [0, 1, 2, 6, 7, 8]
    assert chosen(store, doc_key=f"_input=='{name}'", **several) == expected
    assert chosen(store, doc_key=lambda row: row["_input"] == name, **several) == expected


@pytest.mark.parametrize(
    "text",
    ["", "a7", "id==", "id==a7 or id==a8", "id==a7 and", "__import__('os')==1"],
)
def test_what_is_no_condition_is_refused_or_met_by_none(kept, text):
    with pytest.raises(tl.ConfigError, match="doc_key: "):
        kept.select(doc_key=text)


def test_a_column_that_is_not_there_is_told_with_those_that_are(kept, stores):
    refused(lambda: kept.select(doc_key="lnag==en"), tl.ConfigError, "doc_key", "'lnag'", "lang")
    bare = stores(3, 5)
    refused(lambda: bare.select(doc_key="lang==en"), tl.ConfigError, "doc_key", bare.path)


def test_other_settings_apply_among_those_that_meet_the_key(kept):
    assert chosen(kept, doc_key="lang==en", max_doc_length=8) == [6]
    assert chosen(kept, doc_key="lang==en", num_docs=2, doc_select_mode="shortest") == [0, 3]
    function = {"doc_key": lambda record: record["lang"] == "en"}
    assert chosen(kept, **function, num_docs=2, doc_select_mode="shortest") == [0, 3]
    with pytest.warns(UserWarning, match="no document meets min_doc_length=100"):
        assert chosen(kept, doc_key="lang==en and n<9", min_doc_length=100) == [6]
    with pytest.raises(tl.ConfigError, match="1 of 2"):
        kept.select(doc_key="id==a7", num_docs=2)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "settings",
    [{}, {"num_docs": 2}, {"num_docs": 3, "min_doc_length": 7, "on_shortage": "backfill_longest"}],
)
def test_a_function_is_written_down_as_the_documents_it_came_down_to(kept, mode, settings):
    function = kept.select(
        doc_key=lambda record: record["lang"] == "en", doc_select_mode=mode, **settings
    )
    text = kept.select(doc_key="lang==en", doc_select_mode=mode, **settings)
    assert function.indices.tolist() == text.indices.tolist()
    described = function.windows(1).describe()
    assert described["choice"]["documents"] == sorted(function.indices.tolist())
    again = tl.from_config(json.loads(json.dumps(described)))
    np.testing.assert_array_equal(
        again.batch(range(len(again))).tokens, text.windows(1).batch(range(len(again))).tokens
    )


def test_a_choice_by_hash_reads_no_token():
    shards = [[[1, 2], [], [3] * 9, [1, 2, 3]], [[4] * 5, [1, 2], [5] * 7, [1, 2]]]
    with ToyStore(shards, verify="never") as toy:
        for document, tokens in enumerate(toy.documents):
            if tokens:
                same = [d for d, other in enumerate(toy.documents) if other == tokens]
                hashed = slow_hash(tokens).hex()
                several = {"num_docs": 9, "on_shortage": "fewer"}
                assert chosen(toy.store, doc_hash=hashed, **several) == same
                assert chosen(toy.store, doc_hash=hashed[:10]) == [same[0]], document
        assert toy.store.reads.bytes == 0


def test_doc_selector_is_another_name_of_three_settings(stores):
    store = stores(*TEN)
    several = {"num_docs": 2, "doc_select_mode": "first"}
    assert chosen(store, doc_selector={"min_len": 7}, **several) == [1, 3]
    assert chosen(store, doc_selector={"min_len": 7, "max_len": 7}, **several) == [3, 4]
    assert chosen(store, doc_selector={"min_len": None}, **several) == [0, 1]
    assert chosen(store, doc_selector={"min_len": 7}, min_doc_length=7, **several) == [1, 3]
    for selector, named in (
        ({"min_length": 7}, ("'min_length'", "min_len")),
        ({"min_len": 7}, ("doc_selector.min_len", 7, 6)),
        (7, ("doc_selector", "int")),
    ):
        call = lambda one=selector: store.select(doc_selector=one, min_doc_length=6)  # noqa: E731
        refused(call, tl.ConfigError, *named)


# -- invalid settings ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"num_docs": 0},
        {"num_docs": 1.5},
        {"num_docs": True},
        {"doc_index": -1},
        {"doc_index": "2"},
        {"doc_index": 2**70},
        {"doc_key": 5},
        {"doc_hash": "0" * 7},
        {"doc_hash": "g" * 8},
        {"doc_select_mode": "longst"},
        {"min_doc_length": -1},
        {"max_doc_length": 0},
        {"on_shortage": "less"},
        {"doc_index_policy": "honour"},
        {"seed": 2**64},
        {"restrict_to_training_subset": "yes"},
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_at_once(stores, settings):
    ((name, value),) = settings.items()
    refused(lambda: stores(3, 5, 7).select(**settings), tl.ConfigError, name, repr(value))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"doc_index": (1, 1)}, ("doc_index", "1, 1")),
        ({"doc_index": ()}, ("doc_index", "none")),
        ({"doc_index": 1, "num_docs": 2}, ("doc_index", "num_docs", 2)),
        ({"doc_index": 1, "doc_key": "a==b"}, ("doc_index", "doc_key")),
        ({"doc_index": 1, "doc_hash": "0" * 8}, ("doc_index", "doc_hash")),
        ({"min_doc_length": 5, "max_doc_length": 4}, ("max_doc_length", 4, 5)),
    ],
    ids=str,
)
def test_what_cannot_be_meant_together_is_refused(stores, settings, named):
    refused(lambda: stores(3, 5, 7).select(**settings), tl.ConfigError, *named)


def test_huge_bounds_are_only_bounds(stores):
    store = stores(3, 5, 7)
    assert chosen(store, max_doc_length=2**70) == [2]
    with pytest.warns(UserWarning, match="no document meets"):
        assert chosen(store, min_doc_length=2**70) == [2]
    vast = SUBSET | {"max_train_batches": 2**62}
    assert chosen(store, **vast) == [2]


# -- what can be done with a selection -------------------------------------------------------------


def test_a_selection_is_cut_like_a_store_of_its_documents_in_its_order():
    with ToyStore(numbered([[3, 9, 0], [5, 7, 2]])) as toy:
        made = toy.store.select(num_docs=4)
        order = [1, 4, 3, 0]
        assert made.indices.tolist() == order
        stream = [t for d in order for t in toy.documents[d]]
        dataset = made.windows(4)
        tokens = dataset.batch(range(len(dataset))).tokens
        assert tokens.reshape(-1).tolist() == stream[: 4 * (len(stream) // 4)]
        spans = dataset.spans([0, 1, 2, 3, 4, 5])
        assert list(dict.fromkeys(spans.document.tolist())) == order
        packed = made.pack(8, strategy="sequential")
        batch = packed.batch(range(len(packed)))
        assert batch.tokens[batch.attention_mask].tolist() == stream
        assert made.pack(16).batch([0]).segment_ids.max() == 2


def test_selections_in_one_cache_do_not_mix(stores):
    store = stores(*TEN, 9, 9)
    parts = [store.select(num_docs=6, doc_select_mode=mode) for mode in MODES]
    for one in [*parts, *store.split({"a": 0.5, "b": 0.5}).values()]:
        run = one.windows(4).block_shuffle(window_blocks=2)
        with tl.Loader(run, 1, fetch="blocks") as loader:
            found = [batch.tokens[0].tolist() for batch in loader]
        assert found == run.batch(range(len(run))).tokens.tolist()


def test_a_selection_of_a_part_and_of_a_selection(stores):
    store = stores(*[3 + i % 7 for i in range(60)])
    part = store.split({"train": 0.5, "valid": 0.5})["train"]
    inside = part.indices.tolist()
    made = part.select(num_docs=5)
    lengths = store.lengths.tolist()
    assert made.indices.tolist() == sorted(inside, key=lambda d: (-lengths[d], d))[:5]
    outside = next(d for d in range(60) if d not in inside)
    with pytest.warns(UserWarning, match="not among those to choose from"):
        assert part.select(doc_index=outside).indices.tolist() == made.indices.tolist()[:1]
    drawn = part.select(num_docs=9, doc_select_mode="random")
    again = drawn.select(num_docs=4, doc_select_mode="first")
    assert again.indices.tolist() == drawn.indices.tolist()[:4]  # in the order of the selection
    assert set(drawn.indices.tolist()) <= set(inside)
    for one in (made, drawn, again):
        dataset = one.windows(4, tail="keep")
        there = tl.from_config(json.loads(json.dumps(dataset.describe())))
        assert there.fingerprint == dataset.fingerprint
        every = range(len(dataset))
        np.testing.assert_array_equal(there.batch(every).tokens, dataset.batch(every).tokens)


def test_another_selection_is_another_fingerprint(stores):
    store = stores(*TEN)
    settings = [
        {},
        {"num_docs": 1},
        {"num_docs": 2},
        {"doc_index": 3},
        {"doc_index": (3, 4)},
        {"doc_select_mode": "first"},
        {"min_doc_length": 2},
        {"max_doc_length": 9},
        {"seed": 1},
        {"on_shortage": "fewer"},
        {"doc_index_policy": "honor"},
        {"doc_hash": slow_hash(store.document(3).tolist()).hex()},
        {**SUBSET},
    ]
    made = [store.select(**one) for one in settings]
    made += [made[2].select(), store.split({"a": 1})["a"].select(), store.split({"a": 1})["a"]]
    prints = {one.windows(1).fingerprint for one in made} | {store.windows(1).fingerprint}
    assert len(prints) == len(made) + 1
    same = store.select(doc_index=[3]).windows(1).fingerprint
    assert same == store.select(doc_index=3).windows(1).fingerprint


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"kind": "selct"}, ("$.choice.kind", "'selct'")),
        ({"kind": None}, ("$.choice.kind", None)),
        ({"num_doc": 5}, ("$.choice.num_doc", "num_docs")),
        ({"num_docs": 0}, ("$.choice", "num_docs", 0)),
        ({"doc_index": [1, "x"]}, ("$.choice.doc_index", "'x'")),
        ({"documents": []}, ("$.choice", "documents")),
        ({"documents": [3, 2]}, ("$.choice", "documents", "3, 2")),
        ({"documents": [1, 9]}, ("documents", 9, 3)),
        ({"doc_index": 1, "documents": [1]}, ("doc_index", "documents")),
        ({"within": 5}, ("$.choice.within", 5)),
        ({"within": {"part": "a"}}, ("$.choice.within.names",)),
        ({"within": {"kind": "select", "seed": -1}}, ("$.choice.within", "seed", -1)),
    ],
    ids=str,
)
def test_a_wrong_description_of_a_selection_is_refused_by_its_path(stores, change, named):
    config = stores(3, 5, 7).select().windows(2).describe()
    config["choice"] |= change
    refused(lambda: len(tl.from_config(config)), tl.ConfigError, *named)


def test_a_pickled_selection_is_the_same_in_another_process(stores, tmp_path):
    dataset = stores(*TEN).select(num_docs=5, doc_select_mode="random").windows(3).shuffle()
    (tmp_path / "dataset.pickle").write_bytes(pickle.dumps(dataset))
    code = (
        "import pickle, sys; ds = pickle.load(open(sys.argv[1], 'rb'));"
        "print(ds.fingerprint, ds.batch([2, 1]).tokens.tolist())"
    )
    command = [sys.executable, "-W", "error", "-c", code, str(tmp_path / "dataset.pickle")]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert answer.strip() == f"{dataset.fingerprint} {dataset.batch([2, 1]).tokens.tolist()}"


def test_a_hundred_thousand_documents_are_chosen_among_without_reading_a_token(tmp_path):
    lengths = 1 + np.arange(100_000) * 7919 % 5
    lengths[[12_345, 65_432]] = (50, 60)
    ids = np.arange(int(lengths.sum())) % 100
    write_flat(tmp_path / "big", ids, lengths, vocab_size=100)
    store = tl.open(tmp_path / "big", verify="never")
    for mode in MODES:
        made = store.select(num_docs=5, doc_select_mode=mode, min_doc_length=2)
        assert made.num_documents == 5
        assert made.lengths.min() >= 2
    made = store.select(num_docs=2)
    assert made.indices.tolist() == [65_432, 12_345]
    assert chosen(store, doc_index=99_999) == [99_999]
    assert store.reads == type(store.reads)()
    assert store.index_reads.read_ops < 100
    tokens, _ = made.load()
    assert [len(one) for one in tokens] == [60, 50]
    assert (store.reads.ranges, store.reads.bytes) == (2, 220)  # stored as uint16
