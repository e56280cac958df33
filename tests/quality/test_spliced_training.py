"""What a model sees, learns and is trained on when documents are spliced."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from positionmodels import (
    RELATIVE,
    SCHEMES,
    PositionModel,
    gradient_of,
    logits_of,
    losses_of,
    train,
)

import tokenloom as tl
from tokenloom.layout.spans import BOS, EOS_BEFORE, JOINED
from tokenloom.testing import write_store

LENGTHS = [24, 17, 31, 6, 40]
BOS_ID, EOS_ID, PAD_ID = 20, 21, 22  # documents are of 1 to 19
FILLERS = (0, 7, PAD_ID)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def made_store(folder, documents):
    write_store(folder, [documents], inner=16, chunk_tokens=64, vocab_size=23)
    return tl.open(folder)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    rng = np.random.default_rng(5)
    documents = [rng.integers(1, 20, n).tolist() for n in LENGTHS]
    return made_store(tmp_path_factory.mktemp("spliced") / "s", documents)


def whole(run):
    """All rows of an epoch in one batch."""
    return run.batch(np.arange(len(run)))


# ------------------------------------------------------------ 1. offsets are nothing to most models


def document_cells(batch, values):
    """(document, t, s) → the values of the cells of that splice, one splice to a row."""
    spans = batch.spans
    assert len(spans.document) == len(batch)
    names = zip(spans.document.tolist(), spans.start.tolist(), spans.at.tolist(), strict=True)
    return {
        name: values[row, name[2] : name[2] + size]
        for row, (name, size) in enumerate(zip(names, spans.length.tolist(), strict=True))
    }


def largest_difference(batch, net):
    """The most that a logit of a document's cell changes between offsets of the same start."""
    with torch.no_grad():
        found = document_cells(batch, logits_of(net, batch).double())
    starts = {name[:2] for name in found}
    offsets = {start: sorted(s for *d, s in found if (*d,) == start) for start in starts}
    assert len(starts) >= 10
    assert all(some == list(range(len(some))) and len(some) >= 10 for some in offsets.values())
    return max(
        (found[*start, s] - found[*start, 0]).abs().max().item()
        for start in starts
        for s in offsets[start]
    )


def sweep(store, **options):
    """Every offset of several starts: splices of 12 tokens, and shorter ones at the end."""
    some = store.select(doc_index=[0, 2])
    options = {"position_scheme": "absolute", **options}
    return whole(
        some.splice(
            40,
            content_length=12,
            content_stride=5,
            content_start_mode="slide_within",
            pad_id=PAD_ID,
            **options,
        )
    )


@pytest.mark.parametrize("scheme", RELATIVE)
@pytest.mark.parametrize("trailing", ["filler", "doc"])
def test_sp42_relative_models_see_the_same_document_at_every_offset(store, scheme, trailing):
    """C-23: the published claim that offsets teach RoPE something cannot be true."""
    batch = sweep(store, trailing=trailing)
    assert (batch.position_ids == np.arange(40)).all()  # absolute, yet it makes no difference
    assert largest_difference(batch, PositionModel(scheme)) < 1e-5


def test_sp42_learned_positions_see_another_document_at_every_offset(store):
    assert largest_difference(sweep(store), PositionModel("learned")) > 1e-2


@pytest.mark.parametrize("scheme", RELATIVE)
def test_sp42_a_prefix_that_may_be_seen_is_seen(store, scheme):
    """Negative control: the same models, but no segment keeps the filler away."""
    batch = sweep(store, attend_prefix=True)
    assert largest_difference(batch, PositionModel(scheme)) > 1e-2


@pytest.mark.parametrize("scheme", SCHEMES)
def test_sp42_with_positions_that_are_reset_no_model_sees_a_difference(store, scheme):
    with pytest.warns(UserWarning, match="teach it nothing new"):
        batch = sweep(store, position_scheme="reset")
    assert largest_difference(batch, PositionModel(scheme)) < 1e-5


# ------------------------------------------------------------ 2. packed splices


def splices_of(run):
    """(document, t) of every splice of an epoch, sorted."""
    found = run.run.layout.triples(0, np.arange(len(run)))
    return sorted(zip(found.document.tolist(), found.t.tolist(), strict=True))


def epoch_gradient(net, run, **how):
    """The gradient of the summed loss of an epoch, batch after batch of a loader."""
    loader = tl.Loader(run.shuffle().seed(1), batch_size=7, end="pad")
    return sum(gradient_of(net, losses_of(net, batch, **how)) for batch in loader)


def both_fills(store, **options):
    settings = {"content_length": 8, "pad_id": PAD_ID, **options}
    one, packed = (store.splice(32, fill=fill, **settings) for fill in ("one", "pack"))
    assert splices_of(one) == splices_of(packed)
    assert len(packed) <= len(one) / 2
    return one, packed


@pytest.mark.parametrize(
    ("scheme", "positions"),
    [*((scheme, "absolute") for scheme in RELATIVE), *((scheme, "reset") for scheme in SCHEMES)],
)
@pytest.mark.parametrize("edge", ["inside", "clip"])
@pytest.mark.parametrize("bos", [False, BOS_ID])
def test_packed_splices_give_the_gradient_of_separate_frames(store, scheme, positions, edge, bos):
    net = PositionModel(scheme)
    one, packed = both_fills(store, edge=edge, position_scheme=positions, bos=bos)
    alone, together = epoch_gradient(net, one), epoch_gradient(net, packed)
    assert (alone - together).norm() < 1e-5 * alone.norm()


@pytest.mark.parametrize("edge", ["inside", "clip"])
def test_without_the_segment_mask_packed_splices_give_another_gradient(store, edge):
    """Negative control."""
    net = PositionModel("rope")
    one, packed = both_fills(store, edge=edge, position_scheme="reset")
    alone = epoch_gradient(net, one)
    together = epoch_gradient(net, packed, segment_masking=False)
    assert (alone - together).norm() > 1e-2 * alone.norm()


# ------------------------------------------------------------ 3. loss never outside a document

SWEPT = ("anchor_start", "slide_within", "cyclic_roll")
BALANCED = [
    dict(zip(("edge", "fill", "offset_jitter"), found, strict=True))
    for found in itertools.product(("inside", "clip"), ("one", "pack"), (0, 3))
    if found[1:] != ("pack", 3)  # there is no room
]
LAYOUTS = [
    *BALANCED,
    {"offset_jitter": 4, "jitter_mode": "low_discrepancy"},
    {"alpha": 0.8},
    {"alpha": 0.8, "edge_mode": "duplicate"},
    {"grid": (3, 4)},
    {"mode": "slide"},
    {"sampler": "enumerate", "shuffle_content": True},
    *(
        {"content_start_mode": mode, "placement": placement, "offset_stride": 3}
        for mode in SWEPT
        for placement in ("fit", "truncate")
    ),
    {"content_start_mode": "cyclic_roll", "roll_loss": True, "offset_stride": 3},
]
SPECIALS = [{}, {"bos": BOS_ID}, {"bos": BOS_ID, "eos_before": EOS_ID}]
RENDERS = [
    {"trailing": trailing, "attend_prefix": prefix}
    for trailing in ("filler", "doc")
    for prefix in (False, True)
]


def words(options):
    return ",".join(f"{name}={value}" for name, value in options.items()) or "plain"


def spliced(store, options):
    """A dataset of splices of 9 tokens in frames of 16, with the layout's warnings off."""
    usual = {"position_scheme": "absolute", "pad_id": PAD_ID}
    if options.get("mode") != "slide":
        usual["content_length"] = 9
    return store.splice(16, **usual | options)


FILLER, BOS_CELL = -2, -1


def traced(batch):
    """(document, offset, splice) of every cell, cell by cell from the spans [B, S]."""
    document, offset, splice = np.full((3, *batch.shape), FILLER)
    spans = batch.spans
    count = 0
    for row in range(len(batch)):
        for i in range(spans.frame[row], spans.frame[row + 1]):
            count += not spans.flags[i] & JOINED
            first = [BOS_CELL] if spans.flags[i] & BOS else []
            here = [*first, *range(spans.start[i], spans.start[i] + spans.length[i])]
            cells = slice(spans.at[i], spans.at[i] + len(here))
            assert (offset[row, cells] == FILLER).all()
            document[row, cells], offset[row, cells] = spans.document[i], here
            splice[row, cells] = count
    return document, offset, splice


def check_tokens(store, batch, document, offset, bos, eos):
    """Every cell holds what its span says."""
    before = np.zeros(batch.shape, bool)
    spans = batch.spans
    marked = (spans.flags & EOS_BEFORE) > 0
    before[spans.row[marked], spans.at[marked] - 1] = True
    expected = np.full(batch.shape, PAD_ID)
    for number in set(document[document >= 0].tolist()):
        here = (document == number) & (offset >= 0)
        expected[here] = store.document(number)[offset[here]]
    expected[offset == BOS_CELL] = bos or 0
    assert (offset[before] == FILLER).all()
    expected[before] = eos or 0
    assert (batch.tokens == expected).all()
    return before


@pytest.mark.parametrize("specials", SPECIALS, ids=words)
@pytest.mark.parametrize("layout", LAYOUTS, ids=words)
def test_every_trained_target_is_the_next_token_of_the_document(store, layout, specials):
    run = spliced(store, layout | specials).epochs(2)
    batch = whole(run)
    batch.spans.check()
    document, offset, splice = traced(batch)
    marks = check_tokens(
        store, batch, document, offset, specials.get("bos"), specials.get("eos_before")
    )
    assert marks.any() == (
        "eos_before" in specials and (offset[:, 0] == FILLER).any() and layout.get("fill") != "pack"
    )
    # a cell trains if it and the next are of one splice; a ring's seam only if it is asked for
    lengths = np.array(LENGTHS)[np.maximum(document, 0)]
    after = np.where(offset == lengths - 1, BOS_CELL if "bos" in specials else 0, offset + 1)
    same = (splice[:, 1:] == splice[:, :-1]) & (splice[:, 1:] != FILLER)
    assert (offset[:, 1:] == after[:, :-1])[same].all()
    seam = offset[:, 1:] <= offset[:, :-1]
    wanted = np.zeros(batch.shape, bool)
    wanted[:, :-1] = same if layout.get("roll_loss") else same & ~seam
    assert (batch.loss_mask == wanted).all()
    assert (same & seam).any() == (layout.get("content_start_mode") == "cyclic_roll")
    assert (batch.labels[:, 1:] == np.where(wanted[:, :-1], batch.tokens[:, 1:], -100)).all()
    assert (batch.labels[:, 0] == -100).all()
    for render in RENDERS:  # which cells may be seen never changes which are trained
        other = whole(run.render(**render))
        assert (other.loss_mask == batch.loss_mask).all()
        assert (other.labels == batch.labels).all()


@pytest.mark.parametrize("trailing", ["filler", "doc"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=words)
def test_the_filler_token_changes_neither_loss_nor_gradient(store, layout, trailing):
    net = PositionModel("rope")
    run = spliced(store, layout | {"bos": BOS_ID, "trailing": trailing})
    seen = [losses_of(net, whole(run.render(pad_id=filler))) for filler in FILLERS]
    assert all(torch.equal(seen[0], losses) for losses in seen)
    grads = [gradient_of(net, losses) for losses in seen]
    assert all(torch.equal(grads[0], grad) for grad in grads)


def test_the_filler_token_changes_the_loss_if_the_prefix_is_attended(store):
    """Negative control: the same comparison, with the filler in the segment of the document."""
    net = PositionModel("rope")
    run = spliced(store, {"attend_prefix": True})
    first, second = (losses_of(net, whole(run.render(pad_id=filler))) for filler in FILLERS[1:])
    assert (first - second).abs().max() > 1e-2
    grads = gradient_of(net, first), gradient_of(net, second)
    assert (grads[0] - grads[1]).norm() > 1e-2 * grads[0].norm()


# ------------------------------------------------------------ 4. clipped windows are even


def target_counts(store, run):
    """How often each token of each document is a target, from the batches of a loader."""
    counts = [np.zeros(length, int) for length in store.lengths]
    for batch in tl.Loader(run.shuffle(), batch_size=8, end="pad"):
        document, offset, _ = traced(batch)
        rows, cells = np.nonzero(batch.loss_mask)
        for number, token in zip(document[rows, cells + 1], offset[rows, cells + 1], strict=True):
            counts[number][token] += 1
    return counts


def unevenness(counts):
    """Coefficient of variation."""
    return np.std(counts) / np.mean(counts)


@pytest.mark.parametrize("fill", ["one", "pack"])
@pytest.mark.parametrize("stride", [1, 4, 8])
@pytest.mark.parametrize("bos", [False, BOS_ID])
def test_clipped_windows_train_every_token_equally_often(store, fill, stride, bos):
    run = store.splice(  # document 3 is shorter than a window
        27, content_length=9, edge="clip", fill=fill, content_stride=stride, bos=bos, pad_id=PAD_ID
    )
    counts = target_counts(store, run.epochs(2))
    targets = np.concatenate(counts if bos else [one[1:] for one in counts])
    assert unevenness(targets) == 0
    assert set(targets.tolist()) == {2 * 8 // stride}
    assert bos or not any(one[0] for one in counts)  # nothing stands before a first token


def test_a_document_shorter_than_the_window_is_trained_as_often_as_the_others(store):
    run = store.select(doc_index=3).splice(27, content_length=9, edge="clip", pad_id=PAD_ID)
    (counts,) = (one for one in target_counts(store, run) if one.any())
    assert counts.tolist() == [0, *[9 - 1] * (LENGTHS[3] - 1)]


@pytest.mark.parametrize("bos", [False, BOS_ID])
def test_windows_inside_the_document_train_its_ends_less(store, bos):
    """Negative control: the published windows."""
    run = store.select(doc_index=4).splice(27, content_length=9, bos=bos, pad_id=PAD_ID)
    counts = target_counts(store, run)[4][0 if bos else 1 :]
    assert unevenness(counts) > 0.2
    assert counts[0] == counts[-1] == 1
    assert counts.max() == 8


# ------------------------------------------------------------ 5. a model learns from it

OWN, SHARED = 8, 3  # tokens
STEPS = 100


@pytest.fixture(scope="module")
def trio(tmp_path_factory):
    """Three documents with a passage in common: what follows it depends on what was before."""
    rng = np.random.default_rng(11)
    shared = rng.integers(1, 20, SHARED).tolist()
    heads = [rng.integers(1, 20, OWN).tolist() for _ in range(3)]
    tails = [[5 * (i + 1), *rng.integers(1, 20, OWN - 1).tolist()] for i in range(3)]
    documents = [head + shared + tail for head, tail in zip(heads, tails, strict=True)]
    return made_store(tmp_path_factory.mktemp("trio") / "s", documents)


def batches(run, count=STEPS):
    """So many batches of a loader, shuffled."""
    return itertools.islice(tl.Loader(run.shuffle().seed(3).epochs(None), batch_size=8), count)


def suffix_losses(net, rows, prefix):
    """Loss of every token behind the prefix, each row being one document [rows, suffix]."""
    tokens = np.array(rows)
    labels = np.where(np.arange(tokens.shape[1]) < prefix, -100, tokens)
    batch = SimpleNamespace(
        tokens=tokens,
        labels=labels,
        segment_ids=np.ones_like(tokens),
        position_ids=np.tile(np.arange(tokens.shape[1]), (len(tokens), 1)),
    )
    with torch.no_grad():
        return losses_of(net, batch).reshape(len(rows), -1)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"position_scheme": "relative"},
        {"offset_jitter": 4, "balance_mode": "by_temperature", "balance_tau": 0.7},
    ],
    ids=words,
)
def test_a_model_learns_three_documents_and_tells_them_apart(trio, how):
    net = PositionModel("rope")
    run = trio.splice(32, content_length=16, pad_id=PAD_ID, **how)
    seen = train(net, batches(run))
    assert np.mean(seen[-10:]) < 0.3 * np.mean(seen[:10])
    documents = trio.documents(range(3))
    begun = OWN + SHARED
    rows = [[*a[:begun], *b[begun:]] for a in documents for b in documents]
    # [begin of which document, end of which document, token behind the common passage]
    losses = suffix_losses(net, rows, begun).reshape(3, 3, -1).numpy()
    same = np.eye(3, dtype=bool)
    assert losses[same].mean() < 0.5
    assert losses[~same, 0].min() > 2 > 4 * losses[same, 0].max()


def test_starts_that_nobody_trained_are_known_after_a_sweep_of_others_only(store):
    """Even starts are swept, or the documents are shown whole from t = 0; odd starts are asked."""
    size, prefix = 12, 6
    some = store.select(doc_index=[0, 2, 4])
    usual = {"position_scheme": "absolute", "pad_id": PAD_ID}
    swept = some.splice(40, content_length=size, content_stride=2, **usual)
    anchored = some.splice(40, content_start_mode="anchor_start", offset_stride=40, **usual)
    assert {t % 2 for _, t in splices_of(swept)} == {0}
    assert {t for _, t in splices_of(anchored)} == {0}
    rows = [
        store.document(number)[t : t + size]
        for number in some.indices
        for t in range(1, LENGTHS[number] - size, 2)
    ]
    found = {}
    for name, run in (("swept", swept), ("anchored", anchored)):
        net = PositionModel("rope")
        train(net, batches(run, 200))
        found[name] = suffix_losses(net, rows, prefix).mean().item()
    assert found["swept"] < 0.3 * found["anchored"]
