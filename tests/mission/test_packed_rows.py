"""Packed rows of long frames, groups, and the warnings about what is cut or lost."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from refusals import refused
from slowpack import B, E, slow_rows
from toydata import ToyStore, numbered

import tokenloom as tl
from tokenloom.testing import write_store

STRATEGIES = ("greedy", "first_fit", "best_fit", "first_fit_decreasing", "best_fit_decreasing")
STRATEGIES += ("one_doc",)

pytestmark = pytest.mark.filterwarnings("ignore:.*are in no row")


@pytest.mark.parametrize("strategy", ["sequential", *STRATEGIES])
@pytest.mark.parametrize("overflow", ["split", "truncate", "drop"])
def test_long_frames_equal_lists_and_loops(strategy, overflow):
    """Flags are bytes: sums with them used to overflow."""
    if strategy == "sequential" and overflow != "split":
        return
    options = {"strategy": strategy, "overflow": overflow, "bos_id": 8001, "eos_id": 8002}
    lengths = [1500, 998, 999, 1000, 1, 0, 300, 2999, 400]
    usual = {"stride": 0, "mask_overlap": True, "max_docs_per_bin": None, "overlap": 0}
    usual |= {"min_len": 1, "max_len": None, "max_doc_tokens": None, "min_row_len": 1}
    usual |= {"shuffle_output": False, "shuffle_seed": 0, "width": 1000}
    rows = slow_rows(lengths, SimpleNamespace(**usual, **options))
    documents = numbered([lengths])
    ids = {(d, i): token for d, one in enumerate(documents[0]) for i, token in enumerate(one)}
    ids |= {B: 8001, E: 8002}
    wanted = [[ids[cell] for _, cells, _ in row for cell in cells] for row in rows]
    with ToyStore(documents, vocab_size=10_000) as toy:
        run = toy.store.pack(1000, add_bos=True, add_eos=True, pad_id=9000, **options)
        found = run.batch(range(len(run))).tokens.tolist()
    assert found == [row + [9000] * (1000 - len(row)) for row in wanted]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """150 documents of 0 to 40 tokens in two shards; all tokens differ."""
    sizes = np.random.default_rng(3).integers(0, 41, 150)
    (documents,) = numbered([sizes.tolist()], 1)
    root = tmp_path_factory.mktemp("packed") / "s"
    write_store(root, [documents[:80], documents[80:]], inner=16, chunk_tokens=64)
    return tl.open(root, cache_bytes=1 << 20)


@pytest.mark.parametrize("strategy", ["sequential", *STRATEGIES])
def test_every_token_is_in_exactly_one_cell(store, strategy):
    packed = store.pack(16, strategy=strategy, pad_id=0, group_docs=17)
    tokens = packed.batch(np.arange(len(packed))).tokens
    assert sorted(tokens[tokens > 0].tolist()) == list(range(1, store.num_tokens + 1))


def test_groups_end_by_documents_or_by_tokens(store):
    """A document that a row shares with others is of their group."""
    run = store.pack(16, group_docs=20, group_tokens=300)
    group, first = np.zeros(150, int), 0
    lengths = np.array(store.lengths)
    for number in range(150):
        last = first + 1
        while last < 150 and last - first < 20 and lengths[first:last].sum() < 300:
            last += 1
        group[first:last] = number
        first = last
        if first >= 150:
            break
    spans = run.spans(range(len(run)))
    rows = np.split(group[spans.document], spans.frame[1:-1])
    assert all(len(set(row.tolist())) == 1 for row in rows)
    owners = [int(row[0]) for row in rows]
    assert owners == sorted(owners)
    assert set(owners) == set(group[lengths > 0].tolist())
    alone = [run.spans(range(len(run))).document.tolist() for run in [store.pack(16)]]
    assert alone[0] != spans.document.tolist(), "the control: one group has other rows"


def test_what_is_lost_is_warned_about_before_anything_runs(store):
    for options in ({"overflow": "truncate"}, {"overflow": "drop"}, {"min_len": 5}):
        run = store.pack(16)
        with pytest.warns(UserWarning, match=r"pack: .* tokens \(\d+\.\d%\) are in no row"):
            lossy = store.pack(16, **options)
        assert lossy.fingerprint != run.fingerprint
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.pack(16)
    long = int(np.flatnonzero(np.array(store.lengths) > 38)[0])
    assert long >= 5  # not in the first group
    packing = {"overflow": "error", "group_docs": 5}
    refused(lambda: store.pack(38, **packing), tl.ConfigError, "overflow", f"document {long} ")


def test_cut_documents_are_warned_about_if_the_store_says_what_is_trained_on(tmp_path):
    """All 60 answers were trained on without their questions, without a word."""
    rows = [{"input_ids": [1] * 9, "loss_mask": [0] * 8 + [1]}] * 5 + [
        {"input_ids": [1, 2], "loss_mask": [0, 1]}
    ]
    chat = tl.build(rows, tmp_path / "chat", tokenizer=None, vocab_size=9)
    with pytest.warns(UserWarning, match=r"pack: 5 of 6 documents are cut.*overflow='drop'"):
        chat.pack(8)
    bare = [{"input_ids": row["input_ids"]} for row in rows]
    plain = tl.build(bare, tmp_path / "plain", tokenizer=None, vocab_size=9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chat.pack(9)
        plain.pack(8)
