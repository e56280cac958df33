import numpy as np
import pytest
from anyspans import WIDTH, frames, spans_of
from hypothesis import given
from hypothesis import strategies as st
from toydata import DTYPES, ToyStore, assert_batch, slow_batch, slow_rows
from wholebatches import whole

import tokenloom as tl
from tokenloom.batch import paint
from tokenloom.batch import tiles as tiles_room
from tokenloom.batch.spec import RenderSpec
from tokenloom.layout.spans import BOS, EOS

pytestmark = pytest.mark.filterwarnings("ignore:seq_len")

EOS_ID = 3
renders = st.fixed_dictionaries(
    {
        "label_layout": st.sampled_from(["aligned", "shifted"]),
        "mask_boundary_loss": st.booleans(),
        "position_scheme": st.sampled_from(["reset", "absolute"]),
        "ignore_id": st.sampled_from([None, None, 1, EOS_ID]),
        "segments": st.sampled_from(["documents", "eos"]),
        "eos_id": st.just(EOS_ID),
        "pad_id": st.sampled_from([0, EOS_ID, 77]),
    }
)
cuts = st.sampled_from(
    [
        {},
        {"tail": "keep"},
        {"lookahead": True, "overlap": 1},
        {"lookahead": True, "overlap": 1, "tail": "keep"},
        {"lookahead": True, "overlap": 0, "tail": "keep"},
    ]
)
documents = st.lists(
    st.lists(st.lists(st.integers(0, 5), max_size=9), max_size=5), min_size=1, max_size=3
)


def assert_all(dataset, rows, weight=None, **render):
    """Every array of all rows."""
    expected = slow_batch(rows, dataset.seq_len, weight=weight, **render)
    for by_blocks in (False, True):
        batch = whole(dataset, range(len(rows)), by_blocks=by_blocks)
        assert batch.loss_tokens == sum(map(sum, expected["loss_mask"]))
        assert_batch(batch, expected)
        assert batch.max_seqlen == max(np.diff(expected["cu_seqlens"]), default=0)


@given(documents, st.integers(1, 7), cuts, st.lists(renders, min_size=1, max_size=4))
def test_every_array_of_a_batch_is_that_of_a_loop_over_its_cells(shards, seq_len, cut, every):
    with ToyStore(shards) as toy:
        rows = slow_rows(toy.cells(), seq_len, **cut)
        for render in every:
            assert_all(toy.store.windows(seq_len, **cut, **render), rows, **render)


@given(documents, st.integers(1, 7), cuts, renders, st.integers(1, 3), st.randoms())
def test_a_stored_weight_is_that_of_predicting_the_token_it_stands_at(
    shards, seq_len, cut, render, which, random
):
    tokens = [t for shard in shards for document in shard for t in document]
    mask = [random.choice([0, 1, 1]) for _ in tokens]
    weight = [random.choice([0.0, 0.5, 1.0, 3.0]) for _ in tokens]
    taken = {"loss_mask": 0, "loss_weights": 0}  # columns are made shard by shard, in order

    def column(name, values):
        def make(ids):
            start = taken[name]
            taken[name] += len(ids)
            return np.array(values[start : taken[name]])

        return make

    columns, stored = {}, [1.0] * len(tokens)
    if which & 1:
        columns["loss_mask"] = ("uint8", column("loss_mask", mask))
        stored = [s * m for s, m in zip(stored, mask, strict=True)]
    if which & 2:
        columns["loss_weights"] = ("float32", column("loss_weights", weight))
        stored = [s * w for s, w in zip(stored, weight, strict=True)]
    with ToyStore(shards, columns=columns) as toy:
        rows = slow_rows(toy.cells(), seq_len, **cut)
        assert_all(toy.store.windows(seq_len, **cut, **render), rows, weight=stored, **render)


def test_weights_that_are_negative_or_not_numbers_train_nothing():
    values = np.array([1, -2, np.nan, 0.5, 1], np.float32)
    columns = {"loss_weights": ("float32", lambda ids: values)}
    with ToyStore([[[5, 6, 7, 8, 9]]], columns=columns) as toy:
        batch = toy.store.windows(5)[0]
        assert batch.loss_weights.tolist() == [[0, 0, 0.5, 1, 0]]
        assert batch.loss_mask.tolist() == [[False, False, True, True, False]]
        assert batch.labels.tolist() == [[-100, -100, -100, 8, 9]]


def test_stored_columns_are_read_once_for_a_batch():
    columns = {"loss_mask": ("uint8", lambda ids: np.ones(len(ids)))}
    with ToyStore([[[5, 6, 7, 8]]], columns=columns, verify="never") as toy:
        batch = toy.store.windows(4)[0]
        before = toy.store.reads.read_ops
        for name in ("loss_mask", "labels", "loss_weights", "loss_tokens"):
            getattr(batch, name)
        assert toy.store.reads.read_ops - before == 1


# -- worked values -------------------------------------------------------------------------


@pytest.fixture
def four():
    """The row [5, 9, 0, 7] with eos 0: documents [5, 9, 0] and [7]."""
    with ToyStore([[[5, 9, 0], [7]]]) as toy:
        yield toy.store


def test_shifted_labels_are_the_next_tokens(four):
    batch = four.windows(4, label_layout="shifted", mask_boundary_loss=False)[0]
    assert batch.labels[0].tolist() == [9, 0, 7, -100]
    assert batch.label_layout == "shifted"
    ahead = four.windows(3, lookahead=True, label_layout="shifted", mask_boundary_loss=False)[0]
    assert ahead.labels[0].tolist() == [9, 0, 7]
    assert ahead.tokens[0].tolist() == [5, 9, 0]
    masked = four.windows(3, lookahead=True, label_layout="shifted")[0]
    assert masked.labels[0].tolist() == [9, 0, -100]  # 7 starts a document


def test_filler_that_looks_like_the_end_of_a_document_begins_none():
    with ToyStore([[[5, 0, 6, 0, 7]]]) as toy:
        render = {"segments": "eos", "eos_id": 0, "pad_id": 0}
        batch = toy.store.windows(8, tail="keep", **render)[0]
        assert batch.tokens.tolist() == [[5, 0, 6, 0, 7, 0, 0, 0]]
        assert batch.segment_ids.tolist() == [[1, 1, 2, 2, 3, 0, 0, 0]]
        assert batch.position_ids.tolist() == [[0, 1, 0, 1, 0, 0, 1, 2]]
        assert batch.attention_mask.tolist() == [[True] * 5 + [False] * 3]
        assert batch.document_starts.tolist() == [[0, 2, 4]]
        assert batch.cu_seqlens.tolist() == [0, 2, 4, 5, 8]
        assert batch.max_seqlen == 3
        assert batch.loss_mask.tolist() == [[True, False, True, False] + [False] * 4]


def test_a_row_that_begins_inside_a_document_says_so():
    with ToyStore([[[1, 2, 3, 4, 5, 6], [7, 8]]]) as toy:
        batch = toy.store.windows(4).batch([1, 0])
        assert batch.document_starts.tolist() == [[0, 2], [0, -1]]
        assert batch.continues.tolist() == [[True, False], [False, False]]
        assert batch.cu_seqlens.tolist() == [0, 2, 4, 8]


def test_documents_of_one_token_have_nothing_to_train_on():
    with ToyStore([[[4], [5], [6], [7]]]) as toy:
        dataset = toy.store.windows(2)
        assert dataset.batch([0, 1]).labels.tolist() == [[-100, -100]] * 2
        assert dataset.batch([0, 1]).loss_tokens == 0
        assert dataset.batch([0, 1]).segment_ids.tolist() == [[1, 2], [1, 2]]
        free = dataset.render(mask_boundary_loss=False).batch([0, 1])
        assert free.loss_mask.tolist() == [[True, False]] * 2


def test_a_row_of_one_token_predicts_nothing_without_a_look_ahead():
    with ToyStore([[[4, 5, 6]]]) as toy:
        assert toy.store.windows(1).batch([0, 1]).loss_mask.tolist() == [[False], [False]]
        ahead = toy.store.windows(1, lookahead=True, label_layout="shifted").batch([0, 1])
        assert ahead.labels.tolist() == [[5], [6]]


def test_a_store_shorter_than_a_row_is_one_row_that_is_filled_up():
    with ToyStore([[[4, 5], [6]]]) as toy:
        assert len(toy.store.windows(8)) == 0
        batch = toy.store.windows(8, tail="keep", pad_id=1)[0]
        assert batch.tokens.tolist() == [[4, 5, 6, 1, 1, 1, 1, 1]]
        assert batch.segment_ids.tolist() == [[1, 1, 2, 0, 0, 0, 0, 0]]
        assert batch.labels.tolist() == [[-100, 5] + [-100] * 6]


def test_shapes_and_dtypes_are_the_same_for_every_batch_the_last_included():
    with ToyStore([[[4, 5], [6], [7, 8, 9]], [[1] * 9]]) as toy:
        dataset = toy.store.windows(4, tail="keep")
        for first in range(len(dataset) - 1):
            batch = dataset.batch([first, first + 1])
            for name in DTYPES.keys() - {"document_starts", "continues", "cu_seqlens", "index"}:
                found = getattr(batch, name)
                assert (found.shape, found.dtype) == ((2, 4), DTYPES[name]), name
            assert batch.index.shape == (2,)


@pytest.mark.parametrize(
    ("render", "words"),
    [
        ({"label_layout": "shift"}, "label_layout: found 'shift'.*Did you mean 'shifted'"),
        ({"position_scheme": "relative"}, "position_scheme: found 'relative'"),
        ({"segments": "eos"}, "eos_id: missing"),
        ({"segments": "bos"}, "segments: found 'bos'"),
        ({"ignore_id": "x"}, "ignore_id: found 'x'"),
        ({"trailing": None}, "trailing: found None"),
        ({"pad_id": 1.5}, "pad_id: found 1.5"),
        ({"mask_boundary_loss": "no"}, "mask_boundary_loss: found 'no'"),
    ],
)
def test_a_rendering_that_cannot_be_meant_is_refused(four, render, words):
    with pytest.raises(tl.ConfigError, match=words):
        four.windows(4, **render)
    with pytest.raises(tl.ConfigError, match=words):
        four.windows(4).render(**render)


def test_none_asks_a_layout_for_the_usual_filler_and_is_no_filler_of_a_rendering(four):
    assert four.windows(4, pad_id=None) == four.windows(4)
    with pytest.raises(tl.ConfigError, match="pad_id: found None"):
        four.windows(4).render(pad_id=None)


# -- any spans -----------------------------------------------------------------------------


def cells_of(spans_frames, width):
    """Frames as rows of cells: (document, offset, token); inserted tokens have offset -1."""
    rows = []
    for number, frame in enumerate(spans_frames):
        row = [None] * width
        for k, (document, start, length, at, flags) in enumerate(frame):
            # two spans may be of one document: what they are called is their place
            offsets = [-1] * (flags & BOS) + [start + i for i in range(length)]
            offsets += [-1] * ((flags & EOS) // EOS)
            for i, offset in enumerate(offsets):
                row[at + i] = ((number, k), offset, 10 + document, 0)
        rows.append((row, [start > 0 for _, start, *_ in frame]))
    return rows


@given(frames, st.integers(0, 1), st.booleans())
def test_tiles_of_any_spans_agree_with_their_cells(made, ahead, boundary):
    spans, width = spans_of(made), WIDTH - ahead
    rows = cells_of(made, WIDTH)
    cut = [row[:width] for row, _ in rows]
    expected = slow_batch(cut, width, mask_boundary_loss=boundary)
    tiles = tiles_room.tile(spans, width)
    painted = paint.paint(tiles, ["segment_ids", "position_ids", "loss_mask"])
    assert painted["segment_ids"].tolist() == expected["segment_ids"]
    assert painted["position_ids"].tolist() == expected["position_ids"]
    assert tiles.cu_seqlens().tolist() == expected["cu_seqlens"]
    trained = painted["loss_mask"] if boundary else paint.trained_across(tiles)
    assert trained.tolist() == expected["loss_mask"]
    starts, continues = paint.document_starts(tiles)
    assert starts.tolist() == expected["document_starts"]
    for row, (_, goes_on) in enumerate(rows):
        real = starts[row] >= 0
        assert continues[row, real].tolist() == goes_on[: real.sum()]
        assert not continues[row, ~real].any()


@given(frames, st.data())
def test_a_slice_of_tiles_is_the_tiles_of_a_slice(made, data):
    spans = spans_of(made)
    places = st.integers(0, len(made))
    start, stop = sorted((data.draw(places), data.draw(places)))
    part = tiles_room.tile(spans, WIDTH).slice(start, stop)
    alone = tiles_room.tile(spans.frames(start, stop), WIDTH)
    for name in ("length", "segment", "first", "continues"):
        assert getattr(part, name).tolist() == getattr(alone, name).tolist(), name


def test_rows_of_padding_hold_filler_and_train_nothing():
    with ToyStore([[[4, 5, 6, 7]]]) as toy:
        dataset = toy.store.windows(2, pad_id=9)
        renderer = dataset.renderer(by_blocks=False)
        (pending,) = renderer.batches(renderer.plan(np.array([0, 1])), [0, 2], 2)
        batch = pending.make()
        assert batch.tokens.tolist() == [[4, 5], [6, 7], [9, 9], [9, 9]]
        assert batch.index.tolist() == [0, 1, -1, -1]
        assert batch.segment_ids.tolist() == [[1, 1], [1, 1], [0, 0], [0, 0]]
        assert batch.labels.tolist() == [[-100, 5], [-100, 7], [-100, -100], [-100, -100]]
        assert batch.cu_seqlens.tolist() == [0, 2, 4, 6, 8]
        assert len(batch.spans) == 4
        batch.spans.check()


def test_a_spec_with_its_defaults_is_the_documented_one():
    spec = RenderSpec()
    assert (spec.label_layout, spec.mask_boundary_loss) == ("aligned", True)
    assert (spec.position_scheme, spec.segments) == ("reset", "documents")


def test_with_lookahead_labels_are_shifted_unless_told_otherwise():
    """Every prediction that counts has a label, in both layouts."""
    with ToyStore([[[5, 6, 7, 8, 9, 10, 11, 12, 13]]]) as toy:
        for layout, options in (("shifted", {}), ("aligned", {"label_layout": "aligned"})):
            batch = toy.store.windows(4, lookahead=True, **options).batch([0, 1])
            assert batch.label_layout == layout
            assert batch.loss_tokens == (batch.labels >= 0).sum()
