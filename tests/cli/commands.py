"""Command lines of every command, and the small folder that they are run in.

`python tests/cli/commands.py --renew` writes tests/golden/cli anew: the keys of every command's
JSON, and the text of five commands. Commands run in one process, each in a fresh copy of the
folder, so what a command prints does not depend on what others wrote.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
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

# command → command lines, with and without --json
COMMANDS = {
    "init": [
        "init corpus --seq-len 16 --batch-size 4",
        "init corpus --seq-len 16 --batch-size 4 -o corpus/again.yaml --json",
    ],
    "build": [
        "build corpus/a.jsonl -o stores/new -t bytes --id-key id",
        "build corpus/a.jsonl -o stores/other -t bytes --id-key id --json",
    ],
    "export": [
        "export stores/wiki exports/wiki --to npy --lossy",
        "export stores/wiki exports/other --to megatron --lossy --json",
    ],
    "convert": [
        "convert stores/wiki stores/copy",
        "convert stores/wiki stores/again --json",
    ],
    "check": [
        "check run.yaml",
        "check run.yaml --json",
        "check run.yaml --set sead=8 --set sources.wiki.epochs=many",
        "check run.yaml --set sead=8 --json",
    ],
    "info": [
        "info stores/wiki",
        "info stores/wiki --svg lengths.svg --json",
        "info files/train.bin --dtype uint16 --eos 2",
    ],
    "show": [
        "show stores/wiki --doc 3 --limit 4",
        "show stores/wiki --doc 3 --limit 4 --text --json",
        "show run.yaml --examples 1 --tokenized",
        "show run.yaml --examples 1 --json",
        "show run.yaml --row 2",
        "show run.yaml --row 2 --json",
    ],
    "dataset": [
        "dataset rows.jsonl --examples 2 --eos 2",
        "dataset rows.jsonl --examples 1 --json",
    ],
    "plan": [
        "plan run.yaml --steps 10",
        "plan run.yaml --steps 10 --json",
    ],
    "state": [
        "state state.json --tokens-per-second 100",
        "state state.json --tokens-per-second 100 --json",
    ],
    "at": [
        "at run.yaml 5 --text",
        "at run.yaml --step 1 --row 1 --metadata --json",
        "at run.yaml --steps 1:3",
        "at run.yaml --steps 1:3 --json",
    ],
    "where": [
        "where run.yaml --source wiki --doc 3",
        "where run.yaml --id code-5 --limit 1 --json",
        "where run.yaml --source wiki --doc 3 --after 9999 --json",
    ],
    "find": [
        "find run.yaml code-5",
        "find stores/wiki wiki-3 --json",
        "find run.yaml nobody",
    ],
    "digest": [
        "digest run.yaml --first 0 --last 8",
        "digest run.yaml --last 8 --plan --json",
        "digest stores/wiki --json",
    ],
    "diff": [
        "diff run.yaml run.yaml",
        "diff run.yaml run.yaml --set mix.weights.code=4",
        "diff run.yaml run.yaml --set mix.weights.code=4 --json",
    ],
    "edit": [
        "edit run.yaml --at 16 --weights code=4 -o edited.yaml",
        "edit run.yaml --at 16 --quarantine wiki:3 -o other.yaml --json",
    ],
    "explore": [
        "explore run.yaml --seconds 0",
        "explore run.yaml run.yaml --set seed=8 --seconds 0 --json",
    ],
    "audit": [
        "audit run.yaml -o certificate.json",
        "audit run.yaml --json",
        "audit run.yaml --check certificate.json",
        "audit run.yaml --check certificate.json --json",
        "audit --indices indices.npy --rows 8 --epochs 1",
        "audit --indices indices.npy --rows 8 --epochs 1 --json",
    ],
    "simulate": [
        "simulate run.yaml --steps 10 --ranks 2 --latency 0.02 --bandwidth 1MB --step-seconds 0.1",
        "simulate run.yaml --steps 10 --ranks 2 --latency 0.02 --bandwidth 1MB --json",
    ],
    "report": [
        "report run.yaml -o pages.html",
        "report run.yaml --ranks 2 --state state.json",
        "report stores/wiki -o store.html --json",
        "report files/train.bin --dtype uint16 --eos 2",
    ],
    "evaluate": [
        "evaluate stores/wiki --model model --seq-len 16 --pz --prefix 6 --suffix 2 --stride 40",
        "evaluate run.yaml --model model --set take=6 --by source",
        "evaluate stores/code --model model --seq-len 16 --by document --json",
    ],
    "pack-plan": [
        "pack-plan stores/wiki --seq-len 16",
        "pack-plan stores/wiki --seq-len 16 --strategy greedy --overflow split --json",
    ],
    "splice audit": [
        f"splice audit {ONE} --limit 3",
        f"splice audit {ONE} --limit 3 --json",
    ],
    "splice coverage": [
        "splice coverage stores/wiki --seq-len 16 --num-docs 2 --content-length 8",
        f"splice coverage {ONE} --svg map.svg --json",
    ],
    "verify": [
        "verify stores/wiki",
        "verify stores/wiki --json",
        "verify stores/wiki --part 1/2",
        "verify damaged",
        "verify damaged --json",
        "verify files/train.bin --dtype uint16 --eos 2",
    ],
    "seal": [
        "seal files/train.bin --dtype uint16 --eos 2",
        "seal files/train.bin --dtype uint16 --eos 2 --to train.seal --json",
    ],
    "gc": [
        "gc stores/wiki --dry-run",
        "gc stores/wiki --json",
    ],
}

# these exit with a code that is part of the answer, the others with 0
VERDICTS = {
    "check run.yaml --set sead=8 --set sources.wiki.epochs=many": 2,
    "check run.yaml --set sead=8 --json": 2,
    "find run.yaml nobody": 1,
    "diff run.yaml run.yaml --set mix.weights.code=4": 1,
    "diff run.yaml run.yaml --set mix.weights.code=4 --json": 1,
    "audit --indices indices.npy --rows 8 --epochs 1": 1,
    "audit --indices indices.npy --rows 8 --epochs 1 --json": 1,
    "verify damaged": 1,
    "verify damaged --json": 1,
}

WRITE = (
    *("init", "build", "export", "convert", "info", "edit", "audit", "report", "splice coverage"),
    *("seal", "gc"),
)

# exit code, command line, what the message names
REFUSED = [
    (3, "init stores/wiki", "stores/wiki"),
    (3, "build corpus/a.jsonl -o stores/third -t bytes --text-key body", "body"),
    (2, "export stores/wiki exports/third --to megatron", "megatron"),
    (1, "convert stores/wiki corpus", "corpus"),
    (3, "check rum.yaml --json", "rum.yaml"),
    (1, "info stores/wikki", "stores/wikki"),
    (2, "info files/train.bin", "files/train.bin"),
    (2, "show stores/wiki --doc wiki-3", "wiki-3"),
    (2, "show stores/wiki --doc 99 --json", "99"),
    (2, "dataset run.yaml --first 999", "999"),
    (3, "dataset nothing.jsonl", "nothing.jsonl"),
    (3, "dataset bad.jsonl", "line 1"),
    (3, "init corpus -o elsewhere.yaml", "elsewhere.yaml"),
    (2, "plan run.yaml --steps 0 --json", "--steps"),
    (2, "plan run.yaml --stepps 3 --json", "--stepps"),
    (2, "state nothing.json", "nothing.json"),
    (2, "at run.yaml 9999", "9999"),
    (2, "where run.yaml --source wkii --doc 3", "wkii"),
    (2, "where run.yaml --source wiki", "doc"),
    (2, "digest run.yaml --last 9999", "9999"),
    (3, "diff run.yaml rum.yaml", "rum.yaml"),
    (2, "edit run.yaml --at 16 --weights kode=4 -o third.yaml", "edit.weights.kode"),
    (2, "explore run.yaml --port 99999", "99999"),
    (2, "audit run.yaml --rows 8", "--rows"),
    (2, "audit run.yaml --executor ray", "--executor"),
    (2, "simulate run.yaml --ranks 9", "9 ranks"),
    (2, "report stores/wiki --ranks 2", "--ranks"),
    (2, "report run.yaml -o run.yaml", "run.yaml"),
    (2, "report s3://user:word@bucket/store --json", "store"),
    (3, "evaluate run.yaml --model corpus", "corpus"),
    (2, "pack-plan stores/wiki --seq-len 1", "--seq-len"),
    (2, "splice audit stores/wiki --seq-len 16 --num-docs 99", "99"),
    (2, "splice coverage stores/wiki --seq-len 16 --content-length 99 --document 99", "99"),
    (2, "verify stores/wiki --part 3/2", "3/2"),
    (2, "verify files/train.bin --dtype uint16 --eos 2 --part 1/2", "1/2"),
    (2, "seal stores/wiki", "stores/wiki"),
    (1, "gc corpus", "corpus"),
    # a line that is not a command line
    (2, "info", "store"),
    (2, "shwo stores/wiki", "'show'"),
    (2, "show stores/wiki --dco 1", "--dco"),
    (2, "pack-plan stores/wiki --seq-len many", "'many'"),
    (2, "simulate run.yaml --cache 2GiX", "'2GiX'"),
    (2, "at run.yaml --batch-size 4:x", "'4:x'"),
    (2, "build corpus/a.jsonl -o stores/x --engine quick", "'quick'"),
    (2, "build corpus/a.jsonl", "--out"),
    (2, "bench permutation", "'bench'"),  # it is `python -m benchmarks permutation`
    # options that do not go together, or with this target
    (2, "build corpus/a.jsonl -o stores/x", "--vocab-size"),
    (1, "build corpus/a.jsonl -o stores/wiki -t bytes", "--id-key"),
    (3, "build corpus/a.jsonl -o stores/x -t no-such-tokenizer --json", "no-such-tokenizer"),
    (2, "at run.yaml", "--step"),
    (2, "at run.yaml --steps 5", "--steps"),
    (2, "at run.yaml 3 --rank 1", "--rank"),
    (2, "where run.yaml --doc 1", "--source"),
    (2, "digest stores/wiki --first 1", "--first"),
    (2, "plan stores/wiki", "stores/wiki"),
    (2, "edit run.yaml --at 8 --quarantine x -o third.yaml", "--quarantine"),
    (2, "show stores/wiki", "--doc"),
    (2, "digest run.yaml --set sources.wiki.epochs=endless", "--last"),
    (2, "gc stores/wiki --pin-for run.yaml", "run.yaml"),
    (2, "show stores/wiki --doc 0 --set seed=3", "--set"),
    (2, "digest stores/wiki --set seed=3", "--set"),
    (2, "find stores/wiki wiki-3 --set seed=3", "--set"),
    (2, "show stores/wiki --doc 0 --examples 3", "--examples"),
    (2, "show run.yaml --doc 0", "--doc"),
    (2, "dataset run.yaml --eos 2", "--eos"),
    (2, "dataset rows.jsonl --row 0", "--row"),
    (2, "audit", "RUN"),
    (2, "audit --full", "--full"),
    (2, "audit --indices indices.npy --first 3", "--first"),
    (2, "audit --indices nowhere.npy", "nowhere.npy"),
    (3, "simulate none.json --batch-size 8", "none.json"),
    (2, "simulate run.yaml --steps 0", "--steps"),
    (2, "evaluate run.yaml --model model --control hled --pz", "'hled'"),
    (2, "evaluate run.yaml --model model --control stores/code", "--pz"),
    (2, "evaluate run.yaml --model model --seq-len 8", "--seq-len"),
    (2, f"splice audit {ONE} --epoch -1", "--epoch"),
    (2, f"splice audit {ONE} --min-copy-len 9", "1 document"),
    (3, f"splice audit {ONE} --bos", "bos"),
    (2, "splice audit stores/wiki", "--seq-len"),
    (2, "splice", "VIEW"),
    (3, "check", "check"),
    (2, "check run.yaml --schema", "--schema"),
]

TEXTS = [
    "check run.yaml",
    "plan run.yaml --steps 10",
    "at run.yaml 5 --text",
    "where run.yaml --source wiki --doc 3",
    "state state.json --tokens-per-second 100",
]


def make_folder(root: Path) -> None:
    """Two stores, a damaged one, text, a run, a state, rows, indices, files, a model."""
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
    rows = [{"input_ids": [5, 2, 7, 9]}, {"input_ids": [1, 4], "document_starts": [0]}]
    (root / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    (root / "bad.jsonl").write_text("{")
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


def run(words: list[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    out, err = io.StringIO(), io.StringIO()
    logging.root.handlers.clear()  # the command sets up its own, which writes to where we read
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as end:
            code = int(end.code or 0)
    return code, out.getvalue(), err.getvalue()


def in_one_folder() -> list[list[str]]:
    """Lines that share a copy of the folder: those of a command that writes, or all others."""
    reading = [line for _, line, _ in REFUSED]
    reading += [line for verb, lines in COMMANDS.items() if verb not in WRITE for line in lines]
    return [*(COMMANDS[verb] for verb in WRITE), reading]


def run_all() -> dict[str, tuple[int, str, str]]:
    """Command line → exit code, standard output, standard error."""
    os.environ.pop("COLUMNS", None)
    warnings.simplefilter("always")
    answers = {}
    with tempfile.TemporaryDirectory() as root:
        os.environ["TOKENLOOM_CACHE_DIR"] = str(Path(root, "cache"))
        folder = Path(root, "folder")
        folder.mkdir()
        make_folder(folder)
        for lines in in_one_folder():
            copy = Path(root, "copy")
            shutil.copytree(folder, copy)
            with contextlib.chdir(copy):
                answers |= {line: run(shlex.split(line)) for line in lines}
            shutil.rmtree(copy)
    return answers


# -- the golden files ----------------------------------------------------------------------------

# the keys of these are names: of sources, columns, laws, measures
NAMED = {
    "laws", "metadata", "columns", "evaluate", "loader", "settings", "mixture_error", "missed",
    "losses", "windows", "by", "content", "evaluate_content", "control", "intervals", "figures",
    "files", "left_out", "numbers",
}  # fmt: skip
LEVELS = {"by": 2}  # of names
KINDS = {type(None): "null", bool: "bool", int: "number", float: "number", str: "text"}


def keys(value: object, path: str = "", levels: int = 0) -> set[tuple[str, str]]:
    """(path, kind) of every key of an answer; `*` stands for a name.

    >>> sorted(keys({"laws": {"order": {"ok": True}}, "new": [{"id": 3}, {"id": None}]}))
    [('laws.*.ok', 'bool'), ('new[].id', 'null'), ('new[].id', 'number')]
    """
    found = set()
    if isinstance(value, list):
        for item in value:
            found |= keys(item, f"{path}[]", levels)
        return found or {(f"{path}[]", "empty")}
    if not isinstance(value, dict):
        return {(path, KINDS[type(value)])}
    for name, item in value.items():
        below = f"{path}.{'*' if levels else name}".lstrip(".")
        if levels:
            found |= keys(item, below, levels - 1)
        elif name in NAMED or (
            name in ("sources", "tokens", "documents") and isinstance(item, dict)
        ):
            found |= keys(item, below, LEVELS.get(name, 1))
        else:
            found |= keys(item, below)
    return found or {(path, "empty")}


def schema(answers: dict[str, tuple[int, str, str]]) -> str:
    """One line for each key of each command: `plan sources[].rows number`."""
    lines = []
    for verb, commands in COMMANDS.items():
        kinds: dict[str, set[str]] = {}
        for line in commands:
            if "--json" in shlex.split(line):
                for path, kind in keys(json.loads(answers[line][1])):
                    kinds.setdefault(path, set()).add(kind)
        lines += [f"{verb}: {path} {'|'.join(sorted(kinds[path]))}\n" for path in sorted(kinds)]
    return "".join(lines)


def text(answers: dict[str, tuple[int, str, str]]) -> str:
    """What five commands print."""
    return "\n".join(f"$ tokenloom {line}\n{answers[line][1]}" for line in TEXTS)


if __name__ == "__main__":
    found = run_all()
    if sys.argv[1:] == ["--renew"]:
        (GOLDEN / "keys.txt").write_text(schema(found))
        (GOLDEN / "text.txt").write_text(text(found))
    else:
        print(json.dumps(found))
