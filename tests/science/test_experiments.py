"""The run file of every experiment takes what its arms replace."""

import numpy as np
import pytest
from science.plan import Trial, load_run
from science.registry import EXPERIMENTS
from science.texts import letter_store

import tokenloom as tl
from science import shuffles

EVERY = [(one, arm) for one in EXPERIMENTS.values() for arm in one.arms]

SOURCES = {
    "mixing": ("books", "posts", "chats"),
    "exact_mixing": ("long", "short"),
}


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    folder = tmp_path_factory.mktemp("letters")
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("abcdef"), 64)) for _ in range(60)]
    return letter_store(texts, folder / "store")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("one", "arm"), EVERY, ids=lambda value: getattr(value, "name", ""))
def test_the_run_file_takes_what_an_arm_replaces(one, arm, letters, tmp_path):
    names = SOURCES.get(one.name, ("text",))
    trial = Trial(arm, 5, 1, tmp_path)
    run = load_run(one.name, trial, [(name, letters) for name in names])
    assert set(run.sources) == (set(names) if len(names) > 1 else {"main"})
    assert run.batch([0, 1]).loss_tokens > 0


@pytest.mark.parametrize("order", shuffles.ORDERS)
def test_tr_07_loaders_of_two_ranks_deliver_every_row_of_every_order_once(order, letters, tmp_path):
    (arm,) = (one for one in shuffles.ARMS if one.name == order)
    run = load_run("shuffle", Trial(arm, 4, 1, tmp_path), [("text", letters)])
    shown = []
    for rank in range(2):
        with tl.Loader(run, 4, rank=rank, world_size=2) as loader:
            batches = list(loader)
        assert all((one.tokens == run.batch(one.index).tokens).all() for one in batches)
        shown += [one.tokens for one in batches]
    rows = np.concatenate(shown)
    every = np.array([letters.document(i) for i in range(60)])
    assert sorted(map(bytes, rows)) == sorted(map(bytes, every.astype(rows.dtype)))
