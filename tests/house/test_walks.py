"""How many rooms a question passes, traced while it is answered."""

import sys
from pathlib import Path

import numpy as np
import pytest

import tokenloom as tl

SRC = str(Path(tl.__file__).parent) + "/"
MOST = {"first batch": 10, "n to spans": 5, "save": 9, "resume across an edit": 8}


def rooms(call) -> set[str]:
    """Rooms in which a function ran while `call` did; modules of the root are no rooms."""
    seen = set()

    def note(frame, event, _):
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(SRC):
            seen.add(name.removeprefix(SRC).rpartition("/")[0].split("/")[0])

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen - {""}


@pytest.fixture(scope="module")
def walks(tmp_path_factory):
    """A mix of a packed, block-shuffled and a spliced source, on rank 3 of 7."""
    folder = tmp_path_factory.mktemp("walks")
    texts = [{"text": chr(97 + i % 26) * (40 + 7 * i % 90)} for i in range(60)]
    store = tl.build(texts, folder / "a", tokenizer="bytes", progress=False)
    spliced = store.select(num_docs=5).splice(64, content_length=16).shuffle()
    run = tl.mix({"packed": store.pack(64).block_shuffle(), "spliced": spliced}).seed(7)
    loader = tl.Loader(run, batch_size=14, rank=3, world_size=7, prefetch=0)
    found = {"first batch": rooms(lambda: next(loader))}
    again = tl.from_config(run.describe())
    _ = again.run
    again.spans(np.arange(40))  # lengths of the documents are read once
    found["n to spans"] = rooms(lambda: again.spans(np.arange(20, 40)))
    found["save"] = rooms(lambda: tl.loader.write_state(loader.state_dict(), folder / "s.json"))
    edited = run.edit(at=loader.examples, weights={"spliced": 2})
    other = tl.Loader(edited, batch_size=14, rank=1, world_size=2, prefetch=0)
    state = tl.loader.read_state(folder / "s.json")
    found["resume across an edit"] = rooms(lambda: other.load_state_dict(state))
    return found


@pytest.mark.parametrize("walk", MOST)
def test_a_walk_passes_few_rooms(walks, walk):
    assert len(walks[walk]) <= MOST[walk], sorted(walks[walk])


def test_the_trace_sees_rooms():
    """Control: a call that passes the store and the errors is seen to."""

    def fails():
        with pytest.raises(tl.StoreNotFound):
            tl.open("nowhere")

    assert {"api", "store"} <= rooms(fails)
