"""A description grows with its sources, and is computed once: splits and states share it."""

import copy
import hashlib
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenloom as tl
from tokenloom.api import dataset as dataset_module
from tokenloom.api import describe as description
from tokenloom.documents.resolve import KnownSplits, SharedSplits, describe_choice, rebuild_choice
from tokenloom.documents.spec import SelectSpec
from tokenloom.documents.split import SplitSpec
from tokenloom.errors import ConfigError
from tokenloom.store.format import canonical
from tokenloom.testing import write_store


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("once") / "store"
    write_store(root, [[[n % 90 + 1] * 16 for n in range(1200)]])
    return tl.open(root)


def parts_of(store, count, *, within=None):
    parts = store.split({f"p{n}": 1 / count for n in range(count)}, by="id")
    kept = {name: part for name, part in parts.items() if len(part.indices) > 1}
    return dict(list(kept.items())[:within])


def mix_of(store, count, **options):
    parts = parts_of(store, count, **options)
    return tl.mix({name: part.windows(8).shuffle() for name, part in parts.items()}).seed(3)


# -- identity: the fast way is the obvious one ---------------------------------------------------
def below(path, others):
    """Whether a path is one of some others, or inside one."""
    return any(path == one or path.startswith((f"{one}.", f"{one}[")) for one in others)


def obvious_identity(plain):
    """Every leaf, and then those that do not count are left out: written from the requirement."""
    mix = plain.get("mix")
    aside = ["store.path", "store.snapshot", "shuffle.cache_windows", "mix.shuffle.cache_windows"]
    if not (isinstance(mix, dict) and mix.get("cost") == "loss_tokens"):
        aside.append("render")
    found = {}
    for path, value in description.flattened(plain):
        own = path.split("].", 1)[1] if path.startswith("sources[") and "]." in path else path
        ends = ("epochs", "take", "mix.take", "mix.different_tokenizers", "splits")
        if not below(path, ends) and not below(own, aside):
            found[path] = value
    return found


leaves = st.none() | st.booleans() | st.integers(-5, 2**40) | st.floats(0, 9) | st.text(max_size=3)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "kind"]), inner)
    ),
    max_leaves=5,
)
keys = st.sampled_from(["name", "choice", "layout", "shuffle", "epochs", "seed", "take", "render"])
stores = st.fixed_dictionaries({"path": st.text(max_size=3), "digest": leaves, "snapshot": leaves})
sources = st.dictionaries(keys, values).flatmap(
    lambda rest: st.builds(lambda one: {**rest, "store": one}, stores)
)
plains = st.fixed_dictionaries(
    {"format": leaves},
    optional={
        "mix": st.dictionaries(st.sampled_from(["cost", "take", "weights", "shuffle"]), values),
        "sources": st.lists(sources, max_size=3),
        "epochs": leaves,
        "take": leaves,
        "render": values,
        "store": stores,
        "splits": st.dictionaries(st.text(max_size=2), values, max_size=2),
    },
)


@settings(max_examples=150)
@given(plains)
def test_the_identity_is_every_leaf_that_counts(plain):
    assert description.identity(plain) == obvious_identity(plain)


@given(st.dictionaries(st.text(max_size=4), leaves))
def test_the_hash_of_an_identity_is_that_of_its_canonical_json(flat):
    assert description._flat_digest(flat) == hashlib.sha256(canonical(flat)).hexdigest()


@given(st.dictionaries(st.text(max_size=4), st.dictionaries(st.text(max_size=3), leaves)))
def test_the_hash_of_renderings_is_that_of_their_canonical_json(renders):
    expected = hashlib.sha256(canonical(renders)).hexdigest()
    assert description._render_digest(renders) == expected


@given(values)
def test_a_copy_is_equal_and_shares_no_container(value):
    if isinstance(value, (dict, list)):
        made = description.copied(value)
        assert made == value
        seen, left = set(), [value]
        while left:
            one = left.pop()
            if isinstance(one, (dict, list)):
                seen.add(id(one))
                left += one.values() if isinstance(one, dict) else one
        left = [made]
        while left:
            one = left.pop()
            if isinstance(one, (dict, list)):
                assert id(one) not in seen
                left += one.values() if isinstance(one, dict) else one


# -- splits --------------------------------------------------------------------------------------
def test_a_split_of_many_parts_is_written_once_and_comes_back(store):
    run = mix_of(store, 40)
    plain = run.describe()
    (name,) = plain["splits"]
    assert set(plain["splits"][name]) == {"names", "shares", "by", "seed"}
    assert [one["choice"] for one in plain["sources"]] == [
        {"split": name, "part": one} for one in run.sources
    ]
    again = tl.from_config(json.loads(json.dumps(plain)))
    assert again == run
    assert again.describe() == plain
    every = np.arange(len(run))
    assert again.batch(every).tokens.tolist() == run.batch(every).tokens.tolist()
    assert pickle.loads(pickle.dumps(run)) == copy.deepcopy(run) == run


def test_a_split_of_a_few_parts_is_spelled_out_as_before(store):
    plain = mix_of(store, 16).describe()
    assert "splits" not in plain
    assert plain["sources"][0]["choice"]["names"] == [f"p{n}" for n in range(16)]
    alone = store.split({f"p{n}": 1 / 40 for n in range(40)})["p3"].windows(8)
    assert len(alone.describe()["choice"]["names"]) == 40


def test_a_selection_within_a_part_names_it_too():
    split = SplitSpec.all_of({f"p{n}": 1 / 20 for n in range(20)}, "id", 0)["p3"]
    choice, shared = SelectSpec(num_docs=2, within=split), SharedSplits()
    plain = json.loads(json.dumps(describe_choice(choice, shared)))
    (name,) = shared.plain
    assert plain["within"] == {"split": name, "part": "p3"}
    assert rebuild_choice(plain, "$.choice", KnownSplits(shared.plain)) == choice
    assert describe_choice(choice)["within"]["names"] == list(split.names)


def test_what_a_part_is_decides_the_fingerprint(store):
    run = mix_of(store, 40, within=5)
    shares = np.full(40, 1 / 40)
    shares[:2] += 0.001, -0.001
    other = store.split({f"p{n}": share for n, share in enumerate(shares.tolist())})
    moved = tl.mix({name: other[name].windows(8).shuffle() for name in run.sources}).seed(3)
    assert moved.fingerprint != run.fingerprint
    told = description.differences(run.describe(), moved.describe())
    assert any("choice.split" in line for line in told)


def test_a_part_that_joins_leaves_the_states_before_it_alone(store):
    """Whether a split is named depends on the source alone, so an edit changes no older key."""
    parts = list(parts_of(store, 40).items())
    run = tl.mix({name: part.windows(8).epochs(None) for name, part in parts[:1]}).seed(3)
    state = tl.Loader(run, batch_size=2).seek(2).state_dict()
    name, part = parts[1]
    edited = run.edit(at=4, add={name: part.windows(8).epochs(None)})
    assert description.chain(edited.describe())[0] == run.fingerprint
    loader = tl.Loader(edited, batch_size=2)
    loader.load_state_dict(state)
    assert loader.examples == 4


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda p: p["sources"][1]["choice"].update(split="x"),
            r"sources\[1\].choice.split: found",
        ),
        (
            lambda p: p["sources"][1]["choice"].update(split=7),
            r"sources\[1\].choice.split: found 7",
        ),
        (lambda p: p["sources"][1]["choice"].update(part="x"), r"sources\[1\].choice.part: found"),
        (lambda p: p["sources"][1]["choice"].update(by="id"), r"choice.by: unknown key"),
        (lambda p: p.pop("splits"), r"allowed: none, the description has no splits"),
        (lambda p: p.update(splits=3), r"splits: found 3"),
    ],
)
def test_a_description_that_names_a_split_wrongly_is_refused(store, change, told):
    plain = mix_of(store, 40, within=4).describe()
    change(plain)
    with pytest.raises(ConfigError, match=told):
        tl.from_config(plain)


# -- counts: what doubles when the sources double, and what does not ------------------------------
def leaves_of(plain):
    return sum(1 for _ in description.flattened(plain))


def test_a_description_of_twice_the_parts_has_twice_the_leaves(store):
    small, large = (leaves_of(mix_of(store, n).describe()) for n in (100, 200))
    assert large < 2.1 * small
    spelled = leaves_of(
        [describe_choice(s.config.choice) for s in mix_of(store, 100).sources.values()]
    )
    assert spelled > 5 * small  # control: spelled out it would be the square


def test_states_describe_and_hash_a_run_once(store, monkeypatch):
    counts = dict.fromkeys(("described", "identity"), 0)

    def count(owner, name):
        original = getattr(owner, name)

        def wrapped(*args):
            counts[name] += 1
            return original(*args)

        monkeypatch.setattr(owner, name, wrapped)

    count(dataset_module, "described")
    count(description, "identity")
    run = mix_of(store, 40)
    loader = tl.Loader(run, batch_size=2)
    states = []
    for _ in range(5):
        next(loader)
        states.append(loader.state_dict())
    assert counts == {"described": 1, "identity": 1}
    states[0]["dataset"]["sources"][0]["layout"]["seq_len"] = 99
    states[1]["dataset"]["splits"].clear()
    assert states[2]["dataset"] == run.describe() == loader.state_dict()["dataset"]
