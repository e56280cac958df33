"""Arguments are spelled out in signatures; a name that is not one of them is refused."""

import inspect

import pytest
from refusals import refused

import tokenloom as tl
from tokenloom.inspect import coverage, triples
from tokenloom.integrations.hf import Collator, block_report
from tokenloom.streams import stream_packer
from tokenloom.testing import assert_elastic, assert_exactly_once, assert_resumable

SPELLED_OUT = [
    *(getattr(tl.Store, name) for name in ("windows", "pack", "splice", "select", "split")),
    *(tl.Dataset.render, tl.plan_packing, tl.from_config, stream_packer, block_report, Collator),
]


def parameters(function):
    return dict(inspect.signature(function).parameters)


@pytest.mark.parametrize("function", SPELLED_OUT, ids=lambda one: one.__qualname__)
def test_help_shows_every_parameter_and_no_catch_all(function):
    for one in parameters(function).values():
        assert one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)


def test_a_plan_of_packing_has_the_parameters_of_packing():
    found, wanted = parameters(tl.plan_packing), parameters(tl.Store.pack)
    shared = (found.keys() & wanted.keys()) - {"seq_len", "strategy"}
    assert {"overflow", "group_docs", "add_bos", "add_eos"} <= shared
    assert {name: found[name].default for name in shared} == {
        name: wanted[name].default for name in shared
    }


def test_a_rendering_keeps_what_is_left_out(store):
    run = store.windows(4, ignore_id=97, label_layout="shifted", pad_id=3)
    assert run.render() == run
    other = run.render(ignore_id=None)  # None is a value here
    assert other == store.windows(4, label_layout="shifted", pad_id=3) != run


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    rows = [{"text": "abcdefgh"}, {"text": "ij"}]
    return tl.build(rows, tmp_path_factory.mktemp("signatures") / "s", tokenizer="bytes")


MISSPELT = [
    (lambda s: s.windows(4, tial="keep"), "tial", "tail"),
    (lambda s: s.pack(4, strategi="bin"), "strategi", "strategy"),
    (lambda s: s.splice(4, contentlength=2), "contentlength", "content_length"),
    (lambda s: s.select(num_doc=2), "num_doc", "num_docs"),
    (lambda s: s.split({"a": 1.0}, sed=2), "sed", "seed"),
    (lambda s: s.windows(seqlen=3), "seqlen", "seq_len"),
    (lambda s: tl.Loader(s.pack(4), 2, rnk=0), "rnk", "rank"),
    (lambda s: stream_packer("bin", 4, pad=0), "pad", "pad_id"),
    (lambda s: tl.open(s.path, snapshto=1), "snapshto", "snapshot"),
    (lambda s: tl.mix({"a": s.pack(4)}, wieghts={}), "wieghts", "weights"),
    (lambda s: s.pack(4).edit(at=1, apend={}), "apend", "append"),
    (lambda s: s.pack(4).render(pad=0), "pad", "pad_id"),
    (lambda s: tl.from_config({}, cachebytes=1), "cachebytes", "cache_bytes"),
    (lambda s: block_report({}, len, maxlength=1), "maxlength", "max_length"),
    (lambda s: Collator(None, paddin=1), "paddin", "padding"),
    (lambda s: tl.build([], "x", tokeniser="bytes"), "tokeniser", "tokenizer"),
    (lambda s: tl.plan_packing(s, seq_len=4, overflows="drop"), "overflows", "overflow"),
]


@pytest.mark.parametrize(("call", "found", "meant"), MISSPELT, ids=[one[1] for one in MISSPELT])
def test_a_misspelt_argument_is_refused_with_its_near_miss(store, call, found, meant):
    refused(lambda: call(store), tl.ConfigError, repr(found), repr(meant))


@pytest.mark.parametrize(("known", "ours"), [("inputs", "tokens"), ("targets", "labels")])
def test_names_of_other_libraries_lead_to_the_array_that_is_meant(store, known, ours):
    """Spelling alone would suggest others."""
    refused(
        lambda: tl.Loader(store.pack(4), 2, fields=(known,)),
        tl.ConfigError,
        f"fields: found '{known}'",
        f"'{ours}'",
    )


TAKES_A_DATASET = {
    "Loader": lambda value: tl.Loader(value, 2),
    "mix.a": lambda value: tl.mix({"a": value}),
    "inspect": coverage,
    "inspect again": triples,
    "assert_exactly_once": assert_exactly_once,
    "Loader in a law": assert_resumable,
    "Loader in another": assert_elastic,
}


@pytest.mark.parametrize("what", ["store", "documents", "path", "loader", "nothing"])
@pytest.mark.parametrize("call", TAKES_A_DATASET)
def test_what_is_no_dataset_is_refused_with_what_is(store, call, what):
    """A store has no examples until it has a layout."""
    value = {
        "store": store,
        "documents": store.select(num_docs=1),
        "path": str(store.path),
        "loader": tl.Loader(store.pack(4), 1),
        "nothing": None,
    }[what]
    named = f"{call.split()[0]}: found {type(value).__name__}"
    refused(lambda: TAKES_A_DATASET[call](value), tl.ConfigError, named)


@pytest.mark.parametrize("name", ["mask_boundary_loss", "train_on_eos", "trailing", "segments"])
def test_none_is_no_value_where_the_default_is_known(store, name):
    refused(lambda: store.pack(4, **{name: None}), tl.ConfigError, name, None)


def test_what_depends_on_others_follows_them_unless_it_is_given(store):
    def made(dataset):
        described = dataset.describe()
        return described["layout"], described["render"]["label_layout"]

    assert made(store.windows(4))[1] == "aligned"
    layout, labels = made(store.windows(4, lookahead=True))
    assert (layout["overlap"], labels) == (1, "shifted")
    layout, labels = made(
        store.windows(4, lookahead=True, overlap=0, label_layout="aligned", align=True)
    )
    assert (layout["overlap"], labels) == (0, "aligned")
    for given, edge, fill in (
        ({"position_scheme": "relative"}, "clip", "pack"),
        ({}, "inside", "one"),
        ({"position_scheme": "relative", "edge": "inside"}, "inside", "pack"),
    ):
        layout, _ = made(store.splice(4, content_length=3, **given))
        assert (layout["edge"], layout["fill"]) == (edge, fill)
