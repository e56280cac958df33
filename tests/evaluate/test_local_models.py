"""Models of a folder: read without running anything of theirs, and named by their files."""

import json

import numpy as np
import pytest
import torch
from refusals import refused
from transformers import LlamaConfig, LlamaForCausalLM

import tokenloom as tl
from tokenloom.evaluate import evaluate, load_local, model_fingerprint, pz


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "vocab_size": 12}
    config = LlamaConfig(num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, **sizes)
    path = tmp_path_factory.mktemp("model") / "tiny"
    LlamaForCausalLM(config).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    rng = np.random.default_rng(4)
    rows = [{"input_ids": rng.integers(0, 12, n).tolist()} for n in (20, 14, 31)]
    return tl.build(rows, tmp_path_factory.mktemp("local") / "store", tokenizer=None, vocab_size=12)


def test_a_folder_is_loaded_and_packed_rows_have_the_losses_of_single_documents(folder, store):
    model = load_local(folder)
    packed = evaluate(model, store.pack(64))
    single = evaluate(model, store, seq_len=64)
    for number, one in single.by("document").items():
        assert packed.by("document")[number]["loss"] == pytest.approx(one["loss"], abs=1e-5)


def test_losses_are_those_of_the_model_itself(folder, store):
    model = load_local(folder)
    found = evaluate(model, store, seq_len=64).by("document")
    for number in range(3):
        tokens = torch.tensor(store[number][None].astype(np.int64))
        with torch.no_grad():
            wanted = model(input_ids=tokens, labels=tokens).loss.item()
        assert found[number]["loss"] == pytest.approx(wanted, abs=1e-5)


def test_filler_before_a_window_changes_nothing_under_rope(folder, store):
    model = load_local(folder)
    found = pz(model, store, prefix=4, suffix=4, stride=3, offsets=(0, 5, 11))
    by_offset = [found.windows.log_pz[found.windows.offset == s] for s in (0, 5, 11)]
    np.testing.assert_allclose(by_offset[1], by_offset[0], atol=1e-4)
    np.testing.assert_allclose(by_offset[2], by_offset[0], atol=1e-4)


def test_the_name_of_a_model_is_that_of_its_files(folder, tmp_path):
    name = model_fingerprint(folder)
    assert len(name) == 64
    for one in folder.iterdir():
        (tmp_path / one.name).write_bytes(one.read_bytes())
    assert model_fingerprint(tmp_path) == name
    (tmp_path / "README.md").write_text("anything")
    assert model_fingerprint(tmp_path) == name
    weights = next(tmp_path.glob("*.safetensors"))
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert model_fingerprint(tmp_path) != name


def test_code_of_others_and_files_that_may_hold_it_are_refused(folder, tmp_path):
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    refused(lambda: load_local(tmp_path), tl.InputError, "pytorch_model")
    config["auto_map"] = {"AutoModelForCausalLM": "modeling.Mine"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"")
    refused(lambda: load_local(tmp_path), tl.InputError, "auto_map")
    (tmp_path / "config.json").write_text("{")
    refused(lambda: load_local(tmp_path), tl.InputError, "config.json")
    refused(lambda: load_local(tmp_path / "nowhere"), tl.InputError, "config.json")
