"""The splice example runs as it stands, from anywhere, and its two YAML files are what it reads."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "examples" / "splice"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One run from another directory: the finished process, and the directory."""
    folder = tmp_path_factory.mktemp("splice")
    done = subprocess.run(
        [sys.executable, str(FOLDER / "splice.py")],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=900,
    )
    return done, folder


def test_it_shows_frames_as_text_with_filler_and_what_is_trained(run):
    text = run[0].stdout
    assert "|The Zen of Python, by Tim Peters································|" in text
    assert "|················The Zen of Python, by Tim Peters················|" in text
    frames = re.findall(r"\|(.{64})\|\n {16}(.{64})\n", text)
    assert len(frames) == 10
    del frames[6]  # two windows side by side; in the others all text belongs together
    for cells, trained in frames:
        pairs = zip(cells, cells[1:] + "·", strict=True)
        assert trained == "".join(" " if "·" in pair else "^" for pair in pairs)


def test_it_says_what_offsets_do_for_rope(run):
    text = run[0].stdout
    assert "teach it nothing new" in text
    assert "position_scheme='relative'" in text


def test_it_counts_examples_of_every_document(run):
    shares = re.findall(r"([\d,]+) tokens +([\d,]+) examples +(\d+)%", run[0].stdout)
    softly, equally = shares[:5], shares[5:]
    assert len(softly) == len(equally) == 5
    assert {share for _, _, share in equally} == {"20"}
    by_length = sorted(softly, key=lambda one: int(one[0].replace(",", "")))
    examples = [int(one[1].replace(",", "")) for one in by_length]
    assert examples == sorted(examples)
    assert examples[0] < examples[-1]


def test_its_files_are_small_and_name_local_relative_paths():
    for name, kind in (("single", "splice_single_document"), ("multi", "splice_multi_document")):
        text = (FOLDER / f"{name}.yaml").read_text()
        data = yaml.safe_load(text)["data"]
        assert data["type"] == kind
        assert "://" not in text
        assert len(text.splitlines()) <= 50
    assert len((FOLDER / "splice.py").read_text().splitlines()) <= 150
