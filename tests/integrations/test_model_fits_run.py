"""A model without an embedding for some ids, and ids of another tokenizer, are refused at once."""

import warnings

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from accelerate import Accelerator
from hftoys import usual
from hftrainers import arguments
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Trainer

import tokenloom as tl
from tokenloom.integrations.hf import LoomTrainer, attach, prepare
from tokenloom.integrations.lightning import DataModule

WORDS = 40


def llama(rows):
    sizes = {"hidden_size": 16, "intermediate_size": 16, "vocab_size": rows}
    return LlamaForCausalLM(LlamaConfig(num_hidden_layers=1, num_attention_heads=2, **sizes))


def tokenizer(order=range(WORDS), added=()):
    """Words to ids in some order; `added` ones come after."""
    vocabulary = {f"w{word}": number for number, word in enumerate(order)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    found = PreTrainedTokenizerFast(tokenizer_object=made)
    found.add_tokens(list(added))
    return found


def texts(count=30):
    rng = np.random.default_rng(1)
    words = (rng.integers(0, WORDS, rng.integers(5, 40)) for _ in range(count))
    return [{"text": " ".join(f"w{n}" for n in one)} for one in words]


@pytest.fixture
def store(tmp_path):
    return tl.build(texts(), tmp_path / "store", tokenizer=tokenizer())


@pytest.fixture
def run(store):
    return store.pack(16).shuffle()


class Module(pl.LightningModule):
    """A language model of one's own."""

    def __init__(self, rows, model=None):
        super().__init__()
        self.net = model or torch.nn.Sequential(
            torch.nn.Embedding(rows, 8), torch.nn.Linear(8, rows)
        )
        self.batches = 0

    def training_step(self, batch, number):
        self.batches += 1
        return torch.nn.functional.cross_entropy(
            self.net(batch["inputs"]).flatten(0, 1), batch["targets"].flatten()
        )

    def validation_step(self, batch, number):
        self.batches += 1

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def fitted(module, data, folder):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(
        default_root_dir=folder,
        max_steps=2,
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        accelerator="cpu",
        **quiet,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Lightning: few workers, no validation
        trainer.fit(module, data)


# -- ids -----------------------------------------------------------------------------------------
def test_a_run_knows_how_large_its_ids_are(store, run, tmp_path):
    assert run.vocab_size == store.vocab_size == WORDS
    assert store.pack(16, add_eos=True, eos_id=50).vocab_size == 51
    assert run.render(pad_id=70).vocab_size == 71
    ids = tl.build([{"input_ids": [1, 2, 3]}], tmp_path / "ids", tokenizer=None, vocab_size=99)
    mixed = tl.mix({"a": run, "b": ids.pack(16)}, different_tokenizers=True)
    assert mixed.vocab_size == 99


@pytest.mark.parametrize("rows", [WORDS - 1, 8])
def test_attach_refuses_a_model_that_lacks_embeddings(run, tmp_path, rows):
    trainer = Trainer(llama(rows), arguments(tmp_path))
    with pytest.raises(tl.ConfigError, match=rf"source 'main'.* {WORDS - 1}\b.*{rows} ids"):
        attach(trainer, run)
    trainer.model.resize_token_embeddings(WORDS)
    assert attach(trainer, run) is trainer


def test_attach_looks_at_runs_to_evaluate_on_and_at_ids_that_rows_add(store, run, tmp_path):
    rows = [{"input_ids": [1, 90]}]
    larger = tl.build(rows, tmp_path / "large", tokenizer=None, vocab_size=91).pack(16)
    trainer = Trainer(llama(WORDS), arguments(tmp_path))
    with pytest.raises(tl.ConfigError, match=r"eval_runs\['web'\].* 90\b"):
        attach(trainer, run, eval_runs={"web": larger})
    with pytest.raises(tl.ConfigError, match=r"pad_id is 40\b"):
        attach(trainer, run.render(pad_id=WORDS))
    with pytest.raises(tl.ConfigError, match=r"eos_id is 63\b"):
        attach(trainer, store.pack(16, add_eos=True, eos_id=63))
    with pytest.raises(tl.ConfigError, match=r"run, source 'main'"):
        LoomTrainer(model=llama(8), args=arguments(tmp_path), run=run)


@pytest.mark.parametrize("is_first", [True, False])
def test_prepare_refuses_it_whether_the_model_was_prepared_before_or_after(run, is_first):
    accelerator = Accelerator(cpu=True)
    if is_first:
        accelerator.prepare(llama(WORDS - 1))
        with pytest.raises(tl.ConfigError, match=r"prepare: .*'main'"):
            prepare(accelerator, run, 4)
        return
    loader = prepare(accelerator, run, 4)
    accelerator.prepare(llama(WORDS - 1))
    with pytest.raises(tl.ConfigError, match=r"prepare: .*'main'"):
        next(iter(loader))
    fine = Accelerator(cpu=True)
    fine.prepare(llama(WORDS + 3))
    assert next(iter(prepare(fine, run, 4)))["input_ids"].shape == (4, 16)


@pytest.mark.parametrize("kind", ["embedding", "a model of transformers inside"])
def test_a_data_module_refuses_it_before_the_first_batch(run, tmp_path, kind):
    def module(rows):
        return Module(rows, llama(rows) if kind != "embedding" else None)

    for data in (
        DataModule(run, 4, contract="plain"),
        DataModule(run.take(8), 4, contract="plain", val=run),
    ):
        small = module(WORDS - 1)
        with pytest.raises(tl.ConfigError, match=r"DataModule: .*'main'"):
            fitted(small, data, tmp_path)
        assert small.batches == 0
    whole = Module(WORDS)
    fitted(whole, DataModule(run, 4, contract="plain"), tmp_path)
    assert whole.batches == 2


def test_the_largest_embedding_of_a_module_counts_and_a_module_may_say_that_none_does(
    run, tmp_path
):
    class Positions(Module):
        def __init__(self):
            super().__init__(WORDS)
            self.positions = torch.nn.Embedding(16, 8)

    class Hashed(Module):
        def get_input_embeddings(self):
            return None

        def training_step(self, batch, number):
            return super().training_step(
                {name: batch[name] % 8 for name in ("inputs", "targets")}, number
            )

    for module in (Positions(), Hashed(8)):
        fitted(module, DataModule(run, 4, contract="plain"), tmp_path)
        assert module.batches == 2


def test_files_that_do_not_say_how_large_ids_are_get_a_warning(tmp_path):
    np.arange(200, dtype="<u2").tofile(tmp_path / "ids.bin")
    ids = tl.open(tmp_path / "ids.bin", dtype="uint16")
    trainer = Trainer(llama(256), arguments(tmp_path))
    with pytest.warns(UserWarning, match=r"vocab_size=256"):
        attach(trainer, ids.windows(16))
    known = tl.open(tmp_path / "ids.bin", dtype="uint16", vocab_size=256)
    assert attach(trainer, known.windows(16)) is trainer


# -- tokenizers ----------------------------------------------------------------------------------
def with_tokenizer(folder, held):
    return Trainer(llama(WORDS + 9), arguments(folder), processing_class=held)


def test_attach_refuses_a_trainer_with_another_tokenizer_of_the_same_size(run, tmp_path):
    order = [*range(WORDS)]
    order[7], order[9] = order[9], order[7]
    trainer = with_tokenizer(tmp_path, tokenizer(order))
    with pytest.raises(tl.ConfigError, match=r"id 7 is 'w7'.* 'w9'"):
        attach(trainer, run)
    assert attach(trainer, run, different_tokenizers=True) is trainer
    made = LoomTrainer(
        model=llama(WORDS),
        args=arguments(tmp_path),
        processing_class=tokenizer(order),
        run=run,
        different_tokenizers=True,
    )
    assert made.train_dataset is run
    other = with_tokenizer(tmp_path, tokenizer())
    with pytest.raises(tl.ConfigError, match=r"eval_runs, source 'main'"):
        attach(other, run, eval_runs=other_words(tmp_path).pack(16))


def other_words(folder):
    held = tokenizer([1, 0, *range(2, WORDS)])
    return tl.build(texts(), folder / "other", tokenizer=held)


def test_the_same_tokenizer_is_taken_with_other_specials_and_added_tokens(run, tmp_path):
    padded = tokenizer(added=["<extra>"])
    padded.pad_token = "w3"
    padded.padding_side = "left"
    for held in (tokenizer(), padded, None):
        trainer = with_tokenizer(tmp_path, held)
        assert attach(trainer, run) is trainer


def test_ready_made_ids_and_functions_are_compared_with_nothing(tmp_path):
    rows = [{"input_ids": [1, 2, 3] * 10}]
    ids = tl.build(rows, tmp_path / "ids", tokenizer=None, vocab_size=20)
    split = tl.build(
        [{"text": "1 2 3 " * 9}],
        tmp_path / "function",
        tokenizer=lambda text: [int(one) for one in text.split()],
        vocab_size=20,
    )
    for store in (ids, split):
        trainer = with_tokenizer(tmp_path, usual())
        assert attach(trainer, store.pack(16)) is trainer
