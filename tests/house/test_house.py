"""What ruff and import-linter (pyproject.toml) do not check about this package."""

import ast
import builtins
import inspect
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import surface

import tokenloom as tl
from tokenloom import errors

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src/tokenloom"
HEAVY = "torch jax pyarrow datasets transformers tokenizers tiktoken sentencepiece fastokens zarr"
HEAVY += " tensorstore orjson jinja2 yaml tqdm pandas"
AT_CALL_TIME = "tokenloom.batch.views.annexes"  # reaches what judges a run when it is asked


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def a_cycle(edges):
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def test_no_module_imports_itself_in_a_circle():
    graph = grimp.build_graph("tokenloom", exclude_type_checking_imports=True)
    edges = {
        one: graph.find_modules_directly_imported_by(one) for one in graph.modules - {AT_CALL_TIME}
    }
    assert a_cycle(edges) is None
    assert a_cycle({"a": {"b"}, "b": {"a"}}), "a circle is found"


def test_import_tokenloom_loads_nothing_heavy_and_a_training_loop_no_annex(tmp_path):
    loaded = "import sys; print(*sys.modules)"
    assert not {"numpy", *HEAVY.split()} & {*python(f"import tokenloom; {loaded}")}
    tl.build([{"text": "abcdefgh"}], tmp_path / "s", tokenizer="bytes")
    loop = f"import tokenloom as tl; store = tl.open({str(tmp_path / 's')!r})\n"
    loop += "next(tl.Loader(store.pack(4).shuffle(), batch_size=2)).labels\n"
    found = set(python(loop + loaded))
    rooms = {name.split(".")[1] for name in found if name.startswith("tokenloom.")}
    assert {"store", "loader"} <= rooms
    assert not rooms & {"inspect", "report", "evaluate", "integrations", "ingest", "cli", "explore"}
    assert not found & set(HEAVY.split())


def test_the_core_works_without_any_extra(tmp_path):
    code = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {HEAVY.split()!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocker())
import tokenloom as tl
store = tl.build([{{"text": "hi", "url": "x"}}], {str(tmp_path / "s")!r}, tokenizer="bytes")
assert store.document(0).tolist() == [104, 105] and store.metadata(0)["url"] == "x"
assert store.verify().ok
"""
    python(code)


# modules that raise these to callers in their own room, which catch them
CAUGHT = "limits runfiles/text random/permute cli/verdicts"
CAUGHT += " ingest/skips remote/backends remote/disk_cache"
CAUGHT += " store/metadata store/plan_cache store/format"

# contracts of Python: indices, keys, iteration, `len`, imports, what the system reports
PYTHONS = "IndexError KeyError TypeError AttributeError StopIteration ImportError MemoryError"
PYTHONS += " AssertionError OSError ConnectionError TimeoutError SystemExit NotImplementedError"


def strangers(source):
    """Names of classes that are raised and are neither of our tree nor a contract of Python."""
    raises = [node.exc for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Raise)]
    names = {getattr(one.func, "id", "") for one in raises if isinstance(one, ast.Call)}
    return {name for name in names if hasattr(builtins, name)} - set(PYTHONS.split())


def test_errors_are_of_one_tree():
    every = {name: getattr(errors, name) for name in errors.__all__}
    kinds = [one for one in every.values() if inspect.isclass(one)]
    assert sum(issubclass(one, errors.TokenloomError) for one in kinds) > 10
    assert all(issubclass(one, (errors.TokenloomError, Warning)) for one in kinds)
    found = {path for path in SRC.rglob("*.py") if strangers(path.read_text())}
    assert found == {SRC / f"{name}.py" for name in CAUGHT.split()}
    assert strangers("raise ValueError('x')") == {"ValueError"}


def test_public_names_and_signatures_are_those_of_the_golden_file():
    """Renew it with `python tests/house/surface.py > tests/golden/surface.txt`."""
    golden = (ROOT / "tests/golden/surface.txt").read_text().splitlines()
    found = list(surface.lines())
    assert [line for line in golden if line not in found] == [], "gone or changed"
    assert [line for line in found if line not in golden] == [], "new"
    assert len(tl.__all__) - 1 <= 30  # beside the version
    assert dir(tl) == tl.__all__ == sorted(tl.__all__)
