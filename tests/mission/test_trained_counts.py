"""Every count of trained tokens is that of the rendered rows, with loss columns and without."""

import json
from random import Random

import numpy as np
import pytest
from toydata import ToyStore

import tokenloom as tl
from tokenloom.inspect import coverage


def columned(shards, which, random):
    """Loss columns of a toy store: a mask, weights, or both, which need not agree."""
    made = {}
    for bit, name, dtype in ((1, "loss_mask", "uint8"), (2, "loss_weights", "float32")):
        if which & bit:
            values = [0, 1] if bit == 1 else [0, 0.5, 2]
            made[name] = (
                dtype,
                lambda ids, values=values: np.array([random.choice(values) for _ in ids]),
            )
    return made


def test_a_plan_counts_what_a_loss_column_trains(tmp_path, cli):
    rows = [{"input_ids": [1, 2, 3, 4], "loss_mask": [0, 0, 0, 1]} for _ in range(8)]
    store = tl.build(rows, tmp_path / "a", tokenizer=None, vocab_size=10)
    plan = tl.plan_packing(store, seq_len=4, strategy="best_fit_decreasing", overflow="split")
    assert plan.tally.trained == int(store.pack(4).batch(range(8)).loss_mask.sum()) == 8
    assert plan.trained_share == 8 / 32
    lengths = tl.plan_packing(store.lengths, seq_len=4, strategy="best_fit_decreasing")
    assert lengths.tally.trained == 24, "lengths alone know nothing else"
    told = json.loads(cli("pack-plan", tmp_path / "a", "--seq-len", "4", "--json"))
    assert {one["tally"]["trained"] for one in told["choices"]} == {8}


# -- the cost of a mix ---------------------------------------------------------------------
@pytest.fixture(scope="module")
def chats(tmp_path_factory):
    """Two sources of the same length, of which one trains a quarter of its tokens."""
    root = tmp_path_factory.mktemp("chats")
    few = [{"input_ids": [1] * 8, "loss_mask": [0, 0, 0, 0, 0, 0, 1, 1]} for _ in range(60)]
    all_ = [{"input_ids": [2] * 8, "loss_mask": [1] * 8} for _ in range(60)]
    made = {"few": few, "all": all_}
    return {
        name: tl.build(rows, root / name, tokenizer=None, vocab_size=9, duplicates="allow")
        for name, rows in made.items()
    }


@pytest.mark.parametrize("kind", ["pack", "windows", "splice"])
def test_a_mix_by_loss_tokens_shares_what_is_trained(chats, kind):
    laid = {
        "pack": lambda s: s.pack(8).epochs(None),
        "windows": lambda s: s.windows(8).epochs(None),
        "splice": lambda s: (
            s.select(num_docs=20).splice(8, content_length=8, edge="inside").epochs(None)
        ),
    }[kind]
    sources = {name: laid(store) for name, store in chats.items()}
    run = tl.mix(sources, cost="loss_tokens").seed(1)
    batch = run.batch(range(90))
    per_row = {"few": 2, "all": 7}
    shown = batch.source
    assert [int(n) for n in batch.loss_mask.sum(1)] == [per_row[name] for name in shown]
    trained = {name: shown.count(name) * per_row[name] for name in per_row}
    assert abs(trained["few"] - trained["all"]) <= 7, "the control is the next line"
    by_tokens = tl.mix(sources, cost="tokens").seed(1).batch(range(90)).source
    assert abs(by_tokens.count("few") - by_tokens.count("all")) <= 1
    again = tl.from_config(run.describe())
    assert again.picked(range(90))[0] == shown


def test_a_source_that_grew_is_counted_with_its_new_documents(tmp_path):
    def rows(first, last):
        return [
            {
                "input_ids": [i % 9] * (5 + i % 7),
                "loss_mask": [(i + j) % 3 == 0 for j in range(5 + i % 7)],
            }
            for i in range(first, last)
        ]

    options = {"tokenizer": None, "vocab_size": 9}
    old = tl.build(rows(0, 30), tmp_path / "s", **options)
    base = old.pack(16).epochs(None)
    other = tl.build(rows(50, 90), tmp_path / "o", **options).pack(16).epochs(None)
    run = tl.mix({"s": base, "o": other}, cost="loss_tokens").seed(2)
    new = tl.build(rows(30, 60), tmp_path / "s", append=True, **options)
    edited = run.edit(at=10, append={"s": new})
    assert edited.picked(range(10))[0] == run.picked(range(10))[0]
    batch = edited.batch(range(200))
    trained = {"s": 0, "o": 0}
    for name, count in zip(batch.source, batch.loss_mask.sum(1).tolist(), strict=True):
        trained[name] += max(count, 1)
    assert abs(trained["s"] - trained["o"]) <= 16
    assert (batch.spans.document[np.array(batch.source)[batch.spans.row] == "s"] >= 30).any()


def test_counting_reads_no_token(tmp_path):
    rows = [{"input_ids": list(range(40)), "loss_mask": [i % 2 for i in range(40)]}] * 50
    tl.build(rows, tmp_path / "s", tokenizer=None, vocab_size=40, duplicates="allow")
    files = [path for path in (tmp_path / "s").rglob("*") if path.is_file()]
    tokens = [path for path in files if "input_ids" in str(path)]
    largest = max(tokens, key=lambda path: path.stat().st_size)
    largest.write_bytes(bytes(largest.stat().st_size))
    store = tl.open(tmp_path / "s")
    other = tl.open(tmp_path / "s").pack(64).epochs(None)
    run = tl.mix({"a": store.pack(64).epochs(None), "b": other}, cost="loss_tokens").seed(1)
    assert run.picked(range(100))[0]
    assert tl.plan_packing(store, seq_len=64, strategy="greedy").tally.trained == 50 * 20
    with pytest.raises(tl.StoreCorrupt):
        run.batch([0])


def test_counts_that_would_need_token_values_are_refused_still(chats):
    store = chats["few"]
    for render in ({"ignore_id": 3}, {"train_on_eos": False, "eos_id": 3}):
        mixed = tl.mix({"a": store.pack(8, **render)}, cost="loss_tokens")
        with pytest.raises(tl.ConfigError, match=r"loss_tokens.*depends on the values of tokens"):
            mixed.picked([0])


def test_a_row_without_trained_tokens_costs_1_so_that_time_goes_on(tmp_path):
    never = [{"input_ids": [1] * 4, "loss_mask": [0] * 4}]
    always = [{"input_ids": [1] * 4, "loss_mask": [1] * 4}]
    sources = {
        name: tl.build(rows * 9, tmp_path / name, tokenizer=None, vocab_size=9).pack(4)
        for name, rows in {"never": never, "always": always}.items()
    }
    run = tl.mix(sources, cost="loss_tokens", stop="first_exhausted").seed(1)
    names = run.picked(range(len(run)))[0]
    assert names.count("never") == 9
    assert names.count("always") in (2, 3), "a row of 3 for every 3 rows of 1"


# -- how often each token is trained -------------------------------------------------------
@pytest.mark.filterwarnings("ignore:splice")
@pytest.mark.parametrize("which", [0, 1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"edge": "clip"}, {"bos": 11}], ids=str)
def test_the_targets_of_a_coverage_are_the_trained_cells_of_its_rows(which, options):
    shards = [[list(range(1, 10)), [7, 8, 9, 1]], [[2, 3, 4, 5, 6]]]
    with ToyStore(shards, columns=columned(shards, which, Random(which))) as toy:
        run = toy.store.splice(8, content_length=4, **options)
        found = coverage(run)
        batch = run.batch(range(len(run)))
        trained = {number: [0] * len(one) for number, one in enumerate(toy.documents)}
        for row in range(len(run)):
            spans = batch.spans.frames(row, row + 1)
            for document, start, length, at, flags in zip(
                spans.document, spans.start, spans.length, spans.at, spans.flags, strict=True
            ):
                for j in range(length):
                    cell = at + (flags & 1) + j
                    trained[document][start + j] += bool(cell and batch.trained()[row, cell - 1])
        for number, expected in trained.items():
            assert found.targets(number).tolist() == expected
            left = [one for one in expected if one]
            assert found.trained(number).sum() == sum(expected)
            if which:
                assert set(left) <= set(found.trained(number).tolist())
        assert sum(map(sum, trained.values())) == batch.trained().sum()
