"""A wheel and an sdist build, install into a clean environment, and work there; types hold."""

import importlib.util
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """Built from a copy, so that nothing else is written or packed."""
    copy, out = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("dist")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")
    shutil.copytree(ROOT / "src", copy / "src", ignore=ignored)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, copy]
    subprocess.run(command, check=True, capture_output=True)
    return out


def test_the_wheel_has_every_module_the_type_marker_and_the_licence(dist):
    (wheel,) = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    modules = {str(p.relative_to(ROOT / "src")) for p in (ROOT / "src/tokenloom").rglob("*.py")}
    assert modules | {"tokenloom/py.typed"} <= set(names)
    assert any(name.endswith("LICENSE") for name in names)
    assert not any(name.startswith(("tests", "benchmarks", "examples")) for name in names)


@pytest.mark.parametrize("kind", ["*.whl", pytest.param("*.tar.gz", marks=pytest.mark.slow)])
def test_it_installs_into_a_clean_environment_and_builds_a_store(dist, kind, tmp_path):
    (package,) = dist.glob(kind)
    python = tmp_path / "venv/bin/python"
    if importlib.util.find_spec("uv"):  # seconds instead of half a minute
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "-q", tmp_path / "venv", "-p", sys.executable], check=True)
        subprocess.run([*uv, "pip", "install", "-q", "--python", python, package], check=True)
    else:
        subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", package], check=True)
    (tmp_path / "a.txt").write_text("hello")
    for words in (["build", "a.txt", "-o", "s", "-t", "bytes"], ["verify", "s"]):
        subprocess.run([tmp_path / "venv/bin/tokenloom", *words], cwd=tmp_path, check=True)


CALLS = {
    "store.pack(2048, strategy='best_fit', pad_id=0).shuffle().epochs(2)": True,
    "tl.mix({'a': run}, weights={'a': 0.1}).seed(7).batch([0]).tokens + 1": True,
    "tl.from_config(run.describe(), verify='never')": True,
    "tl.plan_packing([3, 2], seq_len=8, strategy='greedy').fill": True,
    "store.pack('2048')": False,
    "store.windows(2048, tial='keep')": False,
    "tl.build('corpus', 'stores/wiki', tokeniser='bytes')": False,
    "tl.Loader(run, batch_size=8).sek(3)": False,
    "run.batch([0]).tokns": False,
    "run.render(train_on_eos='no')": False,
}


def test_a_type_checker_passes_right_calls_and_finds_wrong_ones(tmp_path):
    head = ["import tokenloom as tl", "store = tl.open('stores/wiki')", "run = store.pack(8)"]
    (tmp_path / "calls.py").write_text("\n".join([*head, *CALLS]) + "\n")
    command = [sys.executable, "-m", "mypy", tmp_path / "calls.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    wrong = {int(n) for n in re.findall(r"calls\.py:(\d+): error", done.stdout)}
    expected = {n for n, right in enumerate(CALLS.values(), len(head) + 1) if not right}
    assert wrong == expected, done.stdout + done.stderr
