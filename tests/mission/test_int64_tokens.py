"""`Loader(dtype="int64")`: the same numbers in another width, whatever is loaded and however."""

import copy
import pickle

import numpy as np
import pytest
from toyruns import FIELDS, toy_store

import tokenloom as tl

LAYOUTS = {
    "windows": lambda store: store.windows(8),
    "look-ahead": lambda store: store.windows(8, lookahead=True),
    "shifted": lambda store: store.windows(8, label_layout="shifted"),
    "packed": lambda store: store.pack(24),
    "packed, BOS and EOS": lambda store: store.pack(
        24, add_bos=True, add_eos=True, bos_id=7, eos_id=8
    ),
    "spliced": lambda store: store.splice(8),
    "mixed": lambda store: tl.mix({"a": store.windows(8), "b": store.pack(8)}),
}
WIDE = {"tokens", "labels"}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return toy_store(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def weighted(tmp_path_factory):
    """The same with a loss column."""
    return toy_store(tmp_path_factory.mktemp("weighted"), weights=True)


pytestmark = pytest.mark.filterwarnings("ignore")


def loaded(dataset, dtype, **options):
    options = {"fields": FIELDS, "end": "pad", "untrained": "zero", **options}
    with tl.Loader(dataset, 3, dtype=dtype, **options) as loader:
        return [batch for batch, _ in zip(loader, range(6), strict=False)]


@pytest.mark.parametrize("fetch", ["blocks", "rows"])
@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("weights", [False, True])
def test_every_field_of_every_layout_has_the_same_numbers(store, weighted, layout, fetch, weights):
    dataset = LAYOUTS[layout](weighted if weights else store).shuffle().seed(5)
    for fields in (FIELDS, ("tokens",)):
        narrow = loaded(dataset, "int32", fetch=fetch, fields=fields)
        wide = loaded(dataset, "int64", fetch=fetch, fields=fields)
        assert len(narrow) == len(wide) > 0
        for one, other in zip(narrow, wide, strict=True):
            for name in FIELDS:
                a, b = getattr(one, name), getattr(other, name)
                assert np.array_equal(a, b), name
                assert b.dtype == (np.int64 if name in WIDE else a.dtype), name


def test_copies_of_a_loader_keep_the_dtype(store):
    with tl.Loader(store.windows(8).seed(5), 3, dtype="int64") as loader:
        next(loader)
        for made in (copy.copy(loader), copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
            with made:
                assert next(made).tokens.dtype == np.int64
