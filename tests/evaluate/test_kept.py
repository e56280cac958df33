"""An evaluation that was stopped goes on, gives the same bits, and is never mixed with another."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from markov import Markov

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
    for stop in range(whole.calls):
        file = tmp_path / f"{judge.__name__}{stop}.npz"
        first, second, third = Stopping(stop), Stopping(), Stopping()
        with pytest.raises(Stopped):
            judge(first, store, file)
        assert judge(second, store, file, batch_size=3).to_bytes() == wanted.to_bytes()
        assert first.rows + second.rows == whole.rows
        assert judge(third, store, file).to_bytes() == wanted.to_bytes()
        assert third.calls == 0  # the answer was there


@pytest.mark.parametrize("judge", [windows, losses])
def test_ranks_that_were_stopped_find_together_what_one_finds(judge, store, tmp_path, always):
    parts = []
    for rank in range(3):
        file, share = tmp_path / f"rank{rank}.npz", {"rank": rank, "world_size": 3, "batch_size": 1}
        with pytest.raises(Stopped):
            judge(Stopping(1), store, file, **share)
        parts.append(judge(Stopping(), store, file, **share))
    assert type(parts[0]).joined(parts).to_bytes() == judge(Stopping(), store).to_bytes()


def test_what_belongs_to_another_evaluation_is_refused(store, tmp_path):
    file = tmp_path / "kept.npz"
    windows(Stopping(), store, file)
    before = file.read_bytes()
    others = {
        "weights": lambda: windows(Stopping(fingerprint="step 200"), store, file),
        "stride": lambda: windows(Stopping(), store, file, stride=1),
        "examples": lambda: windows(Stopping(), store, file, rank=0, world_size=2),
        "content": lambda: windows(Stopping(), store.select(doc_index=[0, 2]), file),
    }
    for name, ask in others.items():
        with pytest.raises(tl.ConfigError, match=f"belongs to another evaluation: {name} is"):
            ask()
    with pytest.raises(tl.InputError, match="no evaluation of this kind was kept here"):
        losses(Stopping(), store, file)
    assert file.read_bytes() == before


def test_a_damaged_file_is_refused(store, tmp_path):
    file = tmp_path / "kept.npz"
    windows(Stopping(), store, file)
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(tl.InputError, match="Name another file"):
        windows(Stopping(), store, file)


def test_a_function_of_unknown_weights_keeps_nothing(store, tmp_path):
    with pytest.raises(tl.ConfigError, match="attribute `fingerprint`"):
        losses(Markov(), store, tmp_path / "kept.npz")
    assert not list(tmp_path.iterdir())


class Table(torch.nn.Module):
    """Logits of a table of weights."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.arange(144, dtype=torch.bfloat16).reshape(12, 12))
        self.register_buffer("scale", torch.tensor(1.0))

    def forward(self, tokens, segment_ids, position_ids):
        return self.table[tokens] * self.scale


def test_weights_of_torch_are_known_by_every_bit(store, tmp_path):
    model, file = Table(), tmp_path / "kept.npz"
    losses(model, store, file)
    losses(Table(), store, file)  # another object with the same weights
    with torch.no_grad():
        model.table[11, 11] += 1
    with pytest.raises(tl.ConfigError, match="weights is"):
        losses(model, store, file)
    model = Table()
    model.scale += 1
    with pytest.raises(tl.ConfigError, match="weights is"):
        losses(model, store, file)


@given(st.integers(0, 10**6), st.integers(1, 300))
def test_ranges_of_ranks_are_all_examples_once_and_even(examples, ranks):
    parts = [Range.of_rank(examples, rank, ranks) for rank in range(ranks)]
    assert (parts[0].first, parts[-1].last) == (0, examples)
    assert all(a.last == b.first for a, b in pairwise(parts))
    sizes = [part.last - part.first for part in parts]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 8, 16])
def test_ten_thousand_windows_are_shared_within_two_percent(ranks):
    sizes = [
        last - first for first, last in (Range.of_rank(10_000, r, ranks) for r in range(ranks))
    ]
    assert max(sizes) * ranks / 10_000 < 1.02
