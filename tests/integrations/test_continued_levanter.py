"""Runs of Levanter go on here: a batch is the one that its own data code gave at that step."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from refusals import refused

import tokenloom as tl
from tokenloom.errors import ConfigError
from tokenloom.integrations.levanter import continue_run
from tokenloom.integrations.levanter.lm_data import lm_from_config
from tokenloom.runfiles import run_mapping

GOLDEN = Path(__file__).parents[1] / "golden"
KNOWN = json.loads((GOLDEN / "levanter_runs.json").read_text(encoding="utf-8"))
RUNS, SEQ_LEN = KNOWN["runs"], 100
FOLDERS = {"text": "text_int32", "parts": "sharded_layout"}

pytestmark = pytest.mark.filterwarnings("ignore:.*drift across io blocks")


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    """The caches where a trainer has them: <cache_dir>/<component>/train."""
    root = tmp_path_factory.mktemp("caches")
    for name, folder in FOLDERS.items():
        shutil.copytree(GOLDEN / "levanter_caches" / folder, root / name / "train")
    return root


def settings_of(case, caches):
    """The settings of a trainer, as its YAML would have them."""
    data = {
        "cache_dir": str(caches),
        "components": {name: {} for name in KNOWN["lengths"]},
        "train_weights": case["weights"],
        "shuffle": case["shuffle"],
        "mixture_block_size": case["block"],
        "tokenizer": "tiny-synthetic-bpe-1024",
    }
    if "permutation_type" in case:
        data["permutation_type"] = case["permutation_type"]
    trainer = {"train_batch_size": case["batch"]}
    top = {"data": data, "trainer": trainer, "train_seq_len": SEQ_LEN}
    if "seed" in case:
        trainer["seed"] = case["seed"]
    else:
        top["data_seed"] = case["data_seed"]
    return top


def rows_of(caches, batch):
    """The tokens of (component, row) pairs, straight from the caches."""
    lines = {}
    for name in KNOWN["lengths"]:
        store = tl.open(caches / name / "train")
        lines[name] = store.reader.read_one(0, store.reader.manifest.tokens)
    return [lines[name][row * SEQ_LEN : (row + 1) * SEQ_LEN].tolist() for name, row in batch]


@pytest.mark.parametrize("case", RUNS, ids=lambda case: str(case["shuffle"])[:20])
def test_the_next_batch_is_the_one_that_levanter_would_have_given(case, caches):
    for step, batch in case["batches"].items():
        made = continue_run(settings_of(case, caches), step=int(step))
        loader = tl.Loader(made.run, batch_size=made.batch_size)
        loader.load_state_dict(made.state)
        found = next(loader)
        assert found.tokens.tolist() == rows_of(caches, batch)
        assert found.source == [name for name, _ in batch]


@pytest.mark.parametrize("case", RUNS[:1])
def test_another_step_or_key_gives_another_batch(case, caches):
    """A control of the comparison above."""
    batch = rows_of(caches, case["batches"]["3"])
    given = settings_of(case, caches)
    for change in ({"step": 4}, {"step": 3, "key": 12}):
        made = continue_run(given, **change)
        at = made.state["examples"]
        assert made.run.batch(range(at, at + 16)).tokens.tolist() != batch
    same = continue_run(given, step=3, key=case["data_key"])
    assert same.run.batch(range(48, 64)).tokens.tolist() == batch


def test_a_converted_copy_continues_the_same_run(caches, tmp_path):
    """The caches as stores of ours: the state of one loads into the other."""
    case = RUNS[0]
    for name in FOLDERS:
        store = tl.open(caches / name / "train")
        ids = [store.document(n).tolist() for n in range(len(store))]
        tl.testing.write_store(tmp_path / name, [ids], vocab_size=32_000)
    here = continue_run(settings_of(case, caches), step=3)
    there = continue_run(settings_of(case, tmp_path), step=57)
    assert here.run.fingerprint == there.run.fingerprint
    loader = tl.Loader(there.run, batch_size=16)
    loader.load_state_dict(here.state)
    assert next(loader).tokens.tolist() == rows_of(caches, case["batches"]["3"])


def test_a_data_section_with_levanters_permutation_is_the_run_of_levanter(caches):
    """The same keys and rule in a YAML that is loaded as a run."""
    case = next(one for one in RUNS if one.get("permutation_type") == "linear")
    given = settings_of(case, caches)
    high, low = case["data_key"]
    data = {
        **given["data"],
        "components": {name: {"cache_dir": str(caches / name / "train")} for name in FOLDERS},
        "permutation_type": "levanter_linear",
        "seed": high << 32 | low,
    }
    del data["tokenizer"]
    run, _ = lm_from_config({"data": data, "train_seq_len": SEQ_LEN})
    assert run.rule.rule == "levanter"
    for step, batch in case["batches"].items():
        first = int(step) * case["batch"]
        rows = run.batch(range(first, first + case["batch"]))
        assert rows.tokens.tolist() == rows_of(caches, batch)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shuffle": None}, None),
        ({"shuffle": 1000}, "data.shuffle: found 1000"),
        ({"permutation_type": "fiestel"}, "data.permutation_type: found 'fiestel'"),
        ({"stop_strategy": "first_exhausted"}, "data.stop_strategy: found 'first_exhausted'"),
        ({"max_train_batches": {"text": 5}}, "data.max_train_batches: found {'text': 5}"),
        ({"num_validation_sequences": {"text": 5}}, "data.num_validation_sequences"),
        ({"target_budget": 5}, "data.target_budget: found 5"),
        ({"components": {"text": {"pack": 4}}}, "data.components.text.pack: found 4"),
        ({"components": {"text": {"format": {"type": "chat"}}}}, "found 'chat'"),
        ({"cache_dir": None}, "data.components.text.cache_dir"),
        ({"train_weights": [[0, {"text": 1}], [1, {"text": 1}]]}, "64 examples"),
        ({"mixture_block_size": 0}, "data.mixture_block_size: found 0"),
    ],
)
def test_what_would_give_other_rows_is_refused_with_the_reason(caches, change, words):
    given = settings_of(RUNS[0], caches)
    given["data"] |= change
    if words is None:
        assert continue_run(given, step=0).run.batch([0]) is not None
        return
    refused(lambda: continue_run(given, step=0), ConfigError, words)


def test_a_missing_shuffle_batch_size_key_or_length_must_be_given(caches):
    given = settings_of(RUNS[0], caches)
    without = {name: one for name, one in given["data"].items() if name != "shuffle"}
    with pytest.raises(ConfigError, match=r"data\.shuffle"):
        continue_run({**given, "data": without}, step=0)
    with pytest.raises(ConfigError, match="batch_size"):
        continue_run({**given, "trainer": {"seed": 0}}, step=0)
    with pytest.raises(ConfigError, match="key"):
        continue_run({"data": given["data"]}, step=0, batch_size=16, seq_len=100)
    with pytest.raises(ConfigError, match="seq_len"):
        continue_run({"data": given["data"], "trainer": given["trainer"]}, step=0)
    with pytest.raises(ConfigError, match=r"batch_size\[1\]"):
        continue_run(given, step=0, batch_size=[[0, 4], [0, 8]])


@pytest.mark.parametrize("case", RUNS[2:5], ids=lambda case: str(case["shuffle"])[:20])
def test_a_run_file_of_it_is_the_same_run(case, caches, tmp_path):
    step = max(map(int, case["batches"]))
    made = continue_run(settings_of(case, caches), step=step)
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(run_mapping(made.run), sort_keys=False), encoding="utf-8")
    again = tl.load(path)
    assert again == made.run
    loader = tl.Loader(again, batch_size=made.batch_size)
    loader.load_state_dict(json.loads(json.dumps(made.state)))
    assert next(loader).tokens.tolist() == rows_of(caches, case["batches"][str(step)])


def test_keys_take_all_64_bits(caches, tmp_path):
    """Half of the keys of JAX are 2^63 or more; descriptions and run files hold them."""
    made = continue_run(settings_of(RUNS[0], caches), step=0, key=(1 << 64) - 1).run
    keys = [made.rule.seed, *(source.seed for source in made.run.sources)]
    made = made.seed((1 << 64) - 1)
    assert max(keys) >= 1 << 62
    assert tl.from_config(json.loads(json.dumps(made.describe()))) == made
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(run_mapping(made), sort_keys=False), encoding="utf-8")
    assert tl.load(path) == made
