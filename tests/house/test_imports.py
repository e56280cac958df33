"""Imports go downwards, and `import tokenloom` brings nothing heavy."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

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

# A room may import the rooms below it. Within a room there are no cycles.
FLOORS = [
    ("_native", "arrays", "errors", "native", "version", "words"),
    ("bind", "keys", "progress", "yaml_files"),
    ("attention", "order"),
    ("store",),
    ("cells", "line", "spans"),
    ("boundaries", "layout", "masks", "rendering", "shuffle", "split"),
    ("batch", "batch_laws", "checks", "chosen", "costs", "describe", "run", "schedule"),
    ("mix", "prices", "quality"),
    ("packing", "plan", "render", "specials", "splicing", "weave"),
    ("dataset", "prefetch", "state"),
    ("build", "documents", "grown", "inspect", "maker", "mixed", "mixture"),
    ("loader", "stored"),
    ("building", "config", "mixing", "planning", "splice_configs"),
    ("cli", "integrations", "testing"),
    ("__init__", "__main__"),
]


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def floor(module: str) -> int:
    room = module.split(".")[0]
    return next(i for i, rooms in enumerate(FLOORS) if room in rooms)


def internal_imports(tree: ast.AST):
    """(imported module, is it inside a function) for every import of our own package."""
    inside = {
        id(node)
        for f in ast.walk(tree)
        if isinstance(f, ast.FunctionDef)
        for node in ast.walk(f)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tokenloom":
            base = node.module.partition(".")[2]
            for alias in node.names:
                full = f"{base}.{alias.name}".strip(".")
                is_module = (SRC / full.replace(".", "/")).with_suffix(".py").exists()
                yield (full if is_module else base or "__init__"), id(node) in inside
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "tokenloom":
                    yield alias.name.partition(".")[2] or "__init__", id(node) in inside


def graph() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in sorted(SRC.rglob("*.py")):
        name = module_name(path)
        for target, lazy in internal_imports(ast.parse(path.read_text())):
            assert not lazy, f"{name} imports {target} inside a function"
            found.setdefault(name, set()).add(target)
    return found


def test_imports_go_downwards_only():
    wrong = [
        f"{name} imports {target}"
        for name, targets in graph().items()
        for target in targets
        if floor(target) > floor(name)
    ]
    assert wrong == []


def test_there_are_no_import_cycles():
    list(TopologicalSorter(graph()).static_order())


def test_the_import_check_can_fail():
    tree = ast.parse("def f():\n    from tokenloom.cli import main\nimport tokenloom.stored")
    assert sorted(internal_imports(tree)) == [("cli", True), ("stored", False)]
    assert floor("cli.building") > floor("store.reader")


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


@pytest.mark.parametrize("path", sorted(SRC.rglob("*.py")), ids=lambda p: p.name)
def test_a_module_is_one_idea_and_says_which(path):
    source = path.read_text()
    assert source.count("\n") <= 420, "two ideas live here by now"
    assert ast.get_docstring(ast.parse(source)), "no module docstring"


def test_no_room_is_called_utils_base_or_core():
    names = {path.stem for path in SRC.rglob("*.py")} | {
        p.name for p in SRC.rglob("*") if p.is_dir()
    }
    assert not names & {"utils", "util", "base", "core", "helpers", "common", "misc"}
