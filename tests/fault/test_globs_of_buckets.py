"""A pattern finds the same files in a bucket as on a disk: what `glob` makes of it."""

import glob
import itertools
import os

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from inbuckets import uploaded

import tokenloom as tl
from tokenloom.testing import FakeBucket

NAMES = [
    "a.txt",
    "b.txt",
    "^a.txt",
    "!.txt",
    "ab.txt",
    "-.txt",
    "].txt",
    "[.txt",
    "[a].txt",
    "a1.txt",
    "c10.txt",
    ".hidden.txt",
    "x/a.txt",
    "x/y/a.txt",
    "x/y/z/b.txt",
    "x/.y/a.txt",
    ".x/a.txt",
    "x.txt/a.txt",
    "a\\b.txt",
    "A.txt",
    "é.txt",
]

PATTERNS = [
    "[^a].txt",
    "[^ab].txt",
    "[!a].txt",
    "[!^a].txt",
    "[a-c].txt",
    "[c-a].txt",
    "[]].txt",
    "[]a].txt",
    "[!]].txt",
    "[-a].txt",
    "[a-].txt",
    "[[].txt",
    "[.txt",
    "[a].txt",
    "[a\\b].txt",
    "a[\\\\]b.txt",
    "*.txt",
    "?.txt",
    "??.txt",
    ".*",
    "[.]*",
    "**",
    "**/*.txt",
    "**/a.txt",
    "x/**",
    "x/**/a.txt",
    "x/**/**/a.txt",
    "**/y/**",
    "*/*.txt",
    "*/*",
    "**a.txt",
    "x**/a.txt",
    "x/.*/a.txt",
    ".x/*",
    "**/.y/*",
    "x/*/*/b.txt",
    "[x]/a.txt",
    "*[0-9]*",
    "*[!0-9].txt",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("files")
    for number, name in enumerate(NAMES):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"text of file {number}")
    return root


@pytest.fixture(scope="module")
def url(folder):
    with FakeBucket() as bucket:
        yield uploaded(bucket, folder)


STORES = itertools.count()


def texts(root, pattern, out):
    """The documents of a build, or None where nothing is found."""
    try:
        store = tl.build(f"txt:{root}/{pattern}", out / str(next(STORES)), tokenizer="bytes")
    except tl.InputError:
        return None
    return [bytes(one.tolist()).decode() for one in store.documents(range(len(store)))]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_finds_the_same_in_a_bucket(folder, url, pattern, tmp_path):
    found = texts(url, pattern, tmp_path)
    assert found == texts(folder, pattern, tmp_path)
    if not os.path.lexists(folder / pattern):
        expected = glob.glob(str(folder / pattern), recursive=True)
        assert len(found or []) == len({one for one in expected if os.path.isfile(one)})


PIECES = ["*", "?", "**", "[", "]", "!", "^", "-", "a", "b", ".", "/", "x", "y", ".txt", "\\"]


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join))
@example("[^a].txt")
@example("x/**/**/a.txt")
def test_any_pattern_finds_the_same_in_a_bucket(folder, url, tmp_path_factory, pattern):
    assume(glob.has_magic(pattern))
    assume(not {"", ".", ".."} & set(pattern.split("/")))  # no names of objects
    out = tmp_path_factory.mktemp("out")
    assert texts(url, pattern, out) == texts(folder, pattern, out)
