"""X1, X6: the source itself has no way to run what it reads. Read as a tree, not as text."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import toys

import tokenloom

SOURCE = Path(tokenloom.__file__).parent
ROOT = SOURCE.parent.parent

# modules that turn data into code, or whose results differ from run to run
MODULES = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
MODULES |= {"random", "numpy.random", "runpy"}
BUILTINS = {"eval", "exec", "compile", "__import__", "breakpoint"}
ATTRIBUTES = {
    ("os", "system"),
    ("os", "popen"),
    ("torch", "load"),
    ("yaml", "load"),
    ("yaml", "load_all"),
    ("yaml", "unsafe_load"),
    ("yaml", "full_load"),
    ("yaml", "Loader"),
    ("yaml", "UnsafeLoader"),
    ("yaml", "FullLoader"),
    ("np", "random"),
    ("numpy", "random"),
    ("builtins", "eval"),
    ("builtins", "exec"),
}
KEYWORDS = {"allow_pickle": False, "shell": False, "trust_remote_code": False}


def lint(source: str) -> list[str]:
    """What is forbidden in a piece of source, one line each."""
    found, tree = [], ast.parse(source)
    # NumPy promises that the words of a bit generator never change; those of a Generator may
    stable = {
        id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == "PCG64"
    }
    for node in ast.walk(tree):
        if id(node) not in stable:
            found += [f"line {getattr(node, 'lineno', 0)}: {what}" for what in _forbidden(node)]
    return found


def _forbidden(node):
    if isinstance(node, ast.Import):
        yield from (f"import {a.name}" for a in node.names if _is_banned(a.name))
    elif isinstance(node, ast.ImportFrom):
        module = node.module or ""
        names = [f"{module}.{a.name}" for a in node.names]
        yield from (f"from {name}" for name in names if _is_banned(module) or _is_banned(name))
        pairs = [(module, a.name) for a in node.names]
        yield from (f"from {m} import {n}" for m, n in pairs if (m, n) in ATTRIBUTES)
    elif isinstance(node, ast.Name) and node.id in BUILTINS and isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        if (node.value.id, node.attr) in ATTRIBUTES:
            yield f"{node.value.id}.{node.attr}"
    elif isinstance(node, ast.keyword) and node.arg in KEYWORDS:
        allowed = isinstance(node.value, ast.Constant) and node.value.value is KEYWORDS[node.arg]
        if not allowed:
            yield f"{node.arg}="


def _is_banned(module):
    parts = module.split(".")
    return any(".".join(parts[:n]) in MODULES for n in range(1, len(parts) + 1))


def sources():
    return sorted(SOURCE.rglob("*.py"))


def test_x1_no_source_file_can_run_what_it_reads():
    found = {
        str(path.relative_to(SOURCE)): problems
        for path in sources()
        if (problems := lint(path.read_text()))
    }
    assert found == {}
    assert len(sources()) > 40


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "import marshal, os",
        "import random",
        "from random import shuffle",
        "import numpy.random",
        "from numpy import random",
        "from numpy.random import default_rng",
        "import numpy as np\nnp.random.seed(0)",
        "import numpy as np\nnp.random.Generator(np.random.PCG64(7))",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "f(allow_pickle=yes)",
        "eval('1')",
        "g = eval",
        "exec(code)",
        "compile('1', '', 'eval')",
        "__import__('os')",
        "import os\nos.system('ls')",
        "from os import system",
        "import torch\ntorch.load('x', weights_only=True)",
        "import yaml\nyaml.load(text)",
        "import yaml\nyaml.load(text, Loader=yaml.Loader)",
        "from yaml import load",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "AutoTokenizer.from_pretrained(name, trust_remote_code=True)",
        "AutoTokenizer.from_pretrained(name, trust_remote_code=trust)",
        "class A:\n    def f(self):\n        return [eval(x) for x in y]",
    ],
)
def test_x1_the_lint_can_fail(source):
    assert lint(source)


@pytest.mark.parametrize(
    "source",
    [
        "import re\nre.compile('a')",
        "model.eval()",
        "self.random = 1",
        "import numpy as np\nnp.random.PCG64(7).random_raw()",
        "'eval(1)'",
        "load(allow_pickle=False)",
        "import yaml\nyaml.safe_load(text)",
        "AutoTokenizer.from_pretrained(name, trust_remote_code=False)",
    ],
)
def test_x1_the_lint_knows_what_is_harmless(source):
    assert lint(source) == []


def test_x6_remote_code_is_trusted_nowhere():
    """Not in the library, nor in what people copy from: examples, documents, benchmarks."""
    word = "trust_remote_code" + "=True"  # or this file would be the one
    folders = [SOURCE, *(ROOT / name for name in ("examples", "docs", "benchmarks"))]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    files += ROOT.glob("*.md")
    texts = {path: path.read_bytes().replace(b" ", b"") for path in files}
    assert [str(path) for path, raw in texts.items() if word.encode() in raw] == []


def test_x6_a_name_in_the_local_hub_cache_is_used_without_running_its_code(tmp_path):
    """The cache has the layout of the hub client; a fresh process reads it."""
    settings = {"eos_token": "<|endoftext|>"}
    code = {"auto_map": {"AutoTokenizer": ["x.Y", None]}}
    repositories = {
        "gpt": {"tokenizer_config": settings, "config": {"model_type": "gpt2"}},
        "coded": {"tokenizer_config": settings | code},
        "code-only": {"tokenizer_config": code},
    }
    for name, files in repositories.items():
        root = tmp_path / "hub" / f"models--owner--{name}"
        snapshot = root / "snapshots" / ("0" * 40)
        snapshot.mkdir(parents=True)
        (root / "refs").mkdir()
        (root / "refs" / "main").write_text("0" * 40)
        for file, content in files.items():
            (snapshot / f"{file}.json").write_text(json.dumps(content))
        (snapshot / "tokenizer.json").write_text(toys.bpe_json())
        (snapshot / "x.py").write_text("raise SystemExit('remote code ran')")
    (snapshot / "tokenizer.json").unlink()
    script = (
        "import sys, tokenloom as tl\n"
        f"for name in {list(repositories)}:\n"
        "    try:\n"
        "        rows, out = [{'text': 'a'}], f'{sys.argv[1]}/{name}'\n"
        "        own = tl.build(rows, out, tokenizer='owner/' + name).tokenizer\n"
        "        print(own.kind, own.name, own.eos, own.vocab_size)\n"
        "    except Exception as problem:\n"
        "        print(type(problem).__name__, 'never run' in str(problem))\n"
    )
    env = os.environ | {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    env.pop("HF_HUB_CACHE", None)
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path], capture_output=True, text=True, env=env,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "tokenizers owner/gpt 0 1000",
        "tokenizers owner/coded 0 1000",
        "TokenizerError True",
    ], done.stderr
