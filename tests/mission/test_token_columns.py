"""Columns of fine-tuning data mean in a store what they mean to the trainer that made them."""

import contextlib
import functools
import itertools
import json
import math
import struct

import datasets
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import QUICK, quick_folder
from refusals import refused

import tokenloom as tl

IDS = {"tokenizer": None, "vocab_size": 10, "files": QUICK}
PER_TOKEN = {
    "labels", "completion_mask", "assistant_masks", "loss_mask", "loss_weights", "attention_mask"
}  # fmt: skip


# -- the oracle: one token after the other, from the rules ---------------------------------
class Refused(Exception):
    pass


def slow_says(name, value, token):
    """Whether one value of a column trains its token."""
    if name == "labels":
        if value not in (-100, token):
            raise Refused(name)
        return value == token and value != -100
    if name == "loss_weights":
        try:
            (small,) = struct.unpack("f", struct.pack("f", value))
        except OverflowError:
            raise Refused(name) from None
        if not math.isfinite(small) or value < 0 or (value > 0 and small == 0):
            raise Refused(name)
        return value > 0
    if value not in (0, 1):
        raise Refused(name)
    return value == 1


def slow_columns(record):
    """(ids, trained or None, weights or None) of a record, or Refused."""
    ids = record["input_ids"]
    if any(len(values) != len(ids) for values in record.values()):
        raise Refused("length")
    seen = [slow_says("attention_mask", v, 0) for v in record.get("attention_mask", [1] * len(ids))]
    places = [i for i, yes in enumerate(seen) if yes]
    if places != list(range(min(places, default=0), max(places, default=-1) + 1)):
        raise Refused("attention_mask")
    trained = None
    for i in places:
        said = {
            name: slow_says(name, record[name][i], ids[i])
            for name in record
            if name not in ("input_ids", "attention_mask")
        }
        if "completion_mask" in said and "assistant_masks" in said:
            said["both"] = said.pop("completion_mask") & said.pop("assistant_masks")
        if len(set(said.values())) > 1:
            raise Refused("disagree")
        if said:
            trained = [*(trained or []), next(iter(said.values()))]
    weights = [record["loss_weights"][i] for i in places] if "loss_weights" in record else None
    return [ids[i] for i in places], trained or [], weights


@st.composite
def rows(draw, names=None):
    """Records whose columns agree, with a change now and then that may break them."""
    ids = draw(st.lists(st.integers(0, 3), min_size=draw(st.sampled_from([0, 3])), max_size=6))
    trained = [draw(st.booleans()) for _ in ids]
    if names is None:
        names = draw(st.sets(st.sampled_from(sorted(PER_TOKEN)), max_size=4))
    pad = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    record = {"input_ids": ids}
    for name in sorted(names):
        record[name] = {
            "labels": [t if yes else -100 for t, yes in zip(ids, trained, strict=True)],
            "loss_weights": [draw(st.sampled_from([0.5, 2, 3])) * yes for yes in trained],
            "attention_mask": [1] * len(ids),
        }.get(name, [int(yes) for yes in trained])
    if {"completion_mask", "assistant_masks"} <= names:
        wide = [max(v, draw(st.integers(0, 1))) for v in record["completion_mask"]]
        record["completion_mask"] = wide
        narrow = [yes or not w for yes, w in zip(trained, wide, strict=True)]
        some = [draw(st.booleans()) for _ in ids]
        both = zip(trained, narrow, some, strict=True)
        record["assistant_masks"] = [int(yes or (n and one)) for yes, n, one in both]
    if "attention_mask" in names:
        for name, values in record.items():
            fill = 0 if name == "attention_mask" else draw(st.sampled_from([0, 1, -100]))
            record[name] = [fill] * pad[0] + values + [fill] * pad[1]
    if draw(st.booleans()):
        name = draw(st.sampled_from(sorted(record)))
        if record[name]:
            place = draw(st.integers(0, len(record[name]) - 1))
            odd = {
                "input_ids": [0, 1, 2],
                "labels": [0, 1, 2, -100, -1],
                "loss_weights": [0, 0.5, 1e39, -1e-9, math.nan, math.inf, 1e-60, 3e38],
                "attention_mask": [0, 0, 2],
            }.get(name, [0, 1, 2, -1])
            changed = draw(st.sampled_from(odd))
            record[name] = [*record[name][:place], changed, *record[name][place + 1 :]]
    return record


def assert_as_the_loop(records):
    """The store of records with the same columns keeps just what the oracle keeps of them."""
    expected, columns = [], set(records[0]) - {"input_ids", "attention_mask"}
    for record in records:
        with contextlib.suppress(Refused):
            expected.append(slow_columns(record))
    with quick_folder() as folder:
        store = tl.build(datasets.Dataset.from_list(records), folder / "s", on_error="skip", **IDS)
        every = range(store.num_documents)
        assert [one.tolist() for one in store.documents(every)] == [one[0] for one in expected]
        assert bool(store.columns) == bool(columns)
        for name in store.columns:
            place = 1 if name == "loss_mask" else 2
            wanted = [np.float32(one[place]).tolist() for one in expected]
            assert [values.tolist() for values in store.documents(every, name)] == wanted
    return len(expected), len(records) - len(expected)


ODD = {
    "labels": [1, 2, 0, -100, -1],
    "loss_weights": [0.0, 0.5, 1e39, -1e-9, math.nan, math.inf, 1e-60, 3e38],
    "attention_mask": [0, 1, 2],
}


@pytest.mark.parametrize("pair", [*itertools.combinations(sorted(PER_TOKEN), 2)], ids="+".join)
def test_every_pair_of_columns_with_any_values_means_what_the_loop_says(pair):
    """All values of two columns of two tokens."""
    one, other = pair
    records = [{"input_ids": [1, 2], one: [1, 1], other: [1, 1]}]
    records[0] |= {"labels": [1, 2]} if "labels" in pair else {}
    records += [
        {"input_ids": [1, 2], one: list(values[:2]), other: list(values[2:])}
        for values in itertools.product(*[ODD.get(n, [0, 1, 2]) for n in (one, one, other, other)])
    ]
    assert min(assert_as_the_loop(records)) >= 5


@pytest.mark.parametrize(
    ("name", "values"), [("labels", [5, -100, 3, 4, -100]), ("loss_mask", [1, 0, 0, 1, 1])]
)
def test_every_attention_mask_keeps_what_the_loop_keeps(name, values):
    """All masks of five tokens."""
    record = {"input_ids": [5, 4, 3, 4, 5], name: values}
    masks = [[1] * 5, *map(list, itertools.product([0, 1], repeat=5))]
    assert min(assert_as_the_loop([record | {"attention_mask": mask} for mask in masks])) > 10


# -- the findings --------------------------------------------------------------------------
SAME = {
    "labels": [-100, -100, -100, 4],
    "completion_mask": [0, 0, 0, 1],
    "assistant_masks": [0, 0, 0, 1],
    "loss_mask": [0, 0, 0, 1],
    "loss_weights": [0, 0, 0, 0.5],
}


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("form", ["hf", "rows", "jsonl", "parquet"])
def test_every_column_of_a_trainer_trains_the_same_token(tmp_path, name, form):
    rows = [{"input_ids": [1, 2, 3, 4], name: SAME[name]}] * 2
    table = datasets.Dataset.from_list(rows)
    if form == "jsonl":
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if form == "parquet":
        table.to_parquet(tmp_path / "a.parquet")
    source = {"hf": table, "rows": rows}.get(form, tmp_path / f"a.{form}")
    store = tl.build(source, tmp_path / "s", **IDS)
    assert store.pack(4)[0].labels.tolist() == [[-100, -100, -100, 4]]
    assert list(store.columns) == ["loss_weights" if name == "loss_weights" else "loss_mask"]
    assert set(store.metadata(1)) == {"_input", "_record"}, "a column is not kept a second time"


def test_rows_as_trl_makes_them_train_the_answers_of_the_assistant(tmp_path):
    """TRL trains what is both completion and assistant; a collator pads on the right."""
    row = {
        "input_ids": [5, 6, 7, 8, 9, 0, 0],
        "attention_mask": [1, 1, 1, 1, 1, 0, 0],
        "completion_mask": [0, 0, 1, 1, 1, 0, 0],
        "assistant_masks": [0, 1, 0, 1, 1, 0, 0],
        "labels": [-100, -100, -100, 8, 9, -100, -100],
    }
    left = {name: values[5:] + values[:5] for name, values in row.items()}
    for i, one in enumerate((row, left)):
        table = datasets.Dataset.from_list([one] * 3)
        store = tl.build(table, tmp_path / f"{i}", **IDS)
        assert store.lengths.tolist() == [5, 5, 5], "padding is no token"
        assert store.document(2).tolist() == [5, 6, 7, 8, 9]
        assert store.document(0, column="loss_mask").tolist() == [0, 0, 0, 1, 1]
        assert store.pack(8)[0].labels.tolist() == [[-100, -100, -100, 8, 9, -100, -100, -100]]


def test_every_column_is_cut_with_the_padding(tmp_path):
    row = {
        "input_ids": [0, 1, 2, 0],
        "attention_mask": [0, 1, 1, 0],
        "loss_weights": [1e39, 1.5, 0, -1],
        "score": [0.0, 0.25, 0.5, 0.75],
    }
    store = tl.build([row], tmp_path / "s", columns={"score": "float32"}, **IDS)
    assert store.document(0).tolist() == [1, 2]
    assert store.document(0, column="loss_weights").tolist() == [1.5, 0]
    assert store.document(0, column="score").tolist() == [0.25, 0.5]
    rows = [
        {"input_ids": [0, 0], "attention_mask": [0, 0]},
        {"input_ids": [1], "attention_mask": [1]},
    ]
    assert tl.build(rows, tmp_path / "empty", **IDS).lengths.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"labels": [1, 7]}, ["labels", "7", "position 1"]),
        ({"labels": [2, 3, -100], "input_ids": [1, 2, 3]}, ["labels"]),  # shifted by one
        ({"labels": [1]}, ["labels", "2 ids"]),
        ({"labels": [1.0, 2.0]}, ["labels", "float64"]),
        ({"labels": 1}, ["labels", "int"]),
        ({"labels": "ab"}, ["labels"]),
        ({"loss_mask": [0, 0.5]}, ["loss_mask", "0.5", "position 1"]),
        ({"completion_mask": [0, 2]}, ["completion_mask", "2", "position 1"]),
        ({"loss_weights": [0.5, 1e39]}, ["loss_weights", "1e+39", "position 1"]),
        ({"loss_weights": ["a", "b"]}, ["loss_weights"]),
        ({"loss_weights": [1, math.nan]}, ["loss_weights", "nan", "position 1"]),
        ({"loss_mask": [1, 0], "labels": [-100, 2]}, ["loss_mask", "labels", "position 0"]),
        (
            {"assistant_masks": [1, 1], "completion_mask": [1, 0], "labels": [1, 2]},
            ["labels", "completion_mask", "assistant_masks", "position 1"],
        ),
        (
            {"attention_mask": [1, 0, 1], "input_ids": [1, 2, 3]},
            ["attention_mask", "position 1"],
        ),
        ({"attention_mask": [0, 2]}, ["attention_mask", "2", "position 1"]),
        (  # positions are those of the record, with its padding
            {"attention_mask": [0, 1, 1], "labels": [-100, 2, 9], "input_ids": [0, 2, 3]},
            ["labels", "9", "position 2"],
        ),
    ],
)
def test_what_a_column_cannot_mean_is_refused_with_its_place(tmp_path, row, named):
    source = tmp_path / "chat.jsonl"
    row = {"input_ids": [1, 2], **row}
    first = {name: [1, 2] if name in ("labels", "input_ids") else [1, 1] for name in row}
    finite = "nan" not in repr(row)  # JSON has none
    if finite:
        source.write_text(json.dumps(first) + "\n" + json.dumps(row) + "\n")
    inputs = source if finite else datasets.Dataset.from_list([first, row])
    named = [*(["chat.jsonl", "line 2"] if finite else ["dataset-0"]), "record 1", *named]
    refused(lambda: tl.build(inputs, tmp_path / "s", **IDS), tl.InputError, *named)
    assert tl.build(inputs, tmp_path / "t", on_error="skip", **IDS).num_documents == 1


def test_a_value_that_does_not_fit_a_column_is_refused_not_infinite(tmp_path):
    row = {"input_ids": [1, 2, 3], "loss_weights": [1, 1e39, 0]}
    wide = {"columns": {"loss_weights": "float64"}, **IDS}
    refused(lambda: tl.build([row], tmp_path / "a", **wide), tl.InputError, "loss_weights", "1e+39")
    row = {"input_ids": [1], "score": [1e39]}
    narrow = {"columns": {"score": "float32"}, **IDS}
    refused(lambda: tl.build([row], tmp_path / "b", **narrow), tl.InputError, "score", "1e+39")


# -- records that differ -------------------------------------------------------------------
@pytest.mark.parametrize("name", sorted(PER_TOKEN))
def test_a_record_that_lacks_a_column_or_has_another_is_refused(tmp_path, name):
    bare = {"input_ids": [4]}
    full = bare | {name: SAME.get(name, [1])[-1:]}
    for rows in ([full, bare], [full, bare | {name: None}], [bare, full]):
        build = functools.partial(tl.build, rows, tmp_path / "a", **IDS)
        refused(build, tl.InputError, "record 1", f"'{name}'")
    kept = tl.build([bare | {name: None}, bare], tmp_path / "nothing", **IDS)
    assert kept.columns == {}, "a column of nulls is no column"


PLAIN = {"input_ids": [5, 6, 7, 8]}


def own_keys(store):
    """Metadata of the first document, without where it came from."""
    return {name: value for name, value in store.metadata(0).items() if name[0] != "_"}


@pytest.mark.parametrize("name", ["tier", "label", "lossmask", "assistant_mask", "prompt_mask"])
def test_numbers_for_each_id_under_another_name_are_metadata_with_a_warning(tmp_path, name):
    rows = [PLAIN | {name: [0, 0, 1, 1]}] * 3
    with pytest.warns(UserWarning, match=f"'{name}'.*every token is.*metadata_keys") as warnings:
        store = tl.build(rows, tmp_path / "told", **IDS)
    assert len(warnings) == 1
    assert own_keys(store) == {name: [0, 0, 1, 1]}
    store = tl.build(rows, tmp_path / "meant", metadata_keys=[name], **IDS)  # warnings are errors
    assert own_keys(store) == {name: [0, 0, 1, 1]}
    store = tl.build(rows, tmp_path / "stored", columns={name: "int32"}, **IDS)
    assert store.document(0, column=name).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    "more",
    [
        {"label": 3},
        {"label": [1, 2]},
        {"label": ["a", "b", "c", "d"]},
        {"label": [[0], [1], [1], [0]]},
        {"token_type_ids": [0] * 4, "special_tokens_mask": [0] * 4, "attention_mask": [1] * 4},
        {"labels": [-100, 6, 7, 8], "prompt_mask": [1, 0, 0, 0]},
    ],
)
def test_what_says_nothing_of_single_tokens_or_not_alone_is_metadata_as_before(tmp_path, more):
    store = tl.build([PLAIN | more], tmp_path / "kept", **IDS)
    kept = {name: value for name, value in more.items() if name not in PER_TOKEN}
    assert own_keys(store) == kept


def test_a_bad_first_record_does_not_decide_the_columns(tmp_path):
    rows = [{"wrong": 1}, {"input_ids": [4], "loss_mask": [1]}, {"input_ids": [5]}]
    store = tl.build(rows, tmp_path / "s", on_error="skip", **IDS)
    assert store.columns == {"loss_mask": "uint8"}
    assert store.num_documents == 1


# -- hooks ---------------------------------------------------------------------------------
def spell(record):
    text = record["text"]
    return {"input_ids": list(text.encode()), "loss_mask": [c.isupper() for c in text]}


def test_columns_are_those_that_a_transform_leaves(tmp_path):
    rows = [{"text": "skip"}, {"text": "aB"}, {"text": "Cd"}]
    options = {"transform": spell, "filter": lambda record: record["text"] != "skip"}
    store = tl.build(rows, tmp_path / "s", tokenizer=None, vocab_size=256, **options)
    assert store.columns == {"loss_mask": "uint8"}
    assert store.documents([0, 1], "loss_mask")[0].tolist() == [0, 1]
    assert store.tokenizer is None
    bare = tl.build(
        [{"input_ids": [1], "loss_mask": [1]}],
        tmp_path / "bare",
        transform=lambda record: {"input_ids": record["input_ids"]},
        **IDS,
    )
    assert bare.columns == {}
    with_tokenizer = tl.build(rows, tmp_path / "t", tokenizer="bytes", **options)
    assert with_tokenizer.tokenizer.decode(with_tokenizer.document(1)) == "Cd"
    assert with_tokenizer.digest == store.digest


def fail_on_skip(record):
    if record["text"] == "skip":
        raise KeyError("a bad hook")
    return spell(record)


def test_a_hook_that_fails_is_not_hidden_by_the_look_at_the_first_record(tmp_path):
    with pytest.raises(Exception, match="a bad hook"):
        tl.build(
            [{"text": "skip"}, {"text": "aB"}],
            tmp_path / "s",
            tokenizer=None,
            vocab_size=256,
            transform=fail_on_skip,
        )


# -- text and tokenizers -------------------------------------------------------------------
@pytest.mark.parametrize("name", sorted(PER_TOKEN))
def test_a_per_token_column_beside_text_is_refused(tmp_path, name):
    rows = [{"text": "ab", name: [1, 1]}]
    with pytest.raises(tl.InputError, match=f"record 0.*'{name}'"):
        tl.build(rows, tmp_path / "s", tokenizer="bytes")
    kept = tl.build(rows, tmp_path / "kept", tokenizer="bytes", metadata_keys=[name])
    assert kept.metadata(0)[name] == [1, 1], "named as metadata, it is metadata"
    single = tl.build([{"text": "ab", name: 1}], tmp_path / "one", tokenizer="bytes")
    assert single.metadata(0)[name] == 1, "one value for a document is no column of tokens"
    table = datasets.Dataset.from_list(rows)
    with pytest.raises(tl.InputError, match=name):
        tl.build(table, tmp_path / "t", tokenizer="bytes", metadata_keys=[])


def test_a_tokenizer_beside_ids_is_kept_checked_and_named_by_the_build(tmp_path):
    rows = [{"input_ids": [104, 105], "labels": [-100, 105]}]
    plain = tl.build(rows, tmp_path / "plain", tokenizer=None, vocab_size=256)
    known = tl.build(rows, tmp_path / "known", tokenizer="bytes")
    named = tl.build(rows, tmp_path / "named", tokenizer="bytes", ids_key="input_ids", eos=0)
    assert known.tokenizer.decode(known.document(0)) == "hi"
    assert named.tokenizer.eos == 0
    assert named.pack(4, add_eos=True)[0].tokens.tolist() == [[104, 105, 0, 0]]
    assert plain.digest == known.digest == named.digest, "content, whoever can read it"
    prints = {s.reader.manifest.parts[0].fingerprint for s in (plain, known, named)}
    assert len(prints) == 3, "but another build"
    with pytest.raises(tl.StoreExists, match="tokenizer"):
        tl.build(rows, tmp_path / "plain", tokenizer="bytes", vocab_size=256)
    with pytest.raises(tl.TokenizerError, match="256"):
        tl.build([{"input_ids": [256]}], tmp_path / "wide", tokenizer="bytes")
    with pytest.raises(tl.ConfigError, match=r"vocab_size.*10"):
        tl.build(rows, tmp_path / "few", tokenizer="bytes", vocab_size=10)
    assert tl.build(rows, tmp_path / "room", tokenizer="bytes", vocab_size=300).vocab_size == 300


def test_text_is_tokenised_where_a_record_has_both(tmp_path):
    both = [{"text": "hi", "input_ids": [1, 2, 3]}]
    assert tl.build(both, tmp_path / "s", tokenizer="bytes").num_tokens == 2
    ids = tl.build(both, tmp_path / "t", tokenizer="bytes", ids_key="input_ids")
    assert ids.num_tokens == 3
    with pytest.raises(tl.InputError, match="'text'"):
        tl.build([{"body": "hi"}], tmp_path / "u", tokenizer="bytes")


# -- columns that were asked for -----------------------------------------------------------
def test_columns_that_were_asked_for_do_not_hide_the_others(tmp_path):
    row = {"input_ids": [1, 2], "labels": [-100, 2], "score": [0.5, 1]}
    store = tl.build([row], tmp_path / "s", columns={"score": "float32"}, **IDS)
    assert store.columns == {"loss_mask": "uint8", "score": "float32"}
    assert store.document(0, column="loss_mask").tolist() == [0, 1]
    wide = tl.build([row], tmp_path / "wide", columns={"loss_mask": "bool"}, **IDS)
    assert wide.columns == {"loss_mask": "bool"}
    assert wide.document(0, column="loss_mask").tolist() == [False, True]
    for name in sorted(PER_TOKEN - {"loss_mask", "loss_weights"}):
        with pytest.raises(tl.ConfigError, match=f"columns.{name}"):
            tl.build([row], tmp_path / "no", columns={name: "int32"}, **IDS)
    with pytest.raises(tl.InputError, match="'loss_weights'"):
        tl.build([row], tmp_path / "no", columns=["loss_weights"], **IDS)
    with pytest.raises(tl.ConfigError, match=r"columns\.score"):
        tl.build([row], tmp_path / "no2", columns=["score"], **IDS)


def test_masks_beside_weights_are_checked_and_only_weights_are_stored(tmp_path):
    row = {"input_ids": [1, 2], "labels": [-100, 2], "loss_weights": [0, 0.5]}
    store = tl.build([row], tmp_path / "s", **IDS)
    assert store.columns == {"loss_weights": "float32"}
    both = tl.build([{**row, "loss_mask": [0, 1]}], tmp_path / "both", **IDS)
    assert both.columns == {"loss_mask": "uint8", "loss_weights": "float32"}


def test_an_append_may_say_the_same_in_another_way(tmp_path):
    tl.build([{"input_ids": [1, 2], "labels": [-100, 2]}], tmp_path / "s", **IDS)
    more = [{"input_ids": [3, 4], "completion_mask": [0, 1], "attention_mask": [1, 1]}]
    store = tl.build(more, tmp_path / "s", append=True, **IDS)
    assert store.tokens(0, 4, "loss_mask").tolist() == [0, 1, 0, 1]
    with pytest.raises(tl.StoreExists, match="columns"):
        tl.build([{"input_ids": [5]}], tmp_path / "s", append=True, **IDS)


@settings(max_examples=25)
@given(st.sets(st.sampled_from(sorted(PER_TOKEN))), st.data())
def test_a_store_keeps_just_the_records_that_can_be_kept(names, data):
    first = {"input_ids": [1]} | {name: [1] for name in names}
    assert_as_the_loop([first, *data.draw(st.lists(rows(names), max_size=5))])
