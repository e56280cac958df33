"""Every experiment is what its section says, before anything is trained."""

import itertools

import numpy as np
import pytest
from science.models import Shape, TinyLlama
from science.plan import RUNS, Trial, load_run
from science.registry import EXPERIMENTS
from science.texts import WORDS, letter_store, piece_store

import tokenloom as tl
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
    assert 100 < count < 220


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


def counted(run):
    """Reads for each example of an epoch by a loader over a store that was just opened."""
    fresh = tl.from_config(run.describe(), cache_bytes=shuffles.CACHE)
    with tl.Loader(fresh, shuffles.BATCH, rank=0, world_size=1) as loader:
        rows = sum(len(batch) for batch in loader)
    return fresh.counters().read_ops / rows


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("order", shuffles.ORDERS)
def test_reads_of_an_order_are_those_that_a_loader_counts(order, tmp_path):
    (arm,) = (one for one in shuffles.ARMS if one.name == order)
    trial = Trial(arm, 0, 40, tmp_path)
    run = load_run("shuffle", trial, [("text", shuffles.topic_corpus(trial).store)])
    found = shuffles.read_counts(run, trial)
    assert found["reads"] == counted(run) > 0
    assert found["reads_larger"] > 0


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_blocks_save_most_reads_of_a_full_shuffle_in_a_larger_corpus(tmp_path):
    found = {}
    for arm in shuffles.ARMS[: len(shuffles.ORDERS)]:
        trial = Trial(arm, 0, 80, tmp_path)
        run = load_run("shuffle", trial, [("text", shuffles.topic_corpus(trial).store)])
        found[arm.name] = shuffles.read_counts(run, trial)
    full = found["full"]
    for name in ("block K = 8", "block K = 32", "8 lanes of 8"):
        assert found["stored"]["reads_larger"] < found[name]["reads_larger"] < 1 / 12
        assert found[name]["reads_larger"] < full["reads_larger"] / 2


def test_the_ablation_tells_loss_bits_speed_and_reads_of_every_order():
    one = EXPERIMENTS["shuffle"]
    assert {"loss", "perplexity", "bpb", "train", "tokens_s", "reads"} <= set(one.columns)
    assert {"full", "era 512", "block K = 8", "block K = 32"} <= {arm.name for arm in one.arms}


def test_the_corpus_of_orders_is_the_same_for_every_seed_and_stored_by_language(tmp_path):
    arm = shuffles.ARMS[0]
    stores = [
        shuffles.topic_corpus(Trial(arm, seed, 40, tmp_path / str(seed))).store for seed in (0, 1)
    ]
    assert stores[0].digest == stores[1].digest
    first = [int(stores[0].document(i)[0]) for i in range(stores[0].num_documents)]
    changes = sum(a != b for a, b in itertools.pairwise(first))
    assert (len(set(first)), changes) == (8, 7)


# -- orders in loaders ---------------------------------------------------------------------------


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


# -- places in the frame -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("positions", "least", "most"), [("RoPE", -1.0, 1e-4), ("learned", 1e-3, 10.0)]
)
def test_windows_are_judged_at_cells_of_the_frame(licence, positions, least, most):
    """What an untrained model with learned positions says of a window depends on where it is."""
    model = TinyLlama(Shape(vocabulary=WORDS, positions=positions), seed=0)
    figures, by_offset = splice_claim.window_figures(model, licence)
    assert [s for s, _ in by_offset] == list(splice_claim.OFFSETS)
    assert least < figures["moved_by"] < most
