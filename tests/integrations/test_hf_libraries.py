"""With the libraries themselves: datasets.map, DataLoader, a model of transformers."""

import functools
import os
import subprocess
import sys

import datasets
import pytest
import torch
from datasets.fingerprint import Hasher
from hftoys import text_of, usual
from transformers import LlamaConfig, LlamaForCausalLM

from tokenloom.integrations.hf import Collator, block_tokenize

TEXTS = [text_of(range(10, 10 + 3 + i % 9)) for i in range(60)]
SEGMENTS = {"attention_mask": "segments"}
OPTIONS = {"max_length": 16, "packed": True, "stride": 2}


@pytest.fixture(autouse=True)
def _quiet():
    datasets.disable_progress_bars()


def mapped(**kwargs):
    options = {"tokenizer": usual(), **OPTIONS}
    return datasets.Dataset.from_dict({"text": TEXTS}).map(
        block_tokenize, batched=True, remove_columns=["text"], fn_kwargs=options, **kwargs
    )


def test_map_with_two_processes_gives_the_rows_of_each_batch():
    expected = {}
    for batch in (TEXTS[:30], TEXTS[30:]):  # two processes, a batch each
        for name, rows in block_tokenize({"text": batch}, usual(), **OPTIONS).items():
            expected.setdefault(name, []).extend(rows)
    made = mapped(num_proc=2)
    assert {name: list(made[name]) for name in made.column_names} == expected
    assert made.column_names == ["input_ids", "document_starts", "continues", "overlaps"]


def test_map_finds_its_cache_again():
    assert mapped()._fingerprint == mapped()._fingerprint
    partial = functools.partial(block_tokenize, tokenizer=usual(), packed=True)
    assert Hasher.hash(partial) == Hasher.hash(partial)


@pytest.mark.slow  # three seconds to import datasets again
def test_the_fingerprint_is_the_same_in_another_process():
    code = """
from datasets.fingerprint import Hasher
from tokenloom.integrations.hf import block_tokenize
block_tokenize({"text": ["1"]}, lambda text: [1], add_bos=False, add_eos=False)
print(Hasher.hash(block_tokenize))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "7"},
    )
    assert done.stdout.strip() == Hasher.hash(block_tokenize)


def test_batches_without_rows_disturb_nobody():
    made = datasets.Dataset.from_dict({"text": ["", "", "10 11", ""]}).map(
        block_tokenize,
        batched=True,
        batch_size=1,
        remove_columns=["text"],
        fn_kwargs={"tokenizer": usual()},
    )
    assert list(made["input_ids"]) == [[1, 10, 11, 2]]


@functools.cache
def model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
    )
    return LlamaForCausalLM(config).eval()


def logits(first, second, use_cache=False, **options):
    """The logits of the second document behind the first one."""
    row = {"input_ids": [*first, *second], "document_starts": [0, len(first)]}
    wide = {"input_ids": [9] * 12, "document_starts": [0]}  # so that there is filler
    batch = Collator(usual(), **options)([row, wide])
    with torch.no_grad():
        out = model()(**batch, use_cache=use_cache)
    assert torch.isfinite(out.loss)
    return out.logits[0, len(first) : len(first) + len(second)]


@pytest.mark.parametrize(
    ("options", "alone"),
    [
        ({}, True),
        (SEGMENTS, True),
        (SEGMENTS | {"use_cache": True}, True),
        # these leak: a plain mask beside the positions, no positions, and the cache that models of
        # transformers use unless told otherwise (a Trainer tells them)
        ({"attention_mask": True}, False),
        ({"packed_sequences": False}, False),
        ({"use_cache": True}, False),
    ],
)
def test_a_model_sees_each_document_alone(options, alone):
    second = [20, 21, 22, 23]
    one, other = (logits(first, second, **options) for first in ([5, 6, 7], [8, 4, 3]))
    assert torch.allclose(one, other, atol=1e-5) == alone
    if alone:
        with torch.no_grad():
            wanted = model()(input_ids=torch.tensor([second])).logits[0]
        assert torch.allclose(one, wanted, atol=1e-5)


def test_importing_the_face_imports_no_framework():
    heavy = ["torch", "transformers", "datasets", "tokenizers", "pyarrow"]
    code = f"""
import sys
from tokenloom.integrations.hf import Collator, block_tokenize
rows = block_tokenize({{"text": ["a"]}}, lambda text: [7], add_bos=False, add_eos=False)
Collator(None, pad_id=0, return_tensors="np")([{{"input_ids": rows["input_ids"][0]}}])
print(*[name for name in {heavy!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
