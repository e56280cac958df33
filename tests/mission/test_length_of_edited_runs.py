"""A run shows how each edit changed its number of examples."""

import pytest

import tokenloom as tl

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture
def stores(tmp_path):
    def make(name, *lengths):
        records = [{"input_ids": [1] * length} for length in lengths]
        return tl.build(records, tmp_path / name, tokenizer=None, vocab_size=9, progress=False)

    return {"a": make("a", 80, 72), "b": make("b", 40), "c": make("c", 400)}


@pytest.fixture
def mixed(stores):
    return tl.mix({name: stores[name].windows(8).shuffle() for name in ("a", "b")}, rule="weights")


def edit_lines(run):
    return [line for line in str(run).splitlines() if line.startswith("├─ edit")]


def test_each_edit_shows_the_lengths_before_and_after_it(mixed, stores):
    heavier = mixed.edit(at=4, weights={"a": 3})
    longer = heavier.edit(at=6, add={"c": stores["c"].windows(8).shuffle()})
    shorter = longer.edit(at=8, remove=["c"])
    lengths = [len(run) for run in (mixed, heavier, longer, shorter)]
    assert len(set(lengths[:3])) == 3
    lines = edit_lines(shorter)
    assert len(lines) == 3
    for line, before, after in zip(lines, lengths[:-1], lengths[1:], strict=True):
        assert f"{before:,} → {after:,} examples" in line
    again = tl.from_config(shorter.describe())
    assert edit_lines(again) == lines


def test_an_edit_that_keeps_the_length_shows_none(mixed):
    hidden = mixed.edit(at=4, quarantine=[("a", 1)])
    assert len(hidden) == len(mixed)
    (line,) = edit_lines(hidden)
    assert "examples" not in line
    (line,) = edit_lines(mixed.take(10).edit(at=4, weights={"a": 3}))
    assert "examples" not in line


def test_an_edit_that_makes_a_run_endless_says_so(mixed, stores):
    endless = mixed.edit(at=4, add={"c": stores["c"].windows(8).shuffle().epochs(None)})
    assert not endless.is_finite
    (line,) = edit_lines(endless)
    assert f"{len(mixed):,} → endless examples" in line


def test_appended_documents_of_one_source_lengthen_its_run(stores, tmp_path):
    run = stores["a"].windows(8).shuffle().epochs(2)
    more = [{"input_ids": [2] * 64}]
    tl.build(more, tmp_path / "a", tokenizer=None, vocab_size=9, append=True, progress=False)
    grown = run.edit(at=3, append={"main": tl.open(tmp_path / "a")})
    assert len(grown) > len(run)
    (line,) = edit_lines(grown)
    assert f"{len(run):,} → {len(grown):,} examples" in line


def test_planned_stages_are_shown_alike(stores):
    sources = {name: stores[name].windows(8).shuffle() for name in ("a", "b")}
    one_stage = tl.mix(sources, rule="weights")
    run = tl.mix(sources, rule="weights", stages={4: {"a": 3}})
    (line,) = edit_lines(run)
    assert f"{len(one_stage):,} → {len(run):,} examples" in line
