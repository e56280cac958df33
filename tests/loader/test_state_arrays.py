"""A state knows the cached arrays that decided its order, and a resume with others says so."""

import itertools
import json
import re

import numpy as np
import pytest
from toydata import ToyStore, numbered
from toystore import keep_plans

import tokenloom as tl
from tokenloom.layout.pack import rows as grouping
from tokenloom.order import costs, prices
from tokenloom.store import plan_cache
from tokenloom.testing import tiny

SIZES = [np.random.default_rng(5).integers(2, 14, 80).tolist()]


@pytest.fixture(scope="module")
def toy():
    with ToyStore(numbered(SIZES)) as made:
        yield made


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with keep_plans(tmp_path / "cache", cost_stride_items=4) as made:
        yield made


def packed(toy, **options):
    return tl.open(toy.path).pack(16, strategy="one_doc", group_docs=9, **options).shuffle()


def spliced(toy):
    return tl.open(toy.path).splice(16, content_length=5, edge="clip").shuffle()


def mixed(toy, cost="tokens", **options):
    sources = {"p": packed(toy), "s": spliced(toy), "w": tl.open(toy.path).windows(16).shuffle()}
    return tl.mix({name: one.epochs(3) for name, one in sources.items()}, cost=cost, **options)


RUNS = {
    "packed": packed,
    "tokens": mixed,
    "loss_tokens": lambda toy: mixed(toy, "loss_tokens"),
    "rows": lambda toy: mixed(toy, "rows", rule="weights"),
    "random": lambda toy: mixed(toy, rule="random"),
    "shuffled": lambda toy: mixed(toy).shuffle(),
}


def state_at(dataset, steps):
    with tl.Loader(dataset, 4, prefetch=0, end="wrap") as loader:
        return loader.seek(steps).state_dict()


def load(dataset, state, **options):
    with tl.Loader(dataset, 4, prefetch=0, end="wrap") as loader:
        loader.load_state_dict(state, **options)
        return loader.examples


def forge(folder, *kinds):
    """Believable files with other numbers; what would find them is turned off by the caller."""
    count = 0
    for path in folder.iterdir():
        kind = re.fullmatch(r"(.+)-[0-9a-f]{64}\.(json|ints|parts)", path.name)[1]
        if kind not in kinds:
            continue
        count += 1
        if kind == "pack":
            value = json.loads(path.read_bytes())
            value["value"]["rows"].reverse()
            value["sha256"] = plan_cache._hash([value["identity"], value["value"]])
            path.write_text(json.dumps(value))
            continue
        head, body = path.read_bytes().split(b"\n", 1)
        told = json.loads(head)
        array = np.frombuffer(body, told["kind"])
        steps = np.sort(np.diff(array)) if kind == "sums" else np.sort(array)
        made = np.concatenate([[0], np.cumsum(steps)]) if kind == "sums" else steps
        body = made.astype(array.dtype).tobytes()
        told["sha256"] = plan_cache.hashlib.sha256(body).hexdigest()
        path.write_bytes(json.dumps(told).encode() + b"\n" + body)
    assert count


@pytest.fixture
def nobody_looks(monkeypatch):
    for module in (grouping, costs, prices):
        monkeypatch.setattr(module, "random_places", lambda count: np.empty(0, np.int64))


@pytest.mark.parametrize("name", list(RUNS))
@pytest.mark.parametrize("steps", [1, 9, 60])
def test_it_is_the_same_whether_arrays_were_made_read_or_could_not_be_kept(
    toy, folder, name, steps
):
    made = state_at(RUNS[name](toy), steps)
    assert len(made["arrays"]) == 64
    assert list(folder.iterdir())
    read = state_at(RUNS[name](toy), steps)
    assert read == made
    folder.chmod(0o777)
    assert state_at(RUNS[name](toy), steps) == made  # worked out in memory
    with tl.Loader(RUNS[name](toy), 4, 1, 2, prefetch=8, end="wrap") as loader:
        assert loader.seek(steps).state_dict() == made
    assert load(RUNS[name](toy), made)  # without a warning


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *[("packed", "pack"), ("rows", "pack"), ("tokens", "packed-tokens"), ("tokens", "sums")],
        *[("loss_tokens", "trained"), ("loss_tokens", "sums"), ("tokens", "pack")],
        *[("random", "sums"), ("random", "packed-tokens"), ("shuffled", "packed-tokens")],
    ],
)
def test_it_changes_with_any_array_and_the_resume_says_so(toy, folder, name, kind, nobody_looks):
    clean = state_at(RUNS[name](toy), 5)
    forge(folder, kind)
    other = RUNS[name](toy)
    with pytest.warns(UserWarning, match=r"state: it was saved with other cached arrays \(sha256"):
        load(other, clean)
    forged = state_at(other, 5)
    assert forged["fingerprint"] == clean["fingerprint"]
    assert forged["arrays"] != clean["arrays"]
    for path in folder.iterdir():
        path.unlink()
    with pytest.warns(UserWarning, match="examples may come that it has shown already"):
        load(RUNS[name](toy), forged)
    assert load(RUNS[name](toy), clean)
    assert load(RUNS[name](toy), forged, allow_mismatch=True)


@pytest.mark.parametrize("name", ["packed", "rows"])
def test_arrays_that_decide_nothing_are_not_in_it(toy, folder, name, nobody_looks):
    """Costs that no array decides: forged tables of tokens are none of its business."""
    mixed(toy).tokens_in(20)  # so that there are some
    clean = state_at(RUNS[name](toy), 5)
    forge(folder, "packed-tokens", "sums")
    assert load(RUNS[name](toy), clean)  # without a warning


def test_a_run_that_has_shown_nothing_computes_nothing_for_its_state(toy, folder, monkeypatch):
    asked = []
    inner = costs.SummedCosts._recalled
    monkeypatch.setattr(
        costs.SummedCosts,
        "_recalled",
        lambda self, epoch: asked.append(epoch) or inner(self, epoch),
    )
    dataset = mixed(toy, stop="all_exhausted")  # of which the end is no question of time
    assert dataset.run.arrays_digest(0) is None
    assert asked == []
    assert not [path for path in folder.iterdir() if not path.name.startswith("pack")]
    assert dataset.run.arrays_digest(4) is not None
    assert asked  # control
    assert not state_at(mixed(toy), 0)["arrays"]


def test_runs_without_cached_arrays_have_no_digest(toy):
    windows = tl.open(toy.path).windows(16)
    assert not state_at(windows.shuffle(), 3)["arrays"]
    assert not state_at(spliced(toy), 3)["arrays"]
    both = tl.mix({"a": windows.shuffle(), "b": windows.shuffle()}, cost="tokens")
    assert not state_at(both, 3)["arrays"]
    with tiny(
        min_cached_packing_documents=10**9,
        min_cached_cost_items=10**9,
        min_cached_trained_rows=10**9,
    ):
        assert not state_at(mixed(toy), 3)["arrays"]


def test_a_state_is_of_the_epoch_that_it_is_in(toy):
    """Sums of an epoch that is over, or not yet there, decide nothing that comes next."""
    with tl.Loader(mixed(toy), 4, prefetch=0) as loader:
        states = [loader.seek(step).state_dict() for step in range(1, len(loader), 9)]
    epochs = [[one["epochs"] for one in state["sources"]] for state in states]
    pairs = zip(epochs, [state["arrays"] for state in states], strict=True)
    changes = [(one[0] != two[0], one[1] != two[1]) for one, two in itertools.pairwise(pairs)]
    assert (False, True) not in changes
    assert sum(new for new, _ in changes) > 2
    assert sum(new for _, new in changes) > 2


@pytest.mark.parametrize("cost", ["tokens", "loss_tokens"])
def test_a_mix_that_is_shuffled_as_a_whole_has_the_arrays_of_its_end_at_all_times(toy, cost):
    """It has shown a bit of everything."""
    plain, shuffled = mixed(toy, cost).run, mixed(toy, cost).shuffle().run
    assert plain.n == shuffled.n
    found = {shuffled.arrays_digest(examples) for examples in (1, 7, plain.n // 2, plain.n)}
    assert found == {plain.arrays_digest(plain.n)}
    assert found != {plain.arrays_digest(1)}, "the first epoch alone"


def test_edits_from_there_on_leave_the_digest_of_a_state_alone(tmp_path):
    path = tmp_path / "s"
    records = [{"input_ids": [1 + i % 7] * (1 + i % 9)} for i in range(60)]
    tl.build(records, path, tokenizer=None, vocab_size=10)

    def runs():
        store = tl.open(path)
        one = store.pack(8, group_docs=7).shuffle()
        two = tl.mix({"a": one, "b": store.pack(8, strategy="one_doc", group_docs=7).shuffle()})
        return one, two

    states = [state_at(run, 3) for run in runs()]
    old = runs()
    tl.build(records[:20], path, tokenizer=None, vocab_size=10, append=True)
    grown = tl.open(path)
    third = grown.pack(8, strategy="greedy", group_docs=7).shuffle()
    edited = [
        old[0].edit(at=12, append={"main": grown}),
        old[0].edit(at=20, append={"main": grown}),
        old[1].edit(at=12, append={"b": grown}),
        old[1].edit(at=20, add={"c": third}, weights={"c": 1.0}),
    ]
    for number, run in enumerate(edited):
        assert load(run, states[number // 2])  # without a warning
        later = state_at(run, 8)
        assert later["arrays"] != states[number // 2]["arrays"]  # control: now they count
        assert load(run, later)


def test_the_deciding_part_stays_small_for_many_sources(toy):
    sources = {f"source {i}": packed(toy).seed(i) for i in range(40)}
    state = state_at(tl.mix(sources, cost="tokens"), 3)
    small = {key: value for key, value in state.items() if key not in ("dataset", "sources")}
    assert len(json.dumps(small)) < 512
    assert len(small["arrays"]) == 64


@pytest.mark.parametrize("wrong", ["x" * 64, "0" * 63, 7, ["0" * 64]])
def test_what_is_no_digest_is_refused(toy, wrong):
    state = state_at(packed(toy), 2) | {"arrays": wrong}
    with pytest.raises(tl.StateError, match="arrays: found"):
        load(packed(toy), state)
