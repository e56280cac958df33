"""Rows and states of streaming packers are pinned, over many settings drawn at random.

A run that was started with an earlier version is resumed from its state: the rows after it must be
the same. The draws come from `random.random`, which Python promises not to change.
"""

import hashlib
import json
import random

import numpy as np
import pytest

from tokenloom.streams import stream_packer

GOLDEN = {
    "sequential": "9880e387070a5482a0e5f64149efe04d",
    "bin": "3b0cdf4e8cca63384587d0d92359a17d",
    "multipack": "cbb35e24bbbebaefcd0fa78748a1797b",
    "one_doc": "603de3bc72f8b8f567dad8d4498e40f5",
}

DRAWS = 50  # settings for each mode


def drawn(number):
    """(documents, options): a stream and how to pack it."""
    draw = random.Random(number).random

    def below(limit):
        return int(draw() * limit)

    longest = [3, 12, 60, 400][below(4)]
    documents = [[3 + below(200) for _ in range(below(longest + 1))] for _ in range(5 + below(80))]
    wide = draw() < 0.5
    bins = 1 + below(4)
    options = {
        "seq_len": 2 + below([4, 16, 64][below(3)]),
        "window": "T+1" if wide else "T",
        "overlap": [None, 0, 1][below(3)] if wide else None,
        "pad_id": below(3),
        "bos_id": 1 if draw() < 0.5 else None,
        "eos_id": 2 if draw() < 0.5 else None,
        "max_doc_tokens": 1 + below(100) if draw() < 0.3 else None,
        "packing_buffer_docs": bins + below(20),
        "packing_max_docs_per_bin": 1 + below(5) if draw() < 0.3 else None,
        "bins_per_pack": bins,
        "group_docs": 1 + below(30),
    }
    return documents, options


def digest(mode):
    found = hashlib.sha256()

    def note(row):
        for part in (row.tokens, row.segment_ids, row.document_starts, row.continues):
            found.update(np.ascontiguousarray(part, "<i4").tobytes())
        found.update(np.ascontiguousarray(row.documents, "<i8").tobytes())

    for number in range(DRAWS):
        documents, options = drawn(number)
        packer = stream_packer(mode, **options)
        for place, document in enumerate(documents):
            packer.add(document, document=7 * place)
            if place % 11 == 5:
                found.update(json.dumps(packer.state_dict()).encode())
            while place % 3 and packer.can_pop():
                note(packer.pop())
        packer.finish()
        found.update(json.dumps(packer.state_dict()).encode())
        while packer.can_pop():
            note(packer.pop())
    return found.hexdigest()[:32]


@pytest.mark.parametrize("mode", ["sequential", "bin", "multipack", "one_doc"])
def test_rows_and_states_are_what_they_were(mode):
    assert digest(mode) == GOLDEN[mode]


def test_the_draws_reach_cuts_overlaps_and_full_bins():
    seen = [drawn(number) for number in range(DRAWS)]
    assert {options["overlap"] for _, options in seen} == {None, 0, 1}
    assert any(
        len(document) > 3 * options["seq_len"] and options["eos_id"] and options["bos_id"]
        for documents, options in seen
        for document in documents
    )


def test_no_two_modes_make_the_same_rows():
    assert len(set(GOLDEN.values())) == len(GOLDEN) == 4
