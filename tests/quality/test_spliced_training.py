"""What a model sees when documents are spliced, and that packing and filler change no gradient.

What it learns: tests/mission/test_tr_training.py; every cell and label: tests/laws.
"""

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
)

import tokenloom as tl
from tokenloom.inspect import triples
from tokenloom.testing import write_store

LENGTHS = [24, 17, 31, 6, 40]
BOS_ID, PAD_ID = 20, 22  # documents are of 1 to 19
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
    found = triples(run, np.arange(len(run)))
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
@pytest.mark.parametrize(("edge", "bos"), [("inside", False), ("clip", BOS_ID)])
def test_packed_splices_give_the_gradient_of_separate_frames(store, scheme, positions, edge, bos):
    net = PositionModel(scheme)
    one, packed = both_fills(store, edge=edge, position_scheme=positions, bos=bos)
    alone, together = epoch_gradient(net, one), epoch_gradient(net, packed)
    assert (alone - together).norm() < 1e-5 * alone.norm()


def test_without_the_segment_mask_packed_splices_give_another_gradient(store):
    """Negative control."""
    net = PositionModel("rope")
    one, packed = both_fills(store, edge="clip", position_scheme="reset")
    alone = epoch_gradient(net, one)
    together = epoch_gradient(net, packed, segment_masking=False)
    assert (alone - together).norm() > 1e-2 * alone.norm()


# ------------------------------------------------------------ 3. filler

LAYOUTS = [
    {},
    {"edge": "clip", "fill": "pack"},
    {"offset_jitter": 4, "jitter_mode": "low_discrepancy"},
    {"grid": (3, 4)},
    {"mode": "slide"},
    {"content_start_mode": "slide_within", "placement": "truncate", "offset_stride": 3},
    {"content_start_mode": "cyclic_roll", "roll_loss": True, "offset_stride": 3},
]


def words(options):
    return ",".join(f"{name}={value}" for name, value in options.items()) or "plain"


def spliced(store, options):
    """A dataset of splices of 9 tokens in frames of 16, with the layout's warnings off."""
    usual = {"position_scheme": "absolute", "pad_id": PAD_ID}
    if options.get("mode") != "slide":
        usual["content_length"] = 9
    return store.splice(16, **usual | options)


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
