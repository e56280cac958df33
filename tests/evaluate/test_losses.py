"""Perplexity and bits per byte: every table against a loop over documents."""

import math
from collections import defaultdict

import numpy as np
import pytest
import torch
from markov import Markov
from refusals import refused

import tokenloom as tl
from tokenloom.evaluate import Losses, evaluate, token_scores
from tokenloom.evaluate.scoring import AXES, bin_name

LENGTHS = (20, 9, 31, 1, 50)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    rng = np.random.default_rng(4)
    rows = [{"input_ids": rng.integers(0, 12, n).tolist()} for n in LENGTHS]
    return tl.build(
        rows, tmp_path_factory.mktemp("losses") / "store", tokenizer=None, vocab_size=12
    )


LAYOUTS = {
    "packed": lambda store: store.pack(16),
    "one document a row": lambda store: store.pack(16, strategy="one_doc"),
    "windows": lambda store: store.windows(16, tail="keep"),
    "windows, shifted": lambda store: store.windows(16, tail="keep", label_layout="shifted"),
    "spliced": lambda store: store.splice(16, content_length=8, content_stride=4),
    "packed, shuffled": lambda store: store.pack(16).shuffle().seed(3),
}


def slow_tables(run, chain):
    """Losses by place, one cell at a time, from the batch alone."""
    found = {axis: defaultdict(list) for axis in AXES}
    for n in range(len(run)):
        batch = run[n]
        spans = batch.spans
        targets = batch.labels[0]
        if batch.label_layout == "aligned":
            targets = [*targets[1:], -100]
        for cell, target in enumerate(targets):
            if target == -100:
                continue
            loss = -token_scores(chain.table[batch.tokens[0, cell]], np.array(target)).log_probs
            own = cell + 1
            (k,) = [
                k
                for k in range(len(spans.at))
                if spans.at[k] <= own < spans.at[k] + spans.length[k]
            ]
            place = {
                "document": int(spans.document[k]),
                "source": "main",
                "index": bin_name(int(spans.start[k] + own - spans.at[k]).bit_length()),
                "position": bin_name(own.bit_length()),
                "context": bin_name(int(own - spans.at[k]).bit_length()),
                "start": bin_name(int(spans.start[k]).bit_length()),
                "row": n,
            }
            for axis, name in place.items():
                found[axis][name].append(float(loss))
    return found


@pytest.mark.parametrize("kind", LAYOUTS)
def test_tables_are_those_of_a_loop_over_cells(store, kind):
    run, chain = LAYOUTS[kind](store), Markov()
    found = evaluate(chain, run, by=tuple(AXES), batch_size=3)
    wanted = slow_tables(run, chain)
    for axis in AXES:
        table = found.by(axis)
        assert set(table) == set(wanted[axis]), axis
        for name, losses in wanted[axis].items():
            assert table[name]["tokens"] == len(losses), (axis, name)
            assert table[name]["loss"] == pytest.approx(math.fsum(losses) / len(losses), rel=1e-12)
    assert found.all["tokens"] == sum(map(len, wanted["row"].values()))


@pytest.mark.parametrize("world", [2, 5])
def test_ranks_find_together_what_one_finds(store, world):
    run = store.pack(16).shuffle()
    alone = evaluate(Markov(), run, by=tuple(AXES), rank=0, world_size=1, batch_size=4)
    parts = [
        evaluate(Markov(), run, by=tuple(AXES), rank=r, world_size=world, batch_size=7)
        for r in range(world)
    ]
    found = Losses.joined(parts[::-1])
    for axis in AXES:
        table, wanted = found.by(axis), alone.by(axis)
        assert [*table] == [*wanted], axis
        for name, one in wanted.items():
            assert table[name] == pytest.approx(one, rel=1e-12), (axis, name)


def test_the_size_of_a_batch_changes_no_bit(store, monkeypatch):
    """Sums are added in order of tokens, whatever comes at once."""
    run = store.pack(16).shuffle()
    found = [evaluate(Markov(), run, by=tuple(AXES), batch_size=n).as_json() for n in (1, 4, 99)]
    monkeypatch.setattr("tokenloom.evaluate.losses.PENDING", 5)
    found.append(evaluate(Markov(), run, by=tuple(AXES), batch_size=2).as_json())
    assert found == [found[0]] * 4


def test_a_token_of_probability_0_makes_the_perplexity_infinite_and_is_counted(store):
    chain = Markov()
    chain.table[:, 5] = -np.inf
    found = evaluate(chain, store.pack(64))
    assert found.all["loss"] == math.inf
    assert found.all["perplexity"] == math.inf
    assert found.all["never"] == sum(int((store[d][1:] == 5).sum()) for d in range(len(LENGTHS)))


def test_a_mix_names_its_documents_by_source(store):
    run = tl.mix({"a": store.pack(16), "b": store.pack(16)}, weights={"a": 1, "b": 1}).take(8)
    found = evaluate(Markov(), run)
    assert set(found.by("source")) == {"a", "b"}
    assert {name for name, _ in found.by("document")} == {"a", "b"}
    total = sum(one["tokens"] for one in found.by("document").values())
    assert total == found.all["tokens"]


def test_torch_finds_what_numpy_finds(store):
    chain = Markov()
    table = torch.from_numpy(chain.table)

    class Net(torch.nn.Module):
        def forward(self, tokens, segment_ids, position_ids):
            return table[tokens]

    one, other = evaluate(Net(), store.pack(16)), evaluate(chain, store.pack(16))
    assert one.all["loss"] == pytest.approx(other.all["loss"], abs=1e-6)
    assert one.all["greedy"] == other.all["greedy"]


def test_runs_without_an_end_and_documents_without_a_length_are_refused(store):
    refused(lambda: evaluate(Markov(), store.pack(16).endless()), tl.ConfigError, "run")
    refused(lambda: evaluate(Markov(), store), tl.ConfigError, "seq_len")
    refused(lambda: evaluate(Markov(), store.pack(16), by=("documents",)), tl.ConfigError, "by")


def test_a_rank_without_a_row_has_nothing_and_says_so(store):
    parts = [
        evaluate(Markov(), store.select(doc_index=0), seq_len=64, rank=rank, world_size=3)
        for rank in range(3)
    ]
    assert [one.all["tokens"] for one in parts] == [0, 0, 19]
    assert math.isnan(parts[0].as_json()["all"]["loss"])
    assert Losses.joined(parts).is_whole
    refused(lambda: Losses.joined([parts[2], parts[2]]), tl.ConfigError)
