"""Small runs of every layout, order, mix, edit and append, for audits to pass or to spoil."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

import tokenloom as tl
from tokenloom.testing import write_store

SEQ_LEN = 8


def documents(seed: int, count: int, longest: int = 20) -> list[list[int]]:
    """Documents of 0 to `longest` tokens; 3 is the EOS of some of them."""
    rng = np.random.Generator(np.random.PCG64(seed))
    made = [rng.integers(4, 1000, int(rng.integers(0, longest + 1))).tolist() for _ in range(count)]
    return [one if number % 3 else [*one, 3] for number, one in enumerate(made)]


def store_of(root: Path, seed: int = 0, count: int = 40, *, weights: bool = False) -> tl.Store:
    """A store of two shards whose inner chunks hold 16 tokens."""
    made = documents(seed, count)
    columns = {"loss_weights": ("float32", lambda ids: ids % 3 / 2)} if weights else None
    half = count // 2
    shards = [made[:half], made[half:]]
    write_store(root, shards, inner=16, chunk_tokens=32, columns=columns)
    return tl.open(root, cache_bytes=1 << 20)


LAYOUTS = {
    "windows": lambda s: s.windows(SEQ_LEN),
    "windows, tail": lambda s: s.windows(SEQ_LEN, tail="keep"),
    "windows, look-ahead": lambda s: s.windows(SEQ_LEN, lookahead=True, tail="keep"),
    "windows, overlap": lambda s: s.windows(SEQ_LEN, lookahead=True, overlap=1, tail="keep"),
    "windows, align": lambda s: s.windows(SEQ_LEN, align=32),
    "pack": lambda s: s.pack(SEQ_LEN),
    "pack, groups": lambda s: s.pack(SEQ_LEN, group_docs=7),
    "pack, specials": lambda s: s.pack(SEQ_LEN, add_bos=True, bos_id=1, add_eos=True, eos_id=2),
    "pack, greedy": lambda s: s.pack(SEQ_LEN, strategy="greedy", add_eos=True, eos_id=2),
    "pack, truncate": lambda s: s.pack(
        SEQ_LEN, overflow="truncate", add_bos=True, bos_id=1, add_eos=True, eos_id=2
    ),
    "pack, drop": lambda s: s.pack(SEQ_LEN, overflow="drop", add_eos=True, eos_id=2),
    "pack, lengths": lambda s: s.pack(SEQ_LEN, min_len=3, max_len=15, max_doc_tokens=11),
    "pack, stride": lambda s: s.pack(SEQ_LEN, stride=2),
    "pack, stride trained": lambda s: s.pack(SEQ_LEN, stride=2, mask_overlap=False),
    "pack, short rows": lambda s: s.pack(SEQ_LEN, strategy="one_doc", min_row_len=4),
    "pack, sequential": lambda s: s.pack(SEQ_LEN, strategy="sequential", add_eos=True, eos_id=2),
    "pack, overlap": lambda s: s.pack(SEQ_LEN, strategy="sequential", lookahead=True, overlap=1),
    "pack, look-ahead": lambda s: s.pack(SEQ_LEN, lookahead=True, add_eos=True, eos_id=2),
    "splice": lambda s: s.splice(SEQ_LEN, content_length=5),
    "splice, anchor": lambda s: s.splice(SEQ_LEN, content_start_mode="anchor_start"),
    "splice, slide": lambda s: s.splice(
        SEQ_LEN, content_start_mode="slide_within", content_length=4
    ),
    "splice, cyclic": lambda s: s.splice(
        SEQ_LEN, content_start_mode="cyclic_roll", content_length=5
    ),
    "splice, clip and pack": lambda s: s.splice(
        SEQ_LEN, content_length=4, edge="clip", fill="pack"
    ),
    "splice, bos": lambda s: s.splice(SEQ_LEN, content_length=4, bos=1),
    "split": lambda s: s.split({"a": 0.7, "b": 0.3})["a"].pack(SEQ_LEN),
    "select": lambda s: s.select(num_docs=9, doc_select_mode="longest").windows(SEQ_LEN),
}

ORDERS = {
    "stored": lambda d: d,
    "full": lambda d: d.shuffle(),
    "linear": lambda d: d.shuffle(perm_type="linear"),
    "levanter": lambda d: d.shuffle(perm_type="levanter"),
    "era": lambda d: d.era_shuffle(10),
    "block": lambda d: d.block_shuffle(io_block_size=3, window_blocks=2),
    "lanes": lambda d: d.block_shuffle(io_block_size=3, window_blocks=1, lanes=3),
}

RENDERS = {
    "usual": {},
    "across": {"mask_boundary_loss": False},
    "absolute": {"position_scheme": "absolute", "position_offset": 3},
    "ignore": {"ignore_id": 7, "pad_id": 5},
    "no eos": {"train_on_eos": False, "eos_id": 3},
    "no inserted eos": {"train_on_eos": False, "eos_mask": "inserted"},
    "guessed": {"segments": "eos", "eos_id": 3},
    "shifted": {"label_layout": "shifted"},
    "trailing": {"trailing": "doc"},
    "prefix": {"attend_prefix": True},
}


def quietly(make, *arguments):
    """What is made, without the warnings about small toys."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(*arguments)


def mixes(stores: dict[str, tl.Store]) -> dict[str, tl.Dataset]:
    """Mixes of three sources under every rule, cost and stop."""
    a = stores["a"].windows(SEQ_LEN).shuffle()
    b = stores["b"].pack(SEQ_LEN).block_shuffle(io_block_size=2, window_blocks=2)
    c = stores["c"].windows(SEQ_LEN, tail="keep").epochs(2)
    sources, weights = {"a": a, "b": b, "c": c}, {"a": 3, "b": 2, "c": 0.5}

    def mix(**options):
        return tl.mix(sources, **options).seed(11)

    return {
        "least consumed": mix(weights=weights),
        "weights": mix(rule="weights", weights=weights),
        "weights by tokens": mix(rule="weights", cost="tokens", weights=weights),
        "loss tokens": mix(cost="loss_tokens", weights=weights),
        "round robin": mix(rule="round_robin"),
        "rounds": mix(rule="rounds", weights=weights, block=16),
        "random": mix(rule="random", weights=weights, block=16),
        "first exhausted": mix(weights=weights, stop="first_exhausted"),
        "all exhausted": mix(weights=weights, stop="all_exhausted"),
        "capped": mix(weights=weights, max_epochs={"a": 1.5}),
        "initial": mix(weights=weights, initial={"a": 100}),
        "take": mix(weights=weights).take(61),
        "whole shuffle": mix(weights=weights).shuffle(),
        "stages": mix(weights=weights, stages={40: {"a": 1, "b": 5}}),
        "many epochs": tl.mix(
            {"a": a.epochs(None), "d": stores["c"].windows(SEQ_LEN).shuffle()},
            weights={"a": 1, "d": 30},
        ).take(2000),
    }
