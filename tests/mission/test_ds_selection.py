"""DS: which documents are trained on, by number, key, length, hash or draw."""

import itertools
import json
import logging
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import xxhash
from counted import CountedFiles
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenloom as tl
from tokenloom.evaluate import pz
from tokenloom.integrations.levanter import (
    LMMixtureDatasetConfig,
    SpliceMultiDocumentLMConfig,
    UrlDatasetSourceConfig,
    splice_from_config,
)

TEN = (4, 9, 2, 7, 7, 1, 8, 3, 6, 5)
MODES = ("first", "longest", "shortest", "random")


@pytest.fixture
def stores(store_of):
    """Stores from the lengths of their documents; all tokens of a store differ."""

    def make(*lengths, first=0, **options):
        edges = [first, *itertools.accumulate(lengths, initial=first)]
        documents = [range(a, b) for a, b in itertools.pairwise(edges[1:])]
        return store_of(documents, **{"vocab_size": 20_000} | options)

    return make


def chosen(store, **settings):
    return store.select(**settings).indices.tolist()


# -- the source ----------------------------------------------------------------------------


def test_ds_01_a_single_store_is_a_source(stores):
    selected = stores(*TEN).select(num_docs=3)
    assert (selected.num_documents, selected.num_tokens) == (3, 24)
    assert selected.lengths.tolist() == [9, 8, 7]


@pytest.fixture
def splice_of(stores):
    """Splices of two documents of a named dataset of a mixture."""
    source = UrlDatasetSourceConfig(cache_dir=str(stores(*TEN).path))
    options = {"seq_len": 8, "num_docs": 2, "content_length": 4, "pad_token_id": 0}
    options |= {"epochs": 1, "shuffle": False}

    def make(*names, dataset_name=None):
        base = LMMixtureDatasetConfig(configs=dict.fromkeys(names, source))
        return SpliceMultiDocumentLMConfig(base=base, dataset_name=dataset_name, **options)

    return make


def test_ds_01_a_component_of_a_mixture_is_a_source(splice_of):
    named = splice_of("a", "b", dataset_name="b")
    assert set(named.spans(range(len(named))).document.tolist()) == {1, 6}
    assert splice_of("only").fingerprint == named.fingerprint


def test_ds_01_an_unknown_dataset_is_refused_with_the_names(splice_of, stores):
    names = ("common_pile/wikimedia", "common_pile/arxiv")
    with pytest.raises(tl.ConfigError) as refused:
        splice_of(*names, dataset_name="common_pile/wikimeda")
    for expected in ("dataset_name", "'common_pile/wikimeda'", *names):
        assert expected in str(refused.value)
    with pytest.raises(tl.ConfigError, match=r"dataset_name.*None.*wikimedia.*arxiv"):
        splice_of(*names)
    component = {"cache_dir": str(stores(*TEN).path)}
    data = {
        "type": "splice_multi_document",
        "base": {"type": "mixture", "configs": {"common_pile/wikimedia": component}},
        "dataset_name": "wiki",
    }
    with pytest.raises(tl.ConfigError, match=r"data\.dataset_name.*'wiki'.*wikimedia"):
        splice_from_config({"data": data}, seq_len=8)


# -- one document --------------------------------------------------------------------------


def test_ds_02_a_document_by_its_number(stores):
    store = stores(3, 5, 7)
    for document in (0, 1, 2):
        assert chosen(store, doc_index=document) == [document]
    assert chosen(store, doc_index=np.int64(2)) == [2]
    for several in ([2, 0], (2, 0), np.array([2, 0])):
        assert chosen(store, doc_index=several) == [2, 0]


def test_ds_03_a_document_by_a_key_of_its_record(store_of):
    fields = [{"id": f"a{n}", "lang": "de" if n % 3 else "en"} for n in range(10)]
    store = store_of([[n] * (n + 1) for n in range(10)], more=fields, id_key="id")
    assert chosen(store, doc_key="id==a7") == [7]
    assert chosen(store, doc_key=lambda record: record["id"] == "a7") == [7]
    assert chosen(store, doc_key="lang==en", num_docs=4, doc_select_mode="first") == [0, 3, 6, 9]
    assert store.reads.bytes == 0
    with pytest.raises(tl.ConfigError, match=r"doc_key.*id==b7"):
        store.select(doc_key="id==b7")
    with pytest.raises(tl.ConfigError, match="doc_key"):
        store.select(doc_key=lambda record: False)


def test_ds_04_documents_of_at_least_a_length(stores):
    store = stores(3, 5, 7)
    assert sorted(chosen(store, min_doc_length=5, num_docs=2)) == [1, 2]
    with pytest.raises(tl.ConfigError, match="2 of 3"):
        store.select(min_doc_length=5, num_docs=3)


def test_ds_05_documents_of_at_most_a_length(stores):
    store = stores(3, 5, 7)
    assert sorted(chosen(store, max_doc_length=5, num_docs=2)) == [0, 1]
    with pytest.raises(tl.ConfigError, match="2 of 3"):
        store.select(max_doc_length=5, num_docs=3)


def test_ds_06_the_first_that_is_long_enough(stores):
    assert chosen(stores(3, 5, 7), min_doc_length=5, doc_select_mode="first") == [1]


def test_ds_07_the_longest_and_of_equals_the_lowest_number(stores):
    assert chosen(stores(7, 7, 3), doc_select_mode="longest") == [0]
    assert chosen(stores(3, 7, 7), doc_select_mode="longest") == [1]
    assert chosen(stores(3, 7, 7)) == [1]  # the default


def test_ds_08_a_random_choice_is_the_same_in_every_run_and_process(stores):
    store = stores(*TEN)
    here = chosen(store, doc_select_mode="random", num_docs=4)
    assert chosen(tl.open(store.path), doc_select_mode="random", num_docs=4) == here
    code = (
        "import sys, tokenloom as tl; store = tl.open(sys.argv[1]);"
        "print(store.select(doc_select_mode='random', num_docs=4).indices.tolist())"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, str(store.path)],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONHASHSEED": "7"},
    ).stdout
    assert json.loads(answer) == here


def test_ds_09_the_longest_of_all_with_a_warning_where_none_is_long_enough(stores):
    store = stores(3, 5)
    for mode in MODES:
        with pytest.warns(UserWarning, match=r"min_doc_length=100") as caught:
            selected = store.select(min_doc_length=100, doc_select_mode=mode)
        assert selected.indices.tolist() == [1]
        assert len(caught) == 1
    with warnings.catch_warnings():  # the run that is made of it does not warn again
        warnings.simplefilter("error")
        assert len(tl.from_config(selected.windows(2).describe())) == 2
    with pytest.raises(tl.ConfigError, match="0 of 1"):
        store.select(min_doc_length=100, on_shortage="error")


def test_ds_10_c_07_another_document_replaces_one_that_does_not_qualify(stores):
    store = stores(3, 5, 7)
    with pytest.warns(UserWarning, match=r"\b0\b.*min_doc_length.*\b2\b") as caught:
        found = chosen(store, doc_index=0, min_doc_length=5, doc_select_mode="longest")
    assert found == [2]
    assert len(caught) == 1
    with pytest.warns(UserWarning, match="max_doc_length"):
        assert chosen(store, doc_index=2, max_doc_length=5, doc_select_mode="first") == [0]
    with pytest.warns(UserWarning, match="min_doc_length") as caught:
        assert chosen(store, doc_index=0, min_doc_length=9) == [2]  # the longest of all
    assert len(caught) == 1


def test_ds_10_only_those_that_do_not_qualify_are_replaced(stores):
    store = stores(3, 5, 7, 6)
    with pytest.warns(UserWarning, match="min_doc_length"):
        assert chosen(store, doc_index=(3, 0, 1), min_doc_length=5) == [3, 2, 1]
    with pytest.raises(tl.ConfigError, match="3 of 4"):
        store.select(doc_index=(3, 0, 1, 2), min_doc_length=5)
    with pytest.warns(UserWarning, match="min_doc_length"):
        several = chosen(store, doc_index=(3, 0, 1, 2), min_doc_length=5, on_shortage="fewer")
    assert several == [3, 1, 2]


def test_ds_10_c_07_a_number_that_does_not_qualify_may_be_honored_or_refused(stores):
    store = stores(3, 5, 7)
    assert chosen(store, doc_index=0, min_doc_length=5, doc_index_policy="honor") == [0]
    with pytest.raises(tl.ConfigError, match=r"document 0 .*min_doc_length"):
        store.select(doc_index=0, min_doc_length=5, doc_index_policy="error")
    assert chosen(store, doc_index=1, min_doc_length=5, doc_index_policy="error") == [1]


def test_c_07_what_may_not_be_trained_on_is_not_honored(stores):
    store = stores(3, 5, 7)
    subset = {"restrict_to_training_subset": True, "max_train_batches": 1}
    subset |= {"initial_batch_size": 2, "seq_len": 4}
    with pytest.raises(tl.ConfigError, match=r"document 2 .*\b15\b.*\b8\b"):
        store.select(doc_index=2, doc_index_policy="honor", **subset)
    with pytest.raises(tl.ConfigError, match="document 2"):
        store.select(doc_index=(0, 1)).select(doc_index=2, doc_index_policy="honor")


def test_ds_12_c_09_the_shortest_of_several_and_of_one(stores):
    store = stores(3, 5, 7)
    assert chosen(store, num_docs=2, doc_select_mode="shortest") == [0, 1]
    assert chosen(store, doc_select_mode="shortest") == [0]
    assert chosen(stores(3, 2, 7, 2), doc_select_mode="shortest") == [1]


def test_ds_19_numbers_that_are_not_there_and_empty_documents_are_refused(stores):
    store = stores(3, 0, 7)
    with pytest.raises(ValueError, match=r"\b99\b.*\b3\b"):
        store.select(doc_index=99)
    for policy in ("fallback", "honor", "error"):
        with pytest.raises(ValueError, match=r"document 1\b"):
            store.select(doc_index=1, doc_index_policy=policy)
    assert chosen(store, doc_select_mode="shortest") == [0]
    assert chosen(store, doc_select_mode="first", num_docs=2) == [0, 2]
    with pytest.warns(UserWarning, match="empty"):
        nothing = stores(0, 0)
    with pytest.raises(tl.ConfigError, match="0 of 1"):
        nothing.select()


# -- several documents ---------------------------------------------------------------------


def test_ds_11_as_many_as_asked_for_with_their_own_numbers(stores):
    selected = stores(*TEN).select(num_docs=3)
    assert selected.indices.tolist() == [1, 6, 3]
    assert [TEN[d] for d in selected.indices] == selected.lengths.tolist() == [9, 8, 7]


def test_ds_13_each_mode_for_several_and_random_without_replacement(stores):
    store = stores(*TEN)
    assert chosen(store, num_docs=5, doc_select_mode="longest") == [1, 6, 3, 4, 8]
    assert chosen(store, num_docs=5, doc_select_mode="first") == [0, 1, 2, 3, 4]
    assert chosen(store, num_docs=5, doc_select_mode="shortest") == [5, 2, 7, 0, 9]
    drawn = chosen(store, num_docs=5, doc_select_mode="random")
    assert len(set(drawn)) == 5
    assert drawn == chosen(store, num_docs=5, doc_select_mode="random")
    assert sorted(chosen(store, num_docs=10, doc_select_mode="random")) == list(range(10))


def slow_choice(lengths, count, mode, shortest, longest, on_shortage):
    """The documents in the order of a mode that is not random; None where there are too few."""
    order = {
        "first": lambda d: d,
        "longest": lambda d: (-lengths[d], d),
        "shortest": lambda d: (lengths[d], d),
    }
    good = [d for d, n in enumerate(lengths) if n > 0 and shortest <= n <= longest]
    found = sorted(good, key=order[mode])[:count]
    if on_shortage == "backfill_longest":
        others = [d for d, n in enumerate(lengths) if n > 0 and d not in good]
        found += sorted(others, key=order["longest"])[: count - len(found)]
    enough = len(found) == count or (found and on_shortage == "fewer")
    return found if enough else None


@pytest.mark.parametrize("lengths", [TEN, (3, 0, 3, 5, 5, 0, 1)])
def test_ds_04_ds_05_ds_06_ds_07_ds_12_ds_13_ds_20_a_choice_is_what_sorting_says(stores, lengths):
    store = stores(*lengths)

    @settings(max_examples=60)
    @given(
        st.integers(1, 11),
        st.sampled_from(["first", "longest", "shortest"]),
        st.integers(0, 6),
        st.integers(0, 9),
        st.sampled_from(["error", "fewer", "backfill_longest"]),
    )
    def check(count, mode, shortest, more, on_shortage):
        longest = max(1, shortest + more)
        asked = {"num_docs": count, "doc_select_mode": mode, "on_shortage": on_shortage}
        asked |= {"min_doc_length": shortest, "max_doc_length": longest}
        expected = slow_choice(lengths, count, mode, shortest, longest, on_shortage)
        if expected is None:
            with pytest.raises(tl.ConfigError, match=f"of {count}"):
                store.select(**asked)
        else:
            assert chosen(store, **asked) == expected

    check()


def test_ds_14_a_draw_depends_on_the_dataset_the_number_the_bounds_and_the_seed(stores):
    lengths = [5] * 200
    store, other = stores(*lengths), stores(*lengths, first=1)
    assert store.digest != other.digest
    base = {"num_docs": 20, "doc_select_mode": "random"}
    draws = [
        chosen(store, **base),
        chosen(store, **base | {"num_docs": 21})[:20],
        chosen(store, **base | {"num_docs": 19}),
        chosen(store, **base, min_doc_length=2),
        chosen(store, **base, max_doc_length=9),
        chosen(store, **base, seed=1),
        chosen(store, **base, seed=2),
        chosen(other, **base),
    ]
    assert draws[0] == chosen(store, **base)
    for one, two in itertools.combinations(draws, 2):
        assert set(one) != set(two)
    assert draws[-1] == chosen(stores(*lengths, first=1, chunk_tokens=64), **base)  # same content


def test_ds_15_tokens_and_numbers_come_in_the_order_of_the_mode(stores):
    store = stores(3, 0, 7, 5)
    tokens, indices = store.select(num_docs=3).load()
    assert indices.tolist() == [2, 3, 0]
    assert [one.tolist() for one in tokens] == [[*range(3, 10)], [*range(10, 15)], [0, 1, 2]]
    assert {one.dtype for one in tokens} == {np.dtype(np.int32)}


def test_ds_16_only_the_chosen_documents_are_read(stores):
    path = stores(*TEN).path
    store = tl.open(path, source=(files := CountedFiles(path)), verify="never", cache_bytes=0)
    selected = store.select(num_docs=3, doc_select_mode="shortest")
    assert selected.indices.tolist() == [5, 2, 7]
    assert (store.reads.ranges, files.token_requests()) == (0, [])
    selected.load()
    assert store.reads.ranges == store.reads.read_ops == 3
    assert store.reads.bytes == 2 * (1 + 2 + 3)  # stored as uint16
    (ranges,) = files.token_requests()
    assert len(ranges) == 3
    store.select(doc_index=(3, 7, 4, 2)).load()  # 2, 3 and 4 are neighbors
    (ranges,) = files.token_requests()
    assert sorted(one[1:] for one in ranges) == [(2 * 13, 2 * 16), (2 * 38, 2 * 3)]
    assert store.reads.ranges == store.reads.read_ops == 3 + 2


def test_ds_20_too_few_candidates_are_an_error_fewer_or_backfilled(stores):
    store = stores(3, 5, 7)
    asked = {"num_docs": 3, "min_doc_length": 5}
    for policy in ({}, {"on_shortage": "error"}):
        with pytest.raises(tl.ConfigError, match="2 of 3"):
            store.select(**asked, **policy)
    assert chosen(store, **asked, on_shortage="fewer") == [2, 1]
    assert chosen(store, **asked, on_shortage="backfill_longest") == [2, 1, 0]
    for mode in MODES:  # those that qualify come first
        found = chosen(store, **asked, on_shortage="backfill_longest", doc_select_mode=mode)
        assert (sorted(found[:2]), found[2:]) == ([1, 2], [0])
    with pytest.raises(tl.ConfigError, match="3 of 4"):
        store.select(num_docs=4, on_shortage="backfill_longest")
    with pytest.raises(tl.ConfigError, match="0 of 2"):  # "fewer" still needs at least one
        store.select(num_docs=2, min_doc_length=50, on_shortage="fewer")


def test_c_08_a_shortage_is_an_error_of_several_and_a_fallback_of_one(stores):
    store = stores(3, 5)
    with pytest.raises(tl.ConfigError, match="0 of 1"):
        store.select(num_docs=1, min_doc_length=100)
    with pytest.warns(UserWarning, match="min_doc_length=100"):
        assert chosen(store, min_doc_length=100) == [1]


# -- what may be trained on ----------------------------------------------------------------

SUBSET = {
    "restrict_to_training_subset": True,
    "max_train_batches": 1,
    "initial_batch_size": 128,
    "seq_len": 16,
}


def test_ds_17_a_document_beyond_the_training_subset_is_never_chosen(stores):
    store = stores(1000, 1048, 1, 5000)  # the first 2,048 tokens are documents 0 and 1
    for mode in MODES:
        for asked in ({"num_docs": 2}, {"num_docs": 2, "min_doc_length": 1000}):
            assert set(chosen(store, doc_select_mode=mode, **asked, **SUBSET)) == {0, 1}
    with pytest.warns(UserWarning, match="min_doc_length=4000"):
        assert chosen(store, min_doc_length=4000, **SUBSET) == [1]  # not 3, the longest of all
    with pytest.warns(UserWarning, match=r"7,?049.*2,?048"):
        assert chosen(store, doc_index=3, **SUBSET) == [1]
    backfilled = {"num_docs": 3, "min_doc_length": 1048, "on_shortage": "backfill_longest"}
    with pytest.raises(tl.ConfigError, match="2 of 3"):
        store.select(**backfilled, **SUBSET)
    with pytest.raises(tl.ConfigError, match="0 of 1"):
        store.select(**SUBSET | {"initial_batch_size": 1})
    # without the restriction the numbers are not used: they are those of other settings
    assert chosen(store, **SUBSET | {"restrict_to_training_subset": False}) == [3]
    for name in ("max_train_batches", "initial_batch_size", "seq_len"):
        with pytest.raises(tl.ConfigError, match=name):
            store.select(**SUBSET | {name: None})


# -- by content ----------------------------------------------------------------------------


def test_ds_18_a_document_by_the_hash_of_its_tokens_and_by_bounds(stores):
    store = stores(3, 5, 7, 5)
    ids = [store.document(n).astype("<u2") for n in range(4)]
    hashes = [xxhash.xxh3_128(one.tobytes(), seed=len(one)).hexdigest() for one in ids]
    before = store.reads.read_ops
    for n, value in enumerate(hashes):
        assert chosen(store, doc_selector={"hash": value}) == [n]
        assert chosen(store, doc_hash=value[:8].upper()) == [n]
        assert chosen(store, doc_hash=value[:17]) == [n]
    bounds = {"min_len": 4, "max_len": 6}
    assert chosen(store, doc_selector=bounds, num_docs=2, doc_select_mode="first") == [1, 3]
    with pytest.raises(tl.ConfigError, match=hashes[0][:8]):
        store.select(doc_selector={"hash": hashes[0], **bounds})
    with pytest.raises(tl.ConfigError, match="0" * 32):
        store.select(doc_hash="0" * 32)
    with pytest.raises(tl.ConfigError, match="min_length"):
        store.select(doc_selector={"min_length": 4})
    assert store.reads.read_ops == before


# -- what it is for ------------------------------------------------------------------------


def uniform(tokens, segment_ids, position_ids):
    """A model that knows nothing of 10 tokens."""
    return np.zeros((*tokens.shape, 10), np.float32)


def test_ds_21_a_chosen_document_has_185_windows_to_extract_from(store_of):
    lengths = (900, 1023, 1024, 3000)
    store = store_of([[i % 10 for i in range(n)] for n in lengths], vocab_size=10)
    for mode, length, windows in (("shortest", 1024, 185), ("longest", 3000, 581)):
        document = store.select(min_doc_length=1024, doc_select_mode=mode)
        assert document.lengths.tolist() == [length]
        found = pz(uniform, document, prefix=50, suffix=50, stride=5, progress=False)
        assert len(found) == windows >= 185


def logged(caplog, level, choose):
    """What was chosen, and the lines of the log about its documents."""
    caplog.clear()
    with caplog.at_level(level, logger="tokenloom"):
        selected = choose()
    messages = [record.getMessage() for record in caplog.records]
    return selected, [line for line in messages if line.startswith("Selected ")]


def test_ds_22_each_chosen_document_is_logged(stores, caplog):
    store = stores(*TEN)
    _, lines = logged(caplog, logging.INFO, lambda: store.select(num_docs=3, min_doc_length=2))
    assert lines == [
        "Selected doc_idx=1, length=9",
        "Selected doc_idx=6, length=8",
        "Selected doc_idx=3, length=7",
    ]
    assert str(store.path) in caplog.text
    assert logged(caplog, logging.WARNING, lambda: store.select(num_docs=3))[1] == []


def test_ds_22_of_many_documents_a_thousand_are_logged_and_a_file_has_the_rest(
    stores, caplog, tmp_path, monkeypatch
):
    store, cache = stores(*[2 + n % 7 for n in range(1_300)]), tmp_path / "cache"
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(cache))
    selected, lines = logged(caplog, logging.INFO, lambda: store.select(num_docs=1_000))
    assert len(lines) == selected.num_documents == 1_000
    logged(caplog, logging.WARNING, lambda: store.select(num_docs=1_234))
    assert not cache.exists(), "nothing is written for a log that is off"
    selected, lines = logged(caplog, logging.INFO, lambda: store.select(num_docs=1_234))
    pairs = zip(selected.indices.tolist(), selected.lengths.tolist(), strict=True)
    every = [f"Selected doc_idx={document}, length={length}" for document, length in pairs]
    (file,) = [one for one in cache.iterdir() if one.suffix == ".txt"]
    assert lines[:1_000] == every[:1_000]
    assert file.read_text().splitlines() == every[1_000:]
    assert len(lines) == 1_001
    assert "234" in lines[-1]
    assert str(file) in lines[-1]
    for count in (1_234, 1_200):  # the same selection has one file, another one its own
        logged(caplog, logging.INFO, lambda count=count: store.select(num_docs=count))
    assert len(list(cache.glob("*.txt"))) == 2
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "a file/below"))
    selected, lines = logged(caplog, logging.INFO, lambda: store.select(num_docs=1_234))
    assert len(lines) == 1_001
    assert "234" in lines[-1]
