"""Published figures: the page holds what the code gives."""

import functools
import re

import pytest

from benchmarks import figures, published

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
