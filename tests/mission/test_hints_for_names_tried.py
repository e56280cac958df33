"""Names that people know from other libraries: they exist, or the error says what to write."""

import copy
import pickle

import pytest
from refusals import refused

import tokenloom as tl


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hints") / "store"
    records = [{"text": "abcdefgh" * 5}, {"text": "ijklmn" * 5}]
    return tl.build(records, folder, tokenizer="bytes", progress=False)


@pytest.fixture(scope="module")
def run(store):
    return store.pack(8).shuffle()


@pytest.mark.parametrize(
    ("wrong", "option", "right"),
    [
        (lambda run: run.shuffle(seed=3), "seed", ".shuffle().seed(3)"),
        (lambda run: run.era_shuffle(4, seed=3), "seed", ".seed(3)"),
        (lambda run: run.block_shuffle(seed=3), "seed", ".seed(3)"),
        (lambda run: run.shuffle(buffer_size=100), "buffer_size", ".era_shuffle("),
        (lambda run: tl.mix({"a": run, "b": run}, seed=3), "seed", ".seed(3)"),
    ],
)
def test_a_seed_in_the_wrong_place_is_refused_with_the_right_one(run, wrong, option, right):
    refused(lambda: wrong(run), tl.ConfigError, option, right)


def test_the_seed_as_the_hint_has_it(run):
    assert run.shuffle().seed(3).describe()["seed"] == 3


@pytest.mark.parametrize("name", ["shuffle", "block_shuffle", "era_shuffle", "epochs", "seed"])
def test_documents_are_laid_out_before_they_are_shuffled(store, name):
    for documents in (store, store.select(num_docs=1)):
        refused(lambda one=documents: getattr(one, name), AttributeError, repr(name), ".pack(")


@pytest.mark.parametrize("name", ["windows", "pack", "splice", "select", "split"])
def test_a_run_is_laid_out_already(run, name):
    refused(lambda: getattr(run, name), AttributeError, repr(name))


def test_tokens_of_a_run_are_counted_in_three_ways(run, store):
    hints = ("len(run) * run.seq_len", "run.tokens_in(len(run))", "store.num_tokens")
    refused(lambda: run.num_tokens, AttributeError, "'num_tokens'", *hints)
    counts = len(run) * run.seq_len, run.tokens_in(len(run)), store.num_tokens
    assert counts == (72, 70, 70)
    refused(lambda: run.num_examples, AttributeError, "'num_examples'", "len(run)")


def test_input_ids_are_the_tokens(run):
    batch = run.batch([0, 1])
    assert batch.input_ids is batch.tokens
    assert batch.input_ids is batch["input_ids"]
    assert tl.check_batch(batch).ok


def test_other_names_have_the_error_of_python(run, store):
    for one in (run, store, run.batch([0])):
        with pytest.raises(AttributeError, match=r"no attribute 'lenght'$"):
            _ = one.lenght
        assert not hasattr(one, "__cuda_array_interface__")
    assert copy.copy(run).fingerprint == run.fingerprint
    assert pickle.loads(pickle.dumps(run)).fingerprint == run.fingerprint
    assert pickle.loads(pickle.dumps(store)).digest == store.digest
