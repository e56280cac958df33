"""Settings under the names that trainers use give the rows that they mean."""

import pytest
import yaml
from toydata import ToyStore

import tokenloom as tl
from tokenloom.integrations.trainer import packing_settings

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
        ({"data": []}, "data: found list"),
        ({"model": {"segment_masking": "no"}}, "model.segment_masking: found 'no'"),
        ({"data": {"train_on_eos": 0}}, "data.train_on_eos: found 0"),
        ({"data": {"seq_len": 1}}, "data.seq_len: found 1"),
        ({"data": {"max_doc_tokens": 2.5}}, "data.max_doc_tokens: found 2.5"),
        ({"model": {"pad_token_id": -1}}, "model.pad_token_id: found -1"),
        ({"model": {"eos_token_id": 1 << 31}}, "model.eos_token_id: found 2147483648"),
        ("data", "settings: found str"),
    ],
)
def test_wrong_settings_are_refused(config, message):
    with pytest.raises(tl.ConfigError, match=message):
        packing_settings(config)
