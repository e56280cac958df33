"""Wrong arguments of public calls: the class of the error, the place, and the value found."""

import operator
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from refusals import refused
from tokenizers import Tokenizer, models

import tokenloom as tl
from tokenloom import arguments, errors, inspect, loader, quality
from tokenloom.batch import row_hashes
from tokenloom.batch.views.named import fields_for
from tokenloom.config import from_config
from tokenloom.documents.spec import SelectSpec
from tokenloom.integrations.dialects.known import BLOCKS
from tokenloom.loader.accepted import check_accepted
from tokenloom.order import Blocks, full
from tokenloom.order.shuffle import BlockShuffle
from tokenloom.runfiles.reading import overridden
from tokenloom.runfiles.text import Written

C, S = errors.ConfigError, errors.StateError


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
    endless = run.epochs(None)
    return SimpleNamespace(
        root=root,
        store=store,
        other=other,
        run=run,
        mixed=mixed,
        endless=endless,
        edited=mixed.edit(at=4, weights={"a": 1}),
        batch=run.batch([0, 1]),
    )


# what is wrong: (how to provoke it, the class, what the message names)
WRONG = {
    # -- datasets
    "the length of an endless run": (lambda t: len(t.endless), TypeError, "len", "endless"),
    "an index that is no number": (lambda t: t.run["3"], TypeError, "index", "<U1"),
    "indices with two axes": (
        lambda t: t.run.batch(np.zeros((2, 2), int)),
        TypeError,
        "indices",
        "(2, 2)",
    ),
    "an index below 0": (lambda t: t.run[-1], IndexError, "index -1", "-1"),
    "an index after the end": (
        lambda t: t.run.batch([10**6]),
        IndexError,
        "index 1000000",
        "1000000",
    ),
    "epochs of a mix": (lambda t: t.mixed.epochs(2), C, "epochs", "not of a mix"),
    "examples and tokens": (
        lambda t: t.run.take(3, tokens=4),
        C,
        "take",
        "examples=3 and tokens=4",
    ),
    "a shuffle and its settings": (
        lambda t: t.run.block_shuffle(BlockShuffle(lanes=2), lanes=3),
        C,
        "block_shuffle",
        "lanes",
    ),
    "a shuffle after an edit": (lambda t: t.edited.shuffle(), C, "shuffle", "edited"),
    # -- mixes and edits
    "a mix of nothing": (lambda t: tl.mix({}), C, "mix", "no source"),
    "a mix inside a mix": (lambda t: tl.mix({"x": t.mixed}), C, "mix.x", "already a mix"),
    "a mix of an edited run": (
        lambda t: tl.mix({"x": t.run.edit(at=2, quarantine=[("main", 1)])}),
        C,
        "mix.x",
        "edited",
    ),
    "a mix of a run that was cut": (lambda t: tl.mix({"x": t.run.take(3)}), C, "mix.x", "take(3)"),
    "weights of a round robin": (
        lambda t: tl.mix({"a": t.run}, rule="round_robin", weights={"a": 2}),
        C,
        "rule",
        "'round_robin'",
    ),
    "a temperature below 0": (
        lambda t: tl.mix({"a": t.run, "b": t.store.pack(8)}, temperature=-1.0),
        C,
        "temperature",
        "-1",
    ),
    "a temperature that leaves nothing": (
        lambda t: tl.mix(
            {"a": t.run, "b": t.store.select(num_docs=1).windows(8)}, temperature=4000.0
        ),
        C,
        "temperature",
        "4000",
    ),
    "weights of a source that is not there": (
        lambda t: tl.mix({"wiki": t.run}, weights={"wkii": 1}),
        C,
        "weights.wkii",
        "'wkii'",
    ),
    "weights that are text": (lambda t: tl.mix({"a": t.run}, weights="abc"), C, "weights", "'abc'"),
    "sources with other tokenizers": (
        lambda t: tl.mix({"a": t.run, "b": t.other.windows(8)}),
        C,
        "mix",
        "different tokenizers",
    ),
    "an edit that adds a name twice": (
        lambda t: t.mixed.edit(at=4, add={"a": t.run}),
        C,
        "edit.add.a",
        "exists",
    ),
    "an edit of a shuffled mix": (
        lambda t: t.mixed.shuffle().edit(at=4, weights={"a": 1}),
        C,
        "edit",
        "shuffled as a whole",
    ),
    "an edit after the end": (
        lambda t: t.mixed.take(8).edit(at=9, weights={"a": 1}),
        C,
        "edit",
        "9",
    ),
    "weights inside weights": (
        lambda t: t.mixed.edit(at=4, weights={"weights": {"a": 1}}),
        C,
        "edit.weights",
        "'weights'",
    ),
    "the passes of a mix that stops": (
        lambda t: tl.mix({"a": t.run, "b": t.store.pack(8)}, stop="all_exhausted").endless(),
        C,
        "passes",
        "examples",
    ),
    "stages with a wrong weight": (
        lambda t: tl.mix({"a": t.run}, stages={4: {"z": 1}}),
        C,
        "stages.4",
        "z",
    ),
    # -- questions
    "at without a place": (lambda t: t.run.at(), C, "at", "neither"),
    "at a step without rows": (lambda t: t.run.at(step=2), C, "at", "batch_size"),
    "where without a document": (lambda t: t.run.where("main"), C, "where", "neither"),
    "offsets with gaps": (
        lambda t: t.run.where("main", 1, tokens=range(0, 9, 2)),
        C,
        "tokens",
        "range",
    ),
    "offsets that end before they start": (
        lambda t: t.run.where("main", 1, tokens=(5, 2)),
        C,
        "tokens",
        "5 to 2",
    ),
    "a step after the end": (
        lambda t: t.run.at(step=10**6, batch_size=4),
        IndexError,
        "step 1,000,000",
        "1,000,000",
    ),
    # -- stores and documents
    "tokens after the end": (lambda t: t.store.tokens(0, 10**9), IndexError, "1,000,000,000"),
    "a column that is not there": (lambda t: t.store.document(0, "loss"), KeyError, "'loss'"),
    "the id of a document": (lambda t: t.store.document("d3"), TypeError, "document", "'d3'"),
    "a document that is a bool": (lambda t: t.store.document(True), TypeError, "document", "True"),
    "a store that is not there": (
        lambda t: tl.open(t.root / "tox"),
        errors.StoreNotFound,
        "no token store",
    ),
    "a snapshot that is not there": (
        lambda t: tl.open(t.root / "toy", snapshot=9),
        errors.StoreNotFound,
        "9",
    ),
    "a selection within a number": (lambda t: SelectSpec(within=3), C, "within", "int"),
    "more documents than there are": (
        lambda t: t.store.select(num_docs=99),
        C,
        "select",
        "24 of 99",
    ),
    "a token that is no token": (
        lambda t: t.store.pack(8, bos_id=-3, add_bos=True),
        C,
        "bos_id",
        "-3",
    ),
    # -- descriptions
    "one path for two stores": (
        lambda t: from_config(t.mixed.describe(), path="x"),
        C,
        "path",
        "'x'",
    ),
    "two paths for one store": (
        lambda t: from_config(t.run.describe(), path={"main": "x"}),
        C,
        "path",
        "'x'",
    ),
    "another length of a description": (
        lambda t: from_config(t.run.describe(), seq_len=4),
        C,
        "seq_len",
        "4",
    ),
    "another length of a run file": (
        lambda t: from_config(
            {"sources": {"a": {"store": str(t.root / "toy"), "windows": 8}}}, seq_len=4
        ),
        C,
        "seq_len",
        "4",
    ),
    "overrides that are no list": (
        lambda t: overridden(Written(plain={}), "seed=3"),
        C,
        "overrides",
        "'seed=3'",
    ),
    # -- batches
    "fields that are one name": (lambda t: fields_for(None, "labels"), C, "fields", "'labels'"),
    "an array that is not there": (
        lambda t: t.batch["lables"],
        KeyError,
        "batch['lables']",
        "lables",
    ),
    "a row of a batch": (lambda t: t.batch[0], KeyError, "batch[0]", "int"),
    "hashes without segments": (
        lambda t: row_hashes({"input_ids": np.zeros((1, 4), int)}),
        C,
        "row_hashes",
        "segment_ids",
    ),
    "metadata of a copy": (
        lambda t: pickle.loads(pickle.dumps(t.batch)).metadata,
        C,
        "metadata",
        "a copy without",
    ),
    "train_on_eos without an EOS": (
        lambda t: t.other.windows(4).render(train_on_eos=False),
        C,
        "missing",
    ),
    # -- loaders
    "a loader without a batch size": (lambda t: tl.Loader(t.run), C, "batch_size", "None"),
    "the length of an endless loader": (
        lambda t: len(tl.Loader(t.endless, 4)),
        TypeError,
        "len",
        "endless",
    ),
    "an item of a loader": (lambda t: tl.Loader(t.run, 4)[0], TypeError, "Loader", "item 0"),
    "a state that is none": (
        lambda t: tl.Loader(t.run, 4).load_state_dict({"examples": 3}),
        S,
        "state",
        "None",
    ),
    "a file of no state": (lambda t: loader.read_state(t.root / "nothing.json"), S, "no such file"),
    # -- orders, streams, inspection
    "an endless full order": (lambda t: full(None, seed=0), TypeError, "n", "None"),
    "blocks that start late": (lambda t: Blocks.cut([1, 2]), C, "blocks", "[1, 2]"),
    "coverage of a document that is not there": (
        lambda t: inspect.coverage(t.store.splice(16), documents=[99]),
        IndexError,
        "document 99",
        "99",
    ),
    # -- building
    "a filter without source": (
        lambda t: _build(t, filter=operator.itemgetter("text")),
        C,
        "filter",
        "cannot be read",
    ),
    "an engine for another kind": (
        lambda t: _build(t, engine="fast"),
        errors.TokenizerError,
        "engine",
        "'fast'",
    ),
    # -- orders and appends
    "lanes of a published order": (
        lambda t: BlockShuffle(lanes=2, perm_type="levanter"),
        C,
        "block_shuffle.lanes",
        "2",
    ),
    "a number of tokens that is none": (lambda t: t.run.take(tokens=-1), C, "take", "tokens=-1"),
    "an append of the same store": (
        lambda t: t.run.edit(at=2, append={"main": t.store}),
        C,
        "edit.append.main",
        "24 documents",
    ),
    "an append to a splice": (
        lambda t: _grown(t, lambda store: store.splice(16)),
        C,
        "edit.append.main",
        "spliced",
    ),
    "an append to chosen documents": (
        lambda t: _grown(t, lambda store: store.select(num_docs=2).windows(8)),
        C,
        "edit.append.main",
        "selected one by one",
    ),
    # -- rows of others, models
    "a model without logits": (
        lambda t: quality.leak_probe(
            lambda tokens, batch: np.zeros((1, 2)),
            {"tokens": np.ones((1, 4), int), "segment_ids": np.array([[1, 1, 2, 2]])},
        ),
        C,
        "model",
        "[1, 2]",
    ),
    # -- files
    "a TOML file that is too deep": (
        lambda t: tl.load(_written(t.root / "deep.toml", "a = " + "[" * 5000)),
        C,
        "nested too deeply",
    ),
    "a path beside settings of another trainer": (
        lambda t: from_config({"data": {"type": "splice_single_document"}}, path="x"),
        C,
        "path",
        "'x'",
    ),
    # -- splices
    "a schedule of words": (
        lambda t: t.store.splice(16, doc_schedule={"a": "b"}),
        C,
        "doc_schedule",
        "'a'",
    ),
    "a schedule that starts late": (
        lambda t: t.store.splice(16, doc_schedule={3: 1}),
        C,
        "doc_schedule",
        "3",
    ),
    "growth beside a schedule": (
        lambda t: t.store.splice(16, doc_growth={0: 2}, doc_schedule={0: 1}),
        C,
        "doc_growth",
        "beside",
    ),
    "groups that are a word": (
        lambda t: t.store.splice(16, doc_groups="abc"),
        C,
        "doc_groups",
        "'abc'",
    ),
    "a jitter of anchored starts": (
        lambda t: t.store.splice(16, offset_jitter=2, content_start_mode="anchor_start"),
        C,
        "offset_jitter",
        "2",
    ),
    "the loss of a roll without one": (
        lambda t: t.store.splice(16, roll_loss=True),
        C,
        "roll_loss",
        "True",
    ),
    "the splices of a mix": (lambda t: inspect.triples(t.mixed), C, "a mix"),
    # -- losses
    "losses per something else": (
        lambda t: tl.blame(t.run, np.arange(9.0), index=np.arange(9), per="token"),
        C,
        "per",
        "'token'",
    ),
    "a BOS that every document has": (
        lambda t: tl.build(
            [{"text": "abc"}], t.root / "with-bos", tokenizer="bytes", bos=1, add_bos=True
        ).splice(16, bos=True),
        errors.TokenizerError,
        "already got their BOS",
    ),
    "more examples than there are": (
        lambda t: t.run.tokens_in(10**9),
        IndexError,
        "examples 1000000000",
        "1000000000",
    ),
    "no micro-batches": (lambda t: check_accepted({"accumulate": 0}), C, "accumulate", "0"),
    "a saved dataset whose list is damaged": (
        lambda t: tl.build(
            f"hf:{_written(t.root / 'dataset_dict.json', '{').parent}",
            t.root / "new",
            tokenizer="bytes",
        ),
        errors.InputError,
        "dataset_dict.json",
    ),
    # -- conversations and tokenizers
    "a tokenizer with broken settings": (
        lambda t: _build(t, tokenizer=str(_tokenizer(t.root / "tok"))),
        errors.TokenizerError,
        "not JSON",
    ),
    # -- settings of other trainers
    "a mixture without a length": (
        lambda t: from_config({"data": {"configs": {"a": {"cache_dir": str(t.root / "toy")}}}}),
        C,
        "data.seq_len",
        "missing",
    ),
    "packing without a store": (
        lambda t: from_config({"data": {"packing_mode": "bin", "seq_len": 8}}),
        C,
        "data.store",
        "missing",
    ),
    "a preprocessor that cuts text": (
        lambda t: from_config(
            {
                "store": str(t.root / "toy"),
                BLOCKS: {"max_length": 8, "packed": True, "truncate_at": "x"},
            }
        ),
        C,
        f"{BLOCKS}.truncate_at",
        "not of a store",
    ),
    # -- what people pass
    "a keyword from elsewhere": (
        lambda t: arguments.near_misses("f", drop_last="Its name is end.")(lambda *, end=1: end)(
            drop_last=True
        ),
        C,
        "f",
        "'drop_last'",
    ),
    "a number that is too large": (
        lambda t: arguments.number("weight", 10**400),
        C,
        "weight",
        "1000",
    ),
}


def _written(path, text, encoding="utf-8"):
    path.write_text(text, encoding=encoding)
    return path


def _tokenizer(folder):
    """A tokenizer whose settings are no JSON."""
    folder.mkdir(exist_ok=True)
    Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save(str(folder / "tokenizer.json"))
    _written(folder / "tokenizer_config.json", "{")
    return folder


def _build(toy, record=None, tokenizer="bytes", **options):
    return tl.build([record or {"text": "abc"}], toy.root / "new", tokenizer=tokenizer, **options)


def _grown(toy, make):
    """An edit that appends to a store that has grown since."""
    place = toy.root / f"grown-{len(list(toy.root.iterdir()))}"
    rows = [{"text": "abcdefgh " * (n + 1)} for n in range(4)]
    run = make(tl.build(rows[:2], place, tokenizer="bytes"))
    more = tl.build(rows[2:], place, tokenizer="bytes", append=True)
    return run.edit(at=1, append={"main": more})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named_with_its_place_and_value(what, toy):
    provoke, kind, *named = WRONG[what]
    refused(lambda: provoke(toy), kind, *named)
