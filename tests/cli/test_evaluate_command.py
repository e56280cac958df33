"""`tokenloom evaluate`: sets and controls, and files."""

import json

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.evaluate import content_hash, model_fingerprint

RUN = """\
seq_len: 24
sources: {wiki: {store: wiki, pack: {}, shuffle: full}}
evaluate: {trained: {store: wiki, select: {doc_index: [0, 1, 2]}}, held: {store: held}}
"""


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluated")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "vocab_size": 12}
    config = LlamaConfig(num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, **sizes)
    LlamaForCausalLM(config).save_pretrained(folder / "model")
    rng = np.random.default_rng(4)
    rows = [{"input_ids": rng.integers(0, 12, n).tolist()} for n in (40, 14, 31, 22, 35, 18)]
    for name, some in (("wiki", rows[:4]), ("held", rows[4:])):
        tl.build(some, folder / name, tokenizer=None, vocab_size=12)
    (folder / "run.yaml").write_text(RUN)
    return folder


@pytest.fixture
def place(shelf, monkeypatch):
    monkeypatch.chdir(shelf)
    return shelf


WINDOWS = ["--pz", "--prefix", "4", "--suffix", "3", "--stride", "2"]
COMMAND = ["evaluate", "run.yaml", "--model", "model", *WINDOWS]


def test_a_set_is_the_control_of_the_others(place, capsys):
    assert main([*COMMAND, "--control", "held", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["losses"]) == ["trained"]
    assert list(found["windows"]) == ["trained", "control"]
    assert found["content"]["control"] == content_hash(tl.open("held"))
    assert found["model"]["fingerprint"] == model_fingerprint("model")
    beside = found["control"]["trained"]
    assert beside["documents"] == [3, 2]
    assert set(beside["figures"]) == set(found["windows"]["trained"]["intervals"])


def test_a_store_is_a_control_too(place, capsys):
    assert main([*COMMAND, "--control", "held", "--json"]) == 0
    named = json.loads(capsys.readouterr().out)["control"]["trained"]["figures"]
    assert main([*COMMAND, "--control", "held/", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["control"]["trained"]["figures"] == named


def test_files_are_written(place, capsys, tmp_path):
    out = tmp_path / "results"
    command = [*COMMAND, "--page", "0", "-o", str(out), "--json"]
    assert main(command) == 0
    first = json.loads(capsys.readouterr().out)
    kinds = (
        "heat-{}.svg",
        "windows-{}.csv",
        "windows-{}.npz",
        "{}-0.html",
    )
    wanted = {kind.format(name) for kind in kinds for name in ("trained", "held")}
    assert {one.name for one in out.iterdir()} == {"evaluation.json", *wanted}
    assert json.loads((out / "evaluation.json").read_text()) == first
    assert (out / "heat-held.svg").read_text().startswith("<svg")
    assert main(["report", str(out), "-o", str(tmp_path / "report.html")]) == 0
    assert "has no single windows" not in (tmp_path / "report.html").read_text()
