"""What every command prints, on one small folder: as lines, as JSON, and for a typical mistake.

`python tests/cli/snapshots.py` renews tests/golden/cli, one file for each command; read the
difference before you commit it. Commands run in one process, in this order, each in a fresh copy of
the folder, so a snapshot does not depend on what other commands wrote. Paths are relative, and what
changes from machine to machine (versions, times, sizes in memory) is written as «word».
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import shlex
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
from transformers import LlamaConfig, LlamaForCausalLM

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.loader import write_state

GOLDEN = Path(__file__).parents[1] / "golden/cli"

RUN = """\
seed: 7
sources:
  wiki: {store: stores/wiki, pack: {seq_len: 16}, shuffle: full}
  code: {store: stores/code, windows: {seq_len: 16}, shuffle: block, epochs: 2}
mix: {weights: {wiki: 3, code: 1}}
loader: {batch_size: 4}
"""

ONE = "stores/wiki --seq-len 16 --num-docs 1 --content-length 8"
ORDERS = "--n 64 --repeats 2 --strategies full --perm-type feistel"
LOADING = (
    "--store stores/wiki --steps 2 --batch-size 2 --seq-len 16 --prefetch-batches 2 "
    "--strategies full --perm-type feistel"
)

# command → command lines: some that work, with and without --json, and a typical mistake
COMMANDS = {
    "init": [
        "init corpus --seq-len 16 --batch-size 4",
        "init corpus --seq-len 16 --batch-size 4 -o corpus/again.yaml --json",
        "init stores/wiki",
    ],
    "build": [
        "build corpus/a.jsonl -o stores/new -t bytes --id-key id",
        "build corpus/a.jsonl -o stores/other -t bytes --id-key id --json",
        "build corpus/a.jsonl -o stores/third -t bytes --text-key body",
    ],
    "export": [
        "export stores/wiki exports/wiki --to npy --lossy",
        "export stores/wiki exports/other --to megatron --lossy --json",
        "export stores/wiki exports/third --to megatron",
    ],
    "convert": [
        "convert stores/wiki stores/copy",
        "convert stores/wiki stores/again --json",
        "convert stores/wiki corpus",
    ],
    "check": [
        "check run.yaml",
        "check run.yaml --json",
        "check run.yaml --set sead=8 --set sources.wiki.epochs=many",
        "check run.yaml --set sead=8 --json",
        "check rum.yaml --json",
    ],
    "info": [
        "info stores/wiki",
        "info stores/wiki --svg lengths.svg --json",
        "info stores/wikki",
        "info files/train.bin --dtype uint16 --eos 2",
        "info files/train.bin",
    ],
    "show": [
        "show stores/wiki --doc 3 --limit 4",
        "show stores/wiki --doc 3 --limit 4 --text --json",
        "show run.yaml --examples 1 --tokenized",
        "show run.yaml --examples 1 --json",
        "show run.yaml --row 2",
        "show run.yaml --row 2 --json",
        "show stores/wiki --doc wiki-3",
        "show stores/wiki --doc 99 --json",
    ],
    "dataset": [
        "dataset rows.jsonl --examples 2 --eos 2",
        "dataset rows.jsonl --examples 1 --json",
        "dataset run.yaml --first 999",
        "dataset nothing.jsonl",
    ],
    "plan": [
        "plan run.yaml --steps 10",
        "plan run.yaml --steps 10 --json",
        "plan run.yaml --steps 0 --json",
        "plan run.yaml --stepps 3 --json",
    ],
    "state": [
        "state state.json --tokens-per-second 100",
        "state state.json --tokens-per-second 100 --json",
        "state nothing.json",
    ],
    "at": [
        "at run.yaml 5 --text",
        "at run.yaml --step 1 --row 1 --metadata --json",
        "at run.yaml --steps 1:3",
        "at run.yaml --steps 1:3 --json",
        "at run.yaml 9999",
    ],
    "where": [
        "where run.yaml --source wiki --doc 3",
        "where run.yaml --id code-5 --limit 1 --json",
        "where run.yaml --source wkii --doc 3",
    ],
    "next": [
        "next run.yaml --source wiki --doc 3 --after 5",
        "next run.yaml --source wiki --doc 3 --json",
        "next run.yaml --source wiki --doc 3 --after 9999 --json",
        "next run.yaml --source wiki",
    ],
    "find": ["find run.yaml code-5", "find stores/wiki wiki-3 --json", "find run.yaml nobody"],
    "digest": [
        "digest run.yaml --first 0 --last 8",
        "digest run.yaml --last 8 --plan --json",
        "digest stores/wiki --json",
        "digest run.yaml --last 9999",
    ],
    "diff": [
        "diff run.yaml run.yaml",
        "diff run.yaml run.yaml --set mix.weights.code=4",
        "diff run.yaml run.yaml --set mix.weights.code=4 --json",
        "diff run.yaml rum.yaml",
    ],
    "edit": [
        "edit run.yaml --at 16 --weights code=4 -o edited.yaml",
        "edit run.yaml --at 16 --quarantine wiki:3 -o other.yaml --json",
        "edit run.yaml --at 16 --weights kode=4 -o third.yaml",
    ],
    "explore": [
        "explore run.yaml --seconds 0",
        "explore run.yaml run.yaml --set seed=8 --seconds 0 --json",
        "explore run.yaml --port 99999",
    ],
    "audit": [
        "audit run.yaml -o certificate.json",
        "audit run.yaml --json",
        "audit run.yaml --check certificate.json",
        "audit run.yaml --check certificate.json --json",
        "audit --indices indices.npy --rows 8 --epochs 1",
        "audit --indices indices.npy --rows 8 --epochs 1 --json",
        "audit run.yaml --rows 8",
        "audit run.yaml --executor rai",
    ],
    "simulate": [
        "simulate run.yaml --steps 10 --ranks 2 --latency 0.02 --bandwidth 1MB --step-seconds 0.1",
        "simulate run.yaml --steps 10 --ranks 2 --latency 0.02 --bandwidth 1MB --json",
        "simulate run.yaml --ranks 9",
    ],
    "blame": [
        "blame run.yaml --losses losses.jsonl",
        "blame run.yaml --losses losses.jsonl --json",
        "blame run.yaml --losses losses.jsonl --loss-key train/loss",
    ],
    "report": [
        "report run.yaml -o pages.html",
        "report run.yaml --ranks 2 --state state.json",
        "report stores/wiki -o store.html --json",
        "report files/train.bin --dtype uint16 --eos 2",
        "report stores/wiki --ranks 2",
        "report run.yaml -o run.yaml",
        "report s3://user:word@bucket/store --json",
    ],
    "evaluate": [
        "evaluate stores/wiki --model model --seq-len 16 --pz --prefix 6 --suffix 2 --stride 40",
        "evaluate run.yaml --model model --set take=6 --by source",
        "evaluate stores/code --model model --seq-len 16 --by document --json",
        "evaluate run.yaml --model corpus",
    ],
    "pack-plan": [
        "pack-plan stores/wiki --seq-len 16",
        "pack-plan stores/wiki --seq-len 16 --strategy greedy --overflow split --json",
        "pack-plan stores/wiki --seq-len 1",
    ],
    "splice audit": [
        f"splice audit {ONE} --limit 3",
        f"splice audit {ONE} --limit 3 --json",
        "splice audit stores/wiki --seq-len 16 --num-docs 99",
    ],
    "splice coverage": [
        "splice coverage stores/wiki --seq-len 16 --num-docs 2 --content-length 8",
        f"splice coverage {ONE} --svg map.svg --json",
        "splice coverage stores/wiki --seq-len 16 --content-length 99 --document 99",
    ],
    "verify": [
        "verify stores/wiki",
        "verify stores/wiki --json",
        "verify stores/wiki --executor ray:head",
        "verify damaged",
        "verify damaged --json",
        "verify files/train.bin --dtype uint16 --eos 2",
    ],
    "seal": [
        "seal files/train.bin --dtype uint16 --eos 2",
        "seal files/train.bin --dtype uint16 --eos 2 --to train.seal --json",
        "seal stores/wiki",
    ],
    "gc": ["gc stores/wiki --dry-run", "gc stores/wiki --json", "gc corpus"],
    "bench permutation": [
        f"bench permutation {ORDERS}",
        f"bench permutation {ORDERS} --json",
        f"bench permutation {ORDERS} --compare bench.json --json",
        "bench permutation --strategies fll",
    ],
    "bench data-loading": [
        f"bench data-loading {LOADING}",
        f"bench data-loading {LOADING} --json",
        "bench data-loading --store stores/wiki --strategies fll",
    ],
    "completion": ["completion fish", "completion bash --json", "completion powershell"],
}


def make_folder(root: Path) -> None:
    """Two stores, a damaged one, text, a run, a state, losses, rows, indices, files, a model."""
    (root / "files").mkdir()
    np.array([5, 6, 7, 2, 8, 2, 9], "<u2").tofile(root / "files/train.bin")
    for name in ("wiki", "code"):
        rows = [
            {"id": f"{name}-{n}", "text": f"{name} {n}: " + "abcdefgh " * (n % 5)}
            for n in range(24)
        ]
        tl.build(rows, root / "stores" / name, tokenizer="bytes", id_key="id", eos=0)
    shutil.copytree(root / "stores/code", root / "damaged")
    (payload,) = (root / "damaged").glob("shard-*/input_ids/c/0")
    raw = bytearray(payload.read_bytes())
    raw[100] ^= 1
    payload.write_bytes(raw)
    (root / "corpus").mkdir()
    texts = [{"id": f"c{n}", "text": "some text " * n} for n in range(1, 6)]
    (root / "corpus/a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in texts))
    (root / "run.yaml").write_text(RUN)
    with contextlib.chdir(root):
        run = tl.load("run.yaml")
        write_state(run.state(12), "state.json")
    losses = [{"step": n, "loss": 9.0 if n == 7 else 2.0 + n % 3 / 10} for n in range(12)]
    (root / "losses.jsonl").write_text("".join(json.dumps(one) + "\n" for one in losses))
    rows = [{"input_ids": [5, 2, 7, 9]}, {"input_ids": [1, 4], "document_starts": [0]}]
    (root / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    bench = {"bench": "permutation", "settings": {}, "results": {}}
    (root / "bench.json").write_text(json.dumps(bench))
    np.save(root / "indices.npy", np.array([0, 1, 2, 3, 4, 5, 6, 6]))
    (root / "empty").mkdir()
    make_model(root / "model")


def make_model(folder: Path) -> None:
    """A model whose weights are zero, so that every token is as likely as any other."""
    sizes = {"hidden_size": 8, "intermediate_size": 8, "vocab_size": 256}
    config = LlamaConfig(num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, **sizes)
    model = LlamaForCausalLM(config)
    for one in model.parameters():
        one.data.zero_()
    model.save_pretrained(folder)


def said(words: list[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    out, err = io.StringIO(), io.StringIO()
    logging.root.handlers.clear()  # the command sets up its own, which writes to where we read
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as end:
            code = int(end.code or 0)
    return code, out.getvalue(), err.getvalue()


def snapshot(commands: list[str], folder: Path) -> str:
    """What commands print, one after the other, in a copy of the folder."""
    shown = []
    with tempfile.TemporaryDirectory() as root:
        copy = Path(root, "folder")
        shutil.copytree(folder, copy)
        with contextlib.chdir(copy):
            for line in commands:
                code, out, err = said(shlex.split(line))
                told = "".join(f"! {one}\n" for one in err.splitlines())
                shown.append(f"$ tokenloom {line}\n{out}{told}exit {code}\n")
        return plain("\n".join(shown), copy)


TIMES = "seconds|elapsed_s|examples/s|tokens/s|p50_ms|p95_ms"
NUMBER = r"[\d.,]+(?:e[+-]?\d+)?"
CHANGES = {
    r'("(?:tokenloom|python|numpy|native)": )(?:"[^"]*"|true|false)': r'\1"«version»"',
    rf'("(?:{TIMES})": )[\d.e+-]+': r'\1"«time»"',
    r"\bin \d+\.\d s$": "in «time» s",
    rf"(\| `full` \|) {NUMBER} \| {NUMBER} \| {NUMBER} \| {NUMBER} \| {NUMBER} \|": r"\1 «times» |",
    rf"(\| `full` \| \d+ \|) {NUMBER} \| {NUMBER} \| {NUMBER} \| {NUMBER} \|": r"\1 «times» |",
    r"http://127\.0\.0\.1:\d+/[\w-]+/": "«address»",
    r'("port": )\d+': r'\1"«port»"',
    r"ssh -L \d+:127\.0\.0\.1:\d+ ": "ssh -L «port»:127.0.0.1:«port» ",
    # the configuration of a model names the version of what wrote it
    r'("fingerprint": )"\w+"(?=\s*},\s*"losses")': r'\1"«sha256»"',
    r"^model \w{12}$": "model «sha256»",
    # files of metadata name the version of what wrote them
    r'("manifest_sha256": )"\w+"': r'\1"«sha256»"',
    r"^(  manifest    )\w+$": r"\1«sha256»",
    r'^( "bytes": )\d+': r'\1"«size»"',
    r"\b[\d.]+ KiB (in 1 shard|, 644)": r"«size» \1",
    r"files, [\d.]+ KiB, ": "files, «size», ",
    # a page holds its style sheet, and what a store takes on disk
    r"(\.html: )[\d.]+ KiB": r"\1«size»",
    r"[\d.]+ KiB(?= · digest)": "«size»",
    r"(further column, |in 1 shard, )[\d.]+ KiB": r"\1«size»",
    r'("columns": 0,\s+"bytes": )\d+': r'\1"«size»"',
}


def plain(text: str, folder: Path) -> str:
    """The text without what differs from machine to machine, and with rounded fractions."""
    text = text.replace(str(folder), "«folder»")
    for pattern, instead in CHANGES.items():
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    return re.sub(r"\b\d+\.\d{6,}(e-?\d+)?\b", lambda found: f"{float(found[0]):.6g}", text)


def snapshots() -> dict[str, str]:
    """The text of every command."""
    os.environ.pop("COLUMNS", None)
    warnings.simplefilter("always")
    with tempfile.TemporaryDirectory() as root:
        os.environ["TOKENLOOM_CACHE_DIR"] = str(Path(root, "kept"))
        folder = Path(root, "folder")
        folder.mkdir()
        make_folder(folder)
        return {name: snapshot(lines, folder) for name, lines in COMMANDS.items()}


def file_of(name: str) -> Path:
    """The golden file of a command."""
    return GOLDEN / f"{name.replace(' ', '-')}.txt"


if __name__ == "__main__":
    made = snapshots()
    if sys.argv[1:] == ["--print"]:
        print(json.dumps(made))
    else:
        GOLDEN.mkdir(exist_ok=True)
        for old in GOLDEN.glob("*.txt"):
            old.unlink()
        for name, text in made.items():
            file_of(name).write_text(text)
