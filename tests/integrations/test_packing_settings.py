"""Settings under the names that trainers use give the rows that they mean."""

import pytest
import yaml
from refusals import refused
from toydata import ToyStore

import tokenloom as tl
from tokenloom.integrations.trainer import KEYS, packing_settings

DOCUMENTS = [[10, 11, 12], [20, 21], [30, 31, 32, 33]]
SETTINGS = """
data:
  seq_len: 8
  packing_mode: {mode}
  packing_buffer_docs: 2
  packing_max_docs_per_bin: 3
  mask_boundary_loss: true
  train_on_eos: false
  tokenizer: {{add_bos: true, add_eos: true}}
model:
  segment_masking: false
  bos_token_id: 1
  eos_token_id: 2
  pad_token_id: 0
  layers: 12
"""


SPECIALS = {"bos_id": 1, "eos_id": 2, "pad_id": 0}

LOSS = {"mask_boundary_loss": False, "train_on_eos": False}

ADDED = {"lookahead": True, "add_bos": True, "add_eos": True} | SPECIALS | LOSS

STREAMED = {"window": "T+1", "packing_buffer_docs": 2} | SPECIALS


@pytest.mark.parametrize("mode", ["sequential", "bin", "multipack"])
def test_every_name_arrives_and_nothing_else_does(mode):
    """Dropping any one of the names, or passing on one too many, changes one of the two."""
    asked = yaml.safe_load(SETTINGS.format(mode=mode))
    asked["data"]["mask_boundary_loss"] = False  # not the default, so that it must arrive
    if mode == "sequential":
        with pytest.warns(UserWarning, match="packing_max_docs_per_bin"):
            made = packing_settings(asked, others=["model.layers"])
        how = {"overlap": 1}
        bins, docs = {"strategy": "sequential", **how}, how
    else:
        made = packing_settings(asked, others=["model.layers"])
        bins = {"strategy": "first_fit_decreasing", "max_docs_per_bin": 3}
        docs = {"packing_max_docs_per_bin": 3}
    assert made.pack == ADDED | bins
    assert made.stream == STREAMED | {"mode": mode} | docs
    assert made.attention == {"segment_masking": False}


def test_nothing_said_is_the_default_there():
    made = packing_settings({})
    assert made.pack == {"strategy": "sequential", "lookahead": True, "overlap": 1}
    assert made.attention == {"segment_masking": True}


ACCEPTED = [
    ("data.seq_len", 8, lambda made: made.seq_len == 8),
    ("data.packing_mode", "multipack", lambda made: made.stream["mode"] == "multipack"),
    ("data.packing_mode", "bin", lambda made: made.pack["strategy"] == "first_fit_decreasing"),
    ("data.packing_buffer_docs", 7, lambda made: made.stream["packing_buffer_docs"] == 7),
    ("data.max_doc_tokens", 5, lambda made: made.pack["max_doc_tokens"] == 5),
    ("data.max_doc_tokens", 5, lambda made: made.stream["max_doc_tokens"] == 5),
    ("data.mask_boundary_loss", False, lambda made: made.pack["mask_boundary_loss"] is False),
    ("data.train_on_eos", False, lambda made: made.pack["train_on_eos"] is False),
    ("data.tokenizer.add_bos", False, lambda made: "add_bos" not in made.pack),
    ("data.tokenizer.add_eos", False, lambda made: "add_eos" not in made.pack),
    ("model.pad_token_id", 3, lambda made: made.pack["pad_id"] == made.stream["pad_id"] == 3),
    ("model.bos_token_id", 3, lambda made: "bos_id" not in made.pack),  # known, not added
    ("model.eos_token_id", 3, lambda made: "eos_id" not in made.pack),
    ("model.segment_masking", False, lambda made: made.attention == {"segment_masking": False}),
]


def nested(path, value):
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


@pytest.mark.parametrize(
    ("path", "value", "holds"), ACCEPTED, ids=[f"{path}={value}" for path, value, _ in ACCEPTED]
)
def test_each_key_is_accepted_and_goes_where_it_belongs(path, value, holds):
    made = packing_settings(nested(path, value))
    assert holds(made)
    assert made != packing_settings({}) or path.endswith(("add_bos", "add_eos", "_token_id"))


def test_documents_of_a_row_are_capped_where_there_are_bins():
    data = {"packing_mode": "bin", "packing_max_docs_per_bin": 2}
    made = packing_settings({"data": data})
    assert made.pack["max_docs_per_bin"] == made.stream["packing_max_docs_per_bin"] == 2
    with pytest.warns(UserWarning, match="packing_max_docs_per_bin"):
        made = packing_settings({"data": data | {"packing_mode": "sequential"}})
    assert "max_docs_per_bin" not in made.pack


@pytest.mark.parametrize("name", ["bos", "eos"])
def test_specials_are_added_with_the_tokens_of_the_model(name):
    model = {f"{name}_token_id": 5}
    made = packing_settings({"data": {"tokenizer": {f"add_{name}": True}}, "model": model})
    assert made.pack[f"add_{name}"] is True
    assert made.pack[f"{name}_id"] == made.stream[f"{name}_id"] == 5


def test_an_eos_that_is_not_to_be_trained_is_the_models_even_if_none_is_added():
    config = {"data": {"train_on_eos": False}, "model": {"eos_token_id": 12}}
    made = packing_settings(config)
    assert made.pack["eos_id"] == 12
    assert "eos_id" not in made.stream  # where it would be inserted
    with ToyStore([DOCUMENTS]) as toy:
        batch = toy.store.pack(4, **made.pack)[0]
        assert 12 in batch.tokens
        assert 12 not in batch.labels
        assert 11 in batch.labels


def known_paths(section=""):
    for key in KEYS[section]:
        path = f"{section}.{key}".strip(".")
        yield path
        if path in KEYS:
            yield from known_paths(path)


@pytest.mark.parametrize("path", sorted(known_paths()))
def test_a_misspelt_key_is_refused_with_its_path_and_the_right_one(path):
    *section, key = path.split(".")
    wrong = ".".join([*section, key[:-2] + key[-1]])  # a letter is missing
    refused(lambda: packing_settings(nested(wrong, {})), tl.ConfigError, f"{wrong}: ", repr(key))


def test_keys_of_others_are_left_alone_if_they_are_named():
    config = {"optimizer": {"lr": 1}, "model": {"layers": 12}, "data": {"tokenizer": {"name": "x"}}}
    with pytest.raises(tl.ConfigError, match=r"others=\['optimizer'\]"):
        packing_settings(config)
    named = ["optimizer", "model.layers", "data.tokenizer.name"]
    assert packing_settings(config, others=named) == packing_settings({})
    for missing in named:
        with pytest.raises(tl.ConfigError, match=f"^{missing}: "):
            packing_settings(config, others=[one for one in named if one != missing])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"data": {"packing_mode": "bins"}}, "data.packing_mode: found 'bins'"),
        ({"data": {"tokenizer": {"add_eos": True}}}, "model.eos_token_id"),
        ({"data": {"tokenizer": {"add_bos": True}}}, "model.bos_token_id"),
        ({"data": []}, "data: found list"),
        ({"data": {"tokenizer": "x"}}, "data.tokenizer: found str"),
        ({"model": {"segment_masking": "no"}}, "model.segment_masking: found 'no'"),
        ({"data": {"train_on_eos": 0}}, "data.train_on_eos: found 0"),
        ({"data": {"mask_boundary_loss": "false"}}, "data.mask_boundary_loss: found 'false'"),
        ({"data": {"tokenizer": {"add_eos": "yes"}}}, "data.tokenizer.add_eos: found 'yes'"),
        ({"data": {"seq_len": 1}}, "data.seq_len: found 1"),
        ({"data": {"packing_buffer_docs": "4"}}, "data.packing_buffer_docs: found '4'"),
        ({"data": {"packing_max_docs_per_bin": 0}}, "data.packing_max_docs_per_bin: found 0"),
        ({"data": {"max_doc_tokens": 2.5}}, "data.max_doc_tokens: found 2.5"),
        ({"model": {"pad_token_id": -1}}, "model.pad_token_id: found -1"),
        ({"model": {"eos_token_id": 1 << 31}}, "model.eos_token_id: found 2147483648"),
        ("data", "settings: found str"),
    ],
)
def test_wrong_settings_are_refused(config, message):
    with pytest.raises(tl.ConfigError, match=message):
        packing_settings(config)


def test_a_single_word_is_no_list_of_others():
    with pytest.raises(tl.ConfigError, match="others: found 'model'"):
        packing_settings({}, others="model")
