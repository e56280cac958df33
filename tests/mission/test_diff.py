"""`tl.diff` against arrays compared one by one, and its verdicts on single settings."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from refusals import refused

import tokenloom as tl

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """A store, the same one after it grew, and another one."""
    folder = tmp_path_factory.mktemp("diff")
    draw = np.random.default_rng(5)
    sizes = [8, 0, 3, 30, 12, 1, 5, 16, 9, 2, 23, 7, 17, 4, 9, 30, 1, 16, 5, *range(2, 24, 2)]
    rows = [{"input_ids": draw.integers(0, 900, n).tolist()} for n in sizes]
    options = {"tokenizer": None, "vocab_size": 1000, "progress": False}
    first = tl.build(rows[:14], folder / "grown", **options)
    second = tl.build(rows[14:19], folder / "grown", append=True, **options)
    return SimpleNamespace(
        first=first, second=second, other=tl.build(rows[19:], folder / "other", **options)
    )


def slow(a, b, n):
    """Which of the first n examples have the same arrays, from the arrays."""
    one, other = (run.batch(range(n)) for run in (a, b))
    names = ("tokens", "segment_ids", "position_ids", "loss_weights", "labels")
    return np.all([(getattr(one, k) == getattr(other, k)).all(axis=1) for k in names], axis=0)


def held_to_arrays(a, b):
    right = slow(a, b, min(len(a), len(b)))
    found = tl.diff(a, b)
    assert found.first == (None if right.all() else int(np.flatnonzero(~right)[0]))
    assert (found.share, found.is_first, found.is_exact) == (right.mean(), True, True)
    return found


def test_stores_of_other_content_are_compared_by_hashes_of_documents(tmp_path):
    rows = [{"input_ids": [i % 50 + k for k in range(8)]} for i in range(60)]
    options = {"tokenizer": None, "vocab_size": 99, "progress": False}
    a = tl.build(rows, tmp_path / "a", **options)
    same = tl.build(rows, tmp_path / "same", **options)
    changed = [rows[3], *rows[1:30], {"input_ids": [7] * 8}, *rows[31:]]
    b = tl.build(changed, tmp_path / "b", **options)
    one, other = (store.windows(8).shuffle().seed(1) for store in (a, b))
    found = held_to_arrays(one, other)
    assert found.share == 58 / 60
    assert [(c.key, c.verdict) for c in found.keys] == [("store", "content")]
    reads = a.reads.read_ops
    copy = tl.diff(one, same.windows(8).shuffle().seed(1))
    assert not copy
    assert [(c.key, c.verdict) for c in copy.keys] == [("store.path", "nothing")]
    assert a.reads.read_ops == reads  # no token is read


def test_stores_with_loss_columns_are_compared_by_their_arrays(tmp_path):
    def build(name, weights):
        rows = [
            {"input_ids": [5, 6, 7, 8], "loss_mask": [0, 1, 1, int(i in weights)]}
            for i in range(12)
        ]
        return tl.build(rows, tmp_path / name, tokenizer=None, vocab_size=9, progress=False)

    found = held_to_arrays(build("a", {1, 2}).windows(4), build("b", {1}).windows(4))
    assert (found.first, found.share) == (2, 11 / 12)


def verdicts(a, b):
    return {one.key: one.verdict for one in tl.diff(a, b).keys}


def test_ruling_46_every_key_is_judged_by_trying_it_alone(stores):
    store = stores.first
    run = store.windows(8).shuffle().seed(1).epochs(3)
    assert verdicts(run, run) == {}
    assert verdicts(run, run.seed(2)) == {"seed": "order"}
    assert verdicts(run, run.epochs(5)) == {"epochs": "end"}
    assert verdicts(run, run.take(9)) == {"take": "end"}
    assert verdicts(run, run.era_shuffle(5)) == {"shuffle": "order"}
    assert verdicts(run, run.render(label_layout="shifted")) == {"render.label_layout": "arrays"}
    assert verdicts(run, run.render(pad_id=3)) == {"render.pad_id": "nothing"}  # no row has filler
    kept = store.windows(8, tail="keep").shuffle().seed(1).epochs(3)
    assert verdicts(kept, kept.render(pad_id=3)) == {"render.pad_id": "arrays"}
    assert verdicts(run, kept) == {"layout.tail": "content"}
    grown = run.edit(at=10, append={"main": stores.second})
    assert verdicts(run, grown) == {"edits": "content"}
    assert verdicts(run, run.edit(at=10, quarantine=[("main", 3)])) == {"edits": "content"}
    assert verdicts(run, run.edit(at=10)) == {"edits": "nothing"}
    both = run.seed(4).render(mask_boundary_loss=False)
    assert verdicts(run, both) == {"seed": "order", "render.mask_boundary_loss": "arrays"}


def test_keys_of_a_mix_are_judged_alone(stores):
    a, b, c = (
        s.windows(8).shuffle().epochs(2) for s in (stores.first, stores.other, stores.second)
    )
    run = tl.mix({"a": a, "b": b}).seed(1)
    assert verdicts(run, tl.mix({"a": a, "b": b}, weights={"b": 2}).seed(1)) == {
        "mix.weights.b": "order"
    }
    other = tl.mix({"a": a, "b": b.epochs(3).shuffle(False)}, rule="weights", cost="tokens").seed(1)
    assert verdicts(run, other) == {
        "mix.rule": "order",
        "sources[b].epochs": "end",
        "sources[b].shuffle": "order",
    }
    assert verdicts(run, tl.mix({"a": a, "b": b, "c": c}).seed(1)) == {"sources": "content"}
    assert verdicts(run, run.edit(at=9, add={"c": c})) == {"mix.edits": "content"}
    assert verdicts(run.edit(at=9, add={"c": c}), run) == {"mix.edits": "content"}
    assert verdicts(run, a) == {"mix": "not alone"}
    told = tl.diff(run, tl.mix({"a": a, "b": c}).seed(1))
    assert [(one.key, one.verdict) for one in told.keys] == [("sources[b].store", "content")]


def test_a_key_that_makes_no_sense_alone_is_told_with_the_reason(stores):
    plain = stores.first.windows(8)
    ahead = stores.first.windows(8, lookahead=True, overlap=1)
    found = {one.key: one for one in tl.diff(plain, ahead).keys}
    assert found["layout.overlap"].verdict == "not alone"
    assert "overlap: found 1" in found["layout.overlap"].why


def test_endless_runs_are_compared_by_a_keyed_sample_with_its_interval(stores):
    run = stores.first.windows(8).shuffle().epochs(None).seed(1)
    masked = run.render(mask_boundary_loss=False)
    found = tl.diff(run, masked)
    n = found.among
    share = slow(run.take(2000), masked.take(2000), 2000).mean()
    assert found.low <= share <= found.high
    assert not found.is_exact
    assert tl.diff(run, masked) == found  # the sample is keyed
    assert n > found.compared > 0


def test_runs_with_the_same_past_are_not_compared_there(stores):
    run = stores.first.windows(8).shuffle().epochs(None).seed(1)
    edited = run.edit(at=10**12, quarantine=[("main", 3)])
    found = tl.diff(run, edited)
    assert found.first == run.next(doc=3, after=10**12 - 1).index
    again = edited.edit(at=10**13, append={"main": stores.second})
    assert tl.diff(edited, again).first >= 10**13


def test_a_difference_is_plain_json_and_true(stores):
    run = stores.first.windows(8).shuffle().seed(1)
    found = tl.diff(run, run.seed(2))
    assert found
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()
    assert not tl.diff(run, run.seed(1))
    refused(lambda: tl.diff(run, stores.first), tl.ConfigError, "diff.b", "Store")
