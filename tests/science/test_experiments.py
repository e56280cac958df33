"""Every experiment is what its section says, before anything is trained."""

import numpy as np
import pytest
from science.plan import RUNS, Trial, load_run
from science.registry import EXPERIMENTS
from science.shuffles import reads_per_example
from science.texts import letter_store, piece_store

from science import scaling, shuffles, splice_claim
from tokenloom.inspect import triples

EVERY = [(one, arm) for one in EXPERIMENTS.values() for arm in one.arms]


@pytest.mark.parametrize("one", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_arms_have_names_of_their_own_and_three_seeds(one):
    names = [arm.name for arm in one.arms]
    assert len(set(names)) == len(names)
    assert set(one.quick) <= set(names)
    assert len(one.quick) == len(set(one.quick)) == 2
    assert len(one.seeds) >= 3
    assert 0 < one.quick_steps < one.steps
    assert (RUNS / f"{one.name}.yaml").exists()


def test_there_are_about_as_many_trainings_as_an_hour_on_two_cores_has_room_for():
    count = sum(len(one.trials()) for one in EXPERIMENTS.values())
    assert 100 < count < 170


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


@pytest.fixture(scope="module")
def licence(tmp_path_factory):
    return piece_store(
        tmp_path_factory.mktemp("licence"), text="licence", pieces=2, length=64, seed=0
    )


PLACES = {
    "anchor": {(0, 0)},
    "tile": {(0, 0), (32, 0)},
    "splice_s": {(0, s) for s in range(49)},
    "slide_t": {(t, 0) for t in range(33)},
    "cov": {(t, 80) for t in range(33)},
    "slide_within": {(t, s) for t in range(33) for s in range(81)},
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("regime", PLACES)
def test_a_regime_shows_the_starts_and_offsets_of_its_description(regime, licence, tmp_path):
    (arm,) = (one for one in splice_claim.ARMS if one.name == f"RoPE {regime}")
    run = load_run("splice", Trial(arm, 0, 1, tmp_path), [("text", licence)]).epochs(1)
    found = triples(run)
    for document in range(2):
        own = found.document == document
        assert set(zip(found.t[own].tolist(), found.s[own].tolist(), strict=True)) == PLACES[regime]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("arm", scaling.ARMS, ids=lambda arm: arm.name)
def test_scaling_trains_the_first_documents(arm, letters, tmp_path):
    run = load_run("scaling", Trial(arm, 0, 1, tmp_path), [("text", letters)])
    seen = set(run.batch(range(400)).spans.document.tolist())
    assert seen == set(range(int(arm.data)))


# -- reads ---------------------------------------------------------------------------------------


def slow_reads(run, store, group):
    """Rows of each group one by one: a row is read with the one before it, or apart."""
    starts = np.concatenate([[0], np.cumsum(store.lengths)])
    reads = 0
    for first in range(0, len(run), group):
        places = []
        for index in range(first, min(first + group, len(run))):
            spans = run.spans([index])
            places.append(int(starts[spans.document[0]] + spans.start[0]))
        reads += sum(place - run.seq_len not in places for place in places)
    return reads / len(run)


@pytest.mark.parametrize("order", shuffles.ORDERS)
def test_reads_are_those_of_a_loop_over_rows(order, tmp_path):
    rng = np.random.default_rng(3)
    store = letter_store(["".join(rng.choice(list("ab"), 50)) for _ in range(100)], tmp_path / "s")
    (arm,) = (one for one in shuffles.ARMS if one.name == order)
    run = load_run("shuffle", Trial(arm, 0, 1, tmp_path), [("text", store)])
    assert reads_per_example(run, store, group=20) == pytest.approx(slow_reads(run, store, 20))


def test_a_stored_order_reads_each_group_at_once_and_a_full_one_nearly_every_row(tmp_path):
    store = letter_store(["ab" * 32] * 512, tmp_path / "s")
    stored, full = store.windows(64), store.windows(64).shuffle().seed(0)
    assert reads_per_example(stored, store, group=64) == 1 / 64
    assert reads_per_example(full, store, group=64) > 0.7
