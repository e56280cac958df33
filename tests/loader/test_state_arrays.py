"""A state knows the cached arrays that decided its order, and a resume with others says so."""

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
