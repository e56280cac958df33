"""Any run as a file, and back: the same fingerprints, whatever the run was made of."""

import json
import shutil

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenloom as tl
from tokenloom.runfiles import json_schema, run_mapping

# what the laws over random runs have not
SINGLE = {
    "windows with a tail": lambda s: s.windows(16, tail="keep", align=True, ignore_id=97),
    "lookahead without overlap": lambda s: s.windows(16, lookahead=True, overlap=0),
    "levanter era": lambda s: s.windows(16).era_shuffle(8, perm_type="levanter"),
    "blocks": lambda s: s.pack(32).block_shuffle(window_blocks=2, lanes=3, cache_windows=4),
    "specials": lambda s: s.pack(24, add_eos=True, add_bos=True, bos_id=1, train_on_eos=False),
    "eos only in the loss": lambda s: s.pack(24, train_on_eos=False, eos_id=3),
    "another eos in the loss": lambda s: s.pack(24, add_eos=True).render(eos_id=5),
    "no eos in the loss": lambda s: s.pack(24, add_eos=True).render(eos_id=None),
    "rendered": lambda s: s.pack(24).render(label_layout="shifted", trailing="doc", pad_id=7),
    "by content": lambda s: s.split({"a": 0.7, "b": 0.3}, by="content")["b"].pack(16),
    "by metadata": lambda s: s.select(doc_key="id==d3").windows(8),
    "by a function": lambda s: s.select(num_docs=3, doc_key=lambda m: m["id"] > "d2").windows(8),
    "within": lambda s: (
        s.split({"a": 0.7, "b": 0.3})["a"].select(num_docs=9).select(num_docs=2).windows(8)
    ),
    "training subset": lambda s: s.select(
        num_docs=3,
        restrict_to_training_subset=True,
        max_train_batches=3,
        initial_batch_size=4,
        seq_len=50,
    ).windows(8),
    "relative": lambda s: s.select(num_docs=3).splice(
        32, content_length=9, position_scheme="relative"
    ),
    "swept": lambda s: s.select(num_docs=2).splice(
        32, content_start_mode="slide_within", content_length=8, position_scheme="absolute"
    ),
    "streamed once": lambda s: (
        s.select(num_docs=3)
        .splice(32, sampler="stream", content_length=8, epoch_length=99)
        .epochs(1)
        .shuffle(False)
    ),
    "scheduled": lambda s: s.select(num_docs=3).splice(
        32,
        content_length={0: 4, 640: 8},
        doc_schedule={0: 1, 100: 3},
        bos=1,
        eos_before=2,
        doc_weights=[1, 2, 3],
        doc_strides=[1, 1, 2],
    ),
    "grid": lambda s: s.select(num_docs=2).splice(
        32, grid=[3, 2], content_length=8, attend_prefix=True
    ),
    "grown": lambda s: s.windows(8).shuffle().edit(at=5, quarantine=[("main", 2)]),
}


def pair(wiki, code):
    return {"wiki": wiki.pack(16).shuffle(), "code": code.windows(16).block_shuffle()}


MIXED = {
    "rounds": lambda a, b: tl.mix(
        pair(a, b), rule="rounds", block=64, stop="first_exhausted", max_epochs=2
    ),
    "round robin": lambda a, b: tl.mix(pair(a, b), rule="round_robin", stop="all_exhausted"),
    "by rows": lambda a, b: tl.mix(pair(a, b), cost="rows", initial={"wiki": 7}),
    "stages": lambda a, b: tl.mix(pair(a, b), stages={0: {"wiki": 2}, 30: {"code": 4}}).seed(3),
    "shuffled": lambda a, b: tl.mix(pair(a, b), stop="all_exhausted").shuffle().seed(2),
    "own seeds": lambda a, b: tl.mix({"wiki": a.pack(16).shuffle().seed(5)}).seed(6),
    "edited": lambda a, b: (
        tl.mix(pair(a, b))
        .seed(1)
        .edit(at=9, weights={"code": 2}, quarantine=[("wiki", 3)])
        .edit(at=12, add={"more": a.windows(16)}, remove=["code"])
    ),
}


@pytest.fixture(scope="module")
def stores(shelf):
    return tl.open(shelf / "stores/wiki"), tl.open(shelf / "stores/code")


def schema_errors(plain):
    found = jsonschema.Draft202012Validator(json_schema()).iter_errors(json.loads(plain))
    return [f"{list(one.absolute_path)}: {one.message}" for one in found]


def assert_comes_back(run, folder):
    """As JSON, and as a YAML file in another folder; the schema accepts it."""
    text = json.dumps(run_mapping(run))
    assert schema_errors(text) == []
    assert tl.from_config(json.loads(text)) == run
    tl.save(run, folder / "run.yaml")
    assert tl.load(folder / "run.yaml") == run


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", SINGLE)
def test_a_run_of_one_source_comes_back_from_its_file(stores, tmp_path, kind):
    assert_comes_back(SINGLE[kind](stores[0]), tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", MIXED)
def test_a_mix_comes_back_from_its_file(stores, tmp_path, kind):
    assert_comes_back(MIXED[kind](*stores), tmp_path)


def test_a_run_whose_store_grew_comes_back_with_both_snapshots(shelf, tmp_path):
    shutil.copytree(shelf / "stores/code", tmp_path / "code")
    run = tl.open(tmp_path / "code").windows(8).shuffle()
    rows = [{"text": "more and more " * 3, "id": "late"}]
    grown = tl.build(rows, tmp_path / "code", tokenizer="bytes", eos=0, append=True)
    edited = run.edit(at=4, append={"main": grown})
    assert_comes_back(edited, tmp_path)
    assert tl.load(tmp_path / "run.yaml").edits[0].append["main"].documents == 18


@pytest.mark.parametrize("name", ["run.yaml", "run.json"])
def test_stages_stay_stages_and_edits_stay_edits(stores, tmp_path, name):
    run = tl.mix(pair(*stores), stages={20: {"code": 4}, 30: {"wiki": 2}}).edit(
        at=40, weights={"wiki": 9}
    )
    tl.save(run, tmp_path / name)
    again = tl.load(tmp_path / name)
    assert again == run
    assert again._stages == run._stages == 2
    written = run_mapping(run)
    assert written["mix"]["stages"] == {20: {"code": 4.0}, 30: {"wiki": 2.0}}
    assert [one["at"] for one in written["edits"]] == [40]
    staged = tl.mix(pair(*stores), stages={20: {"code": 4}})
    tl.save(staged, tmp_path / f"staged-{name}")
    assert tl.load(tmp_path / f"staged-{name}").seed(5) == staged.seed(5)  # edits would refuse it


def test_json_is_written_where_the_name_says_so(stores, tmp_path):
    run = stores[0].windows(16).shuffle()
    tl.save(run, tmp_path / "run.json")
    assert json.loads((tmp_path / "run.json").read_text())["seq_len"] == 16
    assert tl.load(tmp_path / "run.json") == run


def test_only_what_is_not_the_default_is_written(stores):
    plain = run_mapping(stores[0].pack(32).shuffle().seed(7))
    store = plain["sources"]["main"].pop("store")
    sources = {"main": {"pack": {}, "shuffle": "full"}}
    assert plain == {"seed": 7, "seq_len": 32, "sources": sources}
    assert sorted(store) == ["digest", "path", "snapshot"]


def test_a_store_with_other_content_is_refused_by_the_digest(stores, shelf, tmp_path):
    tl.save(stores[0].windows(8), tmp_path / "run.yaml")
    text = (tmp_path / "run.yaml").read_text().replace("stores/wiki", "stores/code")
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(tl.ConfigError, match=r"sources\.main\.store: .*[0-9a-f]{64}"):
        tl.load(tmp_path / "run.yaml")


def test_a_file_that_is_there_is_kept_unless_told_otherwise(stores, tmp_path):
    run = stores[0].windows(8)
    tl.save(run, tmp_path / "run.yaml")
    with pytest.raises(tl.StoreExists, match="overwrite=True"):
        tl.save(run, tmp_path / "run.yaml")
    tl.save(run.shuffle(), tmp_path / "run.yaml", overwrite=True)
    assert tl.load(tmp_path / "run.yaml") == run.shuffle()
    with pytest.raises(tl.ConfigError, match=r"run\.toml"):
        tl.save(run, tmp_path / "run.toml")


def test_loader_settings_and_evaluation_sets_are_saved_too(load, place):
    run = load(
        "sources: {a: {store: stores/wiki, windows: 8}}\n"
        "loader: {batch_size: 4, fields: [tokens, labels]}\n"
        "evaluate: {held: {store: stores/code, pack: 16, seed: 3}}\n"
    )
    tl.save(run.take(40), "again.yaml")
    again = tl.load("again.yaml")
    assert again.file.loader == run.file.loader == {"batch_size": 4, "fields": ("tokens", "labels")}
    assert again.file.evaluate["held"] == run.file.evaluate["held"]
    assert len(again) == 40


LAYOUTS = st.one_of(
    st.fixed_dictionaries(
        {"windows": st.fixed_dictionaries({}, optional={"tail": st.sampled_from(["drop", "keep"])})}
    ),
    st.fixed_dictionaries(
        {
            "pack": st.fixed_dictionaries(
                {},
                optional={
                    "strategy": st.sampled_from(["greedy", "best_fit", "one_doc"]),
                    "add_eos": st.booleans(),
                    "lookahead": st.booleans(),
                    "min_len": st.integers(1, 30),
                },
            )
        }
    ),
)
SHUFFLES = st.sampled_from(["none", "full", "block", 7, {"window_blocks": 2}, {"kind": "full"}])
SOURCES = st.builds(
    lambda layout, rest: {**layout, **rest},
    LAYOUTS,
    st.fixed_dictionaries(
        {"store": st.sampled_from(["stores/wiki", "stores/code"])},
        optional={
            "shuffle": SHUFFLES,
            "epochs": st.sampled_from([1, 3, "endless"]),
            "select": st.fixed_dictionaries({"num_docs": st.integers(1, 9)}),
            "split": st.just({"shares": {"a": 0.5, "b": 0.5}, "part": "a"}),
            "seed": st.integers(0, 99),
        },
    ),
)
FILES = st.fixed_dictionaries(
    {
        "seq_len": st.sampled_from([8, 32]),
        "sources": st.dictionaries(st.sampled_from(["a", "b", "1.5"]), SOURCES, min_size=1),
    },
    optional={
        "seed": st.integers(0, 99),
        "mix": st.fixed_dictionaries({"rule": st.sampled_from(["weights", "rounds"])}),
        "take": st.integers(1, 50),
    },
)


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=25)
@given(plain=FILES)
def test_whatever_loads_is_in_the_schema_and_comes_back(shelf, plain):
    text = yaml.safe_dump(plain).replace("stores/", f"{shelf}/stores/")
    assert schema_errors(json.dumps(yaml.safe_load(text))) == []
    try:
        run = tl.from_config(yaml.safe_load(text))
    except tl.ConfigError:  # sources that do not go together, such as labels of two kinds
        return
    assert tl.from_config(json.loads(json.dumps(run_mapping(run)))) == run
