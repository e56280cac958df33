"""An audit is a sum over pieces: who looks at them, and in which order, does not matter."""

import json
import random

import numpy as np
import pytest
from auditruns import LAYOUTS, ORDERS, SEQ_LEN, mixes, quietly, store_of
from planted import moved, with_plan

from tokenloom.inspect import audit_run
from tokenloom.inspect.audit.run_audit import Audit, certified
from tokenloom.inspect.audit.scope import scope_of
from tokenloom.testing import tiny

PIECE = 16  # rows

COUNTED_BY_PIECE = ("mixture", "batch_laws")  # what is pending at an end; the first batch of each


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("pieces")
    stores = {name: store_of(root / name, seed) for seed, name in enumerate("abc")}
    made = {
        f"{one}, {other}": quietly(lambda o, la: ORDERS[o](LAYOUTS[la](stores["a"])), other, one)
        for one, other in (
            ("windows", "full"),
            ("windows, overlap", "block"),
            ("pack, groups", "full"),
            ("pack, stride", "lanes"),
            ("splice", "full"),
        )
    }
    made["epochs"] = stores["a"].windows(SEQ_LEN, tail="keep").shuffle().epochs(3).seed(1)
    made["hidden"] = quietly(lambda: made["epochs"].edit(at=50, quarantine=[("main", 3)]))
    mixed = quietly(mixes, stores)
    made |= mixed
    made["edited"] = mixed["least consumed"].edit(at=40, weights={"b": 4})
    return made


NAMES = [
    *("windows, full", "windows, overlap, block", "pack, groups, full", "pack, stride, lanes"),
    *("splice, full", "epochs", "hidden", "least consumed", "weights", "weights by tokens"),
    *("loss tokens", "round robin", "rounds", "random", "first exhausted", "all exhausted"),
    *("capped", "initial", "take", "whole shuffle", "stages", "many epochs", "edited"),
]


@pytest.fixture
def small():
    with tiny(audit_piece_examples=PIECE, audit_piece_rendered_examples=PIECE):
        yield


def elsewhere(run, scope, seen=None):
    """Has pieces looked at in any order, as plain data."""

    def share(pieces):
        mixed_up = random.Random(3).sample(range(len(pieces)), len(pieces))
        found = {}
        for number in mixed_up:
            plain = Audit(run, scope, **pieces[number]).looked(lambda _: None)
            found[number] = plain
            if seen is not None:
                seen.append(len(json.dumps(plain)))
        return [found[number] for number in range(len(pieces))]

    return share


def judged(certificate):
    """What a certificate says, but for counts that follow from the number of pieces."""
    claim = certificate.claim
    for law in COUNTED_BY_PIECE:
        del claim["laws"][law]["looked_at"]
    return claim


@pytest.mark.parametrize("name", NAMES)
def test_pieces_say_what_one_pass_says(runs, name, small):
    run = runs[name]
    last = None if run.run.n is not None and run.run.n < 130 else 128
    scope = scope_of(run, 0, last, True, None, 0)
    seen = []
    pieces = certified(run, scope, elsewhere(run, scope, seen), progress=False)
    assert len(seen) > 3
    assert pieces == certified(run, scope, progress=False)  # who looks does not matter
    with tiny(audit_piece_rendered_examples=1 << 30):
        whole = audit_run(run, 0, last, progress=False)
        assert whole.ok
        assert judged(pieces) == judged(whole)


@pytest.mark.parametrize("name", ["epochs", "least consumed", "random", "whole shuffle"])
@pytest.mark.parametrize("options", [{"sample": 40}, {"arrays": False}, {"arrays": "sample"}])
def test_samples_and_plans_are_sums_over_pieces_too(runs, name, options, small):
    run = runs[name]
    asked = {"arrays": True, "sample": None, **options}
    scope = scope_of(run, 3, 120, asked["arrays"], asked["sample"], 7)
    pieces = certified(run, scope, elsewhere(run, scope), progress=False)
    with tiny(audit_piece_rendered_examples=1 << 30, audit_piece_examples=1 << 30):
        assert judged(pieces) == judged(certified(run, scope, progress=False))


@pytest.mark.parametrize("at", [PIECE - 1, PIECE, 3 * PIECE + 2])
@pytest.mark.parametrize("name", ["epochs", "least consumed", "rounds"])
def test_a_defect_is_found_wherever_it_lies(runs, name, at, small):
    """At a seam, on either side of it, and inside; without it the same pieces hold."""
    run = runs[name]
    scope = scope_of(run, 0, 96, True, None, 0)
    assert certified(run, scope, elsewhere(run, scope), progress=False).ok
    twice = moved(run, {at: at + 1})
    found = certified(twice, scope, elsewhere(twice, scope), progress=False)
    assert found.laws["items"].broken

    def later(indices, answer):
        epoch, row = answer
        return epoch, np.where(indices == at, (row + 1) % 5, row)

    spoiled = with_plan(run, locate=later)
    assert not certified(spoiled, scope, elsewhere(spoiled, scope), progress=False).ok


def test_pieces_are_whole_stretches_and_whole_blocks(runs, small):
    for name in ("epochs", "random", "rounds"):
        run = runs[name]
        whole = Audit(run, scope_of(run, 0, 1000 if run.run.n is None else None, True, None, 0))
        pieces = whole.pieces()
        stretch = whole._plan_digests.stretch
        assert all(one["low"] % stretch == 0 for one in pieces)
        assert [one["high"] for one in pieces[:-1]] == [one["low"] for one in pieces[1:]]
        if name != "epochs":
            assert stretch % 16 == 0
    inside = Audit(runs["random"], scope_of(runs["random"], 3, 120, True, None, 0))
    assert len(inside.pieces()) == 1  # stretches from there would cut blocks
