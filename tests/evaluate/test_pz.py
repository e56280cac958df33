"""P(z) of the windows of a store: which windows there are, and what is said about them."""

import math

import numpy as np
import pytest
import torch
from markov import Markov
from refusals import refused

import tokenloom as tl
from tokenloom.evaluate import Decoding, Extraction, log_pz, pz, token_scores, window_run


def store_of(tmp_path, lengths, size=12, seed=4, **how):
    rng = np.random.default_rng(seed)
    rows = [{"input_ids": rng.integers(0, size, n).tolist()} for n in lengths]
    return tl.build(rows, tmp_path / "store", vocab_size=size, tokenizer=None, **how)


def test_documents_that_are_too_short_have_none_and_that_is_told(tmp_path):
    store = store_of(tmp_path, [99, 105])
    with pytest.warns(UserWarning, match="1 document of 2"):
        found = pz(Markov(), store)
    assert found.by_document()[0] == {"windows": 0}
    assert found.by_document()[1]["windows"] == 2
    refused(lambda: window_run(store.select(doc_index=0)), tl.ConfigError, 99, 100)


@pytest.mark.parametrize(
    ("decoding", "offset"),
    [(Decoding(), 3), (Decoding(T=0.8, top_k=5), 0), (Decoding(top_p=0.9), 0)],
)
def test_every_window_has_the_value_that_it_has_alone(tmp_path, decoding, offset):
    store, chain = store_of(tmp_path, [20, 9, 31]), Markov()
    found = pz(chain, store, prefix=4, suffix=5, stride=2, offsets=(offset,), decoding=decoding)
    seen = []
    for document, start, value in zip(
        found.windows.document, found.windows.start, found.windows.log_pz, strict=True
    ):
        tokens = store[document][start : start + 9]
        assert value == log_pz(chain.table[tokens], tokens, prefix=4, decoding=decoding)
        seen.append((int(document), int(start)))
    assert seen == [(d, t) for d, n in enumerate((20, 9, 31)) for t in range(0, n - 8, 2)]


def test_filler_before_a_window_is_segment_0(tmp_path):
    store, seen = store_of(tmp_path, [20]), []

    def model(tokens, segment_ids, position_ids):
        seen.append((segment_ids.copy(), position_ids.copy()))
        return np.zeros((*tokens.shape, 12))

    pz(model, store, prefix=4, suffix=4, stride=6, offsets=(5,))
    segments, _ = seen[0]
    assert segments.tolist() == [[0] * 5 + [1] * 8] * 3


@pytest.mark.parametrize("world", [2, 7])
def test_ranks_find_together_what_one_finds_to_the_last_bit(tmp_path, world):
    store = store_of(tmp_path, [40, 33, 58])
    given = {"prefix": 5, "suffix": 6, "stride": 3, "offsets": (0, 2), "batch_size": 8}
    alone = pz(Markov(), store, rank=0, world_size=1, **given)
    parts = [pz(Markov(), store, rank=r, world_size=world, **given) for r in range(world)]
    found = Extraction.joined(parts[::-1])
    for one, other in zip(alone.windows, found.windows, strict=True):
        assert one.tobytes() == other.tobytes()
    assert found.as_json() == alone.as_json()
    refused(lambda: Extraction.joined([parts[0], parts[0]]), tl.ConfigError)


def test_an_end_of_document_that_is_also_the_padding_is_kept(tmp_path):
    """Evaluators that ignore PAD drop EOS from the product when both have the same id."""
    rows = [{"input_ids": [1, 2, 3, 0, 4, 5]}]
    store = tl.build(rows, tmp_path / "store", vocab_size=12, tokenizer=None)
    chain = Markov()
    found = pz(chain, store, prefix=2, suffix=4, stride=1)
    tokens = np.array([1, 2, 3, 0, 4, 5])
    assert found.windows.log_pz[0] == log_pz(chain.table[tokens], tokens, prefix=2)
    assert np.isfinite(found.windows.log_pz[0])


def test_a_histogram_counts_every_window_once_and_what_is_never_drawn(tmp_path):
    store = store_of(tmp_path, [60])
    found = pz(Markov(), store, prefix=2, suffix=3, stride=1, decoding=Decoding(top_k=2))
    bins = found.histogram()
    assert sum(count for *_, count in bins) == len(found) == 56
    assert bins[-1][1] == 0
    never = int(np.isneginf(found.windows.log_pz).sum())
    assert found.summary()["never"] == never > 0
    assert bins[0][2] == never
    assert found.summary()["mean_log_pz"] == -math.inf


def test_heat_covers_the_suffix_and_never_the_prefix(tmp_path):
    """A prefix was given to the model; counting it as extracted is the published mistake."""
    store = store_of(tmp_path, [14])
    found = pz(Markov(), store, prefix=3, suffix=4, stride=5)
    first, second = found.windows.log_pz
    heat = found.heat(0)
    assert np.isnan(heat[[0, 1, 2, 7, 12, 13]]).all()
    assert heat[3:7].tolist() == [first] * 4
    assert heat[8:12].tolist() == [second] * 4


def test_intervals_come_from_documents_not_from_windows(tmp_path):
    """Every window of a document says the same here, so one document has no interval."""
    store = store_of(tmp_path, [30] * 12)
    chances = np.linspace(-3, 3, 12)

    def model(tokens, segment_ids, position_ids):
        return np.zeros((*tokens.shape, 12)) + chances

    found = pz(model, store, prefix=3, suffix=4, stride=1)
    mean = found.intervals(draws=200)["mean log10 P(z)"]
    assert mean.low < mean.value < mean.high
    assert mean == found.intervals(draws=200)["mean log10 P(z)"]
    single = pz(model, store.select(doc_index=3), prefix=3, suffix=4, stride=1)
    assert math.isnan(single.intervals(draws=50)["mean log10 P(z)"].low)


def test_logits_that_cannot_be_judged_are_refused_with_their_window(tmp_path):
    store = store_of(tmp_path, [40, 40])

    def poisoned(tokens, segment_ids, position_ids):
        logits = np.zeros((*tokens.shape, 12))
        logits[2:] = np.nan
        return logits

    def judge(model):
        return lambda: pz(model, store, prefix=5, suffix=5, stride=5)

    refused(judge(poisoned), tl.ConfigError, "example 2", "document 0", "10")
    refused(judge(lambda t, s, p: np.zeros((*t.shape, 11))), tl.ConfigError, 11)
    refused(judge(lambda t, s, p: np.zeros((len(t), 12))), tl.ConfigError)
    refused(judge(3), tl.ConfigError, "model", "int")


class Net(torch.nn.Module):
    """A model of torch with dropout, so that its mode matters."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(12, 12)
        self.dropout = torch.nn.Dropout(0.5)
        self.frozen = torch.nn.Dropout(0.5).eval()  # a part that its owner keeps in another mode

    def forward(self, tokens, segment_ids, position_ids):
        return self.frozen(self.dropout(self.embedding(tokens)))


def test_a_module_is_evaluated_without_dropout_and_left_as_it_was(tmp_path):
    store, net = store_of(tmp_path, [40, 25]), Net()
    found = pz(net, store, prefix=5, suffix=5, stride=5)
    assert net.training
    assert net.dropout.training
    assert not net.frozen.training
    assert torch.is_grad_enabled()
    table = net.embedding.weight.detach().numpy()
    again = pz(lambda t, s, p: table[t], store, prefix=5, suffix=5, stride=5)
    np.testing.assert_allclose(found.windows.log_pz, again.windows.log_pz, atol=1e-6)
    net.embedding.weight.data[3] = torch.nan
    refused(lambda: pz(net, store, prefix=5, suffix=5, stride=5), tl.ConfigError, "NaN")
    assert net.training
    assert torch.is_grad_enabled()
    assert found.settings["model"] == "Net, 144 parameters, float32 weights on cpu"


def test_a_model_with_learned_positions_sees_the_offset(tmp_path):
    """And one with relative positions does not: test_local_models.py."""
    rows = [{"input_ids": np.random.default_rng(0).integers(0, 12, 30).tolist()}]
    store = tl.build(rows, tmp_path / "store", tokenizer=None, vocab_size=12)
    chain, places = Markov(), np.random.default_rng(1).normal(size=(40, 12))

    def learned(tokens, segment_ids, position_ids):
        return chain(tokens, segment_ids, position_ids) + places[position_ids]

    found = pz(learned, store, prefix=4, suffix=3, stride=3, offsets=(0, 5))
    near, far = (found.windows.log_pz[found.windows.offset == s] for s in (0, 5))
    assert (np.abs(near - far) > 1e-3).all()
    at_5 = [
        token_scores(
            chain.table[store[0][t + 3 : t + 6]] + places[np.arange(8, 11)], store[0][t + 4 : t + 7]
        ).log_probs.sum()
        for t in found.windows.start[found.windows.offset == 5].tolist()
    ]
    np.testing.assert_allclose(far, at_5, rtol=1e-12)
