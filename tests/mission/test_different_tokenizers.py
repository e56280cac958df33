"""Stores in which an id means different tokens are not mixed, unless that is asked for."""

import itertools
import pickle

import pytest
from refusals import refused
from toys import bpe_json

import tokenloom as tl


def spelled(text):
    return list(text.encode())


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Stores by name; every one has rows of 4 tokens below 10."""
    root = tmp_path_factory.mktemp("tokenizers")
    (root / "tokenizer.json").write_text(bpe_json())
    ids = [{"input_ids": [1, 2, 3, 4]}] * 12
    options = {
        "bytes": {"tokenizer": "bytes"},
        "again": {"tokenizer": "bytes"},
        "eos": {"tokenizer": "bytes", "eos": 0},
        "room": {"tokenizer": "bytes", "vocab_size": 300},
        "bpe": {"tokenizer": root / "tokenizer.json"},
        "ids": {"tokenizer": None, "vocab_size": 256},
        "few": {"tokenizer": None, "vocab_size": 10},
        "own": {"tokenizer": spelled, "vocab_size": 256},
    }
    return {
        name: tl.build(ids, root / name, ids_key="input_ids", **option)
        for name, option in options.items()
    }


def identity_of(store):
    record = store.reader.manifest.tokenizer
    return record.identity if record else ""


def may_be_mixed(a, b):
    """The rule, for two: by identity if both have one, else by the number of ids."""
    if identity_of(a) and identity_of(b):
        return identity_of(a) == identity_of(b)
    return a.vocab_size == b.vocab_size


def test_a_mix_is_refused_if_and_only_if_two_of_its_stores_differ(stores):
    count = 0
    for size in (1, 2, 3):
        for names in itertools.permutations(stores, size):
            sources = {name: stores[name].pack(4) for name in names}
            pairs = itertools.combinations(names, 2)
            bad = [{a, b} for a, b in pairs if not may_be_mixed(stores[a], stores[b])]
            if not bad:
                tl.mix(sources)
                continue
            count += 1
            error = refused(lambda sources=sources: tl.mix(sources), tl.ConfigError)
            assert any(all(f"'{name}'" in error for name in pair) for pair in bad)
    assert count > 100


def test_the_two_sources_and_how_they_differ_are_named(stores):
    for names, named in (
        (("bytes", "eos"), ("None", "0")),
        (("bytes", "bpe"), ("bytes", "tokenizer.json")),
        (("few", "own"), ("10", "spelled", "256")),
    ):
        sources = {name: stores[name].pack(4) for name in names}
        refused(lambda sources=sources: tl.mix(sources), tl.ConfigError, *names, *named)


def test_an_edit_that_adds_is_refused_too(stores):
    run = tl.mix({"a": stores["bytes"].pack(4)}).seed(1)
    assert run.edit(at=2, add={"b": stores["again"].pack(4)}).edits
    other = {"b": stores["bpe"].pack(4)}
    refused(lambda: run.edit(at=2, add=other), tl.ConfigError, "edit.add", "'a'", "'b'")
    edited = run.edit(at=2, add=other, different_tokenizers=True)
    assert edited.picked(range(12))[0].count("b") > 2
    later = edited.edit(at=4, weights={"b": 2}).seed
    assert later, "once allowed, later edits need not say so again"
    alone = stores["bytes"].pack(4)
    refused(lambda: alone.edit(at=0, different_tokenizers=True), tl.ConfigError)


def test_the_permission_is_no_part_of_the_run(stores):
    sources = {"a": stores["bytes"].pack(4).shuffle(), "b": stores["again"].pack(4).shuffle()}
    plain = tl.mix(sources).seed(3)
    allowed = tl.mix(sources, different_tokenizers=True).seed(3)
    assert plain.fingerprint == allowed.fingerprint
    assert plain == allowed
    state = tl.Loader(plain, 4).state_dict()
    tl.Loader(allowed, 4).load_state_dict(state)
    joined = {"c": stores["ids"].pack(4)}
    pair = [
        one.edit(at=2, add=joined, different_tokenizers=flag)
        for one, flag in ((plain, False), (plain, True), (allowed, False))
    ]
    assert len({one.fingerprint for one in pair}) == 1


def test_a_run_with_the_permission_travels(stores):
    run = tl.mix(
        {"a": stores["bytes"].pack(4), "b": stores["few"].pack(4)}, different_tokenizers=True
    ).seed(3)
    assert tl.from_config(run.describe()) == run
    assert pickle.loads(pickle.dumps(run)) == run
    assert run.take(5).seed(4).shuffle().fingerprint != run.fingerprint
    plain = run.describe()
    plain["mix"]["different_tokenizers"] = False
    refused(lambda: tl.from_config(plain), tl.ConfigError, "different_tokenizers")
    del plain["mix"]["different_tokenizers"]
    refused(lambda: tl.from_config(plain), tl.ConfigError, "different_tokenizers")
