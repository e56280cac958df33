"""Published figures: the page holds what the code gives."""

import functools
import re

import numpy as np
import pytest

import tokenloom as tl
from benchmarks import figures, published
from tokenloom.evaluate import pz
from tokenloom.testing import write_store

PAGE = published.PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Makes a table once."""
    return functools.cache(lambda name: published.EXACT[name](tmp_path_factory.mktemp(name)))


def section_of(name):
    """The table of this name in the page, with its comments."""
    (found,) = re.findall(rf"<!-- {name} -->.*?<!-- end of {name} -->", PAGE, re.DOTALL)
    return found


@pytest.mark.parametrize("name", published.EXACT)
def test_do_10_the_page_holds_what_the_code_gives(made, name):
    assert figures.block(made(name)) == section_of(name), (
        f"run: python -m benchmarks published {name} --write"
    )


def test_c_24_p_z_is_of_one_document_or_of_several(tmp_path):
    write_store(tmp_path, [[[1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5], [1, 2, 3]]])
    store = tl.open(tmp_path)

    def windows(documents):
        found = pz(lambda t, *_: np.zeros((*t.shape, 8)), documents, prefix=1, suffix=2, stride=1)
        return {number: one["windows"] for number, one in found.by_document().items()}

    assert windows(store) == {0: 5, 1: 3, 2: 1}
    assert windows(store.select(doc_index=1)) == {1: 3}
    assert windows(store.select(num_docs=2, doc_select_mode="shortest")) == {1: 3, 2: 1}
