"""Evaluation at worked values: P(z), losses by place, sets that stay what they are, bits per byte.

`Chain` is a language whose next token depends on the last one only, so every figure is known.
"""

import itertools
import json
import math
import re

import numpy as np
import pytest
from documentation import section, tables_of
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

import tokenloom as tl
from tokenloom.evaluate import (
    content_hash,
    contrast,
    evaluate,
    learned,
    log_pz,
    one_document_rows,
    pz,
    token_page,
)
from tokenloom.inspect import coverage

SIZE = 12


class Chain:
    """A model of language: `table` has the logits of the next token."""

    def __init__(self, sharpness=1.0):
        self.table = sharpness * np.random.default_rng(0).normal(0, 2, (SIZE, SIZE))

    def __call__(self, tokens, segment_ids, position_ids):
        return self.table[tokens]

    def losses(self, tokens):
        """Nats of every token but the first."""
        exponentials = np.exp(self.table)
        chances = exponentials / exponentials.sum(axis=1, keepdims=True)
        return -np.log(chances[tokens[:-1], tokens[1:]])


def uniform(size):
    return lambda tokens, segment_ids, position_ids: np.zeros((*tokens.shape, size))


@pytest.fixture
def of_lengths(shared_store_of):
    """A store of documents of these lengths."""

    def make(*lengths, size=SIZE):
        draw = np.random.default_rng(5)
        return shared_store_of(*(draw.integers(0, size, n).tolist() for n in lengths))

    return make


@pytest.fixture
def store(of_lengths):
    return of_lengths(40, 20, 33)


def mean_loss(documents):
    return np.mean(np.concatenate([Chain().losses(tokens) for tokens in documents]))


# -- P(z) ----------------------------------------------------------------------------------


def test_ev_01_windows_of_100_tokens_half_of_them_given_every_5(of_lengths):
    made = of_lengths(4096, 105, 99)
    with pytest.warns(UserWarning, match=r"\b1 document\b"):
        found = pz(Chain(), made, progress=False)  # prefix=50, suffix=50, stride=5
    counts = {number: about["windows"] for number, about in found.by_document().items()}
    assert counts == {0: 800, 1: 2, 2: 0}
    # P(z) is the exponential of the sum over the suffix, given the prefix
    losses = Chain().losses(made.document(1))  # losses[t] is that of token t + 1
    expected = [-losses[t + 49 : t + 99].sum() for t in (0, 5)]
    windows = found.windows
    np.testing.assert_allclose(windows.log_pz[windows.document == 1], expected, rtol=1e-12)


def test_ev_01_log_pz_is_the_sum_over_the_suffix():
    tokens = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    found = log_pz(Chain().table[tokens], tokens, 2)
    expected = [-Chain().losses(row)[1:].sum() for row in tokens]
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_ev_02_ten_tokens_all_alike_give_a_suffix_of_two_a_hundredth(of_lengths):
    made = of_lengths(20, 9, size=10)
    found = pz(uniform(10), made, prefix=3, suffix=2, stride=5, progress=False)
    summary = found.summary()
    assert len(found) == summary["windows"] == 4 + 1
    for name in ("mean_pz", "median_pz", "max_pz"):
        assert summary[name] == pytest.approx(0.01, rel=1e-15)
    assert sum(count for *_, count in found.histogram()) == 5


def test_ev_02_mean_median_and_largest_are_those_of_the_windows(store):
    found = pz(Chain(), store, prefix=2, suffix=2, stride=1, progress=False)
    chances = np.exp(found.windows.log_pz)
    summary = found.summary()
    assert summary["windows"] == len(chances) == 37 + 17 + 30
    expected = {"mean_pz": chances.mean(), "median_pz": np.median(chances)}
    expected["max_pz"] = chances.max()
    for name, value in expected.items():
        assert summary[name] == pytest.approx(value)
    assert sum(count for *_, count in found.histogram()) == len(chances)


def test_c_24_p_z_is_of_one_document_or_of_several(of_lengths):
    def windows(documents):
        found = pz(uniform(SIZE), documents, prefix=1, suffix=2, stride=1, progress=False)
        return {number: about["windows"] for number, about in found.by_document().items()}

    store = of_lengths(7, 5, 3)
    assert windows(store) == {0: 5, 1: 3, 2: 1}
    assert windows(store.select(doc_index=1)) == {1: 3}
    assert windows(store.select(num_docs=2, doc_select_mode="shortest")) == {1: 3, 2: 1}


# -- losses by document and by place -------------------------------------------------------


def test_ev_03_documents_have_p_z_and_perplexity_of_their_own(store):
    found = pz(Chain(), store, prefix=4, suffix=4, stride=5, progress=False)
    chances = found.by_document()
    losses = evaluate(Chain(), one_document_rows(store, 64), progress=False).by("document")
    assert [*map(int, chances)] == [*map(int, losses)] == [0, 1, 2]
    for number in range(3):
        tokens = store.document(number)
        about = losses[number]
        assert about["tokens"] == len(tokens) - 1
        assert about["perplexity"] == pytest.approx(np.exp(Chain().losses(tokens).mean()))
        windows = found.windows.log_pz[found.windows.document == number]
        assert chances[number]["mean_pz"] == pytest.approx(np.exp(windows).mean())


def test_ev_03_documents_are_ranked_by_when_they_were_learned():
    """Losses at steps 10, 20 and 30; a document is learned when it is below 1 and stays there."""
    curves = {"0": [3, 2, 1.5], "1": [2, 0.5, 0.4], "2": [0.5, 2.0, 0.5], "3": [1.5, 1.1, 0.1]}
    records = []
    for place, step in enumerate((10, 20, 30)):
        by_document = {name: {"loss": curve[place]} for name, curve in curves.items()}
        records.append({"step": step, "results": {"held": {"by": {"document": by_document}}}})
    ranked = [(one.document, one.step) for one in learned(records, "held", line=1.0).documents]
    assert [name for name, _ in ranked] == ["1", "3", "2", "0"]
    steps = dict(ranked)
    assert steps["1"] == pytest.approx(10 + 10 * (2 - 1) / (2 - 0.5))
    assert steps["3"] == pytest.approx(20 + 10 * (1.1 - 1) / (1.1 - 0.1))
    assert steps["0"] is None


def test_ev_04_coverage_and_losses_by_document_sum_to_the_examples(store):
    run = store.splice(12, content_length=8, sampler="enumerate")
    shown = coverage(run).as_json()
    assert sum(document["splices"] for document in shown["documents"]) == len(run)
    drawn = np.bincount(run.spans(np.arange(len(run))).document, minlength=3)
    assert [document["splices"] for document in shown["documents"]] == drawn.tolist()
    found = evaluate(Chain(), run, progress=False)
    by_document = found.by("document")
    tokens = {int(number): about["tokens"] for number, about in by_document.items()}
    assert tokens == {number: 7 * count for number, count in enumerate(drawn)}
    total = sum(about["loss"] * about["tokens"] for about in by_document.values())
    assert total == pytest.approx(found.all["loss"] * found.all["tokens"])


def test_ev_04_every_trained_token_is_in_one_bin_of_every_axis(store):
    run = store.pack(16)
    found = evaluate(Chain(), run, progress=False)
    assert found.all["tokens"] == run[0 : len(run)].loss_tokens
    for axis in ("document", "source", "index", "position", "context", "start"):
        assert sum(about["tokens"] for about in found.by(axis).values()) == found.all["tokens"]


def test_ev_05_a_few_offsets_have_a_loss_each(store):
    places = np.random.default_rng(1).normal(size=(64, SIZE))

    def absolute(tokens, segment_ids, position_ids):
        return Chain()(tokens, segment_ids, position_ids) + places[position_ids]

    options = {"prefix": 4, "suffix": 4, "offsets": (0, 8, 16), "progress": False}
    same = pz(Chain(), store, **options).by_offset()
    moved = pz(absolute, store, **options).by_offset()
    assert [*same] == [*moved] == [0, 8, 16]
    assert len({about["loss"] for about in same.values()}) == 1
    assert len({about["loss"] for about in moved.values()}) == 3
    plain = pz(Chain(), store, prefix=4, suffix=4, progress=False)
    assert same[8]["loss"] == pytest.approx(-plain.windows.log_pz.mean() / 4)


def test_ev_06_splices_that_start_later_are_a_table_by_start(store):
    run = store.splice(12, content_length=8, content_stride=4)
    by_start = evaluate(Chain(), run, by=("start",), progress=False).by("start")
    spans = run[0 : len(run)].spans
    assert next(iter(by_start)) == "0"
    lows = [int(re.match(r"\d+", name)[0]) for name in by_start]  # "0", "4 to 7", …
    assert lows == sorted(lows)
    assert len(lows) > 1
    bins = np.searchsorted(lows, spans.start, side="right") - 1
    for number, about in enumerate(by_start.values()):
        losses = [
            Chain().losses(store.document(document)[start : start + 8])
            for document, start, own in zip(spans.document, spans.start, bins, strict=True)
            if own == number
        ]
        assert about["tokens"] == 7 * len(losses)  # its first token is not predicted
        assert about["loss"] == pytest.approx(np.mean(losses))
    assert sum(about["tokens"] for about in by_start.values()) == 7 * len(spans)


def test_ev_01_draws_of_the_control_are_those_of_no_other_seed(of_lengths):
    """A side of one kind of text leaves the draws of the other side alone in the interval."""
    store = of_lengths(*range(20, 40))
    one = pz(Chain(), store, prefix=4, suffix=4, stride=1, progress=False)
    alike = pz(uniform(SIZE), store, prefix=4, suffix=4, stride=1, progress=False)
    alike.settings["model"] = one.settings["model"]

    def interval(trained, held, seed):
        return contrast(trained, held, seed=seed).figures["mean P(z)"].difference

    control, trained = interval(alike, one, seed=0), interval(one, alike, seed=1)
    assert control.value == pytest.approx(-trained.value)
    assert control.low != pytest.approx(-trained.high)
    assert control == interval(alike, one, seed=0)


# -- sets that stay what they are ----------------------------------------------------------


def test_ev_07_how_training_is_packed_leaves_evaluation_rows_alone(store):
    rows = one_document_rows(store, 16)
    before = rows.digest(0, len(rows)), content_hash(rows)
    others = (store.pack(32, strategy="greedy"), store.windows(8), store.pack(16).shuffle())
    for training in others:
        assert content_hash(training) == before[1]
        again = one_document_rows(store, 16)
        assert (again.digest(0, len(again)), content_hash(again)) == before
    changed = store.select(doc_index=[0, 2])
    assert content_hash(changed) != before[1]


def test_ev_07_rows_of_a_document_are_cut_every_s_tokens_and_each_transition_is_judged_once(store):
    """40, 20 and 33 tokens in rows of 16; the token after a row is its last label."""
    rows = one_document_rows(store, 16)
    batch = rows[0 : len(rows)]
    cuts = [(d, k) for d, length in enumerate((40, 20, 33)) for k in range(0, length, 16)]
    cuts.remove((2, 32))  # one token without one after it
    expected = [store.document(d)[k : k + 16].tolist() for d, k in cuts]
    shown = [
        tokens[ids > 0].tolist()
        for tokens, ids in zip(batch.tokens, batch.segment_ids, strict=True)
    ]
    assert shown == expected
    assert batch.loss_tokens == 39 + 19 + 32
    found = evaluate(Chain(), store, seq_len=16, progress=False).all
    assert found["tokens"] == 39 + 19 + 32
    assert found["loss"] == pytest.approx(mean_loss(store.document(n) for n in range(3)))


def test_c_68_held_out_rows_are_the_same_whatever_trains_on_the_rest(store_of):
    first = np.cumsum([1, 3, 9, 4, 1, 7, 5, 2, 8, 6, 3, 5, 4]).tolist()
    store = store_of([list(range(a, b)) for a, b in itertools.pairwise(first)])  # all tokens differ
    parts = store.split({"train": 0.6, "held": 0.4}, by="content", seed=4)
    rows = parts["held"].pack(10, strategy="one_doc")
    before = rows[0 : len(rows)]
    assert before.segment_ids.max() == 1
    assert len(rows) == parts["held"].num_documents > 1
    trainings = [
        parts["train"].windows(8),
        parts["train"].pack(16, strategy="sequential").block_shuffle().seed(9),
        parts["train"].pack(10, strategy="best_fit_decreasing").shuffle().epochs(3),
        parts["train"].splice(8, content_length=3),
    ]
    for training in trainings:
        trained = training[0 : len(training)]
        again = parts["held"].pack(10, strategy="one_doc")
        assert again == rows
        assert (again[0 : len(again)].tokens == before.tokens).all()
        shown = set(trained.tokens[trained.attention_mask].tolist())
        assert not shown & set(before.tokens[before.attention_mask].tolist())


SET = """\
seq_len: 16
sources: {{main: {{store: {store}, {layout}}}}}
evaluate: {{held: {{store: {store}{content}}}}}
"""


def test_ev_07_a_set_of_a_run_file_is_pinned_by_its_content(store, tmp_path, cli):
    def write(layout, content=""):
        text = SET.format(store=store.path, layout=layout, content=content)
        (tmp_path / "run.yaml").write_text(text)
        return tmp_path / "run.yaml"

    rows = one_document_rows(store, 16)
    for layout in ("pack: {}", "windows: 32", "pack: {seq_len: 8, strategy: greedy}"):
        about = json.loads(cli("check", write(layout), "--json", "--quiet"))
        assert about["evaluate"] == {"held": len(rows)}
        assert about["evaluate_content"] == {"held": content_hash(store)}
        held = tl.load(write(layout)).file.evaluate["held"]
        assert held.digest(0, len(held)) == rows.digest(0, len(rows))
    pinned = content_hash(store)
    tl.load(write("pack: {}", f", content: {pinned}"))
    other = pinned[:-1] + ("0" if pinned[-1] != "0" else "1")
    with pytest.raises(tl.ConfigError, match=r"evaluate\.held\.content\b") as refused:
        tl.load(write("pack: {}", f", content: '{other}'"))
    assert other in str(refused.value)
    assert pinned in str(refused.value)


def test_ev_08_duplicates_stay_on_one_side_of_a_hold_out(tmp_path):
    texts = [{"text": f"text {n % 60} of the loom"} for n in range(240)]  # each four times
    store = tl.build(texts, tmp_path / "copies", tokenizer="bytes", progress=False)

    def sides(by):
        parts = store.split({"train": 0.8, "held": 0.2}, by=by)
        assert sorted(n for part in parts.values() for n in part.indices) == [*range(240)]
        return [{texts[n]["text"] for n in part.indices} for part in parts.values()]

    train, held = sides("content")
    assert not train & held
    assert len(train) + len(held) == 60
    assert 2 <= len(held) <= 25
    assert sides("content") == [train, held]
    train, held = sides("id")  # the control: by number copies are on both sides
    assert train & held


# -- what is printed -----------------------------------------------------------------------


def test_ev_09_an_ablation_has_losses_bits_speed_and_reads():
    text = section("block K = 32", "verdict")
    (rows,) = (rows for rows in tables_of(text) if "arm" in rows[0])
    columns = (
        "held-out loss",
        "perplexity",
        "bits per byte",
        "training loss, last eighth",
        "reads an example",
        "trained tokens/s",
    )
    assert len(rows) >= 4
    for row in rows:
        for column in columns:
            assert float(row[column].split()[0].replace(",", "")) > 0
        loss, perplexity = (float(row[name].split()[0]) for name in columns[:2])
        assert math.exp(loss) == pytest.approx(perplexity, rel=0.02)


def test_ev_10_a_page_has_every_token_of_the_document(store):
    page = token_page(Chain(), store, 0, seq_len=16)
    assert len(page.strings) == len(page.log_probs) == 40
    assert np.isnan(page.log_probs[0])  # nothing precedes it
    np.testing.assert_allclose(page.log_probs[1:], -Chain().losses(store.document(0)), rtol=1e-12)
    html = page.html()
    assert len(re.findall(r"<i title=", html)) == 40
    assert "://" not in html
    assert len([*page.lines()]) == 40 + 1  # a head


def test_ev_11_bits_per_byte_are_nats_over_ln_2_over_bytes(tmp_path):
    texts = [{"text": "abcde"}, {"text": "äö"}]  # 5 and 4 bytes
    store = tl.build(texts, tmp_path / "bytes", tokenizer="bytes", progress=False)
    found = evaluate(uniform(256), store, seq_len=8, progress=False).all
    assert found["tokens"] == 4 + 3  # nothing predicts the first one
    assert found["bits_per_byte"] == 8.0
    assert found["loss"] == pytest.approx(8 * math.log(2))


def test_ev_11_a_token_of_several_bytes_has_fewer_bits_a_byte(tmp_path):
    """ "to be or" as ids of 2, 3 and 3 bytes: 2 judged tokens, 6 judged bytes."""
    words = {"to": 0, " be": 1, " or": 2, " not": 3}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="to"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(" ?[a-z]+"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    store = tl.build(
        [{"text": "to be or"}],
        tmp_path / "words",
        tokenizer=tmp_path / "tokenizer.json",
        progress=False,
    )
    assert store.document(0).tolist() == [0, 1, 2]
    found = evaluate(uniform(4), store, seq_len=8, progress=False).all
    assert found["loss"] == pytest.approx(math.log(4))
    assert found["bits_per_byte"] == pytest.approx(2 * 2 / 6)
