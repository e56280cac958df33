"""Loss masks and labels: which predictions count, in the two layouts that models expect."""

import itertools

import numpy as np
import pytest
from word_tokenizers import bos_eos_pad

import tokenloom as tl
from tokenloom.integrations.hf import Collator
from tokenloom.integrations.torch import dataloader

ARRAYS = ("tokens", "labels", "loss_mask", "segment_ids", "position_ids", "attention_mask")
TWO_DOCUMENTS = [[5, 6, 7], [8, 9]]
ADD_EOS_7 = {"add_eos": True, "eos_id": 7}


def packed_row(store, seq_len, *, render=None, **options):
    """The first row of documents packed in their order."""
    run = store.pack(seq_len, strategy="greedy", **options)
    return run.render(**(render or {})).batch([0])


def collated_labels(rows, **options):
    collator = Collator(None, return_tensors="np", **({"pad_id": 0, "eos_id": 2} | options))
    return collator(rows)["labels"].tolist()


def test_lm_01_the_target_of_a_segment_transition_is_not_trained(shared_store_of):
    store = shared_store_of(*TWO_DOCUMENTS)
    aligned = packed_row(store, 5)
    assert aligned.segment_ids.tolist() == [[1, 1, 1, 2, 2]]
    assert aligned.labels.tolist() == [[-100, 6, 7, -100, 9]]
    assert aligned.loss_mask.astype(int).tolist() == [[1, 1, 0, 1, 0]]
    shifted = packed_row(store, 5, render={"label_layout": "shifted"})
    assert shifted.labels.tolist() == [[6, 7, -100, 9, -100]]
    row = {"input_ids": [5, 6, 7, 8, 9], "document_starts": [0, 3]}
    assert collated_labels([row]) == [[5, 6, 7, -100, 9]]
    assert collated_labels([row], label_layout="shifted") == [[6, 7, -100, 9, -100]]


def test_lm_02_the_boundary_label_is_there_if_it_is_wanted(shared_store_of):
    store = shared_store_of(*TWO_DOCUMENTS)
    batch = packed_row(store, 5, render={"mask_boundary_loss": False})
    assert batch.labels.tolist() == [[-100, 6, 7, 8, 9]]
    assert batch.loss_mask.astype(int).tolist() == [[1, 1, 1, 1, 0]]
    row = {"input_ids": [5, 6, 7, 8, 9], "document_starts": [0, 3]}
    assert collated_labels([row], mask_boundary_loss=False) == [[5, 6, 7, 8, 9]]
    shifted = {"mask_boundary_loss": False, "label_layout": "shifted"}
    assert packed_row(store, 5, render=shifted).labels.tolist() == [[6, 7, 8, 9, -100]]


def test_lm_03_c_58_labels_that_are_eos_are_masked_on_request(shared_store_of):
    store = shared_store_of([5, 7, 6], [8, 7, 9])
    plain = packed_row(store, 8, **ADD_EOS_7)
    assert plain.tokens.tolist() == [[5, 7, 6, 7, 8, 7, 9, 7]]
    assert plain.labels.tolist() == [[-100, 7, 6, 7, -100, 7, 9, 7]]
    masked = packed_row(store, 8, render={"train_on_eos": False}, **ADD_EOS_7)
    assert masked.labels.tolist() == [[-100, -100, 6, -100, -100, -100, 9, -100]]
    without = packed_row(store, 6, render={"train_on_eos": False, "eos_id": 7})
    assert without.labels.tolist() == [[-100, -100, 6, -100, -100, 9]], "no EOS was inserted"


def test_lm_03_the_eos_of_the_tokenizer_is_known_from_the_build(tmp_path):
    bos_eos_pad().save(str(tmp_path / "tokenizer.json"))
    store = tl.build(
        [{"text": "10 11"}, {"text": "12 13 14"}],
        tmp_path / "s",
        tokenizer=tmp_path / "tokenizer.json",
        eos="</s>",
        progress=False,
    )
    batch = packed_row(store, 7, render={"train_on_eos": False})
    assert batch.tokens.tolist() == [[10, 11, 2, 12, 13, 14, 2]]
    assert batch.labels.tolist() == [[-100, 11, -100, -100, 13, 14, -100]]


def test_lm_04_c_58_an_eos_inside_a_document_is_kept_if_only_inserted_ones_are_masked(
    shared_store_of,
):
    render = {"train_on_eos": False, "eos_mask": "inserted"}
    batch = packed_row(shared_store_of([5, 7, 6], [8, 7, 9]), 8, render=render, **ADD_EOS_7)
    assert batch.tokens.tolist() == [[5, 7, 6, 7, 8, 7, 9, 7]]
    assert batch.labels.tolist() == [[-100, 7, 6, -100, -100, 7, 9, -100]]


@pytest.mark.parametrize(
    "render",
    [
        {"mask_boundary_loss": False},
        {"train_on_eos": False, "eos_id": 6},
        {"ignore_id": 6},
        {"label_layout": "shifted"},
    ],
    ids=repr,
)
def test_lm_05_masking_happens_in_the_pipeline_and_changes_no_shape(shared_store_of, render):
    run = shared_store_of(*TWO_DOCUMENTS).pack(8)
    plain, masked = run.batch([0]), run.render(**render).batch([0])
    assert plain.labels.tolist() != masked.labels.tolist()
    for name in ARRAYS:
        before, after = getattr(plain, name), getattr(masked, name)
        assert (before.shape, before.dtype) == (after.shape, after.dtype), name
    with tl.Loader(run.render(**render), 1) as loader:
        assert next(loader).labels.tolist() == masked.labels.tolist()
    if "label_layout" not in render:  # a model of transformers shifts labels by itself
        (batch,) = dataloader(run.render(**render), 1)
        assert batch["labels"].tolist() == masked.labels.tolist()


def test_lm_06_c_53_aligned_labels_one_further_are_the_shifted_ones(shared_store_of):
    store = shared_store_of([5, 6, 7, 8], [9, 10])
    aligned = packed_row(store, 6).labels[0].tolist()
    shifted = packed_row(store, 6, render={"label_layout": "shifted"}).labels[0].tolist()
    assert aligned == [-100, 6, 7, 8, -100, 10]
    assert shifted == [6, 7, 8, -100, 10, -100], "nothing is known after the row"
    assert aligned[1:] == shifted[:-1]


def test_lm_06_c_53_the_last_shifted_label_comes_from_a_window_of_t_plus_1(shared_store_of):
    run = shared_store_of([5, 6, 7, 8], [9, 10]).pack(5, strategy="sequential", lookahead=True)
    batch = run.batch([0])
    assert batch.label_layout == "shifted"
    assert batch.tokens.tolist() == [[5, 6, 7, 8, 9]]
    assert batch.labels.tolist() == [[6, 7, 8, -100, 10]]


def test_lm_07_only_tokens_with_a_next_one_of_their_document_predict(shared_store_of):
    batch = packed_row(shared_store_of([5, 6], [7], [8, 9]), 8)
    assert batch.segment_ids.tolist() == [[1, 1, 2, 3, 3, 0, 0, 0]]
    assert batch.loss_mask.astype(int).tolist() == [[1, 0, 0, 1, 0, 0, 0, 0]]
    spliced = shared_store_of([11, 12, 13, 14, 15]).splice(
        5, content_length=3, content_start_mode="slide_within", position_scheme="absolute"
    )
    spans = spliced.spans(range(len(spliced)))  # one a row
    (row,) = np.flatnonzero((spans.start == 2) & (spans.at == 1))
    batch = spliced.render(pad_id=0).batch([row])
    assert batch.tokens.tolist() == [[0, 13, 14, 15, 0]]
    assert batch.loss_mask.astype(int).tolist() == [[0, 1, 1, 0, 0]]


@pytest.mark.parametrize("layout", ["aligned", "shifted"])
@pytest.mark.parametrize("boundaries", [True, False])
def test_lm_08_padding_is_never_a_target_or_a_source(shared_store_of, layout, boundaries):
    render = {"label_layout": layout, "mask_boundary_loss": boundaries, "pad_id": 9}
    batch = packed_row(shared_store_of(*TWO_DOCUMENTS), 8, render=render)
    assert batch.tokens.tolist() == [[5, 6, 7, 8, 9, 9, 9, 9]], "PAD is also a token"
    labels = batch.labels[0].tolist()
    assert labels[5:] == [-100] * 3
    if layout == "shifted":
        assert labels[4] == -100, "the last token does not predict filler"
    assert not batch.loss_mask[0, 4:].any()
    rows = [{"input_ids": [5, 6]}, {"input_ids": [5] * 4}]
    options = {"label_layout": layout, "mask_boundary_loss": boundaries}
    expected = [5, 6, -100, -100] if layout == "aligned" else [6, -100, -100, -100]
    assert collated_labels(rows, **options)[0] == expected


def test_lm_09_documents_of_one_token_train_nothing_and_raise_before_training(shared_store_of):
    run = shared_store_of([5], [6], [7]).pack(8)
    assert set(run.batch([0]).labels[0].tolist()) == {-100}, "judged by loaders, not by a batch"
    with (
        tl.Loader(run, 1, fields=("labels",)) as loader,
        pytest.raises(tl.NoTrainedTokens, match="0"),
    ):
        next(loader)
    with pytest.raises(tl.NoTrainedTokens):
        next(iter(dataloader(run, 1)))
    with tl.Loader(run, 1, fields=("labels",), untrained="zero") as loader:
        with pytest.warns(UserWarning, match="0"):
            batch = next(loader)
        assert not batch.loss_mask.any()


@pytest.mark.parametrize(
    "render", [{}, {"label_layout": "shifted"}, {"mask_boundary_loss": False}, {"ignore_id": 6}]
)
def test_lm_10_a_batch_counts_its_valid_labels(shared_store_of, render):
    store = shared_store_of(*TWO_DOCUMENTS)
    batch = packed_row(store, 8, render=render)
    shifted = packed_row(store, 8, render=render | {"label_layout": "shifted"})
    expected = 3 + ("mask_boundary_loss" in render) - ("ignore_id" in render)
    assert (shifted.labels != -100).sum() == expected
    assert batch.loss_tokens == batch.loss_mask.sum() == expected
    run = store.pack(8, strategy="greedy").render(**render)
    with tl.Loader(run, 1) as loader:
        step = next(loader)
        assert step.loss_tokens == expected
        if "ignore_id" not in render:  # a step counts rows of all ranks without reading them
            assert step.step_loss_tokens == expected


@pytest.mark.parametrize("specials", [{}, {"add_eos": True, "eos_id": 3}])
def test_lm_11_of_3_prompt_and_2_completion_tokens_only_the_completion_is_trained(
    store_of, specials
):
    store = store_of(
        [[5, 6, 7, 8, 9], [4, 4]],
        more=[{"completion_mask": [0, 0, 0, 1, 1]}, {"completion_mask": [0, 0]}],
    )
    run = store.pack(5 + bool(specials), strategy="one_doc", **specials)
    batch = run.batch([0])
    expected = [0, 0, 1, 1, 1, 0] if specials else [0, 0, 1, 1, 0]
    assert batch.loss_mask.astype(int).tolist() == [expected], "an EOS after it is trained, too"


def test_lm_11_prompts_and_completions_are_built_with_their_mask(tmp_path):
    records = [{"prompt": "abc", "completion": "de"}]
    store = tl.build(records, tmp_path / "s", tokenizer="bytes", progress=False)
    batch = store.pack(5).batch([0])
    assert batch.tokens.tolist() == [list(b"abcde")]
    assert batch.loss_mask.astype(int).tolist() == [[0, 0, 1, 1, 0]]
    assert batch.labels.tolist() == [[-100, -100, -100, ord("d"), ord("e")]]


def test_lm_11_of_a_chat_only_the_turns_of_the_assistant_are_trained(tmp_path):
    template = (
        "{% for m in messages %}{% if m['role'] == 'assistant' %}{% generation %}"
        "{{ m['content'] }}{% endgeneration %}{% else %}{{ m['content'] }}{% endif %}{% endfor %}"
    )
    messages = [
        {"role": "user", "content": "ab"},
        {"role": "assistant", "content": "CD"},
        {"role": "user", "content": "e"},
        {"role": "assistant", "content": "F"},
    ]
    store = tl.build(
        [{"messages": messages}],
        tmp_path / "s",
        tokenizer="bytes",
        chat_template=template,
        train_on="assistant",
        progress=False,
    )
    batch = store.pack(6).batch([0])
    assert bytes(batch.tokens[0].tolist()) == b"abCDeF"
    trained = batch.labels[0][batch.labels[0] >= 0].tolist()
    assert bytes(trained) == b"CDF"


def test_lm_12_targets_equal_to_ignore_id_are_masked(shared_store_of):
    batch = packed_row(shared_store_of([5, 7, 6, 7]), 4, render={"ignore_id": 7})
    assert batch.labels.tolist() == [[-100, -100, 6, -100]]
    assert batch.loss_mask.astype(int).tolist() == [[0, 1, 0, 0]]
    rows = [{"input_ids": [5, 7, 6, 7]}]
    assert collated_labels(rows, ignore_id=7) == [[5, -100, 6, -100]]


def numbered(lengths):
    """Documents of these lengths in which every token is another number."""
    ends = list(itertools.accumulate(lengths, initial=1))
    return [list(range(a, b)) for a, b in itertools.pairwise(ends)]


@pytest.mark.parametrize("boundaries", [True, False])
@pytest.mark.parametrize("lookahead", [True, False])
def test_lm_13_c_62_stored_weights_the_mask_and_labels_of_both_layouts_are_views_of_one(
    store_of, lookahead, boundaries
):
    rng = np.random.default_rng(4)
    documents = numbered(rng.integers(1, 8, 25).tolist())
    weights = [rng.choice([0.0, 0.5, 2.0], len(ids)).tolist() for ids in documents]
    stored = dict(zip(itertools.chain(*documents), itertools.chain(*weights), strict=True))
    store = store_of(documents, more=[{"loss_weights": values} for values in weights])
    run = store.windows(4, lookahead=lookahead, tail="keep")
    aligned, shifted = (
        run.render(label_layout=layout, mask_boundary_loss=boundaries).batch(range(len(run)))
        for layout in ("aligned", "shifted")
    )
    mask, cells = shifted.loss_mask, shifted.tokens
    assert mask.any()
    assert not mask.all()
    assert np.array_equal(shifted.labels != -100, mask)
    assert np.array_equal(shifted.loss_weights > 0, mask)
    assert np.array_equal(aligned.labels[:, 1:], shifted.labels[:, :-1])
    assert np.array_equal(aligned.loss_mask[:, :-1], mask[:, :-1])
    assert not aligned.loss_mask[:, -1].any(), "the last cell has no aligned label to give"
    assert (aligned.labels[:, 0] == -100).all(), "nothing predicts the first token of a row"
    from_mask = np.where(mask[:, :-1], cells[:, 1:], -100)
    assert np.array_equal(shifted.labels[:, :-1], from_mask)
    for row, cell in np.argwhere(mask).tolist():
        assert shifted.loss_weights[row, cell] == stored[int(shifted.labels[row, cell])]


def test_lm_13_c_62_a_mask_becomes_labels_and_these_the_same_mask_again(store_of):
    """Documents with a mask → labels of a run → documents with these labels → the same mask."""
    rng = np.random.default_rng(5)
    documents = numbered(rng.integers(2, 7, 30).tolist())
    trained = [rng.integers(0, 2, len(ids)).tolist() for ids in documents]
    store = store_of(documents, more=[{"loss_mask": mask} for mask in trained])
    batch = store.pack(6, strategy="one_doc").batch(range(30))
    for mask, row in zip(trained, batch.loss_mask.astype(int).tolist(), strict=True):
        assert row[: len(mask) - 1] == mask[1:], "at i: whether the prediction of i + 1 counts"
        assert not any(row[len(mask) - 1 :])
    labels = [
        {"labels": row[: len(ids)].tolist()}
        for ids, row in zip(documents, batch.labels, strict=True)
    ]
    same = store_of(documents, more=labels).pack(6, strategy="one_doc").batch(range(30))
    assert np.array_equal(same.loss_mask, batch.loss_mask)
    assert np.array_equal(same.labels, batch.labels)


def test_lm_14_weights_are_0_or_1_unless_the_store_has_others(store_of, shared_store_of):
    plain = packed_row(shared_store_of(*TWO_DOCUMENTS), 6)
    assert plain.loss_mask.dtype == np.bool_
    assert plain.loss_weights.dtype == np.float32
    assert plain.loss_weights.tolist() == plain.loss_mask.astype(float).tolist()
    store = store_of([[5, 6, 7, 8]], more=[{"loss_weights": [1.0, 0.25, 0.0, 3.5]}])
    batch = packed_row(store, 4)
    assert batch.loss_weights.tolist() == [[0.25, 0.0, 3.5, 0.0]], "the weight of token i + 1"
    assert batch.loss_mask.astype(int).tolist() == [[1, 0, 1, 0]]


# -- segments ----------------------------------------------------------------------------------


def test_c_61_filler_is_segment_0_in_every_layout_and_documents_are_1_to_n(shared_store_of):
    store = shared_store_of(*TWO_DOCUMENTS)
    spliced = store.splice(8, content_length=3, sampler="enumerate")
    runs = [
        (store.windows(8, tail="keep"), [1, 1, 1, 2, 2, 0, 0, 0]),
        (store.pack(8), [1, 1, 1, 2, 2, 0, 0, 0]),
        (spliced, None),
    ]
    for run, expected in runs:
        batch = run.batch(range(len(run)))
        assert np.array_equal(batch.segment_ids > 0, batch.attention_mask)
        if expected is not None:
            assert batch.segment_ids.tolist() == [expected]
    assert set(spliced.batch(range(len(spliced))).segment_ids.ravel().tolist()) == {0, 1}
    with tl.Loader(store.pack(8), 2, end="pad") as loader:
        assert next(loader).segment_ids[1].tolist() == [0] * 8, "a row that fills the step up"


def test_c_63_segments_come_from_eos_only_if_asked_for(shared_store_of):
    """One stored document that holds two texts, as imported data without offsets may."""
    run = shared_store_of([5, 6, 7, 8, 9, 4, 4, 7]).windows(8)
    assert run.batch([0]).segment_ids.tolist() == [[1] * 8]
    by_eos = run.render(segments="eos", eos_id=7).batch([0])
    assert by_eos.segment_ids.tolist() == [[1, 1, 1, 2, 2, 2, 2, 2]]
    assert by_eos.labels.tolist() == [[-100, 6, 7, -100, 9, 4, 4, 7]]
