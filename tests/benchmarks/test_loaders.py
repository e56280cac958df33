"""The table of loaders: what it refuses to time, and what it says when a loader is not there."""

import importlib.util
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from benchmarks import clock, loaders, peers, rival_rows

BATCH, SEQ, Corpus = peers.BATCH, peers.SEQ, peers.Corpus
FIELDS = (loaders.TOKENS, loaders.ALL)


@pytest.fixture
def corpus(tmp_path):
    tokens = np.random.default_rng(0).integers(0, 50_000, 64 * SEQ + 5).astype(np.uint16)
    tokens.tofile(tmp_path / "flat")
    return Corpus(path=tmp_path / "flat", tokens=len(tokens), folder=tmp_path)


@pytest.fixture
def no_peers(monkeypatch):
    find = importlib.util.find_spec
    roots = {module for modules, _ in peers.PEERS.values() for module in modules}
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name in roots else find(name, *a)
    )


def rows_at(corpus, starts):
    flat = corpus.map()
    return np.stack([flat[start : start + SEQ] for start in starts]).astype(np.int32)


def rival(**arrays):
    return peers.Rival(name="toy", start=lambda: iter([arrays]), arrays=lambda batch: batch)


ALIGNED = [int(i) * SEQ for i in np.random.default_rng(1).permutation(64)[:BATCH]]
ANYWHERE = [start + 3 for start in ALIGNED]


@pytest.mark.parametrize("starts", [ALIGNED, ANYWHERE])
def test_shuffled_windows_are_right_wherever_they_begin(corpus, starts):
    batch = {"tokens": rows_at(corpus, starts)}
    assert peers.check(rival(), batch, corpus) == "toy gives numpy arrays: tokens int32."


def test_targets_one_token_further_are_right(corpus):
    after = [start + 1 for start in ANYWHERE]
    batch = {"tokens": rows_at(corpus, ANYWHERE), "targets": rows_at(corpus, after)}
    assert "targets int32" in peers.check(rival(), batch, corpus)
    batch["targets"] = batch["tokens"]
    with pytest.raises(ValueError, match="one further"):
        peers.check(rival(), batch, corpus)


def test_one_wrong_token_in_a_batch_is_refused(corpus):
    tokens = rows_at(corpus, ALIGNED)
    tokens[31, SEQ - 1] ^= 1
    with pytest.raises(ValueError, match="not a window of the data"):
        peers.check(rival(), {"tokens": tokens}, corpus)


def test_an_id_that_only_agrees_in_its_low_bits_is_refused(corpus):
    tokens = rows_at(corpus, ALIGNED)
    tokens[5, 100] += 1 << 16
    with pytest.raises(ValueError, match="not a window of the data"):
        peers.check(rival(), {"tokens": tokens}, corpus)


@pytest.mark.parametrize("starts", [sorted(ALIGNED), ALIGNED[:2] * (BATCH // 2)])
def test_windows_in_order_or_repeated_are_refused(corpus, starts):
    with pytest.raises(ValueError, match="repeated or in order"):
        peers.check(rival(), {"tokens": rows_at(corpus, starts)}, corpus)


def test_a_smaller_batch_is_refused(corpus):
    with pytest.raises(ValueError, match="shape"):
        peers.check(rival(), {"tokens": rows_at(corpus, ALIGNED[:4])}, corpus)


def test_a_loader_that_is_not_installed_is_left_out_with_a_line(corpus, no_peers):
    found, notes = peers.find(corpus)
    assert found == {}
    assert len(notes) == len(peers.PEERS)
    assert "LitData is left out: torch, litdata not installed." in notes


def test_a_loader_that_does_not_import_is_left_out_with_a_line(corpus, monkeypatch):
    def broken(name, corpus):
        raise ImportError("made for another torch")

    monkeypatch.setattr(peers, "PEERS", {"Toy": (("json",), broken)})
    assert peers.find(corpus) == ({}, ["Toy is left out: made for another torch."])


def test_without_any_peer_the_limits_are_still_measured(tmp_path, no_peers, monkeypatch):
    monkeypatch.setattr(loaders, "tl", SimpleNamespace())
    (table,) = loaders.run(tmp_path, "tiny", "command")
    assert {row.what.partition(" ")[0] for row in table.rows} == {"limit:", "gather", "memcpy"}
    assert all(row.value > 0 for row in table.rows)
    assert table.notes[-1] == "tokenloom is left out: it has no Loader yet."


def test_each_goal_has_its_own_row():
    row = clock.Row(what="ours", value=8.0, unit="Mtok/CPU-s")
    held = {"torch DataLoader": clock.Row(what="t", value=1.0, unit="Mtok/CPU-s")}
    held["limit"] = clock.Row(what="l", value=16.0, unit="Mtok/CPU-s")
    met, missed = loaders._judged(row, {"torch DataLoader": 4.0, "limit": 0.7}, held)
    assert (met.what, met.ratio, met.goal, met.met) == ("ours", 8.0, "at least 4x", True)
    assert (missed.what, missed.ratio, missed.met) == ("  the same", 0.5, False)
    assert loaders._judged(row, {}, held) == [row]


def figures(best, median=None, unit="Mtok/CPU-s"):
    return clock.Row(what=f"{best} {median}", value=best, median=median, unit=unit)


def test_the_median_decides_whether_a_goal_is_met():
    """Both ratios are shown, and the best round saves nobody."""
    theirs = figures(10.0, 8.0)
    (row,) = loaders._judged(figures(9.0, 6.0), {"peer": 0.8}, {"peer": theirs})
    assert (row.ratio, row.median_ratio, row.met) == (0.9, 0.75, False)
    assert "| 0.900x (0.750x) peer | at least 0.8x | NO " in _printed(row)
    assert rival_rows.goal(figures(7.0, 6.4), theirs, 0.8).met, "best misses, median meets"
    assert not clock.want(figures(1.0, 3.0, "ms"), "<=", 2).met, "a figure, not a ratio"
    assert clock.want(figures(3.0, 1.0, "ms"), "<=", 2).met


@pytest.mark.parametrize(("ours", "theirs"), [(None, 8.0), (6.0, None), (None, None)])
def test_without_two_medians_the_only_ratio_there_is_counts(ours, theirs):
    row = rival_rows.goal(figures(9.0, ours), figures(10.0, theirs), 0.8)
    assert (row.ratio, row.median_ratio, row.met) == (0.9, None, True)
    assert "| 0.900x 10.0" in _printed(row)


def _printed(row):
    return clock.render(clock.Table(title="t", command="c", rows=[row]))


class ToyBatch:
    """All five arrays of some windows; which were asked for is remembered."""

    def __init__(self, tokens, asked):
        self._tokens, self._asked = tokens, asked

    def __getattr__(self, name):
        self._asked.add(name)
        if name == "loss_mask":
            return np.ones(self._tokens.shape, bool)
        return self._tokens


class ToyData:
    """The interface of a dataset of windows, over a flat file."""

    def __init__(self, corpus):
        self.corpus, self.called = corpus, []

    def __getattr__(self, name):
        def call(*arguments):
            self.called.append((name, *arguments))
            return self

        return call


class ToyLoader:
    """The interface of a loader."""

    made: ClassVar[list] = []
    asked: ClassVar[set] = set()

    def __init__(self, data, *, batch_size, fields=("tokens",)):
        self.data, self.step = data, 0
        ToyLoader.made.append((data.called, batch_size, fields))

    def seek(self, step):
        self.step = step

    def __iter__(self):
        windows = np.random.default_rng(self.step).permutation(self.data.corpus.windows)
        for i in range(0, len(windows) - BATCH + 1, BATCH):
            starts = [int(number) * SEQ for number in windows[i : i + BATCH]]
            yield ToyBatch(rows_at(self.data.corpus, starts), ToyLoader.asked)


def test_our_rows_ask_for_what_they_say(tmp_path, no_peers, monkeypatch):
    def opened(root):
        (path,) = root.rglob("input_ids/c/0")
        data = ToyData(Corpus(path=path, tokens=1 << 20, folder=tmp_path))
        data.num_tokens = 1 << 20
        return data

    monkeypatch.setattr(loaders, "tl", SimpleNamespace(open=opened, Loader=ToyLoader))
    monkeypatch.setattr(ToyLoader, "made", [])
    monkeypatch.setattr(ToyLoader, "asked", set())
    rates, firsts, memory = loaders.run(tmp_path, "tiny", "command")
    kinds = {(called[1][0], fields) for called, _, fields in ToyLoader.made}
    assert kinds == {(order, fields) for order in loaders.ORDERS for fields in FIELDS}
    assert all(
        called[0] == ("windows", SEQ) and size == BATCH for called, size, _ in ToyLoader.made
    )
    assert ToyLoader.asked == set(loaders.ALL)
    named = [row.what for row in rates.rows if row.what.startswith("tokenloom")]
    assert len(named) == 4
    assert all(row.of == "limit" and row.goal for row in rates.rows if "tokens only" in row.what)
    assert sum("seek to step 1,000,000" in row.what for row in firsts.rows) == 2
    assert [row.unit for row in memory.rows] == ["MiB", "MiB"]
