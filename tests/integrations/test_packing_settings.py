"""Settings under the names that trainers use give the rows that they mean."""

import itertools

import numpy as np
import pytest
import yaml
from toydata import ToyStore

import tokenloom as tl
from tokenloom.batch.attention import dense_mask
from tokenloom.integrations.trainer import packing_settings
from tokenloom.streams.pack import stream_packer

DOCUMENTS = [[10, 11, 12], [20, 21], [30, 31, 32, 33]]
CF_10 = """
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


@pytest.mark.parametrize("mode", ["sequential", "bin", "multipack"])
def test_cf_10_the_names_are_accepted_and_mean_what_they_say(mode):
    made = packing_settings(yaml.safe_load(CF_10.format(mode=mode)))
    with ToyStore([DOCUMENTS]) as toy:
        run = toy.store.pack(8, **made.pack)
        batch = run.batch(np.arange(len(run)))
        cells = batch._cells
        assert batch.label_layout == "shifted"
        assert batch.tokens.shape[1] == 8
        if mode == "sequential":
            assert cells[0].tolist() == [1, 10, 11, 12, 2, 1, 20, 21, 2]
            assert cells[1, 0] == cells[0, 8]  # a token is shared, so no transition is lost
        assert 2 in batch.tokens
        assert 2 not in batch.labels  # train_on_eos
        rows = [
            row.tokens.tolist() for row in stream_packer(seq_len=8, **made.stream).rows(DOCUMENTS)
        ]
        if mode == "sequential":
            assert rows == cells.tolist()
        assert sorted(t for row in rows for t in row if t > 2) == sorted(
            itertools.chain(*DOCUMENTS)
        )
        mask = dense_mask(batch.segment_ids, **made.attention)
        row = int(np.argmax(batch.segment_ids.max(axis=1)))
        last = int((batch.segment_ids[row] > 0).sum()) - 1
        assert batch.segment_ids[row, last] > 1
        assert mask[row, last, 0]  # segment_masking is off: the row is one to attention


def test_nothing_said_is_the_default_there():
    made = packing_settings({})
    assert made.pack == {"strategy": "sequential", "lookahead": True, "overlap": 1}
    assert made.attention == {"segment_masking": True}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"data": {"packing_mode": "bins"}}, "data.packing_mode: found 'bins'.*'bin'"),
        ({"data": {"packing_buffer": 3}}, "packing_buffer"),
        ({"data": {"tokenizer": {"add_eos": True}}}, "model.eos_token_id: missing"),
        ({"data": []}, "data: found list"),
        ({"data": {"tokenizer": "x"}}, "tokenizer: found str"),
    ],
)
def test_wrong_settings_are_refused(config, message):
    with pytest.raises(tl.ConfigError, match=message):
        packing_settings(config)
