import itertools
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toydata import ToyStore, lengths, numbered, slow_rows, whole
from virtual import VirtualStore

import tokenloom as tl
from tokenloom.api.dataset import Dataset
from tokenloom.api.source import Source
from tokenloom.documents.line import ChosenLine, WholeLine
from tokenloom.layout.kinds import make_layout
from tokenloom.layout.windows import Windows, WindowsSpec
from tokenloom.order.spec import SourceConfig

CHUNK = 262_144

pytestmark = pytest.mark.filterwarnings("ignore:seq_len")

settings = st.builds(
    lambda seq_len, tail, lookahead, align: {
        "seq_len": seq_len,
        "tail": tail,
        "lookahead": lookahead > 0,
        "overlap": int(lookahead > 1),
        "align": align,
    },
    st.sampled_from([1, 2, 3, 4, 5, 7, 16, 17, 40]),
    st.sampled_from(["drop", "keep"]),
    st.integers(0, 2),
    st.sampled_from([0, CHUNK, 40]),
)


def slow(cells, *, align, **cut):
    return slow_rows(cells, **cut)


def assert_rows(dataset, rows, pad_id=0):
    """Tokens and spans of all rows are those of the slow rows, cell by cell."""
    assert len(dataset) == len(rows)
    seq_len, every = dataset.seq_len, range(len(rows))
    for by_blocks in (False, True):
        tokens = whole(dataset, every, by_blocks=by_blocks).tokens
        expected = [[c[2] if c else pad_id for c in row[:seq_len]] for row in rows]
        assert tokens.tolist() == expected
    spans = dataset.spans(every)
    spans.check()
    columns = [
        getattr(spans, name).tolist() for name in ("document", "start", "length", "at", "address")
    ]
    edges = spans.frame.tolist()
    for row, (first, last) in zip(rows, itertools.pairwise(edges), strict=True):
        found = [None] * len(row)
        for document, start, length, at, address in list(zip(*columns, strict=True))[first:last]:
            for k in range(length):
                assert found[at + k] is None  # no cell is in two spans
                found[at + k] = (document, start + k, address + k)
        assert found == [c and (c[0], c[1], c[4]) for c in row]
        assert all(spans.flags[first:last] == 0)


def addressed(cells):
    """Cells and their position on the line, which for a whole store is the address in it."""
    return [(*cell, place) for place, cell in enumerate(cells)]


@given(lengths, st.lists(settings, min_size=1, max_size=6))
def test_rows_are_slices_of_the_documents_end_to_end(sizes, every):
    with ToyStore(numbered(sizes), cache_bytes=1 << 16) as toy:
        cells = addressed(toy.cells())
        for setting in every:
            seq_len, rest = setting["seq_len"], {k: v for k, v in setting.items() if k != "seq_len"}
            dataset = toy.store.windows(seq_len, pad_id=999, **rest)
            assert_rows(dataset, slow(cells, **setting), pad_id=999)


@given(lengths, settings, st.data())
def test_rows_of_chosen_documents_are_slices_of_those_documents(sizes, setting, data):
    with ToyStore(numbered(sizes)) as toy:
        every = range(len(toy.documents))
        chosen = [d for d in every if data.draw(st.booleans())]
        line = ChosenLine(toy.store.reader, np.array(chosen, np.int64))
        spec = WindowsSpec(**setting)
        source = Source(
            reader=toy.store.reader,
            path=str(toy.path),
            config=SourceConfig(layout=spec),
            layout=make_layout(spec, line),
        )
        dataset = Dataset({"main": source})
        assert_rows(dataset, slow(addressed(toy.cells(chosen)), **setting))


@given(lengths, settings)
def test_a_cell_knows_its_document_and_a_document_its_cells(sizes, setting):
    with ToyStore(numbered(sizes)) as toy:
        seq_len, rest = setting["seq_len"], {k: v for k, v in setting.items() if k != "seq_len"}
        dataset = toy.store.windows(seq_len, **rest)
        spans, seen = dataset.spans(range(len(dataset))), set()
        batch = dataset.batch(range(len(dataset)))
        for s, row in enumerate(spans.row.tolist()):
            document, start, at = (int(x[s]) for x in (spans.document, spans.start, spans.at))
            tokens = toy.store.document(document)[start : start + int(spans.length[s])]
            inside = batch.tokens[row, at : at + len(tokens)]
            np.testing.assert_array_equal(inside, tokens[: len(inside)])
            seen |= {(document, start + k) for k in range(len(tokens))}
        if setting["tail"] == "keep":  # then no token is lost
            assert seen == {(d, o) for d, o, *_ in toy.cells()}


@pytest.mark.parametrize(
    ("tokens", "options", "rows"),
    [
        (0, {}, 0),
        (0, {"tail": "keep"}, 0),
        (3, {}, 0),
        (3, {"tail": "keep"}, 1),
        (4, {"tail": "keep"}, 1),
        (4, {"lookahead": True}, 0),
        (5, {"lookahead": True}, 1),
        (5, {"lookahead": True, "tail": "keep"}, 1),  # the second row would hold nothing new
        (6, {"lookahead": True, "tail": "keep"}, 2),
        (9, {"lookahead": True}, 2),
        (9, {"lookahead": True, "overlap": 0}, 1),
        (10, {"lookahead": True, "overlap": 0}, 2),
    ],
)
def test_how_many_rows_of_four_there_are(tokens, options, rows):
    with ToyStore(numbered([[tokens]])) as toy:
        assert len(toy.store.windows(4, **options)) == rows


@given(st.integers(0, 60), st.integers(1, 9))
def test_with_lookahead_every_token_but_the_first_is_predicted_once(tokens, seq_len):
    with ToyStore(numbered([[tokens]])) as toy:
        options = {"lookahead": True, "tail": "keep", "label_layout": "shifted"}
        dataset = toy.store.windows(seq_len, **options)
        if tokens < 2:
            assert len(dataset) == tokens
            return
        labels = dataset.batch(range(len(dataset))).labels
        assert sorted(labels[labels >= 0].tolist()) == list(range(1, tokens))


def test_a_store_without_tokens_has_no_rows_and_says_so():
    with ToyStore([[[], []], []]) as toy:
        dataset = toy.store.windows(4, tail="keep").shuffle()
        assert (len(dataset), dataset.is_finite) == (0, True)
        with pytest.raises(IndexError, match="index 0"):
            dataset[0]
        assert dataset.batch([]).tokens.shape == (0, 4)
        assert "0 examples" in repr(dataset)
        assert len(dataset.epochs(None)) == 0


# -- blocks --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def virtual(tmp_path_factory):
    """Two and a half million virtual tokens, in io blocks of the default size."""
    made = VirtualStore([(100, 1_000_000), (100, 1_500_000)])
    root = made.write_manifest(tmp_path_factory.mktemp("virtual"))
    return tl.open(root, source=made, verify="never", cache_bytes=1 << 24)


def test_rows_that_do_not_fit_an_io_block_are_told_with_the_numbers(virtual):
    with pytest.warns(UserWarning, match=r"seq_len: .*262,144 .*87 rows of 3,000 .*1,144 tokens"):
        virtual.windows(3000)
    with pytest.warns(UserWarning, match="align") as seen:
        virtual.windows(3000)
    assert seen[0].filename == __file__  # not some line inside the library
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seq_len in (1, 2048, 4096, CHUNK, CHUNK + 5):
            virtual.windows(seq_len)
        virtual.windows(3000, align=True)
        virtual.windows(2048, lookahead=True)  # rows start 2,048 apart


@given(
    st.lists(st.integers(1, 150), max_size=4),
    st.integers(1, 30),
    st.integers(1, 64),
    st.integers(0, 2),
    st.sampled_from(["drop", "keep"]),
)
def test_aligned_blocks_hold_the_rows_that_start_between_two_ends_on_the_line(
    shards, seq_len, chunk, lookahead, tail
):
    """Counted on the line: where shards end does not matter."""
    edges = np.array([0, *itertools.accumulate(shards)])
    tokens = int(edges[-1])
    manifest = SimpleNamespace(tokens=tokens)
    offsets = SimpleNamespace(first_token=edges)
    line = WholeLine(SimpleNamespace(manifest=manifest, offsets=offsets))
    cut = {"seq_len": seq_len, "tail": tail, "lookahead": lookahead > 0, "overlap": lookahead // 2}
    layout = Windows(WindowsSpec(align=chunk, **cut), line, chunk)
    rows = len(slow_rows([()] * tokens, **cut))
    assert layout.phases.rows.tolist() == [rows]
    blocks = layout.blocks()
    step = seq_len + cut["lookahead"] - cut["overlap"]

    def io_block(row):
        return row * step // chunk

    expected = [list(group) for _, group in itertools.groupby(range(rows), io_block)]
    first, last = blocks.edges(np.arange(len(blocks)))
    found = [list(range(a, b)) for a, b in zip(first.tolist(), last.tolist(), strict=True)]
    assert found == expected
    assert blocks.of(np.arange(rows)).tolist() == [b for b, g in enumerate(expected) for _ in g]


@given(lengths, settings, st.integers(1, 6))
def test_the_stretch_of_a_block_is_just_what_its_rows_take(sizes, setting, size):
    with ToyStore(numbered(sizes)) as toy:
        seq_len, rest = setting["seq_len"], {k: v for k, v in setting.items() if k != "seq_len"}
        run = toy.store.windows(seq_len, **rest).block_shuffle(io_block_size=size).run
        rows = np.arange(run.rows)
        runs, owner = run.layout.runs(0, rows), run.working.blocks.of(rows)
        for block in range(len(run.working.blocks)):
            first, last = run.layout.stretch(np.array([block]), run.working.blocks)
            here = owner == block
            ends = runs.address[here] + runs.length[here]
            assert (first[0], last[0]) == (runs.address[here].min(), ends.max())


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"seq_len": 0}, "seq_len: found 0"),
        ({"seq_len": -3}, "seq_len: found -3"),
        ({"seq_len": (1 << 30) + 1}, "seq_len"),
        ({"seq_len": 4.0}, r"seq_len: found 4.0 \(float\), allowed: an integer"),
        ({"seq_len": "4"}, "seq_len"),
        ({"seq_len": True}, "seq_len"),
        ({"seq_len": None}, "seq_len"),
        ({"seq_len": 4, "tail": "pad"}, "tail: found 'pad', allowed: drop, keep"),
        ({"seq_len": 4, "overlap": 1}, "overlap: found 1"),
        ({"seq_len": 4, "lookahead": True, "overlap": 2}, "overlap: found 2"),
        ({"seq_len": 4, "lookahead": True, "overlap": -1}, "overlap: found -1"),
        ({"seq_len": 4, "align": "yes"}, "align"),
    ],
)
def test_windows_that_cannot_be_cut_are_refused_with_the_value(options, word):
    with ToyStore(numbered([[9]])) as toy, pytest.raises(tl.ConfigError, match=word):
        toy.store.windows(**options)


def test_numpy_integers_are_integers():
    with ToyStore(numbered([[9]])) as toy:
        assert toy.store.windows(np.int64(4)).describe()["layout"]["seq_len"] == 4
        assert type(toy.store.windows(np.uint16(4)).describe()["layout"]["seq_len"]) is int
