"""A wheel and an sdist build, install into a clean environment, and work there."""

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """Built from a copy of the tracked files, so that nothing else can sneak in."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("pyproject.toml", "README.md", "LICENSE", "src"):
        source = ROOT / name
        if source.is_dir():
            for path in source.rglob("*"):
                if (
                    path.is_file()
                    and "__pycache__" not in path.parts
                    and "egg-info" not in str(path)
                ):
                    target = copy / path.relative_to(ROOT)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(path.read_bytes())
        else:
            (copy / name).write_bytes(source.read_bytes())
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, copy],
        check=True,
        capture_output=True,
    )
    return out


def test_the_wheel_has_the_package_and_its_type_marker_and_licence(dist):
    (wheel,) = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "tokenloom/py.typed" in names
    assert any(name.endswith("LICENSE") for name in names)
    assert not any(name.startswith(("tests", "benchmarks", "examples")) for name in names)
    modules = {str(p.relative_to(ROOT / "src")) for p in (ROOT / "src/tokenloom").rglob("*.py")}
    assert modules <= set(names)


def test_the_sdist_builds_the_same_modules(dist):
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    assert any(name.endswith("src/tokenloom/store/format.py") for name in names)
    assert any(name.endswith("pyproject.toml") for name in names)


def _install(folder, package):
    """With uv where it is there (seconds), else with pip (half a minute)."""
    uv = [sys.executable, "-m", "uv"]
    if subprocess.run([*uv, "--version"], check=False, capture_output=True).returncode == 0:
        subprocess.run([*uv, "venv", "-q", folder, "-p", sys.executable], check=True)
        python = folder / "bin/python"
        subprocess.run([*uv, "pip", "install", "-q", "--python", python, package], check=True)
        return
    venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin/python", "-m", "pip", "install", "-q", package], check=True)


@pytest.mark.parametrize("kind", ["*.whl", pytest.param("*.tar.gz", marks=pytest.mark.slow)])
def test_it_installs_into_a_clean_environment_and_builds_a_store(dist, kind, tmp_path):
    (package,) = dist.glob(kind)
    _install(tmp_path / "venv", package)
    (tmp_path / "a.txt").write_text("hello")
    tokenloom = tmp_path / "venv/bin/tokenloom"
    subprocess.run(
        [tokenloom, "build", "a.txt", "-o", "s", "-t", "bytes"], cwd=tmp_path, check=True
    )
    done = subprocess.run(
        [tokenloom, "verify", "s"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert "all is well" in done.stdout
