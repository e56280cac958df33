"""`import tokenloom` brings nothing heavy, and the core works without any extra."""

import subprocess
import sys
from pathlib import Path

import tokenloom

SRC = Path(tokenloom.__file__).parent
HEAVY = [
    "torch",
    "jax",
    "pyarrow",
    "datasets",
    "transformers",
    "tokenizers",
    "tiktoken",
    "sentencepiece",
    "fastokens",
    "zarr",
    "tensorstore",
    "orjson",
    "yaml",
    "tqdm",
    "pandas",
]


def loaded_by(code: str) -> list[str]:
    check = f"{code}\nimport sys\nprint(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_import_tokenloom_loads_no_framework_and_no_extra():
    assert loaded_by("import tokenloom") == []


def test_that_test_can_fail():
    assert loaded_by("import tokenloom, orjson, tqdm") == ["orjson", "tqdm"]


def test_the_core_works_without_any_extra(tmp_path):
    """Blocks every optional package, then builds, opens, reads and verifies."""
    blocked = [*HEAVY, "numpy.random"]
    code = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocker())
import tokenloom as tl
open({str(tmp_path / "a.jsonl")!r}, "w").write('{{"text": "hi", "url": "x"}}\\n')
store = tl.build({str(tmp_path / "a.jsonl")!r}, {str(tmp_path / "s")!r}, tokenizer="bytes")
assert store.document(0).tolist() == [104, 105]
assert store.metadata(0)["url"] == "x"
assert store.verify().ok
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_room_is_called_utils_base_or_core():
    names = {path.stem for path in SRC.rglob("*.py")} | {
        p.name for p in SRC.rglob("*") if p.is_dir()
    }
    assert not names & {"utils", "util", "base", "core", "helpers", "common", "misc"}
