"""The run file of every experiment takes what its arms replace."""

import numpy as np
import pytest
from science.plan import Trial, load_run
from science.registry import EXPERIMENTS
from science.texts import letter_store

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
