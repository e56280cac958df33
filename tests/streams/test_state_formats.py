"""States of streams, byte for byte: what was saved by an earlier version must load, and be saved
the same. Another text here is another format: give it another name (`tokenloom.…/3`).
"""

import itertools
import json

import pytest
from streamtoys import Stateful, rows_of

from tokenloom.streams import buffer_shuffle, interleave, stream_packer, window_shuffle


def packer(mode):
    return stream_packer(
        mode, 6, window="T+1", bos_id=1, packing_buffer_docs=3, group_docs=3, max_doc_tokens=9
    )


def mixed():
    sources = {"a": rows_of("a", [1, 2, 3, 4]), "b": iter(rows_of("b", [2] * 5))}
    return interleave(sources, weights={"b": 2.5}, seed=3, stop="first_exhausted")


def buffered():
    return buffer_shuffle(iter(rows_of("a", [1, 2, 1, 2, 1, 2])), 4, seed=5, name="wiki")


def windowed():
    return window_shuffle(Stateful(rows_of("a", [1] * 9)), 4, seed=5, name="wiki")


MADE = {
    "sequential": lambda: packer("sequential"),
    "bin": lambda: packer("bin"),
    "multipack": lambda: packer("multipack"),
    "one_doc": lambda: packer("one_doc"),
    "interleave": mixed,
    "buffer": buffered,
    "window": windowed,
}
TAKEN = {"interleave": 5, "buffer": 2, "window": 6}  # samples before the state


def advanced(name):
    """A stream at the moment of its state."""
    stream = MADE[name]()
    if name in TAKEN:
        list(itertools.islice(stream, TAKEN[name]))
        return stream
    for number, size in enumerate([4, 0, 8, 12, 1, 3, 2]):
        stream.add([10 * number + place for place in range(size)], document=100 + number)
    stream.pop()
    return stream


def rest(stream):
    """What comes after the state, as text."""
    rows = stream.rows([[7] * 9]) if hasattr(stream, "rows") else stream
    return [str(row) for row in rows]


GOLDEN = {
    "sequential": (
        '{"format": "tokenloom.packer/2", "options": {"mode": "sequential", "seq_len": 6, '
        '"window": "T+1", "overlap": 1, "pad_id": 0, "bos_id": 1, "eos_id": null, '
        '"max_doc_tokens": 9}, "counters": {"rows": 1, "cells": 7, "tokens": 7, "segments": 2, '
        '"transitions": 1, "documents_seen": 7, "documents_empty": 1, "documents_truncated": 1, '
        '"tokens_observed": 30, "tokens_retained": 27}, "finished": false, "rows": [1, 2, 2, 3], '
        '"documents": [102, 102, 103, 103, 104, 104, 105, 106, 106], "continues": [1, 1, 0, 1, '
        '0, 1, 0, 0, 1], "lengths": [7, 2, 5, 6, 1, 2, 4, 1, 3], "tokens": [20, 21, 22, 23, 24, '
        "25, 26, 26, 27, 1, 30, 31, 32, 33, 33, 34, 35, 36, 37, 38, 1, 1, 40, 1, 50, 51, 52, 1, "
        "1, 60, 61]"
        ', "sha256": "61e2b7d53c71b4d89543d8f2a119538808cf6c965d151d2e0d6f948535919f31"}'
    ),
    "bin": (
        '{"format": "tokenloom.packer/2", "options": {"mode": "bin", "seq_len": 6, "window": '
        '"T+1", "overlap": 1, "pad_id": 0, "bos_id": 1, "eos_id": null, "max_doc_tokens": 9, '
        '"packing_buffer_docs": 3, "packing_max_docs_per_bin": null, "bins_per_pack": 1}, '
        '"counters": {"rows": 1, "cells": 7, "tokens": 5, "segments": 1, "transitions": 0, '
        '"documents_seen": 7, "documents_empty": 1, "documents_truncated": 1, "tokens_observed": '
        '30, "tokens_retained": 27}, "finished": false, "rows": [1, 2, 1, 2], "documents": [102, '
        '103, 102, 103, 105, 104, 106], "continues": [0, 1, 1, 0, 0, 0, 0], "lengths": [7, 4, 3, '
        '7, 4, 2, 3], "tokens": [1, 20, 21, 22, 23, 24, 25, 35, 36, 37, 38, 25, 26, 27, 1, 30, '
        "31, 32, 33, 34, 35, 1, 50, 51, 52, 1, 40, 1, 60, 61]"
        ', "sha256": "c6cf3b315add1623cdc83528b62aa871180fb85c372ef75dac9d9b7e042e89c0"}'
    ),
    "multipack": (
        '{"format": "tokenloom.packer/2", "options": {"mode": "multipack", "seq_len": 6, '
        '"window": "T+1", "overlap": 1, "pad_id": 0, "bos_id": 1, "eos_id": null, '
        '"max_doc_tokens": 9, "packing_max_docs_per_bin": null, "group_docs": 3}, "counters": '
        '{"rows": 1, "cells": 7, "tokens": 7, "segments": 1, "transitions": 0, "documents_seen": '
        '7, "documents_empty": 1, "documents_truncated": 1, "tokens_observed": 30, '
        '"tokens_retained": 27}, "finished": false, "rows": [1, 1, 1, 2], "documents": [100, '
        '102, 103, 103, 104, 105, 106], "continues": [0, 1, 0, 1, 0, 0, 0], "lengths": [5, 3, 7, '
        '4, 2, 4, 3], "tokens": [1, 0, 1, 2, 3, 25, 26, 27, 1, 30, 31, 32, 33, 34, 35, 35, 36, '
        "37, 38, 1, 40, 1, 50, 51, 52, 1, 60, 61]"
        ', "sha256": "397c6d716e3f6ad214b16e333d227a0eaf5098b876ca2b70d2357c6f46820777"}'
    ),
    "one_doc": (
        '{"format": "tokenloom.packer/2", "options": {"mode": "one_doc", "seq_len": 6, "window": '
        '"T+1", "overlap": 1, "pad_id": 0, "bos_id": 1, "eos_id": null, "max_doc_tokens": 9}, '
        '"counters": {"rows": 1, "cells": 7, "tokens": 5, "segments": 1, "transitions": 0, '
        '"documents_seen": 7, "documents_empty": 1, "documents_truncated": 1, "tokens_observed": '
        '30, "tokens_retained": 27}, "finished": false, "rows": [1, 1, 1, 1, 1, 1, 1], '
        '"documents": [102, 102, 103, 103, 104, 105, 106], "continues": [0, 1, 0, 1, 0, 0, 0], '
        '"lengths": [7, 3, 7, 4, 2, 4, 3], "tokens": [1, 20, 21, 22, 23, 24, 25, 25, 26, 27, 1, '
        "30, 31, 32, 33, 34, 35, 35, 36, 37, 38, 1, 40, 1, 50, 51, 52, 1, 60, 61]"
        ', "sha256": "1fc820785fe962046bd9868cccbe210a1497941db0d4103335645a7bcb52503a"}'
    ),
    "interleave": (
        '{"format": "tokenloom.interleave/2", "options": {"sources": ["a", "b"], "rule": '
        '"least_consumed", "cost": "tokens", "stop": "first_exhausted", "epochs": 1, "seed": 3, '
        '"weights": {"a": 1.0, "b": 2.5}}, "picks": 5, "finished": false, "sources": [{"name": '
        '"a", "rows": 2, "tokens": 3, "cost": 3, "epoch": 0, "row": 2, "ended": false, "state": '
        'null}, {"name": "b", "rows": 3, "tokens": 6, "cost": 6, "epoch": 0, "row": 3, "ended": '
        'false, "state": null}]'
        ', "sha256": "6a7b8fd7751a83c7edc911afced4f43e26ab43ca34f8f91880ba587338e6da01"}'
    ),
    "buffer": (
        '{"format": "tokenloom.shuffle/2", "options": {"kind": "buffer", "rows": 4, "seed": 5, '
        '"name": "wiki", "epochs": 1}, "epoch": 0, "given": 2, "taken": 5, "finished": false, '
        '"rows": [3, 1, 2], "samples": [[97003, 97003], [97001, 97001], [97002]], "mark": null'
        ', "sha256": "607e72c8be35569344d9b05e191be30ad75605e32be8264fb8d7dffd8c5eee75"}'
    ),
    "window": (
        '{"format": "tokenloom.shuffle/2", "options": {"kind": "window", "rows": 4, "seed": 5, '
        '"name": "wiki", "epochs": 1}, "epoch": 0, "given": 6, "taken": 8, "finished": false, '
        '"rows": [5, 7], "samples": null, "mark": {"row": 4, "state": {"place": 4}}'
        ', "sha256": "65d92d2f8aaa5c4e88994670c825f003cfb8417eb2876fd3e81919cd91cfd102"}'
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_a_state_is_written_as_it_was(name):
    assert json.dumps(advanced(name).state_dict()) == GOLDEN[name]


@pytest.mark.parametrize("name", MADE)
def test_a_state_that_was_saved_is_resumed(name):
    stream = MADE[name]()
    stream.load_state_dict(json.loads(GOLDEN[name]))
    assert json.dumps(stream.state_dict()) == GOLDEN[name]
    assert rest(stream) == rest(advanced(name))
