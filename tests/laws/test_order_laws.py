"""Orders: permutations, epochs, mixes."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from lawbook import law
from random_runs import (
    ORDERS,
    Recipe,
    draw_run,
    draw_source,
    length_of,
    make_run,
    make_source,
    stored_in_frame,
)
from slow_examples import SlowRun
from slow_orders import equal_blocks, order_key, slow_block, slow_era, slow_full

import tokenloom as tl
from tokenloom import order

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def rows_of(run, first, last):
    """The spans of some examples, one hashable value for each."""
    spans = run.spans(range(first, last))
    columns = [getattr(spans, name).tolist() for name in ("document", "start", "length", "at")]
    rows = list(zip(*columns, spans.flags.tolist(), strict=True))
    return [tuple(rows[a:b]) for a, b in pairwise(spans.frame.tolist())]


@law
def test_every_epoch_has_every_row_of_its_layout_once(known, draw):
    """A shuffle moves rows; it neither drops nor repeats one."""
    source = draw_source(draw, ("first", "weighted", "third"), lookahead=draw.random() < 0.3)
    epochs = draw.randrange(1, 4)
    try:
        shuffled = make_source(source, known).epochs(epochs).seed(3)
        stored = shuffled.shuffle(False)
    except tl.ConfigError:  # settings that do not go together
        return
    assert len(shuffled) == len(stored)
    if not len(stored) or len(stored) > 2000:
        return
    epoch = stored.locate(range(len(stored)))[0]
    edges = np.flatnonzero(np.diff(epoch, prepend=-1, append=epoch[-1] + 1))
    whole = list(pairwise(edges.tolist()))
    if "doc_schedule" in source.options or isinstance(source.options.get("content_length"), dict):
        whole = whole[-1:]  # where the schedule cuts an epoch short, the others are not shown
    for first, last in whole:
        assert Counter(rows_of(shuffled, first, last)) == Counter(rows_of(stored, first, last))
    assert (shuffled.locate(range(len(stored)))[0] == epoch).all()


@law(examples=2)
def test_orders_are_bijections_and_equal_their_loops(known, draw):
    n, seed = draw.randrange(1, 300), draw.randrange(100)
    size, window, lanes = draw.randrange(1, 20), draw.randrange(1, 4), draw.randrange(1, 6)
    kind = {"perm_type": draw.choice(["feistel", "linear"]), "epoch": draw.randrange(3)}
    blocks = slow_block(equal_blocks(n, size), window, lanes, seed, size=size, **kind)
    pairs = [
        (order.full(n, seed=seed, **kind), slow_full(n, seed, **kind)),
        (order.era(n, size, seed=seed, **kind), slow_era(n, size, seed, **kind)),
        (
            order.block(n, size, window, lanes=lanes, seed=seed, **kind),
            [row for row, _ in blocks],
        ),
    ]
    for made, expected in pairs:
        assert len(made) == n
        assert made.map(np.arange(n)).tolist() == expected
        assert made.inverse(made.map(np.arange(n))).tolist() == list(range(n))
        one = draw.randrange(n)
        assert made.map([one]).tolist() == [expected[one]]
    for perm_type in ("levanter", "levanter_linear"):
        made = order.full(n, seed=seed, epoch=kind["epoch"], perm_type=perm_type)
        assert sorted(made.map(np.arange(n)).tolist()) == list(range(n))
        assert made.inverse(made.map(np.arange(n))).tolist() == list(range(n))


@law
def test_orders_of_any_size_have_an_inverse(known, draw):
    n = draw.choice([4096, 4097, 10**6 + 3, 2**31 + 11, 10**12, 2**62 + 5])
    wanted = np.array([draw.randrange(n) for _ in range(40)] + [0, n - 1])
    for made in (
        order.full(n, seed=draw.randrange(9)),
        order.era(n, draw.randrange(1, 10_000), seed=1),
        order.block(n, 128, 8, lanes=draw.choice([1, 64]), seed=2),
    ):
        rows = made.map(wanted)
        assert ((rows >= 0) & (rows < n)).all()
        assert made.inverse(rows).tolist() == wanted.tolist()


@law
def test_a_mix_is_never_a_row_away_from_its_weights(known, draw):
    """least_consumed: the source that has consumed least for its weight comes next."""
    sources = {
        name: draw_source(draw, (store,), lookahead=False)
        for name, store in (("a", "first"), ("b", "other"))
    }
    weights = {"a": draw.choice([1, 2.5]), "b": 1}
    mix = {"rule": "least_consumed", "weights": weights, "cost": "rows", "stop": "restart"}
    try:
        run = make_run(Recipe(sources, 1, mix), known)
        n, counts = length_of(run, 200), {"a": 0, "b": 0}
    except tl.ConfigError:  # a source without rows
        return
    for name in run.batch(range(n)).source if n else ():
        shares = {one: counts[one] / weights[one] for one in counts}
        assert shares[name] == min(shares.values())
        counts[name] += 1
        assert abs(counts["a"] / weights["a"] - counts["b"] / weights["b"]) <= 1


@law(examples=3)
def test_a_far_example_of_a_source_is_where_its_epoch_says(known, draw):
    """Epoch and row from one division and one permutation, without walking there."""
    source = replace(draw_source(draw, ("first", "weighted"), lookahead=False), epochs=None)
    recipe = Recipe({"main": source}, seed=draw.randrange(9))
    slow = SlowRun(recipe, known)
    try:
        run = make_run(recipe, known)
    except tl.ConfigError:
        return
    if not slow.sources[0].rows(0) or len(slow.sources[0].parts[0].phases()) > 1:
        return
    rows = len(slow.sources[0].rows(0))
    far = [draw.randrange(rows * 10**6) for _ in range(8)]
    far.append(draw.randrange(10**5) * rows)  # the first of an epoch
    far.append(far[-1] + rows - 1)
    epochs, found = run.locate(far)
    for index, epoch, row in zip(far, epochs.tolist(), found.tolist(), strict=True):
        assert (epoch, row) == (index // rows, slow.sources[0].order(index // rows)[index % rows])
    if source.layout != "splice":
        batch = run.batch(far)
        expected = [slow.sources[0].arrays(slow.sources[0].rows(0)[row]) for row in found.tolist()]
        assert batch.tokens.tolist() == [one["tokens"] for one in expected]


@law(examples=0.4)
def test_far_in_a_mix_the_source_that_has_consumed_least_comes_next(known, draw):
    """The greedy rule at any index, from what was consumed there; earlier rows are not visited."""
    sources = {
        name: replace(draw_source(draw, (store,), lookahead=False), epochs=None, seed=None)
        for name, store in (("a", "first"), ("b", "other"), ("c", "weighted"))
    }
    weights = {"a": draw.choice([1, 2.5]), "b": 1, "c": 0.5}
    cost = draw.choice(["rows", "tokens"])
    if any({"add_bos", "add_eos", "bos"} & one.options.keys() for one in sources.values()):
        cost = "rows"  # a row of inserted tokens alone costs 1, but holds no token
    mix = {"rule": "least_consumed", "weights": weights, "cost": cost, "stop": "restart"}
    try:
        run = make_run(Recipe(sources, draw.randrange(9), mix), known)
        run.spans([])
    except tl.ConfigError:  # settings that do not go together
        return
    is_closed = cost == "rows" and all(one.layout != "splice" for one in sources.values())
    far = 10**7 if is_closed else 10**4  # tokens of far epochs of splices are counted
    start = draw.choice([0, 37, 1000, draw.randrange(far)])
    batch = run.batch(range(start, start + 8))
    for index, name in enumerate(batch.source, start):
        consumed = {one["name"]: one[cost] / weights[one["name"]] for one in run.consumed(index)}
        least = min(consumed.values())
        assert consumed[name] <= least * (1 + 1e-12), (index, name, consumed)


@law(examples=2)
def test_what_a_run_consumed_is_what_its_examples_hold(known, draw):
    recipe, run = draw_run(draw, known)
    n = length_of(run)
    examples = draw.randrange(n + 1)
    if any("quarantine" in edit for edit in recipe.edits):
        return  # what is hidden still counts
    found = run.consumed(examples)
    assert run.tokens_in(examples) == sum(one["tokens"] for one in found)
    spans, rows, tokens = run.spans(range(examples)), Counter(), Counter()
    for row in range(examples):
        name = spans.sources[int(spans.source[row])]
        rows[name] += 1
        tokens[name] += stored_in_frame(spans, row)
    assert {one["name"]: one["rows"] for one in found if one["rows"]} == dict(rows)
    assert {one["name"]: one["tokens"] for one in found if one["tokens"]} == dict(+tokens)


@law
def test_an_example_does_not_depend_on_what_was_asked_before(known, draw):
    """A run that was just made says of one index what one says that has shown all before it."""
    recipe, run = draw_run(draw, known)
    n = length_of(run, 120)
    if n:
        every, index = rows_of(run, 0, n), draw.randrange(n)
        fresh = make_run(recipe, known)
        assert rows_of(fresh, index, index + 1) == [every[index]]


@pytest.mark.parametrize("name", ORDERS)
def test_two_sources_of_one_run_have_orders_of_their_own(known, name):
    """Keys are named paths: the same store under two names is shuffled in two ways."""
    if name == "stored":
        return
    one = ORDERS[name](known["third"].store.windows(8))
    run = tl.mix({"x": one, "y": one}, rule="round_robin", stop="all_exhausted").seed(1)
    rows = rows_of(run, 0, len(run))
    assert rows[0::2] != rows[1::2]
    assert Counter(rows[0::2]) == Counter(rows[1::2])


def test_keys_of_orders_are_paths():
    """Not seed + epoch: epoch 1 of seed 1 is not epoch 0 of seed 2."""
    assert slow_full(50, 1, 1) != slow_full(50, 2, 0)
    assert order_key(1, 1) != order_key(2, 0)
    first, second = order.full(50, seed=1, epoch=1), order.full(50, seed=2, epoch=0)
    assert first.map(np.arange(50)).tolist() != second.map(np.arange(50)).tolist()
