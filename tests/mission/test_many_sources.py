"""Many sources in one run: every batch has the rows of each source."""

import numpy as np
import pytest

import tokenloom as tl
from tokenloom.testing import write_store

SEQ = 4


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    root = tmp_path_factory.mktemp("many")
    made = []
    for number in range(48):
        sizes = np.random.default_rng(number).integers(1, 30, 12 + number)
        ids = [[(number * 97 + i) % 900 + 1] * int(size) for i, size in enumerate(sizes)]
        write_store(root / str(number), [ids], chunk_tokens=64, inner=16)
        made.append(tl.open(root / str(number)))
    return made


KINDS = {
    "stored": lambda store: store.windows(SEQ),
    "full": lambda store: store.windows(SEQ).shuffle(),
    "block": lambda store: store.windows(SEQ, tail="keep").block_shuffle(window_blocks=2),
    "lookahead": lambda store: store.windows(SEQ, lookahead=True).block_shuffle(window_blocks=2),
    "pack": lambda store: store.pack(SEQ).shuffle(),
    "align": lambda store: store.windows(SEQ, align=True).block_shuffle(window_blocks=2),
}


def mix_of(stores, kind, count=48):
    some = {f"s{n}": KINDS[kind](one).epochs(None) for n, one in enumerate(stores[:count])}
    weights = np.random.default_rng(count).dirichlet(np.ones(count)) + 0.01
    shares = {name: float(w) for name, w in zip(some, weights, strict=True)}
    return tl.mix(some, weights=shares).seed(5)


@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_many_sources_are_those_of_each_source(stores, kind):
    run = mix_of(stores, kind)
    names, _ = run.picked(range(480))
    every = run.batch(range(480))
    assert every.source == names
    described = run.describe()
    head = {key: described[key] for key in ("format", "order_version")}
    for source in described["sources"][::7]:
        alone = tl.from_config(head | source)
        here = [place for place, name in enumerate(names) if name == source["name"]]
        if here:
            assert every.tokens[here].tolist() == alone.batch(range(len(here))).tokens.tolist()
    for options in ({"fetch": "blocks"}, {"fetch": "rows"}, {"cache_bytes": 700}):
        cache = {"cache_bytes": options.pop("cache_bytes")} if "cache_bytes" in options else {}
        with tl.Loader(tl.from_config(described, **cache), 32, **options) as loader:
            found = [next(loader) for _ in range(15)]
        assert np.concatenate([one.tokens for one in found]).tolist() == every.tokens.tolist()
    arrays = ("tokens", "labels", "segment_ids")
    with tl.Loader(run, 96, fetch="blocks", fields=arrays) as loader:
        one = next(loader)
        for name in arrays:
            assert getattr(one, name).tolist() == getattr(every, name)[:96].tolist()


def test_a_hidden_document_is_hidden_among_many_sources(stores):
    run = mix_of(stores, "full").edit(at=40, quarantine=[("s3", 1)])
    with tl.Loader(run, 32, fetch="blocks") as loader:
        found = np.concatenate([next(loader).tokens for _ in range(9)])
    assert found.tolist() == run.batch(range(288)).tokens.tolist()
