"""`import tokenloom` brings nothing heavy, and the core works without any extra."""

import pydoc
import re
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
    "jinja2",
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


def ours_loaded_by(code: str) -> set[str]:
    check = (
        f"{code}\nimport sys\nprint(*[m for m in sys.modules if m.split('.')[0] == 'tokenloom'])"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


ANNEXES = {"streams", "inspect", "quality", "runfiles", "testing", "cli", "integrations"}
ANNEXES |= {"ingest", "config", "report", "evaluate", "exchange", "explore", "cluster"}

NOT_OURS = ("tokenloom.foreign.formats.", "tokenloom.foreign.treecache.")  # files of others
DRAWN = ("tokenloom.page.charts", "tokenloom.page.strips")


def rooms(modules: set[str]) -> set[str]:
    return {name.split(".")[1] for name in modules if "." in name}


def test_import_tokenloom_loads_none_of_its_rooms_and_not_even_numpy():
    assert ours_loaded_by("import tokenloom") == {"tokenloom", "tokenloom.version"}
    code = "import tokenloom, sys\nassert 'numpy' not in sys.modules"
    assert ours_loaded_by(code) == {"tokenloom", "tokenloom.version"}


def test_a_name_brings_its_room_and_that_test_can_fail():
    assert "config" in rooms(ours_loaded_by("import tokenloom\ntokenloom.from_config"))
    assert rooms(ours_loaded_by("import tokenloom\ntokenloom.ConfigError")) == {
        "errors",
        "version",
    }


def test_a_training_loop_loads_no_annex_and_nothing_that_only_builds_need(tmp_path):
    tokenloom.build([{"text": "abcdefgh"}], tmp_path / "s", tokenizer="bytes")
    code = f"""
import sys, tokenloom as tl
store = tl.open({str(tmp_path / "s")!r})
next(tl.Loader(store.pack(4).shuffle(), batch_size=2)).labels
slow = {{"importlib.metadata", "email", "concurrent.futures", "subprocess"}}
assert not slow & set(sys.modules), slow & set(sys.modules)
"""
    found = ours_loaded_by(code)
    assert not rooms(found) & ANNEXES
    assert not [name for name in found if name.startswith((*NOT_OURS, *DRAWN))]


def test_formats_of_others_are_loaded_with_their_files_and_that_test_can_fail(tmp_path):
    (tmp_path / "t.bin").write_bytes(bytes(20))
    code = f"import tokenloom as tl\ntl.open({str(tmp_path / 't.bin')!r}, dtype='uint16', eos=9)"
    assert [name for name in ours_loaded_by(code) if name.startswith(NOT_OURS)]


def test_a_part_of_a_build_loads_what_encodes_and_nothing_that_reads_or_trains(tmp_path):
    """Each of many processes starts anew, so what a part imports is paid as often."""
    (tmp_path / "in.jsonl").write_text('{"text": "ab"}\n' * 9)
    command = ["build", f"{tmp_path}/in.jsonl", "-o", f"{tmp_path}/s", "-t", "bytes"]
    code = f"from tokenloom.cli import main\nassert main({[*command, '--part', '1/2']}) == 0"
    found = rooms(ours_loaded_by(code))
    assert {"ingest", "store", "tokenizer"} <= found
    reads = {"api", "foreign", "documents", "layout", "order", "mixture", "trace", "batch"}
    assert not found & (reads | {"loader", "cluster", "exchange"} | ANNEXES - {"cli", "ingest"})


def test_names_are_those_of_all_whatever_is_loaded():
    assert dir(tokenloom) == tokenloom.__all__
    code = """
import tokenloom.store.reader, tokenloom.cli
assert dir(tokenloom) == tokenloom.__all__
assert tokenloom.open.__name__ == "open_store" and tokenloom.build.__name__ == "build_store"
assert callable(tokenloom.mix)
"""
    ours_loaded_by(code)


def test_a_name_that_is_not_there_is_refused_and_python_suggests_the_near_one():
    code = "import tokenloom as tl\ntl.Loadr"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip().splitlines()[-1] == (
        "AttributeError: module 'tokenloom' has no attribute 'Loadr'. Did you mean: 'Loader'?"
    )


def test_public_rooms_come_by_attribute_and_private_ones_do_not():
    code = (
        "import tokenloom as tl\ntl.order.full(3, seed=1), tl.integrations, tl.streams.interleave"
    )
    assert {"order", "streams", "integrations"} <= rooms(ours_loaded_by(code))
    code = "import tokenloom as tl\nassert not hasattr(tl, 'store') and not hasattr(tl, 'layout')"
    ours_loaded_by(code)


def test_a_dataset_travels_to_another_process_without_the_way_back_being_loaded(tmp_path):
    """How it is pickled is registered by the module that lays documents out."""
    tokenloom.build([{"text": "abcdefgh"}], tmp_path / "s", tokenizer="bytes")
    for run in ("one", "tl.mix({'a': one, 'b': one.seed(3)})"):
        code = f"""
import pickle, sys, tokenloom as tl
one = tl.open({str(tmp_path / "s")!r}).pack(4).shuffle()
run = {run}
again = pickle.loads(pickle.dumps(run))
assert again.fingerprint == run.fingerprint
"""
        ours_loaded_by(code)


def test_help_shows_every_public_name():
    shown = pydoc.render_doc(tokenloom, renderer=pydoc.plaintext)
    names = [name for name in tokenloom.__all__ if name != "__version__"]
    assert [n for n in names if not re.search(rf"^    (class )?{n}\b", shown, re.MULTILINE)] == []


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
