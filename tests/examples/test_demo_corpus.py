"""Finding text: the same documents every time, each once, none from installed packages."""

import sysconfig
from pathlib import Path

import pytest
from examples.demo import corpus
from examples.demo.corpus import code, docstrings, prose

STDLIB = Path(sysconfig.get_path("stdlib"))
PLENTY = 1 << 40


@pytest.fixture
def library(tmp_path):
    """A small standard library with everything that should be left out."""
    files = {
        "a.py": '"""About a."""\n',
        "sub/b.py": "def f():\n    'About f.'\n",
        "sub/copy_of_b.py": "def f():\n    'About f.'\n",
        "empty.py": "",
        "latin.py": "# caf\xe9\n".encode("latin-1"),
        "broken.py": "def (:\n",
        "escapes.py": '"""half \\ud800 a pair"""\n"\\d"\n',
        "test/test_a.py": '"""About a test."""\n',
        "README.txt": "Read me.\n",
        "_sysconfigdata_linux.py": "build_time_vars = {}\n",
        "encodings/table.py": "decoding_table = ()\n",
        "site-packages/evil.py": "import this\n",
        "sub/dist-packages/evil.py": "import antigravity\n",
        "__pycache__/a.py": "cached\n",
    }
    for name, content in files.items():
        path = tmp_path / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return tmp_path / "lib"


def test_code_is_every_module_once_without_packages_tables_and_unreadable_files(library):
    kinds = {one.id: one.kind for one in code(library, PLENTY)}
    # of two equal files, the one whose name hashes lower is kept
    twins = {"sub/b.py", "sub/copy_of_b.py"} & kinds.keys()
    assert len(twins) == 1
    rest = {name: kind for name, kind in kinds.items() if name not in twins}
    assert rest == {
        "a.py": "library",
        "broken.py": "library",
        "escapes.py": "library",
        "test/test_a.py": "test",
    }


def test_prose_is_docstrings_and_topics(library, monkeypatch):
    monkeypatch.setattr(corpus, "topics", lambda: [("assert", "The assert statement.")])
    found = {one.id: one.text for one in prose(library, PLENTY)}
    docs = {found.pop(f"docstrings/sub/{n}.py", None) for n in ("b", "copy_of_b")}
    assert docs == {"f\nAbout f.\n", None}
    assert found == {"topic/assert": "The assert statement.", "docstrings/a.py": "About a.\n"}


def test_the_choice_is_the_same_every_time_sorted_unique_and_within_the_budget():
    budget = 300_000
    first, second = code(STDLIB, budget), code(STDLIB, budget)
    assert first == second
    ids = [one.id for one in first]
    assert ids == sorted(set(ids))
    assert len({one.text for one in first}) == len(first)
    assert 0 < sum(len(one.text.encode()) for one in first) <= budget
    assert not any("site-packages" in name or name.startswith("/") for name in ids)


def test_docstrings_are_named_by_where_they_stand():
    source = '"m"\nclass A:\n  "a"\n  async def f(self):\n    "f"\n    def g(): "g"\nx = 1\n'
    assert docstrings(source) == "m\n\nA\na\n\nA.f\nf\n\nA.f.g\ng\n"
    assert docstrings("x = 1\n") == ""
    assert docstrings("def (:") is None
    assert docstrings("\0") is None
