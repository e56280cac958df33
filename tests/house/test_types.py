"""A type checker knows every argument of the public face: right calls pass, each typo is found."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RIGHT = """
import numpy as np
import tokenloom as tl
from tokenloom.integrations.hf import Collator, block_report, block_tokenize
from tokenloom.integrations.trainer import packing_settings
from tokenloom.loader import latest_state, write_state
from tokenloom.streams import buffer_shuffle, interleave, stream_packer

store: tl.Store = tl.build("corpus/*.jsonl", "stores/wiki", tokenizer="tokenizer.json", workers=2)
store = tl.open("stores/wiki", verify="always")
wiki = store.pack(2048, strategy="best_fit", overflow="drop", add_eos=True, pad_id=0).shuffle()
rows = store.windows(2048, lookahead=True, label_layout="shifted", align=True).block_shuffle()
book = store.select(num_docs=10, doc_select_mode="longest").splice(
    2048, content_length={0: 64, 640: 128}, doc_weights=[1.0, 2.0], position_scheme="relative"
)
train = store.split({"train": 0.9, "val": 0.1}, by="content", seed=3)["train"]
run: tl.Dataset = tl.mix({"wiki": wiki, "rows": rows, "book": book}, weights={"book": 0.1}).seed(7)
with tl.Loader(run, batch_size=8, rank=0, world_size=1) as loader:
    for batch in loader:
        tokens = batch.tokens + 1
        loader.seek(3)
plan = tl.plan_packing([3, 2], seq_len=8, strategy="greedy", stride=1)
fill: float = plan.fill
again = tl.from_config(run.describe(), path={"wiki": "moved"}, cache_bytes=1 << 20, verify="never")
again = tl.from_config({"data": {"type": "splice_multi_document"}}, seq_len=8)
shifted: tl.Dataset = run.render(label_layout="shifted", ignore_id=None, eos_id=2, pad_id=0)
texts = {"text": ["a b"]}
report = block_report(texts, str.split, max_length=8, packed=True, truncate_at=None)
share: float = report.fill
cut = block_tokenize(texts, str.split, "text", max_length=8, stride=1)["input_ids"]
collate = Collator(None, padding=False, return_tensors="np", attention_mask="segments")
every = tl.order.full(10, seed=3).map(np.arange(10))
write_state(loader.state_dict(), "states")
packed = stream_packer("bin", 4).rows([[1, 2], [3]])
settings = packing_settings({"data": {"packing_mode": "bin"}})
"""

WRONG = [
    'store.pack(2048, strategi="x")',
    'store.pack("2048")',
    "store.windows(seqlen=3)",
    "store.windows(2048, tial='keep')",
    "store.windows(2048, tail=3)",
    "store.splice(2048, contentlength=3)",
    "store.splice(2048, doc_schedule=4)",
    "store.select(num_doc=3)",
    "store.select(num_docs='3')",
    "store.split({'a': 1.0}, sed=1)",
    "store.split({'a': 1.0})['a'].pack(8, strategi='x')",
    "tl.open('stores/wiki', snapshto=1)",
    "tl.build('corpus', 'stores/wiki', tokeniser='bytes')",
    "tl.Loader(run, batch_size=8, rnk=0)",
    "tl.Loader(run, batch_size=8).sek(3)",
    "tl.mix({'a': run}, wieghts={})",
    "tl.plan_packing(store, seq_len=8, strategies='greedy')",
    "tl.plan_packing(store, seq_len=8, strategy='greedy').fil",
    "tl.opne('stores/wiki')",
    "tl.order.ful(3, seed=1)",
    "run.batch([0]).tokns",
    "run.render(label_layot='shifted')",
    "run.render(pad_id=None)",
    "run.render(train_on_eos='no')",
    "tl.from_config({}, cachebytes=3)",
    "tl.from_config({}, seq_len='8')",
    "block_report({'text': ['a']}, str.split, max_lenght=8)",
    "block_report({'text': ['a']}, str.split, packed='yes please')",
    "block_report({'text': ['a']}, str.split).fil",
    "block_tokenize({'text': ['a']}, str.split, max_lenght=8)",
    "Collator(None, paddin=False)",
]

HEAD = """
import tokenloom as tl
from tokenloom.integrations.hf import Collator, block_report, block_tokenize

store = tl.open("stores/wiki")
run = store.pack(8)
"""


@pytest.fixture(scope="module")
def errors(tmp_path_factory):
    """(script, line) of each error of one run of mypy over both scripts."""
    folder = tmp_path_factory.mktemp("types")
    (folder / "right.py").write_text(RIGHT)
    (folder / "wrong.py").write_text(HEAD + "\n".join(WRONG) + "\n")
    scripts = [str(folder / name) for name in ("right.py", "wrong.py")]
    done = subprocess.run(  # as `make types` runs it, so that it finds what that one has kept
        [sys.executable, "-m", "mypy", *scripts],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"(\w+)\.py:(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    assert found, done.stdout + done.stderr
    return {(script, int(line)): message for script, line, message in found}


def test_right_calls_have_no_error(errors):
    assert {line: message for (script, line), message in errors.items() if script == "right"} == {}


@pytest.mark.parametrize("call", WRONG)
def test_a_wrong_call_is_an_error(errors, call):
    line = HEAD.count("\n") + 1 + WRONG.index(call)
    assert ("wrong", line) in errors


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "src/tokenloom/py.typed").exists()
