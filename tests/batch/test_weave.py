"""One pass over the cells gives what filling and painting give, and is taken only where it may."""

import numpy as np
import pytest
from toydata import ARRAYS, ToyStore
from toystore import random_shards

import tokenloom as tl
from tokenloom import native
from tokenloom.batch.render import Renderer

SETTINGS = {
    "usual": {},
    "absolute": {"position_scheme": "absolute"},
    "offset": {"position_offset": 3},
    "trailing": {"trailing": "doc"},
    "prefix": {"attend_prefix": True},
    "ignored": {"ignore_id": 5},
    "across": {"mask_boundary_loss": False},
    "shifted": {"label_layout": "shifted"},
    "no EOS": {"train_on_eos": False, "eos_id": 6},
    "guessed": {"segments": "eos", "eos_id": 6},
}
ALL = {"segment_ids", "position_ids", "loss_mask", "labels"}
LEFT = {  # what is not painted in the same pass
    "absolute": {"position_ids"},
    "offset": {"position_ids"},
    "trailing": {"segment_ids"},
    "prefix": {"segment_ids"},
    "ignored": {"labels", "loss_mask"},
    "across": {"labels", "loss_mask"},
    "shifted": {"labels", "loss_mask"},
    "no EOS": {"labels", "loss_mask"},
    "guessed": ALL,
}
LAYOUTS = {
    "windows": lambda store, **more: store.windows(16, **more),
    "packed": lambda store, **more: store.pack(24, **more),
    "overlap": lambda store, **more: store.pack(24, stride=4, **more),
}

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(params=["weights", "no weights"])
def toy(request):
    columns = {"loss_mask": ("uint8", lambda ids: ids % 3 > 0)}
    shards = random_shards(3, documents=20, longest=70, vocab=40)
    with ToyStore(shards, columns=columns if request.param == "weights" else None) as made:
        yield made, request.param == "weights"


def batches(dataset, fetch, dtype):
    fields = ARRAYS[:-1]
    options = {"fields": fields, "untrained": "zero", "end": "pad", "fetch": fetch}
    with tl.Loader(dataset, 4, dtype=dtype, **options) as loader:
        return [{name: getattr(batch, name) for name in ARRAYS} for batch in loader]


@pytest.mark.skipif(native.compiled is None, reason="the loops are not compiled here")
@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("setting", list(SETTINGS))
def test_one_pass_gives_what_filling_and_painting_give(toy, monkeypatch, layout, setting):
    made, weighed = toy
    dataset = LAYOUTS[layout](made.store, **SETTINGS[setting]).shuffle().seed(1)
    taken = set()
    real = Renderer._painted_with_tokens

    def noted(self, plan, fields):
        taken.add(real(self, plan, fields))
        return real(self, plan, fields)

    monkeypatch.setattr(Renderer, "_painted_with_tokens", noted)
    woven = {
        (fetch, dtype): batches(dataset, fetch, dtype)
        for fetch in ("rows", "blocks")
        for dtype in ("int32", "int64")
    }
    blank = layout == "overlap"
    trained = {"labels", "loss_mask"} if weighed else set()
    for names in taken:  # a plan with overlapping cells is not usual, either
        expected = ALL - LEFT.get(setting, set()) - trained
        assert set(names) == expected or (
            blank and set(names) == expected - {"labels", "loss_mask"}
        )
    monkeypatch.setattr(Renderer, "_painted_with_tokens", lambda self, plan, fields: ())
    for (fetch, dtype), found in woven.items():
        apart = batches(dataset, fetch, dtype)
        assert len(found) == len(apart) > 0
        for one, other in zip(found, apart, strict=True):
            for name in ARRAYS:
                assert np.array_equal(one[name], other[name]), name
                assert one[name].dtype == other[name].dtype, name
    monkeypatch.setattr(Renderer, "_painted_with_tokens", real)
    monkeypatch.setattr(native, "compiled", None)
    for one, other in zip(batches(dataset, "rows", "int32"), woven["rows", "int32"], strict=True):
        for name in ARRAYS:
            assert np.array_equal(one[name], other[name]), name
