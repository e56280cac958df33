"""Arguments of layouts are spelled out; their defaults are those of the settings they become."""

import inspect
from dataclasses import MISSING, fields

import pytest
from refusals import refused

import tokenloom as tl
from tokenloom.api.documents import Documents
from tokenloom.arguments import AS_IS
from tokenloom.batch.spec import RenderSpec
from tokenloom.documents.spec import SelectSpec
from tokenloom.foreign.places import Said
from tokenloom.inspect import coverage, triples
from tokenloom.integrations.hf import Collator, block_report, block_tokenize
from tokenloom.integrations.hf.tokenize import BlockOptions
from tokenloom.layout.pack.spec import PackSpec
from tokenloom.layout.splice.spec import SpliceSpec
from tokenloom.layout.windows import WindowsSpec
from tokenloom.streams.pack import stream_packer
from tokenloom.streams.pack_state import PackerSpec
from tokenloom.testing import assert_elastic, assert_exactly_once, assert_resumable

# None marks a default that depends on the store or on another argument
DEPENDS = {
    "windows": {"overlap", "label_layout", "pad_id"},
    "pack": {"label_layout", "pad_id"},
    "splice": {"edge", "fill", "label_layout", "pad_id", "position_scheme"},
}
# said in another way: True is an io block; schedules are mappings; tokens by kind; text by number
OTHERWISE = {
    "windows": {"align": False},
    "splice": {"doc_schedule": None, "doc_growth": None},
}
NOT_GIVEN = {"splice": {"content_schedule", "bos_id"}, "select": {"documents", "within"}}
SPECS = {
    "windows": (WindowsSpec, RenderSpec),
    "pack": (PackSpec, RenderSpec),
    "splice": (SpliceSpec, RenderSpec),
}


def parameters(function):
    return dict(inspect.signature(function).parameters)


def defaults(*specs):
    return {one.name: one.default for spec in specs for one in fields(spec)}


@pytest.mark.parametrize("name", SPECS)
def test_every_field_of_the_settings_is_a_parameter_with_the_same_default(name):
    found = parameters(getattr(Documents, name))
    for field, default in defaults(*SPECS[name]).items():
        if field in NOT_GIVEN.get(name, ()):
            assert field not in found
        elif field in OTHERWISE.get(name, ()):
            assert found[field].default == OTHERWISE[name][field]
        elif field in DEPENDS[name]:
            assert found[field].default is None
            assert default is not None
        elif default is MISSING:
            assert found[field].default is inspect.Parameter.empty, field
        else:
            assert (field, found[field].default) == (field, default)


@pytest.mark.parametrize("name", [*SPECS, "select", "split"])
def test_help_shows_every_parameter_with_a_type_and_no_catch_all(name):
    method = getattr(tl.Store, name)
    for one in parameters(method).values():
        assert one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
        assert one.name == "self" or one.annotation is not inspect.Parameter.empty
        assert one.name == "self" or f"    {one.name}: " in inspect.getdoc(method), one.name


def test_a_plan_of_packing_has_the_parameters_of_packing():
    found, wanted = parameters(tl.plan_packing), parameters(tl.Store.pack)
    shared = [name for name in defaults(PackSpec) if name not in ("seq_len", "strategy")]
    assert {name: found[name].default for name in shared} == {
        name: wanted[name].default for name in shared
    }
    assert {"add_bos", "add_eos"} <= set(found)
    assert all(one.kind is not one.VAR_KEYWORD for one in found.values())


def test_a_packer_of_streams_has_the_fields_of_its_setting():
    found = parameters(stream_packer)
    assert set(found) == set(defaults(PackerSpec))
    for name, default in defaults(PackerSpec).items():
        wanted = inspect.Parameter.empty if default is MISSING else default
        assert (name, found[name].default) == (name, wanted)


def test_a_rendering_has_the_fields_of_its_setting_and_keeps_what_is_left_out(store):
    found = parameters(tl.Dataset.render)
    assert [*found] == ["self", *defaults(RenderSpec)]
    assert {one.default for name, one in found.items() if name != "self"} == {AS_IS}
    assert str(found["pad_id"]) == "pad_id: 'int | AsIs' = AS_IS"
    run = store.windows(4, ignore_id=97, label_layout="shifted", pad_id=3)
    assert run.render() == run
    other = run.render(ignore_id=None)  # None is a value here
    assert other == store.windows(4, label_layout="shifted", pad_id=3) != run


def test_tokenizing_blocks_and_its_report_have_the_fields_of_their_setting():
    found = parameters(block_tokenize)
    assert parameters(block_report) == found
    given = {name: one.default for name, one in found.items() if one.kind is one.KEYWORD_ONLY}
    assert given == defaults(BlockOptions)


def test_a_dataset_from_a_config_opens_its_stores_like_open():
    found, wanted = parameters(tl.from_config), parameters(tl.open)
    described = {"path", "snapshot", "identity", *defaults(Said)}  # a description has them
    shared = [name for name in wanted if name not in described]
    assert [found[name] for name in shared] == [wanted[name] for name in shared]
    assert set(found) - set(shared) == {"config", "path", "seq_len"}


@pytest.mark.parametrize("function", [tl.from_config, tl.Dataset.render, block_report, Collator])
def test_a_misspelt_argument_has_no_catch_all_to_fall_into(function):
    assert not [one for one in parameters(function).values() if one.kind is one.VAR_KEYWORD]


def test_select_has_the_fields_of_its_setting():
    found = parameters(tl.Store.select)
    for name, default in defaults(SelectSpec).items():
        if name in found:
            assert (name, found[name].default) == (name, default)
    assert set(defaults(SelectSpec)) - set(found) == {"training_tokens", "documents", "within"}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    rows = [{"text": "abcdefgh"}, {"text": "ij"}]
    return tl.build(rows, tmp_path_factory.mktemp("signatures") / "s", tokenizer="bytes")


def test_a_store_is_all_its_documents(store):
    assert isinstance(store, Documents)
    assert store.indices.tolist() == [0, 1]
    assert [one.tolist() for one in store.load()[0]] == [list(b"abcdefgh"), list(b"ij")]
    assert "Store(" in repr(store)


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
    """Spelling alone would suggest others; input_ids is a name of tokens (tests/batch)."""
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
    """A store has no examples until it has a layout; it was an AttributeError once."""
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
    with pytest.raises(tl.ConfigError, match=f"{name}: found None"):
        store.pack(4, **{name: None})


def test_what_depends_on_others_follows_them_unless_it_is_given(store):
    def made(dataset):
        source = dataset.sources["main"]
        return source.config.layout, source.render

    assert made(store.windows(4))[1].label_layout == "aligned"
    layout, render = made(store.windows(4, lookahead=True))
    assert (layout.overlap, render.label_layout) == (1, "shifted")
    given = store.windows(4, lookahead=True, overlap=0, label_layout="aligned", align=True)
    layout, render = made(given)
    assert (layout.overlap, render.label_layout) == (0, "aligned")
    layout, _ = made(store.splice(4, content_length=3, position_scheme="relative"))
    assert (layout.edge, layout.fill) == ("clip", "pack")
    layout, _ = made(store.splice(4, content_length=3))
    assert (layout.edge, layout.fill) == ("inside", "one")
    given = store.splice(4, content_length=3, position_scheme="relative", edge="inside")
    layout, _ = made(given)
    assert (layout.edge, layout.fill) == ("inside", "pack")
