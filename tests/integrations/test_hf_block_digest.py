"""What `block_tokenize` makes of a batch is pinned, over many settings drawn at random.

Datasets that were mapped with an earlier version are on disks: the same call must make the same
rows. The draws come from `random.random`, which Python promises not to change.
"""

import hashlib
import itertools
import json
import random

import pytest

from tokenloom.integrations.hf import block_report, block_tokenize

GOLDEN = {
    "greedy, overflow": "2db5c88a0187ff230e27d21c276e506d",
    "greedy, cut off": "6ef7c27dc501d130992ab0c0a7e663fc",
    "best_fit, overflow": "8e962c5c16f444b884cd8a48d2da9dac",
    "best_fit, cut off": "0f58c7ac891cac07094332d116cfb13e",
    "first_fit, overflow": "61ccf57976baec9d698fcb48b7c48080",
    "first_fit, cut off": "25c36a9fe85d04348a67508c4bdf79e9",
    "unpacked, overflow": "0d705837e430ced1b5a8d9c2097c1478",
    "unpacked, cut off": "e7a76b9826810bc173f3658afdfd6ae1",
}

DRAWS = 60  # settings for each way to cut
WAYS = [
    *itertools.product([True], ["greedy", "best_fit", "first_fit"], [True, False]),
    *itertools.product([False], ["greedy"], [True, False]),
]


def words(text):
    return [int(word) for word in text.split()]


def drawn(number):
    """(texts, options): a batch and what to do with it."""
    draw = random.Random(number).random

    def below(limit):
        return int(draw() * limit)

    longest = [3, 12, 60, 400][below(4)]
    sizes = [below(longest + 1) for _ in range(below(40))]
    texts = [" ".join(str(3 + below(200)) for _ in range(size)) for size in sizes]
    width = 1 + below([4, 16, 64][below(3)])
    options = {
        "max_length": width,
        "stride": below(width) if draw() < 0.6 else 0,
        "add_bos": draw() < 0.5,
        "add_eos": draw() < 0.5,
        "min_len": 1 + below(4),
        "max_len": 5 + below(200) if draw() < 0.3 else None,
        "min_row_len": 1 + below(width) if draw() < 0.3 else 1,
        "shuffle_output": draw() < 0.3,
        "seed": below(1000),
        "bos_id": 1,
        "eos_id": 2,
    }
    return texts, options


def digest(packed, strategy, overflow):
    found = hashlib.sha256()
    for number in range(DRAWS):
        texts, options = drawn(number)
        options |= {"packed": packed, "packing_strategy": strategy, "overflow": overflow}
        rows = block_tokenize({"text": texts}, words, **options)
        report = block_report({"text": texts}, words, **options)
        found.update(json.dumps([rows, str(report)]).encode())
    return found.hexdigest()[:32]


def name_of(packed, strategy, overflow):
    return f"{strategy if packed else 'unpacked'}, {'overflow' if overflow else 'cut off'}"


@pytest.mark.parametrize("way", WAYS, ids=lambda way: name_of(*way))
def test_rows_and_reports_are_what_they_were(way):
    assert digest(*way) == GOLDEN[name_of(*way)]
