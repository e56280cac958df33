"""An evaluation that was stopped goes on, gives the same bits, and is never mixed with another."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markov import Markov
from refusals import refused

import tokenloom as tl
from tokenloom.evaluate import evaluate, kept, pz
from tokenloom.evaluate.scoring import Range


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    rng = np.random.default_rng(4)
    rows = [{"input_ids": rng.integers(0, 12, n).tolist()} for n in (20, 9, 31, 7, 50)]
    return tl.build(rows, tmp_path_factory.mktemp("kept") / "store", tokenizer=None, vocab_size=12)


class Stopped(Exception):
    """The evaluation ends here."""


class Stopping:
    """A model that is interrupted at one of its calls, and counts the rows that it was given."""

    def __init__(self, stop=None, fingerprint="step 100"):
        self.chain, self.stop, self.rows, self.calls = Markov(), stop, 0, 0
        self.fingerprint = fingerprint

    def __call__(self, tokens, segment_ids, position_ids):
        if self.calls == self.stop:
            raise Stopped
        self.calls += 1
        self.rows += len(tokens)
        return self.chain(tokens, segment_ids, position_ids)


def windows(model, store, keep=None, **options):
    frame = {"prefix": 3, "suffix": 3, "stride": 2, "offsets": (0, 2), "progress": False}
    return pz(model, store, **{**frame, "batch_size": 7, "keep": keep, **options})


def losses(model, store, keep=None, **options):
    rows = store.pack(16).shuffle().seed(3)
    return evaluate(model, rows, **{"batch_size": 2, "keep": keep, "progress": False, **options})


@pytest.fixture
def always(monkeypatch):
    """Write after every batch."""
    monkeypatch.setattr(kept, "SECONDS", 0.0)
    monkeypatch.setattr(kept, "SHARE", 0)


@pytest.mark.parametrize("judge", [windows, losses])
def test_it_goes_on_after_a_stop_at_any_batch_and_judges_no_row_twice(
    judge, store, tmp_path, always
):
    whole = Stopping()
    wanted = judge(whole, store)
    assert whole.calls >= 4
    for stop in (0, 1, whole.calls - 1):
        file = tmp_path / f"{judge.__name__}{stop}.npz"
        first, second, third = Stopping(stop), Stopping(), Stopping()
        with pytest.raises(Stopped):
            judge(first, store, file)
        assert judge(second, store, file, batch_size=3).to_bytes() == wanted.to_bytes()
        assert first.rows + second.rows == whole.rows
        assert judge(third, store, file).to_bytes() == wanted.to_bytes()
        assert third.calls == 0  # the answer was there


def test_what_belongs_to_another_evaluation_is_refused(store, tmp_path):
    file = tmp_path / "kept.npz"
    windows(Stopping(), store, file)
    before = file.read_bytes()
    others = {
        "weights": lambda: windows(Stopping(fingerprint="step 200"), store, file),
        "stride": lambda: windows(Stopping(), store, file, stride=1),
        "content": lambda: windows(Stopping(), store.select(doc_index=[0, 2]), file),
    }
    for name, ask in others.items():
        refused(ask, tl.ConfigError, name)
    assert file.read_bytes() == before


@given(st.integers(0, 10**6), st.integers(1, 300))
def test_ranges_of_ranks_are_all_examples_once_and_even(examples, ranks):
    parts = [Range.of_rank(examples, rank, ranks) for rank in range(ranks)]
    assert (parts[0].first, parts[-1].last) == (0, examples)
    assert all(a.last == b.first for a, b in pairwise(parts))
    sizes = [part.last - part.first for part in parts]
    assert max(sizes) - min(sizes) <= 1
