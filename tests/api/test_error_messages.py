"""What users meet when they are wrong: the class, the place, the value found, and the way out.

One table. Other tests provoke other errors beside what they are about; here are those that need
nothing but a wrong argument. `tests/shared/raised.py` tells which `raise` no test reaches, and
`tests/house/refusals.py` judges every message as it is written.
"""

import operator
import pickle
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models

import tokenloom as tl
from tokenloom import arguments, errors, inspect, loader, quality
from tokenloom.batch import attention, boundaries, row_hashes
from tokenloom.batch.views.named import fields_for
from tokenloom.config import from_config
from tokenloom.documents.spec import SelectSpec
from tokenloom.integrations.dialects.known import BLOCKS
from tokenloom.layout.splice.spec import SpliceSpec
from tokenloom.loader.accepted import check_accepted
from tokenloom.order import Blocks, block, era, full
from tokenloom.order.shuffle import BlockShuffle, parse_shuffle
from tokenloom.runfiles.reading import overridden
from tokenloom.runfiles.text import Written
from tokenloom.streams.samples import loss_tokens_of

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


TALK = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}

# what is wrong: (how to provoke it, the class, place, what was found, what is allowed or to do)
WRONG = {
    # -- datasets --------------------------------------------------------------------------------
    "the length of an endless run": (
        lambda t: len(t.endless),
        TypeError,
        "len",
        "endless",
        "Use is_finite, or take(n)",
    ),
    "an index that is no number": (
        lambda t: t.run["3"],
        TypeError,
        "index",
        "<U1",
        "allowed: integers",
    ),
    "indices with two axes": (
        lambda t: t.run.batch(np.zeros((2, 2), int)),
        TypeError,
        "indices",
        "(2, 2)",
        "one axis",
    ),
    "an index below 0": (lambda t: t.run[-1], IndexError, "index -1", "-1", "allowed: 0 to"),
    "an index after the end": (
        lambda t: t.run.batch([10**6]),
        IndexError,
        "index 1000000",
        "1000000",
        "allowed: 0 to",
    ),
    "epochs of a mix": (
        lambda t: t.mixed.epochs(2),
        C,
        "epochs",
        "not of a mix",
        "Call .epochs(...) on each",
    ),
    "examples and tokens": (
        lambda t: t.run.take(3, tokens=4),
        C,
        "take",
        "examples=3 and tokens=4",
        "Give one",
    ),
    "a shuffle and its settings": (
        lambda t: t.run.block_shuffle(BlockShuffle(lanes=2), lanes=3),
        C,
        "block_shuffle",
        "lanes",
        "Give one of them",
    ),
    "a shuffle of an endless run": (
        lambda t: t.endless.shuffle().shuffle("ful"),
        C,
        "shuffle",
        "'ful'",
        "allowed",
    ),
    "a shuffle after an edit": (lambda t: t.edited.shuffle(), C, "shuffle", "edited", "Shuffle"),
    # -- mixes and edits -------------------------------------------------------------------------
    "a mix of nothing": (lambda t: tl.mix({}), C, "mix", "no source", "give at least one"),
    "a mix inside a mix": (
        lambda t: tl.mix({"x": t.mixed}),
        C,
        "mix.x",
        "already a mix",
        "Name its sources",
    ),
    "a mix of an edited run": (
        lambda t: tl.mix({"x": t.run.edit(at=2, quarantine=[("main", 1)])}),
        C,
        "mix.x",
        "edited",
        "Mix the unedited dataset",
    ),
    "a mix of a run that was cut": (
        lambda t: tl.mix({"x": t.run.take(3)}),
        C,
        "mix.x",
        "take(3)",
        "cut the mix",
    ),
    "weights of a round robin": (
        lambda t: tl.mix({"a": t.run}, rule="round_robin", weights={"a": 2}),
        C,
        "rule",
        "'round_robin'",
        "Use rule='weights'",
    ),
    "a temperature below 0": (
        lambda t: tl.mix({"a": t.run, "b": t.store.pack(8)}, temperature=-1.0),
        C,
        "temperature",
        "-1",
        "allowed: 0 or more",
    ),
    "a temperature that leaves nothing": (
        lambda t: tl.mix(
            {"a": t.run, "b": t.store.select(num_docs=1).windows(8)}, temperature=4000.0
        ),
        C,
        "temperature",
        "4000",
        "allowed: a temperature low enough",
    ),
    "weights of a source that is not there": (
        lambda t: tl.mix({"wiki": t.run}, weights={"wkii": 1}),
        C,
        "weights.wkii",
        "'wkii'",
        "Did you mean 'wiki'?",
    ),
    "too few weights": (
        lambda t: tl.mix({"a": t.run, "b": t.store.pack(8)}, weights=[1]),
        C,
        "weights",
        "[1] (list)",
        "allowed: {source: number}",
    ),
    "weights that are text": (
        lambda t: tl.mix({"a": t.run}, weights="abc"),
        C,
        "weights",
        "'abc'",
        "{source: number}",
    ),
    "sources with other tokenizers": (
        lambda t: tl.mix({"a": t.run, "b": t.other.windows(8)}),
        C,
        "mix",
        "different tokenizers",
        "different_tokenizers=True",
    ),
    "an edit that adds a name twice": (
        lambda t: t.mixed.edit(at=4, add={"a": t.run}),
        C,
        "edit.add.a",
        "exists",
        "Choose another",
    ),
    "an edit of a shuffled mix": (
        lambda t: t.mixed.shuffle().edit(at=4, weights={"a": 1}),
        C,
        "edit",
        "shuffled as a whole",
        "Shuffle the sources instead",
    ),
    "an edit after the end": (
        lambda t: t.mixed.take(8).edit(at=9, weights={"a": 1}),
        C,
        "edit",
        "9",
        "Give an earlier",
    ),
    "weights inside weights": (
        lambda t: t.mixed.edit(at=4, weights={"weights": {"a": 1}}),
        C,
        "edit.weights",
        "'weights'",
        "allowed: the weights themselves",
    ),
    "the passes of a mix that stops": (
        lambda t: tl.mix({"a": t.run, "b": t.store.pack(8)}, stop="all_exhausted").endless(),
        C,
        "passes",
        "examples",
        "Give its sources",
    ),
    "stages with a wrong weight": (
        lambda t: tl.mix({"a": t.run}, stages={4: {"z": 1}}),
        C,
        "stages.4",
        "z",
        "Sources: a",
    ),
    # -- questions -------------------------------------------------------------------------------
    "at without a place": (lambda t: t.run.at(), C, "at", "neither", "allowed: one of them"),
    "at a step without rows": (
        lambda t: t.run.at(step=2),
        C,
        "at",
        "batch_size",
        "give it as well",
    ),
    "at a row of an index": (
        lambda t: t.run.at(3, row=1),
        C,
        "at",
        "row with an index",
        "allowed: with step",
    ),
    "where without a document": (
        lambda t: t.run.where("main"),
        C,
        "where",
        "neither",
        "allowed: one of them",
    ),
    "next without a document": (
        lambda t: t.run.next("main", after=0),
        C,
        "next",
        "missing",
        "allowed: the number",
    ),
    "offsets with gaps": (
        lambda t: t.run.where("main", 1, tokens=range(0, 9, 2)),
        C,
        "tokens",
        "range",
        "adjacent",
    ),
    "offsets that end before they start": (
        lambda t: t.run.where("main", 1, tokens=(5, 2)),
        C,
        "tokens",
        "5 to 2",
        "allowed: a first",
    ),
    "a step after the end": (
        lambda t: t.run.at(step=10**6, batch_size=4),
        IndexError,
        "step 1,000,000",
        "1,000,000",
        "allowed: 0 to",
    ),
    # -- stores and documents --------------------------------------------------------------------
    "tokens after the end": (
        lambda t: t.store.tokens(0, 10**9),
        IndexError,
        str,
        "1,000,000,000",
        "allowed: 0 <=",
    ),
    "a column that is not there": (
        lambda t: t.store.document(0, "loss"),
        KeyError,
        str,
        "'loss'",
        "Allowed:",
    ),
    "the id of a document": (
        lambda t: t.store.document("d3"),
        TypeError,
        "document",
        "'d3'",
        "store.find('d3')",
    ),
    "a document that is a bool": (
        lambda t: t.store.document(True),
        TypeError,
        "document",
        "True",
        "allowed: an integer",
    ),
    "find without anything": (
        lambda t: t.store.find(),
        C,
        "find",
        "neither",
        "allowed: one of them",
    ),
    "a store that is not there": (
        lambda t: tl.open(t.root / "tox"),
        errors.StoreNotFound,
        str,
        "no token store",
        "Did you mean",
    ),
    "a snapshot that is not there": (
        lambda t: tl.open(t.root / "toy", snapshot=9),
        errors.StoreNotFound,
        str,
        "9",
        "Allowed: 1",
    ),
    "a selection within a number": (
        lambda t: SelectSpec(within=3),
        C,
        "within",
        "int",
        "allowed: an object",
    ),
    "more documents than there are": (
        lambda t: t.store.select(num_docs=99),
        C,
        "select",
        "24 of 99",
        "on_shortage='fewer'",
    ),
    "lengths in two axes": (
        lambda t: tl.plan_packing(np.zeros((2, 2), int), seq_len=8),
        C,
        "lengths",
        "2-D",
        "one axis",
    ),
    "lengths below 0": (
        lambda t: tl.plan_packing(np.array([3, -1]), seq_len=8),
        C,
        "lengths",
        "-1",
        "0 or more",
    ),
    "a token that is no token": (
        lambda t: t.store.pack(8, bos_id=-3, add_bos=True),
        C,
        "bos_id",
        "-3",
        "allowed",
    ),
    "an order that is none": (
        lambda t: quality.measure([0, 0, 1], 2, 2),
        C,
        "order",
        "0 to 2",
        "each of them once",
    ),
    # -- descriptions ----------------------------------------------------------------------------
    "one path for two stores": (
        lambda t: from_config(t.mixed.describe(), path="x"),
        C,
        "path",
        "'x'",
        "Give {source: path}",
    ),
    "two paths for one store": (
        lambda t: from_config(t.run.describe(), path={"main": "x"}),
        C,
        "path",
        "'x'",
        "one path",
    ),
    "another length of a description": (
        lambda t: from_config(t.run.describe(), seq_len=4),
        C,
        "seq_len",
        "4",
        "Leave it out",
    ),
    "another length of a run file": (
        lambda t: from_config(
            {"sources": {"a": {"store": str(t.root / "toy"), "windows": 8}}}, seq_len=4
        ),
        C,
        "seq_len",
        "4",
        "Leave it out",
    ),
    "another path of a run file": (
        lambda t: from_config(
            {"sources": {"a": {"store": str(t.root / "toy"), "windows": 8}}}, path="x"
        ),
        C,
        "path",
        "'x'",
        "Leave it out",
    ),
    "overrides that are no list": (
        lambda t: overridden(Written(plain={}), "seed=3"),
        C,
        "overrides",
        "'seed=3'",
        "a list",
    ),
    # -- batches ---------------------------------------------------------------------------------
    "fields that are one name": (
        lambda t: fields_for(None, "labels"),
        C,
        "fields",
        "'labels'",
        "['labels']",
    ),
    "no fields at all": (lambda t: fields_for(None, ()), C, "fields", "none", "Name the arrays"),
    "an array that is not there": (
        lambda t: t.batch["lables"],
        KeyError,
        "batch['lables']",
        "lables",
        "Did you mean 'labels'",
    ),
    "a row of a batch": (lambda t: t.batch[0], KeyError, "batch[0]", "int", "batch.part"),
    "a step of a batch of indices": (
        lambda t: t.batch.state(),
        C,
        str,
        "no step",
        "Use the batches of a tokenloom.Loader",
    ),
    "hashes without segments": (
        lambda t: row_hashes({"input_ids": np.zeros((1, 4), int)}),
        C,
        "row_hashes",
        "segment_ids",
        "Ask for it by name",
    ),
    "segments of one row": (
        lambda t: attention.cu_seqlens(np.zeros(4, int)),
        C,
        "segment_ids",
        "[4]",
        "allowed: [B, S]",
    ),
    "metadata of a copy": (
        lambda t: pickle.loads(pickle.dumps(t.batch)).metadata,
        C,
        "metadata",
        "a copy without",
        "Read batch.metadata before",
    ),
    "train_on_eos without an EOS": (
        lambda t: t.other.windows(4).render(train_on_eos=False),
        C,
        str,
        "missing",
        "Give it",
    ),
    # -- loaders ---------------------------------------------------------------------------------
    "a loader without a batch size": (
        lambda t: tl.Loader(t.run),
        C,
        "batch_size",
        "None",
        "Give them",
    ),
    "the length of an endless loader": (
        lambda t: len(tl.Loader(t.endless, 4)),
        TypeError,
        "len",
        "endless",
        "Use take(n)",
    ),
    "an item of a loader": (
        lambda t: tl.Loader(t.run, 4)[0],
        TypeError,
        "Loader",
        "item 0",
        "Iterate over it",
    ),
    "a state that is none": (
        lambda t: tl.Loader(t.run, 4).load_state_dict({"examples": 3}),
        S,
        "state",
        "None",
        "Use that, or another",
    ),
    "a file of no state": (
        lambda t: loader.read_state(t.root / "nothing.json"),
        S,
        str,
        "no such file",
        "Allowed",
    ),
    "a state that is no JSON": (
        lambda t: loader.read_state(_written(t.root / "bad.json", "{")),
        S,
        str,
        "not JSON",
        "Allowed: what write_state wrote",
    ),
    # -- orders, streams, inspection ---------------------------------------------------------------
    "an endless full order": (
        lambda t: full(None, seed=0),
        TypeError,
        "n",
        "None",
        "era(None, length)",
    ),
    "the length of an endless order": (
        lambda t: len(era(None, 4, seed=0)),
        TypeError,
        "len",
        "endless",
        "Give it a number",
    ),
    "blocks that start late": (
        lambda t: Blocks.cut([1, 2]),
        C,
        "blocks",
        "[1, 2]",
        "allowed: from 0 on",
    ),
    "coverage of a document that is not there": (
        lambda t: inspect.coverage(t.store.splice(16), documents=[99]),
        IndexError,
        "document 99",
        "99",
        "24 documents",
    ),
    # -- building --------------------------------------------------------------------------------
    "a column of a name that no column has": (
        lambda t: _build(t, columns={"a/b": "int32"}, tokenizer=None, vocab_size=9),
        C,
        "columns.a/b",
        "a/b",
        "allowed: a to z",
    ),
    "values that do not fit their column": (
        lambda t: _build(
            t,
            {"input_ids": [1], "score": [300]},
            columns={"score": "uint8"},
            tokenizer=None,
            vocab_size=9,
        ),
        errors.InputError,
        str,
        "do not fit uint8",
        "Name a larger dtype in columns",
    ),
    "ids that are no list": (
        lambda t: _build(t, {"input_ids": [[1], [2, 3]]}, tokenizer=None, vocab_size=9),
        errors.InputError,
        str,
        "'input_ids'",
        "allowed: a list of",
    ),
    "a filter that is no function": (
        lambda t: _build(t, filter=3),
        C,
        "filter",
        "3",
        "allowed: a function",
    ),
    "a filter without source": (
        lambda t: _build(t, filter=operator.itemgetter("text")),
        C,
        "filter",
        "cannot be read",
        "Give it a `version`",
    ),
    "a vocabulary of nothing": (
        lambda t: _build(t, {"input_ids": [0]}, tokenizer=None, vocab_size=0),
        C,
        "vocab_size",
        "0",
        "allowed: 1 to 2^31",
    ),
    "an engine for another kind": (
        lambda t: _build(t, engine="fast"),
        errors.TokenizerError,
        "engine",
        "'fast'",
        "Use engine='auto'",
    ),
    # -- orders and appends -----------------------------------------------------------------------
    "lanes of a published order": (
        lambda t: BlockShuffle(lanes=2, perm_type="levanter"),
        C,
        "block_shuffle.lanes",
        "2",
        "only 1",
    ),
    "a shuffle of a word": (
        lambda t: parse_shuffle("full"),
        C,
        "shuffle",
        "'full'",
        "allowed: False, True",
    ),
    "what to do with endless blocks": (
        lambda t: block(None, 2, seed=0, infinite="wait"),
        C,
        "infinite",
        "'wait'",
        "'era'",
    ),
    "a number of tokens that is none": (
        lambda t: t.run.take(tokens=-1),
        C,
        "take",
        "tokens=-1",
        "allowed: an integer, 0 or more",
    ),
    "an append of the same store": (
        lambda t: t.run.edit(at=2, append={"main": t.store}),
        C,
        "edit.append.main",
        "24 documents",
        "Open the store again",
    ),
    "an append to a splice": (
        lambda t: _grown(t, lambda store: store.splice(16)),
        C,
        "edit.append.main",
        "spliced",
        "add={...}",
    ),
    "an append to chosen documents": (
        lambda t: _grown(t, lambda store: store.select(num_docs=2).windows(8)),
        C,
        "edit.append.main",
        "selected one by one",
        "Add them as a source",
    ),
    # -- rows of others, models -------------------------------------------------------------------
    "starts that are no cells": (
        lambda t: boundaries.position_ids([[0.5]], 4),
        errors.InputError,
        "document_starts",
        "0.5",
        "allowed",
    ),
    "starts that go back": (
        lambda t: boundaries.position_ids([[0, 3, 2]], 4),
        errors.InputError,
        "document_starts",
        "[0, 3, 2]",
        "allowed",
    ),
    "lengths beyond the width": (
        lambda t: boundaries.position_ids([[0]], 4, [5]),
        errors.InputError,
        "lengths, width",
        "[5]",
        "allowed: a length from 0",
    ),
    "a batch without segments": (
        lambda t: quality.leak_probe(None, {"tokens": np.zeros((1, 4), int)}),
        C,
        "batch",
        "None",
        "pass them with the tokens",
    ),
    "a model without logits": (
        lambda t: quality.leak_probe(
            lambda tokens, batch: np.zeros((1, 2)),
            {"tokens": np.ones((1, 4), int), "segment_ids": np.array([[1, 1, 2, 2]])},
        ),
        C,
        "model",
        "[1, 2]",
        "Wrap it",
    ),
    # -- files -----------------------------------------------------------------------------------
    "a run file in another encoding": (
        lambda t: tl.load(_written(t.root / "latin.json", '{"\xe9": 1}', "latin-1")),
        C,
        str,
        "not UTF-8",
        "Save it as UTF-8",
    ),
    "a TOML file in another encoding": (
        lambda t: tl.load(_written(t.root / "latin.toml", "a = '\xe9'", "latin-1")),
        C,
        str,
        "not UTF-8",
        "Save it as UTF-8",
    ),
    "a TOML file that is too deep": (
        lambda t: tl.load(_written(t.root / "deep.toml", "a = " + "[" * 5000)),
        C,
        str,
        "nested too deeply",
        "Write it flatter",
    ),
    "a path beside settings of another trainer": (
        lambda t: from_config({"data": {"type": "splice_single_document"}}, path="x"),
        C,
        "path",
        "'x'",
        "Leave it out",
    ),
    # -- splices ---------------------------------------------------------------------------------
    "a schedule that is a number": (
        lambda t: t.store.splice(16, doc_schedule=3),
        C,
        "doc_schedule",
        "3",
        "such as {0: 1",
    ),
    "a schedule of no steps": (
        lambda t: t.store.splice(16, doc_schedule={0: 1}, schedule_batch_size=0),
        C,
        "schedule_batch_size",
        "0",
        "allowed: 1 or more",
    ),
    "a schedule of words": (
        lambda t: t.store.splice(16, doc_schedule={"a": "b"}),
        C,
        "doc_schedule",
        "'a'",
        "allowed: a mapping of numbers",
    ),
    "a schedule that starts late": (
        lambda t: t.store.splice(16, doc_schedule={3: 1}),
        C,
        "doc_schedule",
        "3",
        "start at 0 and ascend",
    ),
    "a schedule of nothing": (
        lambda t: t.store.splice(16, doc_schedule={0: 0}),
        C,
        "doc_schedule",
        "(0, 0)",
        "values of 1 or more",
    ),
    "growth beside a schedule": (
        lambda t: t.store.splice(16, doc_growth={0: 2}, doc_schedule={0: 1}),
        C,
        "doc_growth",
        "beside",
        "Give only one kind",
    ),
    "groups that are a word": (
        lambda t: t.store.splice(16, doc_groups="abc"),
        C,
        "doc_groups",
        "'abc'",
        "one name or number for each",
    ),
    "no epochs at all": (
        lambda t: t.store.splice(16, max_epochs=0),
        C,
        "max_epochs",
        "0",
        "more than 0",
    ),
    "a jitter of anchored starts": (
        lambda t: t.store.splice(16, offset_jitter=2, content_start_mode="anchor_start"),
        C,
        "offset_jitter",
        "2",
        "allowed only with 'coverage_balanced'",
    ),
    "a jitter on a grid": (
        lambda t: t.store.splice(16, offset_jitter=2, grid=(2, 2)),
        C,
        "offset_jitter",
        "2",
        "Leave one out",
    ),
    "the loss of a roll without one": (
        lambda t: t.store.splice(16, roll_loss=True),
        C,
        "roll_loss",
        "True",
        "allowed only with 'cyclic_roll'",
    ),
    "a BOS that is no token": (
        lambda t: t.store.splice(16, bos=-2),
        C,
        "bos",
        "-2",
        "allowed: True, False, or a token",
    ),
    "the splices of a mix": (
        lambda t: inspect.triples(t.mixed),
        C,
        str,
        "a mix",
        "Pass the spliced dataset",
    ),
    # -- losses ----------------------------------------------------------------------------------
    "losses of another shape": (
        lambda t: tl.blame(t.run, np.zeros((1, 2, 3, 4)), batch_size=4),
        C,
        "losses",
        "(1, 2, 3, 4)",
        "allowed: [steps]",
    ),
    "losses per something else": (
        lambda t: tl.blame(t.run, np.arange(9.0), index=np.arange(9), per="token"),
        C,
        "per",
        "'token'",
        "Leave it out",
    ),
    "a BOS that every document has": (
        lambda t: tl.build(
            [{"text": "abc"}], t.root / "with-bos", tokenizer="bytes", bos=1, add_bos=True
        ).splice(16, bos=True),
        errors.TokenizerError,
        str,
        "already got their BOS",
        "Leave it out",
    ),
    "a length and a schedule of lengths": (
        lambda t: SpliceSpec(seq_len=16, content_length=4, content_schedule=((0, 4),)),
        C,
        "content_length",
        "4",
        "Give only one",
    ),
    "more examples than there are": (
        lambda t: t.run.tokens_in(10**9),
        IndexError,
        "examples 1000000000",
        "1000000000",
        "allowed: 0 to",
    ),
    "no micro-batches": (
        lambda t: check_accepted({"accumulate": 0}),
        C,
        "accumulate",
        "0",
        "a divisor of the rows",
    ),
    "a table with a name twice": (
        lambda t: tl.build(
            pa.table([["a"], ["b"]], names=["text", "text"]), t.root / "new", tokenizer="bytes"
        ),
        errors.InputError,
        str,
        "['text', 'text']",
        "different strings",
    ),
    "a saved dataset whose list is damaged": (
        lambda t: tl.build(
            f"hf:{_written(t.root / 'dataset_dict.json', '{').parent}",
            t.root / "new",
            tokenizer="bytes",
        ),
        errors.InputError,
        str,
        "dataset_dict.json",
        "Save it again",
    ),
    "a sample whose loss tokens nobody knows": (
        lambda t: loss_tokens_of("abc"),
        errors.InputError,
        str,
        "str",
        "Pass cost=",
    ),
    # -- conversations and tokenizers ------------------------------------------------------------
    "a prompt that is no text": (
        lambda t: _chat(t, {"prompt": "a", "completion": "b"}, {"prompt": 3, "completion": "b"}),
        errors.InputError,
        str,
        "'prompt'",
        "allowed: a string",
    ),
    "a prompt with half a character": (
        lambda t: _chat(
            t, {"prompt": "a", "completion": "b"}, {"prompt": "\ud800", "completion": "b"}
        ),
        errors.InputError,
        str,
        "found str",
        "Convert it",
    ),
    "a template for prompts that are text": (
        lambda t: _chat(t, {"prompt": "a", "completion": "b"}, chat_template=_template(t)),
        C,
        "chat_template",
        "a string",
        "Leave it out",
    ),
    "messages that are no list": (
        lambda t: _chat(t, TALK, {"messages": 3}, chat_template=_template(t)),
        errors.InputError,
        str,
        "'messages'",
        "allowed: a list of messages",
    ),
    "a message that is trained on or so": (
        lambda t: _chat(
            t,
            TALK,
            {"messages": [TALK["messages"][0], {**TALK["messages"][1], "train": "so"}]},
            chat_template=_template(t),
        ),
        errors.InputError,
        str,
        "'so'",
        "allowed: true or false",
    ),
    "arguments of a template that are none": (
        lambda t: _chat(t, TALK, chat_template=_template(t), template_args=3),
        C,
        "template_args",
        "3",
        "allowed: names and values",
    ),
    "a tokenizer with broken settings": (
        lambda t: _build(t, tokenizer=str(_tokenizer(t.root / "tok"))),
        errors.TokenizerError,
        str,
        "not JSON",
        "Repair or remove it",
    ),
    # -- settings of other trainers ----------------------------------------------------------------
    "a mixture without a length": (
        lambda t: from_config({"data": {"configs": {"a": {"cache_dir": str(t.root / "toy")}}}}),
        C,
        "data.seq_len",
        "missing",
        "Give the tokens of a frame",
    ),
    "packing without a length": (
        lambda t: from_config({"data": {"packing_mode": "bin", "store": str(t.root / "toy")}}),
        C,
        "data.seq_len",
        "missing",
        "Give the tokens of a frame",
    ),
    "packing without a store": (
        lambda t: from_config({"data": {"packing_mode": "bin", "seq_len": 8}}),
        C,
        "data.store",
        "missing",
        "`tokenloom build`",
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
        "Leave it out",
    ),
    # -- what people pass --------------------------------------------------------------------------
    "a keyword from elsewhere": (
        lambda t: arguments.near_misses("f", drop_last="Its name is end.")(lambda *, end=1: end)(
            drop_last=True
        ),
        C,
        "f",
        "'drop_last'",
        "Its name is end",
    ),
    "a path that is no text": (
        lambda t: arguments.local_path("out", "a\0b"),
        C,
        "out",
        "a\\x00b",
        "Use another path",
    ),
    "a count below 0": (
        lambda t: arguments.count_of("n", -1),
        C,
        "n",
        "-1",
        "allowed: an integer from 0",
    ),
    "a number that is too large": (
        lambda t: arguments.number("weight", 10**400),
        C,
        "weight",
        "1000",
        "below 2^1024",
    ),
    "text for a mapping": (
        lambda t: arguments.mapping("add", "abc", "a mapping"),
        C,
        "add",
        "'abc'",
        "allowed",
    ),
}


def _written(path, text, encoding="utf-8"):
    path.write_text(text, encoding=encoding)
    return path


def _template(toy, text="{% for one in messages %}{{ one.content }}{% endfor %}"):
    return str(_written(toy.root / "chat.jinja", text))


def _chat(toy, *records, **options):
    return tl.build(list(records), toy.root / "new", tokenizer="bytes", **options)


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
def test_what_is_wrong_is_told_with_place_value_and_way_out(what, toy):
    provoke, kind, place, value, way_out = WRONG[what]
    with pytest.raises(kind) as refused:
        provoke(toy)
    message = str(refused.value.args[0])
    assert place is str or message.startswith(f"{place}: "), message
    assert message.partition(": ")[1], message
    assert value in message, message
    assert way_out in message, message


@pytest.mark.parametrize("what", WRONG)
def test_an_error_is_of_the_tree_or_keeps_a_contract_of_python(what):
    kinds = WRONG[what][1]
    for kind in kinds if isinstance(kinds, tuple) else [kinds]:
        assert issubclass(kind, errors.TokenloomError) or kind in (IndexError, KeyError, TypeError)
