"""The planner's table matches the actual run, to the last token."""

import json
from dataclasses import replace

import numpy as np
import pytest

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.layout.pack.compare import ALL, PackingChoice, PackingPlan, _recommend
from tokenloom.layout.pack.cut import Tally
from tokenloom.layout.pack.packers import STRATEGIES
from tokenloom.layout.pack.spec import PackSpec
from tokenloom.testing import write_store


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
        assert "loses nothing" in reason
        assert "sequential would cut" in reason
        assert "overflow='truncate' would lose" in reason


def test_nothing_that_loses_tokens_is_recommended(store):
    plan = tl.plan_packing(store, seq_len=[16], strategy=["best_fit"], overflow="truncate")
    assert plan.recommended == ()


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([[1, 2]], "found int64 in 2-D"),
        ([1.5], "found float64 in 1-D"),
        ([3, -1], "found -1, allowed: 0 or more"),
        ("abc", "allowed: a store"),
    ],
)
def test_what_are_no_lengths_is_refused(lengths, message):
    with pytest.raises(tl.ConfigError, match=message):
        tl.plan_packing(lengths, seq_len=8, strategy="greedy")


def test_no_document_at_all():
    choice = tl.plan_packing([], seq_len=8, strategy="greedy")
    assert (choice.rows, choice.fill, choice.lost, choice.attention) == (0, 0.0, 0.0, 0.0)
    assert tl.plan_packing([0, 0], seq_len=[8]).recommended == ()


def test_the_command_prints_the_table_or_json(store, capsys):
    words = ["pack-plan", str(store.path), "--seq-len", "16", "32"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split()[:4] == ["seq_len", "strategy", "overflow", "rows"]
    assert "16: best_fit_decreasing" in out
    assert main([*words, "--json", "--strategy", "bin", "--overflow", "split"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["strategy"] for one in found["choices"]] == ["first_fit_decreasing"] * 2
    plan = tl.plan_packing(store, seq_len=16, strategy="bin")
    assert found["choices"][0]["rows"] == plan.rows
    assert main(["pack-plan", str(store.path), "--seq-len", "1"]) == 2


# -- the recommendation ---------------------------------------------------------------------


def a_choice(number, trained, *, lost=0, rows=10, cut=0, needless=0, overflow="split"):
    """One way of packing 90 documents with 1,000 tokens into 1,000 cells, and 10 empty ones."""
    tally = Tally(documents=100, empty=10, tokens=1000, overlong_tokens=lost, rows=rows, cells=1000)
    found = {"placed": trained, "trained": trained, "cut": cut, "cut_needlessly": needless}
    spec = PackSpec(seq_len=100, strategy=ALL[number], overflow=overflow)
    return PackingChoice(spec=spec, tally=replace(tally, **found))


def test_what_loses_tokens_or_has_no_rows_is_never_recommended():
    assert _recommend([]) is None
    assert _recommend([a_choice(1, 990, lost=1, overflow="drop"), a_choice(2, 0, rows=0)]) is None
    honest = a_choice(3, 100)
    assert _recommend([a_choice(1, 990, lost=1, overflow="drop"), honest])[0] is honest


def test_what_cuts_needlessly_is_recommended_only_if_all_do():
    cutter, whole = a_choice(1, 990, cut=30, needless=9), a_choice(3, 700, cut=4)
    best, reason = _recommend([cutter, whole])
    assert best is whole
    assert f"{ALL[1]} would cut 10.0% of them needlessly" in reason  # 9 of 90 that have tokens
    assert "cuts 4 of 90 documents; all of them longer than a frame" in reason
    other = a_choice(2, 800, cut=30, needless=9)
    best, reason = _recommend([cutter, other])
    assert best is cutter
    assert "all of them longer" not in reason
    assert f"{ALL[2]} would cut 10.0%" in reason
    assert "needlessly" not in _recommend([cutter])[1]


def test_the_simplest_of_those_that_train_nearly_the_most_is_recommended():
    for trained, expected in ((1000, 1), (999, 1), (998, 2)):  # 0.1 % of the cells is near
        best, reason = _recommend([a_choice(2, 1000), a_choice(1, trained)])
        assert best.spec.strategy == ALL[expected]
        assert reason.startswith(f"100: {ALL[expected]}, overflow='split': loses nothing, fills")
        assert "longer than a frame" not in reason
        assert "would" not in reason
        assert reason.endswith("cuts 0 of 90 documents.")


def test_the_way_that_loses_most_is_told():
    losers = [a_choice(1, 900, lost=50, overflow="drop")]
    losers += [a_choice(2, 900, lost=250, overflow="truncate")]
    reason = _recommend([losers[0], a_choice(3, 900), losers[1]])[1]
    assert reason.endswith("; overflow='truncate' would lose 25.0% of the tokens.")
    assert "drop" not in reason


def test_shares_of_a_choice_are_those_of_its_tally_and_nothing_has_none():
    one = a_choice(1, 800, lost=100, cut=3)
    more = replace(one.tally, segments=25, attention=40_000)
    one = replace(one, tally=more)
    assert (one.rows, one.fill, one.padding) == (10, 0.8, pytest.approx(0.2))
    assert (one.tokens_lost, one.lost, one.documents_cut) == (100, 0.1, 3)
    assert (one.segments_per_row, one.trained_share) == (2.5, 0.8)
    assert one.attention == 40_000 / (10 * 100**2)
    nothing = PackingChoice(spec=one.spec, tally=Tally())
    told = nothing.as_json()
    assert all(told[name] == 0 for name in ("rows", "padding", "lost", "attention"))
    assert all(told[name] == 0 for name in ("segments_per_row", "trained_share", "tokens_lost"))
    told = one.as_json()
    assert (told["seq_len"], told["strategy"], told["overflow"]) == (100, ALL[1], "split")
    assert told["tally"]["attention"] == 40_000
    assert told["attention"] == one.attention
    best = _recommend([one, a_choice(2, 700)])
    plan = PackingPlan(choices=(one,), recommended=(best,)).as_json()
    assert plan["choices"] == [told]
    (listed,) = plan["recommended"]
    assert listed == {"seq_len": 100, "strategy": ALL[2], "reason": best[1]}
