"""Who must answer at once says how many rows may be visited; what takes more is refused."""

import numpy as np
import pytest
from toyruns import toy_store

import tokenloom as tl
from tokenloom.errors import NotKept
from tokenloom.inspect import simulate_run
from tokenloom.layout.allowance import about_to_visit, at_most, is_limited, missing_for, rows_left
from tokenloom.store.derived import on_disk
from tokenloom.store.derived.on_disk import recall_on_disk
from tokenloom.store.plan_cache import remember_array
from tokenloom.testing import tiny

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture
def mix(tmp_path):
    a, b = toy_store(tmp_path / "a", rows=400), toy_store(tmp_path / "b", rows=300)
    sources = {"a": a.pack(8).shuffle().epochs(None), "b": b.pack(8).shuffle().epochs(None)}
    return tl.mix(sources, weights={"a": 2, "b": 1}, cost="tokens")


def test_rows_are_counted_together_and_inner_limits_hold():
    with at_most(100):
        about_to_visit(60, "sums")
        assert (rows_left(1000), is_limited()) == (40, True)
        with at_most(1000), pytest.raises(NotKept) as refused:
            about_to_visit(41, "more sums")
        assert (refused.value.rows, refused.value.what) == (41, "more sums")
        about_to_visit(40, "the rest")
    assert not is_limited()
    about_to_visit(10**15, "anything, where nobody waits")


def test_a_question_says_what_is_missing_and_is_answered_once_that_is_kept(mix):
    asked = lambda: mix.run.consumed(300)  # noqa: E731
    missing = missing_for(asked, rows=50)
    assert missing.rows in {one.rows for one in mix.run.sources}
    assert "the costs of epoch 0" in missing.what
    right = asked()  # without a limit the sums are made, and kept
    assert missing_for(asked, rows=50) is None
    with at_most(0):
        assert mix.run.consumed(300) == right


def test_what_was_refused_leaves_no_trace(mix, tmp_path):
    fresh = tl.from_config(mix.describe())
    for rows in (0, 10, 100, 350):
        missing_for(lambda: mix.run.consumed(777), rows)
        missing_for(lambda: mix.run.index(0, np.arange(50)), rows)
    assert mix.run.consumed(777) == fresh.run.consumed(777)
    assert mix.run.index(0, np.arange(50)).tolist() == fresh.run.index(0, np.arange(50)).tolist()


@pytest.mark.parametrize("examples", [0, 1, 57, 300, 900, 2500])
def test_estimates_are_close_and_add_up(mix, examples):
    about, exact = mix.run.consumed_about(examples), mix.run.consumed(examples)
    assert sum(one.rows for one in about) == examples
    for a, b in zip(about, exact, strict=True):
        assert a.rows == pytest.approx(b.rows, abs=10)
        assert a.tokens == pytest.approx(b.tokens, abs=150)


def test_estimates_of_one_source_are_exact_at_its_epochs(tmp_path):
    run = toy_store(tmp_path, rows=400).pack(8).shuffle().epochs(3).run
    rows = run.rows
    for epoch in range(4):
        assert run.consumed_about(epoch * rows) == run.consumed(epoch * rows)
    assert run.consumed_about(rows + 7)[0].tokens == pytest.approx(
        run.consumed(rows + 7)[0].tokens, rel=0.01
    )


def test_estimates_of_stages_and_of_a_mix_that_is_shuffled_whole(mix, tmp_path):
    edited = mix.edit(at=100, weights={"b": 4}).edit(at=200, remove=["b"])
    for at in (50, 100, 150, 400):
        rows = [one.rows for one in edited.run.consumed_about(at)]
        assert rows == pytest.approx([one.rows for one in edited.run.consumed(at)], abs=10)
    ended = {"a": toy_store(tmp_path / "c", rows=40).windows(8)}
    whole = tl.mix(ended | {"b": toy_store(tmp_path / "d", rows=60).windows(8)}).shuffle()
    rows = [one.rows for one in whole.run.consumed_about(50)]
    assert rows == pytest.approx([one.rows for one in whole.run.consumed(50)], abs=12)
    assert missing_for(lambda: whole.run.consumed(90), rows=10).rows == 40  # since the last one


def test_a_simulation_in_a_hurry_says_which_numbers_are_estimates(mix, monkeypatch):
    monkeypatch.setattr("tokenloom.layout.pack.kept_rows.PLANNED", 0)  # only sums are missing
    exact = simulate_run(mix, 80, batch_size=8)
    fresh = tl.from_config(mix.describe())
    _ = fresh.run
    with at_most(50):
        told = simulate_run(fresh, 80, batch_size=8, exact_examples=8)
    assert "tokens" in exact.exact
    assert {"tokens", "sources", "over_time"} <= set(told.estimated)
    assert not set(told.estimated) & set(told.exact)
    assert any("are estimates" in note for note in told.notes)
    assert told.tokens == pytest.approx(exact.tokens, rel=0.02)


def test_few_integers_of_a_file_are_those_that_were_kept():
    values = np.arange(5000, dtype=np.uint16)[::-1].copy()
    remember_array("tried", {"n": 1}, values)
    found = recall_on_disk("tried", {"n": 1})
    places = np.array([0, 4999, 17, 17])
    assert found.take(places).tolist() == values[places].tolist()
    assert found.take(np.array([5000])) is None  # past the end
    assert recall_on_disk("tried", {"n": 2}) is None
    remember_array("tried", {"n": 1}, values)  # another file in its place
    assert found.take(places) is None


def test_control_a_file_that_was_changed_is_not_believed():
    remember_array("spoiled", {"n": 1}, np.arange(3000, dtype=np.uint16))
    path = recall_on_disk("spoiled", {"n": 1}).path
    raw = bytearray(path.read_bytes())
    raw[-5] ^= 1
    path.unlink()
    path.write_bytes(raw)
    path.chmod(0o600)
    assert recall_on_disk("spoiled", {"n": 1}) is None


@tiny(min_cached_packing_documents=1, packing_memory_rows=1)
def test_a_page_looks_tokens_up_where_they_are_kept(tmp_path):
    assert on_disk.FEW > 100
    store = toy_store(tmp_path, rows=200)
    first = store.pack(8).run.layout
    rows = np.arange(int(first.phases.rows[0]))
    right = first.costs(0, rows)
    other = store.pack(8).run.layout
    with at_most(10):
        assert other.costs(0, rows).tolist() == right.tolist()
        assert "_tokens" not in other.__dict__
    assert other.total(0) == right.sum()
    assert other.total(1) == np.maximum(right, 1).sum()
