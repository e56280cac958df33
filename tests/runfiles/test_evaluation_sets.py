"""Evaluation sets of a run file: one document a row, pinned by what their documents are."""

import numpy as np
import pytest
import yaml

import tokenloom as tl
from tokenloom.evaluate import content_hash

RUN = """\
seed: 7
seq_len: 16
sources: {wiki: {store: stores/wiki, %s}}
evaluate: {held: {store: stores/code%s}}
"""


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
