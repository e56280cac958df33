"""Evaluation sets of a run file: one document a row, pinned by what their documents are."""

import numpy as np
import pytest
import yaml

import tokenloom as tl
from tokenloom.evaluate import content_hash, one_document_rows

RUN = """\
seed: 7
seq_len: 16
sources: {wiki: {store: stores/wiki, %s}}
evaluate: {held: {store: stores/code%s}}
"""


def test_a_set_without_a_layout_has_one_document_a_row(load):
    held = load(RUN % ("pack: {}", "")).file.evaluate["held"]
    wanted = one_document_rows(tl.open("stores/code"), 16).seed(7)
    assert len(held) == len(wanted)
    assert held.digest(0, len(held)) == wanted.digest(0, len(wanted))
    spans = held[0 : len(held)].spans
    assert len(spans) == len(held)  # one span in each row


@pytest.mark.parametrize(
    "layout", ["windows: 32", "pack: {strategy: best_fit}", "pack: 32, shuffle: block"]
)
def test_the_layout_of_training_leaves_its_rows_alone(load, layout):
    first, second = (load(RUN % (one, "")).file.evaluate["held"] for one in ("pack: {}", layout))
    assert first.digest(0, len(first)) == second.digest(0, len(second))
    assert content_hash(first) == content_hash(second)


def test_a_set_that_is_still_what_was_pinned_is_taken_and_any_other_refused(load):
    pinned = content_hash(tl.open("stores/code"))
    assert load(RUN % ("pack: {}", f", content: {pinned}")).file.evaluate
    for other in (pinned[:-1] + ("0" if pinned[-1] != "0" else "1"), "abc"):
        with pytest.raises(tl.ConfigError, match=r"evaluate\.held\.content: found") as told:
            load(RUN % ("pack: {}", f", content: '{other}'"))
        assert pinned in str(told.value)
    with pytest.raises(tl.ConfigError, match=r"sources\.wiki\.content"):
        load(RUN % ("pack: {}, content: abc", ""))


def test_documents_that_come_later_change_what_is_pinned(load, place):
    rng = np.random.default_rng(0)
    rows = [{"input_ids": rng.integers(1, 60, 20).tolist()} for _ in range(8)]
    made = {"tokenizer": None, "vocab_size": 64}
    tl.build(rows[:5], "grows", **made)
    text = RUN.replace("stores/code", "grows")
    pinned = content_hash(load(text % ("pack: {}", "")).file.evaluate["held"])
    some = ", select: {doc_index: [0, 2]}"
    chosen = content_hash(load(text % ("pack: {}", some)).file.evaluate["held"])
    tl.build(rows[5:], "grows", append=True, **made)
    with pytest.raises(tl.ConfigError, match=r"evaluate\.held\.content"):
        load(text % ("pack: {}", f", content: {pinned}"))
    assert load(text % ("pack: {}", f"{some}, content: {chosen}"))  # the same documents


def test_a_file_that_is_written_down_pins_its_sets(load, place):
    run = load(RUN % ("pack: {}", ""))
    tl.save(run, "again.yaml")
    assert f"content: {content_hash(tl.open('stores/code'))}" in (place / "again.yaml").read_text()
    assert tl.load("again.yaml").file.evaluate == run.file.evaluate


def test_a_set_without_a_layout_in_a_file_without_seq_len_is_refused_by_that_key(load):
    text = "sources: {wiki: {store: stores/wiki, pack: 16}}\nevaluate: {held: {store: stores/code}}"
    with pytest.raises(tl.ConfigError, match=r"line 2, .*evaluate\.held: .*seq_len"):
        load(text)
    with pytest.raises(tl.ConfigError) as refused:
        load(f"seq_len: many\n{text}")
    assert "'many'" in str(refused.value)
    assert "evaluate" not in str(refused.value)
    assert load(f"seq_len: 16\n{text}").file.evaluate["held"].seq_len == 16


def test_a_saved_file_has_its_seq_len_once_at_the_top_where_sets_without_a_layout_find_it(
    load, place
):
    text = "sources: {wiki: {store: stores/wiki, pack: 16}}\n"
    run = load(text + "evaluate: {held: {store: stores/code, windows: 32}}")
    tl.save(run, "again.yaml")
    plain = yaml.safe_load((place / "again.yaml").read_text())
    assert plain["seq_len"] == 16
    assert plain["sources"]["main"]["pack"] == {}
    assert plain["evaluate"]["held"]["windows"] == 32  # another frame than that of the run
    again = tl.load("again.yaml")
    assert again == run
    assert again.file.evaluate == run.file.evaluate
    plain["evaluate"]["short"] = {"store": "stores/code"}
    (place / "more.yaml").write_text(yaml.safe_dump(plain))
    assert tl.load("more.yaml").file.evaluate["short"].seq_len == 16
