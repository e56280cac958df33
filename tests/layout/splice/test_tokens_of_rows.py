"""Tokens of spliced rows: closed forms equal the sums of spans, and visit no row."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from toydata import ToyStore, numbered

from tokenloom.errors import ConfigError
from tokenloom.layout.blocks import Blocks
from tokenloom.layout.splice import rows as rows_module
from tokenloom.layout.splice import tokens as tokens_module
from tokenloom.layout.splice.phase import SplicePhase
from tokenloom.layout.splice.rows import Spliced
from tokenloom.layout.splice.slots import Slots, StepSums
from tokenloom.layout.splice.spec import SpliceSpec
from tokenloom.layout.splice.tokens import UnitTokens
from tokenloom.order import block, era, full, identity
from tokenloom.order.prices import RunPrices, TokenCount
from tokenloom.order.stretches import sum_of_first
from tokenloom.testing import tiny

LENGTHS = [0, 1, 2, 3, 4, 5, 6, 9, 14, 23, 40]


class ToyLine:
    """Only what a layout asks of a line to know where documents lie."""

    def __init__(self, lengths):
        self.documents = len(lengths)
        self._edges = np.concatenate([[0], np.cumsum(lengths)])

    def bounds(self, first, last):
        return np.arange(first, last), self._edges


@st.composite
def layouts(draw):
    """Spliced toys of every kind whose splices lie in order, with several blocks of documents."""
    lengths = draw(st.lists(st.sampled_from(LENGTHS), min_size=1, max_size=8))
    each = {"min_size": len(lengths), "max_size": len(lengths)}
    edge = draw(st.sampled_from(("inside", "clip", "clip")))
    sampler = draw(st.sampled_from(("enumerate", "quota", "stream")))
    options = {
        "seq_len": draw(st.integers(2, 30)),
        "content_length": draw(st.none() | st.integers(2, 14)),
        "content_stride": draw(st.integers(1, 3)),
        "min_copy_len": draw(st.integers(1, 4)),
        "edge": edge,
        "fill": draw(st.sampled_from(("one", "pack", "pack"))),
        "include_tail": draw(st.booleans()),
        "adaptive_k": draw(st.booleans()),
        "sampler": sampler,
        "balance_mode": draw(st.sampled_from(("by_coverage", "by_document", "by_temperature"))),
        "balance_tau": draw(st.sampled_from((0.0, 0.7, 1.0))),
        "bos_id": draw(st.sampled_from((None, 900))),
    }
    if sampler != "enumerate":
        options["epoch_length"] = draw(st.integers(1, 50) | st.none())
        options["max_epochs"] = draw(st.none() | st.sampled_from((0.5, 2)))
    if draw(st.booleans()):
        options["doc_strides"] = tuple(draw(st.lists(st.integers(1, 3), **each)))
    if edge == "inside" and not options["include_tail"]:
        options["alpha"] = draw(st.sampled_from((0.0, 0.0, 0.8)))
        options["edge_mode"] = draw(st.sampled_from(("continuous", "duplicate")))
    if draw(st.booleans()):
        options["doc_growth"] = ((0, 1), (2, len(lengths)))
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch.setattr(rows_module, "BLOCK_TOKENS", draw(st.sampled_from((8, 30, 1 << 18))))
        try:
            return Spliced(SpliceSpec(**options), ToyLine(lengths))
        except ConfigError:
            assume(False)


def spans_tokens(layout, epoch):
    """Stored tokens of every row of an epoch, span by span."""
    phase = int(layout.phases.of(epoch))
    spans = layout.spans(epoch, np.arange(int(layout.phases.rows[phase])))
    edges = spans.frame.tolist()
    return [int(spans.length[a:b].sum()) for a, b in itertools.pairwise(edges)]


@given(layouts(), st.integers(0, 9) | st.integers(10, 10**6))
@settings(max_examples=150, deadline=None)
def test_the_steps_of_an_epoch_are_the_tokens_of_its_spans(layout, epoch):
    assume(layout.phases.rows.max() < 1000)
    steps = layout.token_steps(epoch)
    alpha = layout.spec.alpha > 0 and layout.spec.bos_id is not None
    assert steps is not None or alpha, "every other kind has closed forms"
    assume(steps is not None)
    wanted = spans_tokens(layout, epoch)
    assert steps.edges[0] == 0
    assert steps.edges[-1] == len(wanted)
    assert (np.diff(steps.edges) > 0).all()
    every = np.arange(len(wanted))
    assert steps.at(every).tolist() == wanted
    assert steps.upto(np.append(every, len(wanted))).tolist() == [0, *np.cumsum(wanted).tolist()]


@given(layouts(), st.integers(2, 12), st.integers(0, 12))
@settings(max_examples=60, deadline=None)
def test_whole_epochs_add_up_without_being_visited(layout, first, more):
    assume(layout.phases.rows.max() < 200)
    found = layout.tokens_between(first, first + more)
    assume(found is not None)
    assert found == sum(sum(spans_tokens(layout, epoch)) for epoch in range(first, first + more))


def test_a_document_is_longer_by_its_first_token_unless_it_is_empty():
    for bos, wanted in ((None, [0, 1, 9]), (900, [0, 2, 10])):
        spec = SpliceSpec(seq_len=8, content_length=4, adaptive_k=True, bos_id=bos)
        assert Spliced(spec, ToyLine([0, 1, 9])).parts[0].length.tolist() == wanted


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": "stream", "balance_tau": 0.7},
        {"sampler": "stream", "balance_mode": "by_document", "doc_weights": (1.0, 2.5)},
        {"sampler": "quota", "balance_tau": 0.5},
        {"balance_mode": "by_document"},
        {"epoch_length": 31, "fill": "pack"},
        {"edge": "clip", "fill": "pack"},
        {"max_epochs": 1.5, "balance_tau": 0.3},
    ],
    ids=str,
)
def test_documents_that_are_never_shown_change_no_quota(options):
    found = []
    for lengths in ([23, 9], [0, 23, 1, 0, 9, 2, *[0] * 30]):
        given = dict(options)
        if "doc_weights" in given:
            every = iter(given["doc_weights"])
            given["doc_weights"] = tuple(next(every) if one > 2 else 9.0 for one in lengths)
        spec = SpliceSpec(seq_len=16, content_length=5, min_copy_len=3, **given)
        layout = Spliced(spec, ToyLine(lengths))
        quota = layout.parts[0].quota
        shown = [q for q, length in zip(quota.tolist(), lengths, strict=True) if length > 2]
        assert sum(shown) == quota.sum()
        found.append((shown, layout.phases.rows.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("edge", ["clip", "inside"])
def test_documents_that_are_never_shown_have_no_steps(edge):
    spec = SpliceSpec(seq_len=30, content_length=6, min_copy_len=3, edge=edge, fill="pack")
    layout = Spliced(spec, ToyLine([1, 9, 2, 0, 14, 1]))
    assert (layout.parts[0].quota > 0).tolist() == [False, True, False, False, True, False]
    for epoch in range(3):
        steps, wanted = layout.token_steps(epoch), spans_tokens(layout, epoch)
        assert (np.diff(steps.edges) > 0).all()
        assert steps.at(np.arange(len(wanted))).tolist() == wanted


def test_far_epochs_add_up_exactly():
    """Where a loop would never end; in a period all choices are shown equally often."""
    spec = SpliceSpec(seq_len=30, content_length=9, edge="clip", fill="pack", epoch_length=7)
    layout = Spliced(spec, ToyLine([23, 9, 3]))
    assert not layout.is_steady(0)
    period = int(np.lcm.reduce(layout.parts[0].shown))
    whole = layout.tokens_between(0, period)
    assert whole == sum(sum(spans_tokens(layout, epoch)) for epoch in range(period))
    far = 10**11
    assert layout.tokens_between(period * far, period * (far + 1)) == whole
    assert layout.tokens_between(0, period * far) == far * whole


def test_choices_that_come_in_no_order_have_no_closed_form():
    spec = SpliceSpec(seq_len=8, content_length=4, edge="clip", sampler="enumerate")
    shuffled = SpliceSpec(
        seq_len=8, content_length=4, edge="clip", sampler="enumerate", shuffle_content=True
    )
    assert Spliced(spec, ToyLine([23, 14])).token_steps(0) is not None
    assert Spliced(shuffled, ToyLine([23, 14])).token_steps(0) is None
    swept = SpliceSpec(seq_len=8, content_length=4, content_start_mode="slide_within")
    assert Spliced(swept, ToyLine([23, 14])).token_steps(0) is None
    assert Spliced(swept, ToyLine([23, 14])).tokens_between(0, 1) is None


@pytest.mark.parametrize("mode", ["by_coverage", "by_document"])
def test_steps_are_made_while_there_are_few_in_all_or_for_each_document_or_for_the_rows(
    mode, monkeypatch
):
    spec = SpliceSpec(seq_len=8, content_length=4, edge="clip", balance_mode=mode)
    (part,) = Spliced(spec, ToyLine([23, 14, 0])).parts
    shown = 2  # documents
    # choices that have other tokens than their neighbours count one by one: two at the start, then
    # the one from token 0 on, all those in the middle, and three at the end
    turns = shown * (2 + 1 + 1 + 3)
    if mode == "by_document":  # again for each time round, which a document may start and end in
        turns = 7 * (24 // 24 + 2) + 7 * (24 // 15 + 2)
    assert part.shown.tolist() == [24, 15, 0]

    def made(few=0, own=0, worth=1 << 40):
        for name, value in (("FEW", few), ("OWN", own), ("WORTH", worth)):
            monkeypatch.setattr(tokens_module, name, value)
        return UnitTokens.of(part) is not None

    assert (made(few=turns), made(few=turns - 1)) == (True, False)
    each = -(-turns // shown)
    assert (made(own=each), made(own=each - 1)) == (True, False)
    rows = part.slots.rows
    assert (made(worth=rows // turns), made(worth=rows // turns + 1)) == (True, False)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4)), min_size=1, max_size=9),
    st.lists(st.integers(0, 3), min_size=81, max_size=81),
    st.integers(0, 10**9),
)
def test_rows_of_slots_add_up_their_units(documents, numbers, epoch):
    quota = np.array([q for q, _ in documents])
    assume(quota.any())
    together = np.array([m for _, m in documents])
    slots = Slots(quota, np.arange(len(documents)) // 3, together)
    value = np.array(numbers[: int(quota.sum())])
    keep = np.append(True, value[1:] != value[:-1])
    units = StepSums(np.append(np.flatnonzero(keep), len(value)), value[keep])
    rows = np.arange(slots.rows)
    frame, document, unit = slots.units(rows, np.full(len(rows), epoch))
    wanted = np.bincount(frame, value[slots.line(document, unit)], minlength=len(rows))
    found = slots.row_steps(units, epoch)
    assert found.at(rows).tolist() == wanted.tolist()


# -- orders --------------------------------------------------------------------------------


together = st.integers(1, 60)


@st.composite
def orders(draw):
    n = draw(st.integers(1, 40))
    seed = draw(st.integers(0, 99))
    cuts = draw(st.lists(st.integers(0, n), max_size=8))
    blocks = Blocks.cut(np.array([0, *sorted(cuts), n]))
    how = {"window_blocks": draw(st.integers(1, 4)), "lanes": draw(st.integers(1, 3))}
    return draw(
        st.sampled_from(
            (
                identity(n),
                full(n, seed=seed),
                full(n, seed=seed, perm_type="linear"),
                era(n, draw(st.integers(1, 20)), seed=seed),
                block(n, draw(st.integers(1, 7)), seed=seed, **how),
                block(blocks, seed=seed, **how),
            )
        )
    )


@given(orders(), st.lists(st.sampled_from([*[2] * 9, 0, 7]), min_size=60, max_size=60), together)
@settings(max_examples=60)
def test_the_first_rows_of_any_order_add_up(order, numbers, together):
    n = len(order)
    value = np.array(numbers[:n])
    keep = np.append(True, value[1:] != value[:-1])
    steps = StepSums(np.append(np.flatnonzero(keep), n), value[keep])
    wanted = [0, *np.cumsum(value[order.map(np.arange(n))]).tolist()]
    with tiny(cost_chunk_items=together):
        assert [sum_of_first(order, steps, k, n) for k in range(n + 1)] == wanted
        with tiny(listed_cost_rows=0):
            assert [sum_of_first(order, steps, k, n) for k in range(n + 1)] == wanted


def test_rows_of_other_numbers_are_found_in_the_stretch_that_is_asked_for():
    """One row in twenty is short; those of earlier stretches count with their stretch."""
    value = np.where(np.arange(400) % 20 == 3, 1, 9)
    edges = np.flatnonzero(np.append(True, np.diff(value) != 0))
    steps = StepSums(np.append(edges, 400), value[edges])
    for order in (era(400, 100, seed=1), block(400, 10, 8, seed=2)):
        wanted = [0, *np.cumsum(value[order.map(np.arange(400))]).tolist()]
        assert [sum_of_first(order, steps, k, 400) for k in range(401)] == wanted


@given(orders(), st.lists(st.sampled_from([*[2] * 9, 0, 7]), min_size=60, max_size=60))
@settings(max_examples=60)
def test_no_more_rows_are_looked_at_than_are_near_or_unusual(order, numbers):
    """Those from the nearer end of the stretch, or those of other numbers than most have."""
    n, asked = len(order), []
    value = np.array(numbers[:n])
    keep = np.append(True, value[1:] != value[:-1])
    steps = StepSums(np.append(np.flatnonzero(keep), n), value[keep])
    unusual = n - int(np.unique(value, return_counts=True)[1].max())

    class Asked:
        stretch, rows_before = order.stretch, order.rows_before

        def map(self, indices):
            asked.append(len(indices))
            return order.map(indices)

        def inverse(self, rows):
            asked.append(len(rows))
            return order.inverse(rows)

    for count in range(n + 1):
        asked.clear()
        start, stop = order.stretch(count)
        wanted = min(count - start, stop - count, unusual)
        assert sum_of_first(Asked(), steps, count, wanted) == value[order.map(range(count))].sum()
        assert sum(asked) == wanted
        if wanted:
            assert sum_of_first(Asked(), steps, count, wanted - 1) is None


@given(orders())
def test_stretches_partition_an_order(order):
    """Each index is in one stretch, and the rows before a stretch are those of its ranges."""
    n, at = len(order), 0
    while at < n:
        start, stop = order.stretch(at)
        assert start <= at
        assert stop > at or (start, stop) == (at, at)
        starts, stops = order.rows_before(start)
        listed = [row for a, b in zip(starts, stops, strict=True) for row in range(a, b)]
        assert sorted(listed) == sorted(order.map(np.arange(start)).tolist())
        at = max(stop, at + 1)


def test_an_order_without_stretches_is_not_summed():
    """Control: whoever asks must then add up rows."""
    steps = StepSums(np.array([0, 4]), np.array([3]))
    nothing = SimpleNamespace(map=None, inverse=None)
    assert sum_of_first(nothing, steps, 2, 4) is None
    assert sum_of_first(identity(4), steps, 2, 4) == 6


# -- runs ----------------------------------------------------------------------------------

WAYS = {
    "clip + pack": {"content_length": 6, "edge": "clip", "fill": "pack"},
    "temperature": {
        "content_length": 6,
        "edge": "clip",
        "fill": "pack",
        "balance_tau": 0.5,
        "epoch_length": 41,
    },
    "relative": {"position_scheme": "relative"},
    "growing": {"content_length": 4, "edge": "clip", "doc_growth": {0: 2, 2: 5}},
    "curriculum": {"fill": "pack", "content_length": {0: 4, 33: 7}},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("order", ["stored", "full", "block"])
def test_tokens_of_the_first_examples_of_splices_are_those_of_a_loop(way, order):
    with ToyStore(numbered([[30, 9, 14], [5, 23]])) as toy:
        ds = toy.store.select(num_docs=5).splice(12, pad_id=0, **WAYS[way]).epochs(3)
        if order != "stored":
            ds = ds.shuffle() if order == "full" else ds.block_shuffle(window_blocks=2)
        spans = ds.spans(np.arange(len(ds)))
        wanted = np.concatenate([[0], np.cumsum(spans.length)])[spans.frame].tolist()
        some = range(0, len(ds) + 1, max(1, len(ds) // 40))
        assert [TokenCount(ds.run).upto(k) for k in some] == [wanted[k] for k in some]
        together = TokenCount(ds.run)
        assert [together.upto(k) for k in reversed(some)] == [wanted[k] for k in reversed(some)]


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("documents", [100, 1000])
def test_the_first_state_of_a_resumed_splice_visits_no_row(documents, shuffled, monkeypatch):
    """Not one row is turned into splices; the order is asked for the few rows that are short."""
    random = np.random.default_rng(0)
    line = ToyLine(random.integers(20, 60, documents))
    options = {"content_length": 8, "edge": "clip", "fill": "pack"}
    layout = Spliced(SpliceSpec(seq_len=32, epoch_length=10 * documents + 1, **options), line)
    assert not layout.is_steady(0)  # no two epochs have the same number of tokens
    order = (full if shuffled else _stored)(layout.parts[0].slots.rows, seed=1)
    asked = []

    class Run:
        """One source whose order counts what it is asked for."""

        rows = layout.parts[0].slots.rows

        def __init__(self):
            self.layout, self.phases = layout, layout.phases

        def order(self, epoch):
            return order

    def show(*args):
        raise AssertionError("a row was visited")

    monkeypatch.setattr(SplicePhase, "show", show)
    inverse = type(order).inverse

    def counted(self, rows):
        asked.append(len(rows))
        return inverse(self, rows)

    monkeypatch.setattr(type(order), "inverse", counted)
    monkeypatch.setattr(type(order), "map", show)
    examples = 1000 * Run.rows + Run.rows // 2
    found = TokenCount(Run()).upto(examples)
    assert 0 < found <= examples * 32
    assert sum(asked) <= 4 * documents
    with pytest.raises(AssertionError, match="visited"):  # control: a batch does visit rows
        layout.spans(0, np.arange(3))


def _stored(rows, seed):
    return identity(rows)


def test_a_mix_prices_rows_of_no_token_as_before():
    """The least price of a row counts, so whole epochs are then added up by rows."""
    with ToyStore(numbered([[3, 9, 1, 5]])) as toy:
        with pytest.warns(UserWarning, match="trains nothing"):
            ds = toy.store.splice(4, content_length=2, edge="clip", min_copy_len=1, bos=1, pad_id=0)
        prices = RunPrices(ds.run.sources[0], 1)
        each = prices.prices(0, ds.run.rows)
        raw = RunPrices(ds.run.sources[0], 0).prices(0, ds.run.rows)
        assert each.min() == 1
        assert raw.min() == 0
        assert prices.inside(0, ds.run.rows, 99) == each.sum() > raw.sum()
        assert prices.whole(0, 2) is None


@pytest.mark.parametrize(
    ("options", "steady"),
    [
        ({}, True),
        ({"bos_id": 3}, False),
        ({"edge": "clip"}, True),  # every choice once an epoch
        ({"edge": "clip", "bos_id": 3}, True),
        ({"edge": "clip", "epoch_length": 7}, False),
        ({"content_start_mode": "slide_within"}, True),
        ({"content_start_mode": "slide_within", "sampler": "quota", "epoch_length": 7}, False),
    ],
)
def test_epochs_are_steady_if_all_have_the_same_number_of_tokens(options, steady):
    layout = Spliced(
        SpliceSpec(seq_len=30, content_length=9, **options), ToyLine([23, 0, 9, 3, 14])
    )
    tokens = {sum(spans_tokens(layout, epoch)) for epoch in range(12)}
    assert layout.is_steady(0) == steady
    assert len(tokens) == 1 or not steady


def test_documents_without_a_weight_of_their_ends_are_doubled_nowhere_and_the_others_are():
    """One document that asks for it is enough, and it changes no other."""
    lengths = [40, 30, 25]

    def shown(alphas):
        spec = SpliceSpec(
            seq_len=12, content_length=8, edge_mode="duplicate", alpha=0.0, doc_alphas=alphas
        )
        return Spliced(spec, ToyLine(lengths)).parts[0].shown.tolist()

    none, first, every = shown((0.0,) * 3), shown((2.0, 0.0, 0.0)), shown((2.0,) * 3)
    assert none == [33, 23, 18]
    assert first == [every[0], *none[1:]]
    assert all(one > other for one, other in zip(every, none, strict=True))
