"""Packed rows as batches: every array against lists and loops, in every order."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slowpack import B, E, slow_rows
from test_pack_plan import specs
from toydata import ToyStore, whole

import tokenloom as tl
from tokenloom.layout.pack.packers import STRATEGIES
from tokenloom.layout.pack.spec import PackSpec
from tokenloom.testing import assert_elastic, assert_exactly_once, assert_resumable, write_store

BOS_ID, EOS_ID, PAD = 901, 902, 903


def options_of(spec):
    """The fields of a spec that differ from the defaults, as arguments of `pack`."""
    usual = PackSpec(seq_len=spec.seq_len)
    names = [name for name in PackSpec.__dataclass_fields__ if name != "seq_len"]
    return {n: getattr(spec, n) for n in names if getattr(spec, n) != getattr(usual, n)}


def slow_arrays(rows, documents, spec, render):
    """tokens, labels, loss_mask, segment_ids, position_ids, document_starts, continues."""
    seq_len, width = spec.seq_len, spec.width
    eos = render.get("eos_id", EOS_ID)
    out = {n: [] for n in ("tokens", "labels", "loss_mask", "segment_ids", "position_ids")}
    starts, goes_on = [], []
    for row in rows:
        token, segment, position, seen, inserted = [], [], [], [], []
        begins, continues = [], []
        for number, (document, cells, again) in enumerate(row, 1):
            offsets = (B, E)
            first = cells[0]
            began = first == B or (first == (document, 0) and spec.bos_id is None)
            for place, cell in enumerate(cells):
                inserted.append(cell in offsets)
                ids = {B: spec.bos_id, E: spec.eos_id}
                token.append(ids[cell] if cell in offsets else documents[document][cell[1]])
                seen.append(place < again)
                position.append(place)
                segment.append(number)
            begins.append(len(token) - len(cells))
            continues.append(not began)
        filler = width - len(token)
        token += [PAD] * filler
        segment += [0] * filler
        position += list(range(filler))
        seen += [False] * filler
        inserted += [False] * filler
        mask = []
        for i in range(seq_len):
            last = width if render["label_layout"] == "shifted" else seq_len
            right = i + 1 < last and segment[i] > 0 and segment[i + 1] > 0
            right = right and (segment[i] == segment[i + 1] or not render["mask_boundary_loss"])
            right = right and not seen[i + 1] if i + 1 < width else False
            if right and not render["train_on_eos"]:
                if render["eos_mask"] == "all":
                    right = token[i + 1] != eos
                else:
                    right = not (inserted[i + 1] and token[i + 1] == spec.eos_id)
            mask.append(bool(right))
        if render["label_layout"] == "aligned":
            labels = [-100] + [token[i] if mask[i - 1] else -100 for i in range(1, seq_len)]
        else:
            labels = [token[i + 1] if mask[i] else -100 for i in range(seq_len)]
        out["tokens"].append(token[:seq_len])
        out["labels"].append(labels)
        out["loss_mask"].append(mask)
        out["segment_ids"].append(segment[:seq_len])
        positions = position[:seq_len]
        if segment[seq_len - 1] == 0:  # a filler stretch counts from 0
            real = sum(s > 0 for s in segment[:seq_len])
            positions = position[:real] + list(range(seq_len - real))
        out["position_ids"].append(positions)
        inside = [k for k, at in enumerate(begins) if at < seq_len]
        starts.append([begins[k] for k in inside])
        goes_on.append([continues[k] for k in inside])
    most = max([1, *map(len, starts)])
    out["document_starts"] = [one + [-1] * (most - len(one)) for one in starts]
    out["continues"] = [one + [False] * (most - len(one)) for one in goes_on]
    return out


@settings(max_examples=60)
@given(st.data())
def test_every_array_equals_lists_and_loops(data):
    spec = data.draw(specs())
    lengths = data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=8))
    render = {
        "label_layout": data.draw(st.sampled_from(["aligned", "shifted"])),
        "mask_boundary_loss": data.draw(st.booleans()),
        "train_on_eos": data.draw(st.booleans()),
        "eos_mask": data.draw(st.sampled_from(["all", "inserted"])),
    }
    documents = [[100 + 10 * d + i % 7 for i in range(n)] for d, n in enumerate(lengths)]
    half = data.draw(st.integers(0, len(documents)))
    shards = [part for part in (documents[:half], documents[half:]) if part]
    ids = {name: BOS_ID + k for k, name in enumerate(("bos_id", "eos_id")) if getattr(spec, name)}
    options = options_of(spec) | ids
    if "eos_id" not in ids and render["eos_mask"] == "all":
        render["train_on_eos"] = True  # this store has no tokenizer that would know its EOS
    with warnings.catch_warnings(), ToyStore(shards, vocab_size=1000) as toy:
        warnings.simplefilter("ignore")  # losses cause warnings, see below
        adds = {f"add_{name[:3]}": True for name in ids}
        packed = toy.store.pack(spec.seq_len, **options, **adds, **render, pad_id=PAD)
        rows = slow_rows(lengths, PackSpec(seq_len=spec.seq_len, **options))
        assert len(packed) == len(rows)
        if not rows:
            return
        expected = slow_arrays(rows, documents, PackSpec(seq_len=spec.seq_len, **options), render)
        for by_blocks in (False, True):
            batch = whole(packed, np.arange(len(rows)), by_blocks=by_blocks)
            for name, values in expected.items():
                assert getattr(batch, name).tolist() == values, name
            batch.spans.check()


# -- a store of several groups -------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """150 documents of 0 to 40 tokens in two shards; all tokens differ."""
    rng = np.random.default_rng(3)
    sizes = rng.integers(0, 41, 150)
    ends = np.cumsum(sizes)
    documents = [
        list(range(e - n + 1, e + 1)) for e, n in zip(ends.tolist(), sizes.tolist(), strict=True)
    ]
    root = tmp_path_factory.mktemp("packed") / "s"
    write_store(root, [documents[:80], documents[80:]], inner=16, chunk_tokens=64)
    return tl.open(root, cache_bytes=1 << 20)


GROUPS = {"group_docs": 17}
ORDERS = {
    "stored": lambda ds: ds,
    "full": lambda ds: ds.shuffle(),
    "block": lambda ds: ds.block_shuffle(window_blocks=2),
    "lanes": lambda ds: ds.block_shuffle(window_blocks=1, lanes=3),
    "era": lambda ds: ds.shuffle(10),
    "own blocks": lambda ds: ds.block_shuffle(io_block_size=5, window_blocks=2),
}


@pytest.mark.parametrize("strategy", ["sequential", *STRATEGIES])
def test_every_token_is_in_exactly_one_cell(store, strategy):
    packed = store.pack(16, strategy=strategy, pad_id=0, **GROUPS)
    tokens = packed.batch(np.arange(len(packed))).tokens
    assert sorted(tokens[tokens > 0].tolist()) == list(range(1, store.num_tokens + 1))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("strategy", ["sequential", "greedy", "best_fit_decreasing"])
def test_packed_runs_keep_the_laws(store, strategy, order):
    packed = (
        ORDERS[order](store.pack(16, strategy=strategy, add_bos=True, bos_id=9001, **GROUPS))
        .epochs(2)
        .seed(3)
    )
    assert_exactly_once(packed)
    assert_elastic(packed, worlds=(1, 3, 2))
    assert_resumable(packed)


@pytest.mark.parametrize("order", ORDERS)
def test_rows_by_blocks_are_rows_by_ranges_and_one_by_one(store, order):
    packed = ORDERS[order](store.pack(16, add_eos=True, eos_id=9002, stride=3, **GROUPS)).seed(3)
    indices = np.arange(len(packed))[::-1]
    together = whole(packed, indices, by_blocks=True)
    assert np.array_equal(together.tokens, whole(packed, indices).tokens)
    for place, index in enumerate(indices.tolist()):
        one = packed[index]
        for name in ("tokens", "labels", "segment_ids", "position_ids", "loss_mask"):
            assert np.array_equal(getattr(one, name)[0], getattr(together, name)[place]), name


def test_a_group_is_a_block_and_blocks_are_where_their_documents_are(store):
    packed = store.pack(16, **GROUPS).block_shuffle()
    run, layout = packed.run, packed.run.layout
    assert len(run.working.blocks) == len(layout.groups) == -(-150 // 17)
    for block in range(len(run.working.blocks)):
        first, last = run.working.blocks.edges(np.array([block]))
        spans = layout.spans(0, np.arange(first[0], last[0]))
        low, high = layout.stretch(np.array([block]), run.working.blocks)
        assert low[0] <= spans.address.min()
        assert high[0] >= (spans.address + spans.length).max()
        assert set(spans.document.tolist()) <= set(range(17 * block, 17 * block + 17))


def test_groups_end_by_documents_or_by_tokens(store):
    lengths = np.diff(
        np.concatenate([[0], np.cumsum([len(store.document(i)) for i in range(150)])])
    )
    groups = store.pack(16, group_docs=20, group_tokens=300).run.layout.groups
    first, expected = 0, [0]
    while first < 150:
        count = total = 0
        while count < 20 and total < 300 and first + count < 150:
            total += int(lengths[first + count])
            count += 1
        first += count
        expected.append(first)
    assert groups.document.tolist() == expected


def test_a_packed_run_is_rebuilt_from_its_description(store):
    packed = (
        store.pack(16, strategy="bin", stride=2, max_docs_per_bin=3, **GROUPS).shuffle().seed(5)
    )
    again = tl.from_config(packed.describe())
    assert again.fingerprint == packed.fingerprint
    assert np.array_equal(again.batch([3, 1]).tokens, packed.batch([3, 1]).tokens)
    assert "pack(16, strategy=first_fit_decreasing, stride=2" in repr(packed)
    with pytest.warns(UserWarning, match="in no row"):
        cut = store.pack(16, overflow="truncate")
    assert store.pack(16).fingerprint != cut.fingerprint


def test_tokens_of_a_state_are_counted_row_by_row(store):
    packed = (
        store.pack(16, add_bos=True, bos_id=9001, lookahead=True, **GROUPS)
        .block_shuffle()
        .epochs(2)
        .seed(1)
    )
    with tl.Loader(packed, 7) as loader:
        total = 0
        for batch in loader:
            real = (batch.segment_ids > 0) & (batch.tokens != 9001)
            total += int(real.sum())
            assert loader.state_dict()["sources"][0]["tokens"] == total


def test_documents_of_a_split_are_packed_like_a_store(store):
    parts = store.split({"train": 0.8, "validation": 0.2})
    found = []
    for part in parts.values():
        packed = part.pack(16, pad_id=0, **GROUPS)
        tokens = packed.batch(np.arange(len(packed))).tokens
        found += tokens[tokens > 0].tolist()
        assert set(packed.spans(np.arange(len(packed))).document.tolist()) <= set(
            part.indices.tolist()
        )
    assert sorted(found) == list(range(1, store.num_tokens + 1))


def test_what_is_lost_is_told_before_anything_runs(store):
    with pytest.warns(
        UserWarning, match=r"pack: .* tokens \(\d+\.\d%\) are in no row: .* truncated"
    ):
        store.pack(16, overflow="truncate")
    with pytest.warns(UserWarning, match="dropped as too long"):
        store.pack(16, overflow="drop")
    with pytest.warns(UserWarning, match="filtered by length"):
        store.pack(16, min_len=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.pack(16)
    long = int(np.flatnonzero(np.array(store.lengths) > 38)[0])
    assert long >= 5  # not in the first group
    with pytest.raises(tl.ConfigError, match=rf"overflow: document {long} has"):
        store.pack(38, overflow="error", group_docs=5)
    with pytest.raises(tl.ConfigError, match=r"strategy: found 'sequntial'.*'sequential'"):
        store.pack(16, strategy="sequntial")


def test_cut_documents_are_told_if_the_store_says_what_is_trained_on(tmp_path):
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


def test_an_unknown_option_is_refused_with_the_near_miss(store):
    with pytest.raises(tl.ConfigError, match=r"stride"):
        store.pack(16, strides=2)
