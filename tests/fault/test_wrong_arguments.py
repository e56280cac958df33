"""Wrong arguments of public calls: the class of the error, the place, and the value found."""

import operator
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from refusals import refused
from tokenizers import Tokenizer, models

import tokenloom as tl
from tokenloom import inspect, quality
from tokenloom.batch import row_hashes
from tokenloom.integrations.torch import dataloader
from tokenloom.order import Blocks, full


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A store, one with other ids, runs of them, and their folder."""
    root = tmp_path_factory.mktemp("refused")
    rows = [{"id": f"d{n}", "text": "abcdefgh " * (n % 5 + 1)} for n in range(24)]
    store = tl.build(rows, root / "toy", tokenizer="bytes", id_key="id", eos=0)
    ids = [{"input_ids": [1, 2, 3, 4] * 8}]
    other = tl.build(ids, root / "other", tokenizer=None, vocab_size=9)
    run = store.windows(8)
    mixed = tl.mix({"a": run, "b": store.pack(8)}, weights={"a": 3, "b": 1})
    return SimpleNamespace(
        root=root,
        store=store,
        other=other,
        run=run,
        mixed=mixed,
        endless=run.epochs(None),
        edited=mixed.edit(at=4, weights={"a": 1}),
        levanter=tl.mix({"a": run.shuffle(perm_type="levanter")}, rule="levanter", block=8),
        pair={"a": run, "b": store.pack(8)},
    )


# what is wrong: how to provoke it, and what the ConfigError names
SETTINGS = {
    # -- datasets
    "epochs of a mix": (lambda t: t.mixed.epochs(2), "epochs"),
    "examples and tokens": (lambda t: t.run.take(3, tokens=4), "take", "examples=3", "tokens=4"),
    "neither examples nor tokens": (lambda t: t.run.take(), "take", "None"),
    "tokens below 0": (lambda t: t.run.take(tokens=-1), "take", "tokens=-1"),
    "a shuffle and its settings": (
        lambda t: t.run.block_shuffle(tl.BlockShuffle(lanes=2), lanes=3),
        "block_shuffle",
        "lanes",
    ),
    "a shuffle after an edit": (lambda t: t.edited.shuffle(), "shuffle", "edited"),
    "a shuffle of Levanter's mix": (lambda t: t.levanter.shuffle(), "shuffle", "'levanter'"),
    "a seed after an edit": (lambda t: t.edited.seed(3), "seed", "edited"),
    "states of several batches": (lambda t: t.run.state(np.array([4, 8])), "examples", "[4, 8]"),
    "a state of no batch": (lambda t: t.run.state(np.array([])), "examples", "[]"),
    # -- mixes and edits
    "a mix of nothing": (lambda t: tl.mix({}), "mix"),
    "a mix inside a mix": (lambda t: tl.mix({"x": t.mixed}), "mix.x"),
    "a mix of an edited run": (
        lambda t: tl.mix({"x": t.run.edit(at=2, quarantine=[("main", 1)])}),
        "mix.x",
        "edited",
    ),
    "a mix of a run that was cut": (lambda t: tl.mix({"x": t.run.take(3)}), "mix.x", "take(3)"),
    "rows of other lengths": (
        lambda t: tl.mix({"a": t.run, "b": t.store.pack(16)}),
        "seq_len",
        "{'a': 8, 'b': 16}",
    ),
    "weights of a round robin": (
        lambda t: tl.mix({"a": t.run}, rule="round_robin", weights={"a": 2}),
        "rule",
        "'round_robin'",
    ),
    "weights and a temperature": (
        lambda t: tl.mix(t.pair, weights={"a": 1}, temperature=0.5),
        "temperature",
        "weights",
    ),
    "no weights": (lambda t: tl.mix(t.pair, weights={}), "weights"),
    "a temperature below 0": (lambda t: tl.mix(t.pair, temperature=-1.0), "temperature", -1),
    "an endless temperature": (
        lambda t: tl.mix(t.pair, temperature=float("inf")),
        "temperature",
        "inf",
    ),
    "a temperature that leaves nothing": (
        lambda t: tl.mix(
            {"a": t.run, "b": t.store.select(num_docs=1).windows(8)}, temperature=4000.0
        ),
        "temperature",
        4000,
    ),
    "weights of an unknown source": (
        lambda t: tl.mix({"wiki": t.run}, weights={"wkii": 1}),
        "weights.wkii",
        "'wiki'",
    ),
    "weights that are text": (lambda t: tl.mix({"a": t.run}, weights="abc"), "weights", "'abc'"),
    "epochs of an unknown source": (
        lambda t: tl.mix(t.pair, max_epochs={"c": 2}),
        "max_epochs",
        "c",
    ),
    "counts of an unknown source": (lambda t: tl.mix(t.pair, initial={"c": 2}), "initial", "c"),
    "sources with other tokenizers": (
        lambda t: tl.mix({"a": t.run, "b": t.other.windows(8)}),
        "mix",
        "'a'",
        "'b'",
        "different_tokenizers=True",
    ),
    "an edit that adds other tokens": (
        lambda t: t.mixed.edit(at=4, add={"c": t.other.windows(8)}),
        "edit.add",
        "'c'",
    ),
    "an edit that adds a name twice": (
        lambda t: t.mixed.edit(at=4, add={"a": t.run}),
        "edit.add.a",
    ),
    "an edit of Levanter's mix": (lambda t: t.levanter.edit(at=8, weights={"a": 2}), "levanter"),
    "an edit of a shuffled mix": (
        lambda t: t.mixed.shuffle().edit(at=4, weights={"a": 1}),
        "edit",
        "shuffled",
    ),
    "an edit after the end": (lambda t: t.mixed.take(8).edit(at=9, weights={"a": 1}), "edit", 9),
    "weights inside weights": (
        lambda t: t.mixed.edit(at=4, weights={"weights": {"a": 1}}),
        "edit.weights",
        "'weights'",
    ),
    "weights of a single source": (lambda t: t.run.edit(at=0, weights={"main": 2}), "edit.weights"),
    "the end of a single source": (lambda t: t.run.edit(at=0, remove=["main"]), "edit.remove"),
    "stages with a wrong weight": (
        lambda t: tl.mix({"a": t.run}, stages={4: {"z": 1}}),
        "stages.4",
        "z",
    ),
    "the passes of a mix that stops": (
        lambda t: tl.mix(t.pair, stop="all_exhausted").endless(),
        "'all_exhausted'",
    ),
    "an append of something else": (
        lambda t: t.run.edit(at=0, append={"main": 3}),
        "edit.append.main",
        3,
    ),
    "an append of the same store": (
        lambda t: t.run.edit(at=2, append={"main": t.store}),
        "edit.append.main",
        "24 documents",
    ),
    "an append to a splice": (
        lambda t: _grown(t, lambda store: store.splice(16)),
        "edit.append.main",
    ),
    "an append to chosen documents": (
        lambda t: _grown(t, lambda store: store.select(num_docs=2).windows(8)),
        "edit.append.main",
    ),
    # -- questions
    "at without a place": (lambda t: t.run.at(), "at", "index", "step"),
    "at two places": (lambda t: t.run.at(3, step=1, batch_size=4), "at", "index", "step"),
    "at a step without rows": (lambda t: t.run.at(step=2), "at", "step=2", "batch_size"),
    "at a row of an index": (lambda t: t.run.at(2, row=1), "at", "row"),
    "where without a document": (lambda t: t.run.where("main"), "where", "doc", "id"),
    "where with two": (lambda t: t.run.where("main", 1, id="d1"), "where", "doc", "id"),
    "where in no source of several": (lambda t: t.mixed.where(doc=1), "source", "a, b"),
    "where in an unknown source": (lambda t: t.mixed.where("c", 1), "source", "c"),
    "next without a document": (lambda t: t.run.next(after=3), "next", "doc"),
    "offsets with gaps": (lambda t: t.run.where("main", 1, tokens=range(0, 9, 2)), "tokens"),
    "offsets that end before they start": (
        lambda t: t.run.where("main", 1, tokens=(5, 2)),
        "tokens",
        "5 to 2",
    ),
    "offsets before the BOS": (lambda t: t.run.where("main", 1, tokens=-2), "tokens", -2),
    "epochs below 0": (lambda t: t.run.where("main", 1, epochs=[2, -1]), "epochs", -1),
    # -- stores and documents
    "an id and a hash": (lambda t: t.store.find(), "find", "id", "hash"),
    "a key and a list of documents": (
        lambda t: t.store.select(doc_key=lambda row: True, doc_index=[1]),
        "doc_index",
        "doc_key",
    ),
    "more documents than there are": (lambda t: t.store.select(num_docs=99), "select", 24, 99),
    "a token that is no token": (
        lambda t: t.store.pack(8, bos_id=-3, add_bos=True),
        "bos_id",
        -3,
    ),
    "a token that nothing uses": (lambda t: t.store.pack(8, bos_id=3), "bos_id", 3),
    "a BOS that is no token": (lambda t: t.store.splice(16, bos="x"), "bos", "'x'"),
    # -- plans
    "lengths that are no integers": (
        lambda t: tl.plan_packing([1.5], seq_len=8),
        "lengths",
        "float64",
    ),
    "lengths with two axes": (lambda t: tl.plan_packing([[1]], seq_len=8), "lengths", "2-D"),
    "lengths below 0": (lambda t: tl.plan_packing([3, -2], seq_len=8), "lengths", -2),
    # -- descriptions
    "one path for two stores": (lambda t: tl.from_config(t.mixed.describe(), path="x"), "'x'"),
    "two paths for one store": (
        lambda t: tl.from_config(t.run.describe(), path={"main": "x"}),
        "path",
        "'x'",
    ),
    "another length of a description": (
        lambda t: tl.from_config(t.run.describe(), seq_len=4),
        "seq_len",
        4,
    ),
    "another length of a run file": (
        lambda t: tl.from_config(
            {"sources": {"a": {"store": str(t.root / "toy"), "windows": 8}}}, seq_len=4
        ),
        "seq_len",
        4,
    ),
    "a path beside settings of another trainer": (
        lambda t: tl.from_config({"data": {"type": "splice_single_document"}}, path="x"),
        "path",
        "'x'",
    ),
    "a mixture without a length": (
        lambda t: tl.from_config({"data": {"configs": {"a": {"cache_dir": str(t.root / "toy")}}}}),
        "data.seq_len",
    ),
    "packing without a store": (
        lambda t: tl.from_config({"data": {"packing_mode": "bin", "seq_len": 8}}),
        "data.store",
    ),
    "a preprocessor that cuts text": (
        lambda t: tl.from_config(
            {
                "store": str(t.root / "toy"),
                "datasets_preprocessor_args": {"max_length": 8, "packed": True, "truncate_at": "x"},
            }
        ),
        "datasets_preprocessor_args.truncate_at",
    ),
    "a TOML file that is too deep": (
        lambda t: tl.load(_written(t.root / "deep.toml", "a = " + "[" * 5000)),
        "deep.toml",
    ),
    "overrides that are one text": (
        lambda t: tl.load(_written(t.root / "run.yaml", "seed: 1"), overrides="seed=3"),
        "overrides",
        "'seed=3'",
    ),
    "a checkpoint of another trainer": (
        lambda t: tl.load(_written(t.root / "state.json", '{"datasets": []}')),
        "state.json",
    ),
    # -- numbers, names and paths
    "a weight that is too large": (lambda t: tl.mix(t.pair, weights={"a": 10**400}), "weights.a"),
    "an integer that is too large": (
        lambda t: t.run.at(step=10**30, batch_size=4),
        "step",
        "100 bits",
    ),
    "an integer that is a bool": (lambda t: t.run.at(step=True, batch_size=4), "step", True),
    "a bandwidth of nothing": (lambda t: t.run.simulate(batch_size=4, bandwidth=0), "bandwidth", 0),
    "a bandwidth below nothing": (
        lambda t: t.run.simulate(batch_size=4, bandwidth=-1e6),
        "bandwidth",
        -1e6,
    ),
    "a name that cannot be written": (lambda t: tl.mix({"\ud800": t.run}), "\\ud800"),
    "an out that is no path": (lambda t: tl.build([{"text": "a"}], 3, tokenizer="bytes"), "out", 3),
    "a path that is too long": (
        lambda t: tl.build([{"text": "a"}], t.root / ("a" * 300), tokenizer="bytes"),
        "out",
        "aaa",
    ),
    "a variable that is not set": (
        lambda t: tl.from_config(
            {"store": {"path": "${NO_SUCH_FOLDER}/s"}, "layout": {"kind": "windows", "seq_len": 4}}
        ),
        "store.path",
        "'NO_SUCH_FOLDER'",
    ),
    # -- batches and loaders
    "fields that are one name": (lambda t: dataloader(t.run, 4, fields="labels"), "'labels'"),
    "hashes without segments": (
        lambda t: row_hashes({"input_ids": np.zeros((1, 4), int)}),
        "segment_ids",
    ),
    "metadata of a copy": (
        lambda t: pickle.loads(pickle.dumps(t.run.batch([0, 1]))).metadata,
        "metadata",
    ),
    "train_on_eos without an EOS": (
        lambda t: t.other.windows(4).render(train_on_eos=False),
        "eos",
    ),
    # -- orders, inspection, models
    "blocks that start late": (lambda t: Blocks.cut([1, 2]), "blocks", "[1, 2]"),
    "lanes of a published order": (
        lambda t: tl.BlockShuffle(lanes=2, perm_type="levanter"),
        "block_shuffle.lanes",
        2,
    ),
    "the splices of a mix": (lambda t: inspect.triples(t.mixed), "a mix"),
    "a model without logits": (
        lambda t: quality.leak_probe(
            lambda tokens, batch: np.zeros((1, 2)),
            {"tokens": np.ones((1, 4), int), "segment_ids": np.array([[1, 1, 2, 2]])},
        ),
        "model",
        "[1, 2]",
    ),
    "a filter without source": (
        lambda t: _build(t, filter=operator.itemgetter("text")),
        "filter",
    ),
    # -- splices
    "a schedule of words": (
        lambda t: t.store.splice(16, doc_schedule={"a": "b"}),
        "doc_schedule",
        "'a'",
    ),
    "a schedule that is none": (lambda t: t.store.splice(16, doc_schedule=[1]), "doc_schedule"),
    "a schedule that starts late": (
        lambda t: t.store.splice(16, doc_schedule={3: 1}),
        "doc_schedule",
        3,
    ),
    "steps of no examples": (
        lambda t: t.store.splice(16, doc_schedule={0: 1}, schedule_batch_size=0),
        "schedule_batch_size",
        0,
    ),
    "growth beside a schedule": (
        lambda t: t.store.splice(16, doc_growth={0: 2}, doc_schedule={0: 1}),
        "doc_growth",
    ),
    "groups that are a word": (
        lambda t: t.store.splice(16, doc_groups="abc"),
        "doc_groups",
        "'abc'",
    ),
    "a jitter of anchored starts": (
        lambda t: t.store.splice(16, offset_jitter=2, content_start_mode="anchor_start"),
        "offset_jitter",
        2,
    ),
    "the loss of a roll without one": (
        lambda t: t.store.splice(16, roll_loss=True),
        "roll_loss",
        True,
    ),
}

# the same for other classes of errors
OTHERS = {
    "the length of an endless run": (lambda t: len(t.endless), TypeError, "endless"),
    "an index that is no number": (lambda t: t.run["3"], TypeError, "index"),
    "indices with two axes": (
        lambda t: t.run.batch(np.zeros((2, 2), int)),
        TypeError,
        "indices",
        "(2, 2)",
    ),
    "an index below 0": (lambda t: t.run[-1], IndexError, "index", -1),
    "an index after the end": (lambda t: t.run.batch([10**6]), IndexError, "index", 1000000),
    "a step after the end": (lambda t: t.run.at(step=10**6, batch_size=4), IndexError, "1,000,000"),
    "a document after the end": (lambda t: t.run.where(doc=24), IndexError, "main document", 24),
    "more examples than there are": (lambda t: t.run.tokens_in(10**9), IndexError, 1000000000),
    "tokens after the end": (lambda t: t.store.tokens(0, 10**9), IndexError, "1,000,000,000"),
    "a column that is not there": (lambda t: t.store.document(0, "loss"), KeyError, "'loss'"),
    "the id of a document": (lambda t: t.store.document("d3"), TypeError, "document", "'d3'"),
    "a document that is a bool": (lambda t: t.store.document(True), TypeError, "document", True),
    "documents that are no integers": (lambda t: t.store.documents([1.5]), TypeError, "float64"),
    "documents outside": (lambda t: t.store.documents([1, 24]), IndexError, 24),
    "an array that is not there": (lambda t: t.run.batch([0])["lables"], KeyError, "lables"),
    "a row of a batch": (lambda t: t.run.batch([0])[0], KeyError, "batch[0]", "int"),
    "the length of an endless loader": (lambda t: len(tl.Loader(t.endless, 4)), TypeError, "len"),
    "an item of a loader": (lambda t: tl.Loader(t.run, 4)[0], TypeError, "Loader", "item 0"),
    "an endless full order": (lambda t: full(None, seed=0), TypeError, "n", None),
    "coverage of a document that is not there": (
        lambda t: inspect.coverage(t.store.splice(16), documents=[99]),
        IndexError,
        "document 99",
    ),
    "a store that is not there": (lambda t: tl.open(t.root / "tox"), tl.StoreNotFound, "tox"),
    "a snapshot that is not there": (
        lambda t: tl.open(t.root / "toy", snapshot=9),
        tl.StoreNotFound,
        9,
    ),
    "an EOS that the store has not": (
        lambda t: t.other.splice(16, bos=True),
        tl.TokenizerError,
        "bos",
    ),
    "a BOS that every document has": (
        lambda t: tl.build(
            [{"text": "abc"}], t.root / "with-bos", tokenizer="bytes", bos=1, add_bos=True
        ).splice(16, bos=True),
        tl.TokenizerError,
        "bos",
    ),
    "an engine for another kind": (
        lambda t: _build(t, engine="fast"),
        tl.TokenizerError,
        "engine",
        "'fast'",
    ),
    "a tokenizer with broken settings": (
        lambda t: _build(t, tokenizer=str(_tokenizer(t.root / "tok"))),
        tl.TokenizerError,
        "tokenizer_config.json",
    ),
    "a saved dataset whose list is damaged": (
        lambda t: tl.build(
            f"hf:{_written(t.root / 'dataset_dict.json', '{').parent}",
            t.root / "new",
            tokenizer="bytes",
        ),
        tl.InputError,
        "dataset_dict.json",
    ),
}


def _written(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def _tokenizer(folder):
    """A tokenizer whose settings are no JSON."""
    folder.mkdir(exist_ok=True)
    Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save(str(folder / "tokenizer.json"))
    _written(folder / "tokenizer_config.json", "{")
    return folder


def _build(toy, tokenizer="bytes", **options):
    return tl.build([{"text": "abc"}], toy.root / "new", tokenizer=tokenizer, **options)


def _grown(toy, make):
    """An edit that appends to a store that has grown since."""
    place = toy.root / f"grown-{len(list(toy.root.iterdir()))}"
    rows = [{"text": "abcdefgh " * (n + 1)} for n in range(4)]
    run = make(tl.build(rows[:2], place, tokenizer="bytes"))
    more = tl.build(rows[2:], place, tokenizer="bytes", append=True)
    return run.edit(at=1, append={"main": more})


def test_a_password_in_a_url_is_refused_and_not_repeated(toy):
    for url in ("s3://user:hunter2@bucket/states", "https://host/x?token=hunter2"):
        call = lambda url=url: tl.loader.write_state(toy.run.state(8), url)  # noqa: E731
        assert "hunter2" not in refused(call, tl.ConfigError, "path")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", SETTINGS)
def test_a_wrong_setting_is_named_with_its_value(what, toy):
    provoke, *named = SETTINGS[what]
    refused(lambda: provoke(toy), tl.ConfigError, *named)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", OTHERS)
def test_what_is_wrong_is_named_with_its_value(what, toy):
    provoke, kind, *named = OTHERS[what]
    refused(lambda: provoke(toy), kind, *named)
