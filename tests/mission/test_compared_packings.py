"""The planner's table matches the actual run, to the last token."""

import json

import numpy as np
import pytest

import tokenloom as tl
from tokenloom.testing import write_store

STRATEGIES = ("greedy", "first_fit", "best_fit", "first_fit_decreasing", "best_fit_decreasing")
STRATEGIES += ("one_doc",)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    rng = np.random.default_rng(2)
    sizes = np.maximum(rng.lognormal(2.5, 1, 300).astype(int), 0)
    documents = [rng.integers(1, 900, size).tolist() for size in sizes]
    root = tmp_path_factory.mktemp("plan") / "s"
    write_store(root, [documents[:200], documents[200:]], inner=64, chunk_tokens=256)
    return tl.open(root)


@pytest.mark.filterwarnings("ignore:.*are in no row")
@pytest.mark.parametrize("overflow", ["split", "truncate", "drop"])
@pytest.mark.parametrize("strategy", ["sequential", *STRATEGIES])
@pytest.mark.parametrize("options", [{}, {"add_bos": True, "add_eos": True}, {"min_row_len": 9}])
def test_the_run_has_just_what_was_predicted(store, strategy, overflow, options):
    if strategy == "sequential" and overflow != "split":
        return
    common = {"strategy": strategy, "overflow": overflow, "group_docs": 70, **options}
    plan = tl.plan_packing(store, seq_len=32, **common)
    ids = {"bos_id": 901, "eos_id": 902} if "add_bos" in options else {}
    run = store.pack(32, **common, **ids)
    batch = run.batch(np.arange(len(run)))
    spans = batch.spans
    assert plan.rows == len(run)
    assert plan.fill == (batch.segment_ids > 0).mean()
    real = np.concatenate(
        [
            np.arange(start, start + length) + 100_000 * document
            for document, start, length in zip(
                spans.document, spans.start, spans.length, strict=True
            )
        ]
    )
    assert plan.tokens_lost == store.num_tokens - len(np.unique(real))
    pieces = np.bincount(spans.document)
    assert plan.documents_cut == (pieces > 1).sum()
    lengths = np.array(store.lengths) + len({"add_bos", "add_eos"} & options.keys())
    assert plan.tally.cut_needlessly == ((pieces > 1) & (lengths[: len(pieces)] <= 32)).sum()
    assert plan.tally.trained == batch.loss_tokens
    assert plan.segments_per_row == pytest.approx(len(spans.document) / len(run))
    squares = sum(
        int(n) ** 2
        for row in batch.segment_ids
        for s, n in zip(*np.unique(row, return_counts=True), strict=True)
        if s
    )
    assert plan.attention == pytest.approx(squares / (len(run) * 32**2))
    assert plan.padding == pytest.approx(1 - plan.fill)


def test_lengths_alone_and_a_store_give_the_same_plan(store):
    of_store = tl.plan_packing(store, seq_len=32, strategy="best_fit")
    of_lengths = tl.plan_packing(store.lengths, seq_len=32, strategy="best_fit")
    assert of_store == of_lengths
    part = store.split({"a": 0.5, "b": 0.5})["a"]
    assert tl.plan_packing(part, seq_len=32, strategy="best_fit").tally.documents == (
        part.num_documents
    )


def test_a_table_of_all_with_a_recommendation(store):
    plan = tl.plan_packing(store, seq_len=[16, 32], overflow=["split", "truncate"])
    text = str(plan)
    assert len(plan.choices) == 2 * (4 * 2 + 1)
    assert [c.spec.strategy for c, _ in plan.recommended] == ["best_fit_decreasing"] * 2
    for (choice, reason), seq_len in zip(plan.recommended, (16, 32), strict=True):
        assert choice.spec.seq_len == seq_len
        assert reason in text


def test_nothing_that_loses_tokens_is_recommended(store):
    plan = tl.plan_packing(store, seq_len=[16], strategy=["best_fit"], overflow="truncate")
    assert plan.recommended == ()


@pytest.mark.parametrize("lengths", [[[1, 2]], [1.5], [3, -1], "abc"])
def test_what_are_no_lengths_is_refused(lengths):
    with pytest.raises(tl.ConfigError):
        tl.plan_packing(lengths, seq_len=8, strategy="greedy")


def test_no_document_at_all():
    choice = tl.plan_packing([], seq_len=8, strategy="greedy")
    assert (choice.rows, choice.fill, choice.lost, choice.attention) == (0, 0.0, 0.0, 0.0)
    assert tl.plan_packing([0, 0], seq_len=[8]).recommended == ()


def test_the_command_prints_the_table_or_json(store, cli):
    words = ["pack-plan", str(store.path), "--seq-len", "16", "32"]
    out = cli(*words)
    assert out.splitlines()[0].split()[:4] == ["seq_len", "strategy", "overflow", "rows"]
    assert "16: best_fit_decreasing" in out
    found = json.loads(cli(*words, "--json", "--strategy", "bin", "--overflow", "split"))
    assert [one["strategy"] for one in found["choices"]] == ["first_fit_decreasing"] * 2
    plan = tl.plan_packing(store, seq_len=16, strategy="bin")
    assert found["choices"][0]["rows"] == plan.rows
    cli("pack-plan", store.path, "--seq-len", "1", code=2)
