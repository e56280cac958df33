"""Spliced rows: equal to lists and loops, in every epoch, with an inverse."""

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from slowsplice import slow_arrays, slow_choices, slow_plan, slow_rows
from toydata import ToyStore, numbered

import tokenloom as tl
from tokenloom.errors import ConfigError
from tokenloom.layout.splice import rows as rows_module
from tokenloom.layout.splice.choices import choices_for
from tokenloom.layout.splice.rows import BLOCK_TOKENS, Spliced
from tokenloom.layout.splice.spec import SpliceSpec
from tokenloom.testing import assert_elastic, assert_exactly_once, assert_resumable

MODES = ("anchor_start", "slide_within", "coverage_balanced", "cyclic_roll")
sizes = st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, 6, 9, 14, 23]), min_size=1, max_size=5)


@st.composite
def specs(draw, documents):
    """A setting without randomness, which the loops can reproduce."""
    mode = draw(st.sampled_from((*MODES, "coverage_balanced", "coverage_balanced")))
    options = {
        "seq_len": draw(st.integers(2, 12)),
        "content_start_mode": mode,
        "content_length": draw(st.none() | st.integers(2, 14)),
        "content_stride": draw(st.integers(1, 3)),
        "min_copy_len": draw(st.integers(1, 3)),
        "sampler": draw(st.sampled_from(("enumerate", "quota", "stream"))),
        "balance_mode": draw(st.sampled_from(("by_coverage", "by_document", "by_temperature"))),
        "bos_id": draw(st.sampled_from((None, 900))),
    }
    if mode == "coverage_balanced":
        options["adaptive_k"] = draw(st.booleans())
        options["edge"] = draw(st.sampled_from(("inside", "clip")))
        options["fill"] = draw(st.sampled_from(("one", "pack")))
        options["include_tail"] = draw(st.booleans())
    else:
        options["placement"] = draw(st.sampled_from(("fit", "truncate")))
        options["offset_stride"] = draw(st.integers(1, 3))
    if mode == "cyclic_roll":
        options["roll_loss"] = draw(st.booleans())
    if options["sampler"] != "enumerate":
        lengths = st.integers(1, 40)
        stream = options["sampler"] == "stream"  # its epochs are long by default
        options["epoch_length"] = draw(lengths if stream else st.none() | lengths)
        options["balance_tau"] = draw(st.sampled_from((0, 1)))  # exact in both
        options["balance_measure"] = draw(st.sampled_from(("length", "starts")))
        options["max_epochs"] = draw(st.none() | st.sampled_from((0.5, 1, 2)))
    each = {"min_size": documents, "max_size": documents}
    if draw(st.booleans()):
        options["doc_strides"] = tuple(draw(st.lists(st.integers(1, 3), **each)))
    return SpliceSpec(**options)


@st.composite
def cases(draw):
    """Documents, and a setting with which at least one of them is spliced."""
    documents = [document for shard in numbered([draw(sizes)], 10) for document in shard]
    spec = draw(specs(len(documents)))
    lengths = [len(document) for document in documents]
    slots, quota, _ = slow_plan(lengths, spec, spec.content_length, len(documents))
    assume(sum(quota) and sum(map(len, slots)))
    return documents, spec


def listed(layout, epoch, rows):
    """What a layout shows: lists of (document, t, s)."""
    found = layout.triples(epoch, np.asarray(rows))
    out = [[] for _ in range(len(rows))]
    for row, *triple in zip(*(column.tolist() for column in found), strict=True):
        out[row].append(tuple(triple))
    return out


@pytest.mark.parametrize("placement", ["fit", "truncate"])
@pytest.mark.parametrize("mode", ["anchor_start", "slide_within", "cyclic_roll"])
def test_every_choice_of_a_sweep_is_that_of_the_loops(mode, placement):
    for size, content, stride, least, step in itertools.product(
        (5, 6), (2, 3, 5), (1, 2, 3, 4), (1, 2), (1, 2)
    ):
        spec = SpliceSpec(
            seq_len=size,
            content_start_mode=mode,
            content_length=content,
            content_stride=stride,
            min_copy_len=least,
            offset_stride=step,
            placement=placement,
        )
        choices = choices_for(spec, content, stride)
        wanted = [slow_choices(length, spec, content, stride) for length in range(1, 12)]
        assert choices.count(np.arange(1, 12)).tolist() == [len(one) for one in wanted]
        length = np.repeat(np.arange(1, 12), [len(one) for one in wanted])
        choice = np.array([number for one in wanted for number in range(len(one))], np.int64)
        found = choices.splice(*choices.place(choice, length), length)
        triples = [(t, len(inside), s) for one in wanted for t, inside, s in one]
        columns = (found.start, found.length, found.at)
        assert list(zip(*(one.tolist() for one in columns), strict=True)) == triples


@pytest.mark.parametrize("mode", ["slide_within", "coverage_balanced"])
def test_starts_are_those_of_each_documents_own_stride(mode):
    lengths, strides = (3, 23, 14, 1, 9, 23), (3, 1, 2, 1, 3, 2)
    with ToyStore(numbered([lengths])) as toy:
        line = toy.store.windows(2).sources["main"].line
        for own in (strides, strides[::-1]):
            spec = SpliceSpec(
                seq_len=8,
                content_length=4,
                content_start_mode=mode,
                min_copy_len=2,
                doc_strides=own,
            )
            pairs = zip(lengths, own, strict=True)
            wanted = [len({t for t, *_ in slow_choices(n, spec, 4, stride)}) for n, stride in pairs]
            assert Spliced(spec, line).parts[0].starts == wanted


def test_blocks_are_as_large_as_the_documents_of_the_last_phase(monkeypatch):
    monkeypatch.setattr(rows_module, "BLOCK_TOKENS", 8)
    lengths = [9, 14, 23, 5, 11]  # a block for each
    with ToyStore(numbered([lengths])) as toy:
        made = toy.store.splice(8, content_length=5, doc_growth={0: 2, 2: 5}).block_shuffle()
        working = made.run.working
        assert len(working.blocks) == 5
        assert (working.block_bytes, working.total_bytes) == (2 * 23, 2 * sum(lengths))


@given(cases(), st.integers(0, 40))
@settings(max_examples=300)
def test_every_row_equals_the_loops(case, epoch):
    documents, spec = case
    lengths = [len(document) for document in documents]
    with ToyStore([documents]) as toy:
        layout = Spliced(spec, toy.store.windows(2).sources["main"].line)
        rows = slow_rows(lengths, spec, epoch)
        assert layout.phases.rows.tolist() == [len(rows)]
        every = np.arange(len(rows))
        lead = spec.bos_id is not None
        wanted = [[(place, t - lead, s) for place, t, _, s in row] for row in rows]
        assert listed(layout, epoch, every) == wanted
        spans = layout.spans(epoch, every)
        spans.check()
        stored = [
            sum(len(inside) - (spec.bos_id is not None and 0 in inside) for *_, inside, _ in r)
            for r in rows
        ]
        assert layout.costs(epoch, every).tolist() == stored
        if layout.row_tokens is not None:
            assert set(stored) == {layout.row_tokens[0]}


@given(cases(), st.data())
@settings(max_examples=200)
def test_every_array_equals_the_loops(case, data):
    documents, spec = case
    lengths = [len(document) for document in documents]
    draw = data.draw
    render = {
        "pad_id": draw(st.sampled_from((0, 7))),
        "trailing": draw(st.sampled_from(("filler", "doc"))),
        "attend_prefix": draw(st.booleans()),
        "position_scheme": draw(st.sampled_from(("reset", "absolute"))),
        "position_offset": draw(st.sampled_from((0, 5))),
    }
    options = {
        name: getattr(spec, name)
        for name in SpliceSpec.__dataclass_fields__
        if name not in ("seq_len", "bos_id", "eos_id")
        and not name.endswith(("_schedule", "_growth"))
    }
    eos = draw(st.sampled_from((False, 901)))
    with ToyStore([documents], vocab_size=1000) as toy, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ds = toy.store.splice(
            spec.seq_len, bos=spec.bos_id or False, eos_before=eos, **options, **render
        )
        ds = ds.shuffle(False).epochs(3)
        epoch = draw(st.integers(0, 2))
        rows = slow_rows(lengths, spec, epoch)
        first = epoch * len(rows)
        with_eos = SpliceSpec(
            **{
                **{n: getattr(spec, n) for n in SpliceSpec.__dataclass_fields__},
                "eos_id": eos or None,
            }
        )
        wanted = slow_arrays(rows, documents, with_eos, ds.sources["main"].render)
        batch = ds.batch(np.arange(first, first + len(rows)))
        for name, expected in wanted.items():
            found = batch.trained() if name == "loss_mask" else getattr(batch, name)
            assert found.tolist() == expected, name
        with tl.Loader(
            ds.epochs(3), len(rows), fields=("segment_ids", "position_ids"), fetch="blocks"
        ) as loader:
            loader.seek(epoch)
            again = next(loader)
            for name in ("tokens", "segment_ids", "position_ids"):
                assert getattr(again, name).tolist() == wanted[name], name


@given(cases(), st.integers(0, 20))
@settings(max_examples=150)
def test_the_way_back_finds_exactly_the_rows_of_a_start(case, epoch):
    documents, spec = case
    with ToyStore([documents]) as toy:
        layout = Spliced(spec, toy.store.windows(2).sources["main"].line)
        every = np.arange(int(layout.phases.rows[0]))
        shown = listed(layout, epoch, every)
        for document in range(len(documents)):
            rows = [r for r, row in enumerate(shown) if any(d == document for d, _, _ in row)]
            assert layout.find(epoch, document).tolist() == rows
            for t in {t for row in shown for d, t, _ in row if d == document} | {-99, 5}:
                rows = [
                    r for r, row in enumerate(shown) if any(x[:2] == (document, t) for x in row)
                ]
                assert layout.find(epoch, document, t).tolist() == rows


@given(cases())
@settings(max_examples=150)
def test_every_choice_is_shown_after_as_many_epochs_as_it_takes(case):
    """All starts are shown over the epochs, and none is ever two visits ahead of another."""
    documents, spec = case
    with ToyStore([documents]) as toy:
        layout = Spliced(spec, toy.store.windows(2).sources["main"].line)
        part = layout.parts[0]
        used = part.quota > 0
        epochs = int((-(-part.shown[used] // part.quota[used])).max())
        every = np.arange(int(layout.phases.rows[0]))
        counts = {}
        for epoch in range(epochs):
            for row in listed(layout, epoch, every):
                for document, t, s in row:
                    where = (document, t, s if spec.fill == "one" else None)
                    counts[where] = counts.get(where, 0) + 1
        for document in np.flatnonzero(used).tolist():
            found = [n for (d, *_), n in counts.items() if d == document]
            assert len(found) == part.choices[document]
            assert max(found) - min(found) <= 1


@pytest.mark.parametrize("alpha", [0.3, 0.8, 2.0])
@pytest.mark.parametrize("stride", [1, 3])
def test_with_edge_weights_every_start_is_shown_in_the_end(alpha, stride):
    documents = numbered([[40, 17, 6]], 10)[0]
    spec = SpliceSpec(seq_len=8, content_length=6, alpha=alpha, content_stride=stride)
    with ToyStore([documents]) as toy:
        layout = Spliced(spec, toy.store.windows(2).sources["main"].line)
        rows = int(layout.phases.rows[0])
        counts = {}
        epochs = 60
        for epoch in range(epochs):
            for row in listed(layout, epoch, np.arange(rows)):
                for document, t, _ in row:
                    counts[document, t] = counts.get((document, t), 0) + 1
        starts = [(d, t) for d, n in enumerate((40, 17, 6)) for t in range(0, n - 5, stride)]
        assert set(counts) == set(starts)
        for document, length in enumerate((40, 17, 6)):
            t = np.arange(0, length - 5, stride)
            d = np.minimum(np.minimum(t + 1, length - 6 - t + 1), 6)
            share = (6 / d) ** alpha
            found = np.array([counts[document, one] for one in t.tolist()])
            expected = share / share.sum() * found.sum()
            assert np.abs(found - expected).max() <= 3  # of up to a thousand


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"trailing": "doc", "content_start_mode": "slide_within"},
        {"attend_prefix": True},
        {"position_offset": 3, "trailing": "doc", "attend_prefix": True},
        {"position_scheme": "relative", "bos": 900},
        {"content_start_mode": "cyclic_roll"},
        {"content_start_mode": "cyclic_roll", "roll_loss": True},
        {"eos_before": 901},
    ],
    ids=str,
)
def test_spliced_batches_keep_the_laws_of_batches(options):
    with ToyStore(numbered([[23, 9]], 10), vocab_size=1000) as toy, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ds = toy.store.splice(8, content_length=4, **options)
        batch = ds.batch(np.arange(min(len(ds), 20)))
        tl.check_batch(batch).raise_if_wrong()
        wrong = ds.batch(np.arange(min(len(ds), 20)))
        wrong.loss_mask[0] = True  # a control: filler, or the last token, must not be trained
        assert not tl.check_batch(wrong).ok


def laws(ds, batch_size=16):
    assert_exactly_once(ds)
    assert_resumable(ds, batch_size=batch_size, steps=6)
    assert_elastic(ds, batch_size=batch_size, steps=4)


@pytest.mark.parametrize(
    "options",
    [
        {"content_length": 6},
        {"content_length": 6, "position_scheme": "relative", "bos": 900},
        {"content_start_mode": "slide_within", "content_length": 5},
        {"content_start_mode": "cyclic_roll", "content_length": 5, "shuffle_content": True},
        {"content_length": 5, "offset_jitter": 3, "alpha": 0.8},
        {"content_length": 5, "balance_tau": 0.5, "epoch_length": 17, "sampler": "stream"},
        {"content_length": {0: 3, 11: 5, 30: 8}},
        {"content_length": 5, "doc_growth": {0: 1, 2: 2, 3: 3}},
        {"content_length": 5, "doc_schedule": {0: 1, 13: 2, 26: 3}, "edge": "clip"},
    ],
    ids=lambda options: "-".join(map(str, options)),
)
@pytest.mark.parametrize("order", ["stored", "full", "block", "lanes"])
def test_the_laws_of_a_loader_hold(options, order):
    with ToyStore(numbered([[23, 9], [14, 3]], 10)) as toy, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ds = toy.store.splice(10, **options)
        if ds.is_finite:
            ds = ds.epochs(4)
        if order == "full":
            ds = ds.shuffle()
        elif order == "block":
            ds = ds.block_shuffle(io_block_size=4, window_blocks=3)
        elif order == "lanes":
            ds = ds.block_shuffle(io_block_size=3, window_blocks=2, lanes=2)
        elif not ds.is_finite:
            ds = ds.shuffle(False)
        laws(ds)
        again = tl.from_config(ds.describe())
        assert again.fingerprint == ds.fingerprint
        indices = np.arange(12)
        np.testing.assert_array_equal(again.batch(indices).tokens, ds.batch(indices).tokens)


def test_documents_that_lie_together_are_fetched_together(monkeypatch):
    monkeypatch.setattr("tokenloom.layout.splice.rows.BLOCK_TOKENS", 20)
    documents = numbered([[9] * 12], 10)[0]
    lengths = [9] * 12
    for fill in ("one", "pack"):
        spec = SpliceSpec(seq_len=8, content_length=4, fill=fill)
        with ToyStore([documents]) as toy:
            layout = Spliced(spec, toy.store.windows(2).sources["main"].line)
            blocks = layout.blocks()
            owner = [9 * d // 20 for d in range(12)]
            assert len(blocks) == len(set(owner)) == 5
            rows = slow_rows(lengths, spec, 3, blocks=owner)
            wanted = [[(place, t, s) for place, t, _, s in row] for row in rows]
            assert listed(layout, 3, np.arange(len(rows))) == wanted
            for number in range(len(blocks)):
                first, last = (int(one[0]) for one in blocks.edges(np.array([number])))
                low, high = (int(one[0]) for one in layout.stretch(np.array([number]), blocks))
                spans = layout.spans(3, np.arange(first, last))
                assert (spans.address >= low).all()
                assert (spans.address + spans.length <= high).all()
                assert high - low <= 27
    assert BLOCK_TOKENS == 1 << 18


def test_growing_sets_leave_earlier_epochs_as_they_were():
    """A document that joins later changes no earlier example, shuffled or not."""
    with ToyStore(numbered([[23, 9, 14]], 10)) as toy:
        few = toy.store.select(doc_index=(0, 1)).splice(8, content_length=5).shuffle().epochs(2)
        more = toy.store.select(doc_index=(0, 1, 2)).splice(
            8, content_length=5, doc_growth={0: 2, 2: 3}
        )
        more = more.shuffle().epochs(4)
        same = np.arange(len(few))
        np.testing.assert_array_equal(few.batch(same).tokens, more.batch(same).tokens)
        assert set(more.batch(np.arange(len(few))).document.tolist()) == {0, 1}
        assert set(more.batch(np.arange(len(few), len(more))).document.tolist()) == {0, 1, 2}


@given(
    st.integers(0, 3), st.sampled_from(["uniform", "low_discrepancy"]), st.sampled_from([0.0, 0.8])
)
@settings(max_examples=40, deadline=None)
def test_jitter_goes_through_all_offsets_of_a_start(jitter, mode, alpha):
    documents = numbered([[23, 6, 2]], 10)[0]
    spec = SpliceSpec(
        seq_len=9, content_length=6, offset_jitter=jitter, jitter_mode=mode, alpha=alpha
    )
    with ToyStore([documents]) as toy:
        layout = Spliced(spec, toy.store.windows(2).sources["main"].line)
        every = np.arange(int(layout.phases.rows[0]))
        seen = {}
        for epoch in range(30):
            for row in listed(layout, epoch, every):
                for document, t, s in row:
                    seen.setdefault((document, t), []).append(s)
        for (document, _), offsets in seen.items():
            content = min(6, (23, 6, 2)[document])
            many = min(jitter, 9 - content) + 1
            allowed = {9 - content - j for j in range(many)}
            assert set(offsets) <= allowed
            step = 1 if mode == "low_discrepancy" else many
            for first in range(0, len(offsets) - many + 1, step):
                assert set(offsets[first : first + many]) == allowed


def test_offsets_of_neighbours_are_not_in_step():
    """With low discrepancy an epoch still shows different starts at different offsets."""
    spec = SpliceSpec(seq_len=40, content_length=8, offset_jitter=3, jitter_mode="low_discrepancy")
    with ToyStore(numbered([[120]], 10)) as toy:
        layout = Spliced(spec, toy.store.windows(2).sources["main"].line)
        found = layout.triples(0, np.arange(int(layout.phases.rows[0])))
        share = np.bincount(32 - found.s, minlength=4) / len(found.s)
        assert share.min() > 0.1


@pytest.mark.parametrize("per_epoch", [True, False])
@pytest.mark.parametrize("content", [True, 3, False])
@pytest.mark.parametrize("offsets", [True, 2, False])
@pytest.mark.parametrize("mode", MODES)
def test_axes_are_permuted_and_nothing_else(mode, offsets, content, per_epoch):
    with ToyStore(numbered([[11, 4]], 10)) as toy:
        line = toy.store.windows(2).sources["main"].line
        options = {"seq_len": 6, "content_length": 4, "content_start_mode": mode}
        plain = Spliced(SpliceSpec(**options, sampler="enumerate"), line)
        mixed = Spliced(
            SpliceSpec(
                **options,
                sampler="enumerate",
                shuffle_offsets=offsets,
                shuffle_content=content,
                shuffle_per_epoch=per_epoch,
            ),
            line,
        )
        every = np.arange(int(plain.phases.rows[0]))
        wanted = [row[0] for row in listed(plain, 0, every)]
        epochs = [[row[0] for row in listed(mixed, epoch, every)] for epoch in range(3)]
        for found in epochs:
            assert sorted(found) == sorted(wanted)
            assert [d for d, _, _ in found] == [d for d, _, _ in wanted]
            if not content:
                assert [t for _, t, _ in found] == [t for _, t, _ in wanted]
            if not offsets:  # the offsets of a start come in their order
                starts = {triple[:2] for triple in found}
                for start in starts:
                    own = [s for *x, s in found if tuple(x) == start]
                    assert own == sorted(own)
        swept = mode != "coverage_balanced"
        moves = (content and mode != "anchor_start") or (offsets and swept)
        assert (epochs[0] != wanted) == bool(moves)
        assert (epochs[0] != epochs[1] or epochs[1] != epochs[2]) == bool(moves and per_epoch)


@pytest.mark.parametrize("per_epoch", [True, False])
@pytest.mark.parametrize("content", [True, 3])
def test_the_two_halves_of_a_clipped_pair_change_places_together(content, per_epoch):
    """Halves of other pairs do not fit into one frame: before, such a row was an IndexError."""
    with ToyStore(numbered([[11, 4, 23]], 10)) as toy:
        line = toy.store.windows(2).sources["main"].line
        options = {"seq_len": 6, "content_length": 6, "edge": "clip", "fill": "pack"}
        options["sampler"] = "enumerate"
        plain = Spliced(SpliceSpec(**options), line)
        axes = {"shuffle_content": content, "shuffle_per_epoch": per_epoch}
        mixed = Spliced(SpliceSpec(**options, **axes), line)
        every = np.arange(int(plain.phases.rows[0]))
        wanted = listed(plain, 0, every)
        assert any(len(row) == 2 for row in wanted)
        for epoch in range(3):
            mixed.spans(epoch, every).check()
            found = listed(mixed, epoch, every)
            assert sorted(map(sorted, found)) == sorted(map(sorted, wanted))
            assert found != wanted


def test_a_number_shuffles_inside_stretches_of_that_many():
    with ToyStore(numbered([[30]], 10)) as toy:
        options = {"content_start_mode": "slide_within", "content_length": 4, "shuffle_content": 5}
        spec = SpliceSpec(seq_len=4, **options, min_copy_len=4)
        layout = Spliced(spec, toy.store.windows(2).sources["main"].line)
        t = layout.triples(0, np.arange(27)).t.reshape(-1)
        for first in range(0, 27, 5):
            part = t[first : first + 5].tolist()
            assert sorted(part) == list(range(first, min(first + 5, 27)))
        assert t.tolist() != list(range(27))


def test_settings_of_documents_are_one_for_each():
    with ToyStore(numbered([[9, 9]], 10)) as toy:
        for name in ("doc_weights", "doc_strides", "doc_alphas", "doc_groups"):
            with pytest.raises(ConfigError, match=f"{name}: found 3 values for 2 documents"):
                toy.store.splice(6, **{name: [1, 1, 1]})
