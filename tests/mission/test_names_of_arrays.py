"""A batch under the names that people know: dicts, `**batch`, contracts, dtypes, micro-batches."""

import pickle

import numpy as np
import pytest
import torch
from refusals import refused
from toyruns import toy_run, toy_store

import tokenloom as tl
from tokenloom.batch import attention

KEYS = ("input_ids", "labels", "loss_mask", "segment_ids", "position_ids", "index")
ARRAYS = (
    "tokens", "labels", "loss_mask", "loss_weights", "segment_ids", "position_ids",
    "attention_mask", "document_starts", "continues", "cu_seqlens", "index",
)  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return toy_store(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def weighted(tmp_path_factory):
    return toy_store(tmp_path_factory.mktemp("weighted"), weights=True)


@pytest.fixture
def batch(store):
    return next(tl.Loader(store.pack(16), 4))


def test_a_batch_is_a_mapping_of_the_names_people_know(batch):
    def called(**arrays):
        return arrays

    made = dict(batch)
    assert list(made) == list(batch.keys()) == list(batch) == [*KEYS, "examples_after"]
    assert called(**batch).keys() == made.keys()
    assert made["input_ids"] is batch.tokens
    assert made["labels"] is batch.labels
    assert [name for name, _ in batch.items()] == list(made)
    assert len(batch.values()) == len(made)
    assert batch.get("nothing", 7) == 7
    assert batch.get("segment_ids") is batch.segment_ids


def test_every_field_answers_to_its_name_and_unknown_ones_suggest_the_near_miss(batch):
    for name in ARRAYS:
        assert name in batch
        assert batch[name] is getattr(batch, name)
    refused(lambda: batch["positions_ids"], KeyError, "positions_ids", "'position_ids'")
    refused(lambda: batch[0], KeyError, "batch.part")


def test_attention_mask_is_there_by_name_only(batch):
    """transformers lets the documents of a row attend to each other if it is given one."""
    assert "attention_mask" not in dict(batch)
    assert "attention_mask" in batch


def test_what_belongs_to_the_step_is_an_array_of_rows_in_a_dict(batch):
    assert batch["examples_after"].tolist() == [4] * 4
    assert batch.examples_after == 4
    assert batch["step_loss_tokens"].tolist() == [batch.step_loss_tokens] * 4


def test_a_batch_made_from_indices_belongs_to_no_step(store):
    made = store.pack(16).batch([0, 1])
    assert "examples_after" not in dict(made)
    assert "examples_after" not in made
    for ask in (
        lambda: made.state(),
        lambda: made.step_loss_tokens,
        lambda: made["examples_after"],
    ):
        with pytest.raises(tl.ConfigError, match="made from indices, so it belongs to no step"):
            ask()


@pytest.mark.parametrize("end", ["drop", "pad", "wrap"])
def test_ruling_38_the_state_of_a_batch_is_that_of_the_loader_after_it(store, end):
    run = toy_run(store, epochs=1)
    loader = tl.Loader(run, 5, end=end)
    for _ in range(7):
        made = next(loader)
        assert made.state() == loader.state_dict()
        assert made.examples_after == loader.examples
        assert made.step == loader.step - 1
        wrapped = end == "wrap"
        assert run.state(made["examples_after"], step=loader.step, wrapped=wrapped) == made.state()


def test_ruling_38_a_trainer_that_fetched_ahead_loses_nothing(store):
    run = toy_run(store, epochs=1)
    loader = tl.Loader(run, 4)
    ahead = [next(loader) for _ in range(6)]
    trained = ahead[2]
    again = tl.Loader(run, 4)
    again.load_state_dict(trained.state())
    assert next(again).index.tolist() == ahead[3].index.tolist()


def test_a_copied_batch_knows_its_place_and_says_whom_to_ask(batch):
    copied = pickle.loads(pickle.dumps(batch))
    assert copied.examples_after == batch.examples_after
    assert copied.step == batch.step
    with pytest.raises(tl.ConfigError, match=r"run.state\(4\)"):
        copied.state()
    with pytest.raises(tl.ConfigError, match="Ask before it is copied"):
        _ = copied.step_loss_tokens


@pytest.mark.parametrize("rows", [[3, 4], (1,)])
def test_examples_after_of_two_batches_make_no_state(store, rows):
    run = store.pack(16)
    if len(set(rows)) > 1:
        with pytest.raises(tl.ConfigError, match="the same in all rows"):
            run.state(rows)
    else:
        assert run.state(np.array(rows))["examples"] == 1


# -- contracts -----------------------------------------------------------------------------


def test_hf_gives_reset_positions_aligned_int64_labels_and_no_attention_mask(batch):
    made = batch.torch(contract="hf")
    assert set(made) == {"input_ids", "labels", "position_ids", "use_cache", "examples_after"}
    assert made["use_cache"] is False
    assert made["labels"].dtype == made["input_ids"].dtype == torch.int64
    assert (made["labels"].numpy() == batch.labels).all()
    starts = made["position_ids"].numpy() == 0
    assert (np.flatnonzero(starts) == batch.cu_seqlens[:-1]).all()


def test_flash_has_the_edges_of_the_flattened_batch_as_transformers_names_them(batch):
    made = batch.torch(contract="flash")
    for side in "qk":
        assert made[f"cu_seq_lens_{side}"].dtype == torch.int32
        assert made[f"cu_seq_lens_{side}"].tolist() == batch.cu_seqlens.tolist()
        assert made[f"max_length_{side}"] == batch.max_seqlen


def test_sdpa_adds_nothing_where_a_cell_may_attend_and_much_where_not(batch):
    made = batch.torch(contract="sdpa")["attention_mask"]
    assert made.shape == (4, 1, 16, 16)
    assert made.dtype == torch.float32
    may = attention.dense_mask(batch.segment_ids)
    assert ((made[:, 0] == 0).numpy() == may).all()
    assert made.min() == torch.finfo(torch.float32).min


def test_flex_has_a_mask_mod_that_pickles_and_moves(batch):
    made = batch.torch(contract="flex")["mask_mod"]
    q, kv = torch.arange(16)[:, None], torch.arange(16)[None, :]
    for one in (made, pickle.loads(pickle.dumps(made)), made.to("cpu")):
        for row in range(4):
            wanted = attention.dense_mask(batch.segment_ids)[row]
            assert (one(row, 0, q, kv).numpy() == wanted).all()


def test_the_mask_mod_moves_to_pinned_memory_with_the_batch(batch, monkeypatch):
    """What torch's pin_memory does to a dict with one in it; pinning itself needs a GPU."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self, *device: self + 0)
    mask = batch.torch(contract="flex")["mask_mod"]
    pinned = mask.pin_memory()
    assert pinned.segment_ids is not mask.segment_ids
    assert torch.equal(pinned.segment_ids, mask.segment_ids)
    for q, k in ((3, 0), (0, 3), (15, 2)):
        assert pinned(0, 0, q, k) == mask(0, 0, q, k)


def test_plain_targets_are_already_shifted_so_that_nobody_learns_to_copy(store, batch):
    made = batch.torch(contract="plain")
    assert set(made) >= {"inputs", "targets"}
    assert "labels" not in made
    shifted = next(tl.Loader(store.pack(16).render(label_layout="shifted"), 4))
    assert (made["targets"].numpy() == shifted.labels).all()
    assert (shifted.torch(contract="plain")["targets"].numpy() == shifted.labels).all()
    cell = int(np.flatnonzero(batch.loss_mask[0])[0])
    assert made["targets"][0, cell] == made["inputs"][0, cell + 1]


@pytest.mark.parametrize("contract", ["hf", "flash", "flex", "sdpa"])
def test_labels_that_are_shifted_before_are_refused_where_the_model_shifts(store, contract):
    made = next(tl.Loader(store.pack(16).render(label_layout="shifted"), 4))
    with pytest.raises(tl.ConfigError, match="they would be shifted twice"):
        made.torch(contract=contract)


def test_absolute_positions_are_refused_where_positions_show_the_documents(store):
    made = next(tl.Loader(store.pack(16).render(position_scheme="absolute"), 4))
    with pytest.raises(tl.ConfigError, match="would attend to each other"):
        made.torch(contract="hf")
    assert "attention_mask" in made.torch(contract="sdpa")


def test_an_unknown_contract_is_refused_with_those_there_are(batch):
    names = ("hf", "flash", "flex", "sdpa", "plain")
    refused(lambda: batch.torch(contract="huggingface"), tl.ConfigError, "'huggingface'", *names)


def test_c_26_masks_and_ids_are_exported_in_the_dtype_that_is_asked_for(batch):
    made = batch.to_numpy(dtype=np.int64, mask_dtype=np.int32, fields=("attention_mask",))
    assert made["loss_mask"].dtype == made["attention_mask"].dtype == np.int32
    assert made["input_ids"].dtype == made["segment_ids"].dtype == np.int64
    usual = batch.to_numpy()
    assert usual["loss_mask"].dtype == np.bool_
    assert usual["input_ids"].dtype == np.int32


def test_the_loader_takes_the_names_people_know(store):
    made = next(tl.Loader(store.pack(16), 4, fields=("input_ids", "step_loss_tokens")))
    assert "step_loss_tokens" in made.__dict__


# -- micro-batches -------------------------------------------------------------------------


def test_accumulate_folds_everything_so_that_each_micro_batch_stands_alone(store):
    run = store.pack(16).shuffle()
    whole, folded = next(tl.Loader(run, 8)), next(tl.Loader(run, 8, accumulate=2))
    assert folded.shape == (2, 4, 16)
    assert folded["input_ids"].shape == (2, 4, 16)
    for number, micro in enumerate(folded.micro_batches):
        rows = range(4 * number, 4 * number + 4)
        alone = run.batch(list(rows))
        for name in ARRAYS[:7]:
            assert (getattr(micro, name) == getattr(alone, name)).all(), name
            assert (getattr(folded, name)[number] == getattr(alone, name)).all(), name
        assert folded.cu_seqlens[number].tolist() == alone.cu_seqlens.tolist()
        assert folded.max_seqlen[number] == alone.max_seqlen
        assert folded.source[number] == alone.source == ["main"] * 4
        assert micro.step_loss_tokens == folded.step_loss_tokens == whole.loss_tokens
        assert (micro.spans.document == alone.spans.document).all()
        flash = folded.torch(contract="flash")
        assert flash["cu_seq_lens_q"][number].tolist() == alone.cu_seqlens.tolist()
    assert folded["examples_after"].tolist() == [[8] * 4] * 2
    assert folded.state() == whole.state()
    assert folded.torch(contract="sdpa")["attention_mask"].shape == (2, 4, 1, 16, 16)


@pytest.mark.parametrize("kinds", ["one", "two"])
def test_a_part_of_a_batch_is_the_batch_of_these_rows(store, weighted, kinds):
    absolute = weighted.pack(16).render(position_scheme="absolute", pad_id=9)
    run = tl.mix({"a": store.pack(16), "b": absolute if kinds == "two" else weighted.pack(16)})
    whole = run.batch(range(9))
    for made in (False, True):
        if made:
            for name in ARRAYS:
                getattr(whole, name)
        part, alone = whole.part(2, 7), run.batch(range(2, 7))
        for name in (*ARRAYS[:9], "cu_seqlens"):
            assert np.array_equal(getattr(part, name), getattr(alone, name)), name
        assert part.source == alone.source
        assert part.index.tolist() == [2, 3, 4, 5, 6]
        for name in ("labels", "loss_mask", "segment_ids", "position_ids"):
            shared = np.shares_memory(getattr(part, name), getattr(whole, name))
            assert shared == made, "what was made already is not made again"


# -- step_loss_tokens ----------------------------------------------------------------------


def test_ruling_39_no_row_of_another_rank_is_read(weighted):
    run = weighted.pack(16)
    loader = tl.Loader(run, 8, 0, 2, prefetch=0, fetch="rows")
    first = next(loader)
    before = run.counters()
    assert first.step_loss_tokens > 0
    after = run.counters()
    assert after.examples == before.examples


def test_counts_that_depend_on_token_values_are_refused_with_the_way_out(store):
    made = next(tl.Loader(store.pack(16, train_on_eos=False, eos_id=5), 4))
    with pytest.raises(tl.ConfigError, match=r"Add up batch\.loss_tokens over the ranks"):
        _ = made.step_loss_tokens
