"""Coverage: counts equal those of the arrays that a model gets, and can be looked at."""

import base64
import re
import xml.etree.ElementTree as ET
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from splicedtoys import BOS, slow_counts, spliced_datasets, toy_store

import tokenloom as tl
from tokenloom.errors import ConfigError
from tokenloom.inspect import coverage, triples
from tokenloom.inspect.counts import count
from tokenloom.inspect.grids import bars, even_bins, exact_bins
from tokenloom.inspect.splices import FEW
from tokenloom.page.png import STRENGTH
from tokenloom.testing.stores import write_flat


def listed(ds, examples):
    found = triples(ds, np.arange(examples))
    return list(zip(found.document.tolist(), found.t.tolist(), found.s.tolist(), strict=True))


@given(spliced_datasets(), st.integers(1, 2))
@settings(max_examples=300)
def test_counts_equal_those_of_the_arrays_of_every_batch(case, epochs):
    ds, lengths = case
    found = coverage(ds, epochs=epochs)
    context, targets = slow_counts(ds, lengths, found.examples)
    for document, length in enumerate(lengths):
        wanted = [context[document, j] for j in range(length)]
        assert found.context(document).tolist() == wanted
        wanted = [targets[document, j] for j in range(length)]
        assert found.targets(document).tolist() == wanted
    assert found.lengths.tolist() == lengths


@given(spliced_datasets(), st.integers(1, 2), st.tuples(st.integers(1, 5), st.integers(1, 5)))
@settings(max_examples=200)
def test_starts_grids_and_splices_add_up_to_the_listing(case, epochs, bins):
    ds, lengths = case
    found = coverage(ds, epochs=epochs)
    every = listed(ds, found.examples)
    assert int(found.splices.sum()) == len(every)
    for place, document in enumerate(range(len(lengths))):
        shown = [(t, s) for d, t, s in every if d == document]
        starts = found.starts(document)
        assert found.splices[place] == len(shown) == starts.shown.sum()
        counts = [sum(t == one for t, _ in shown) for one in starts.t.tolist()]
        assert starts.shown.tolist() == counts
        whole = found.grid(document)  # a bin for each (t, s): these are small
        assert whole.t.edges[:-1].tolist() == starts.t.tolist()
        assert whole.counts.sum(axis=1).tolist() == counts
        for (i, j), value in np.ndenumerate(whole.counts):
            s = whole.s.edges[j], whole.s.edges[j + 1]
            assert value == sum(t == starts.t[i] and s[0] <= at < s[1] for t, at in shown)
        binned = found.grid(document, bins)
        assert binned.counts.sum() == len(shown)
        assert binned.counts.shape[0] == min(bins[0], len(starts.t))


@given(spliced_datasets(), st.data())
@settings(max_examples=100)
def test_some_documents_are_counted_as_among_all(case, data):
    ds, lengths = case
    asked = data.draw(st.permutations(range(len(lengths))))[: data.draw(st.integers(0, 4))]
    some, every = coverage(ds, documents=asked), coverage(ds)
    assert some.documents.tolist() == asked
    for place, document in enumerate(asked):
        assert some.splices[place] == every.splices[document]
        for name in ("context", "targets"):
            one, all_ = getattr(some, name)(document), getattr(every, name)(document)
            assert one.tolist() == all_.tolist()
        assert some.starts(document).shown.tolist() == every.starts(document).shown.tolist()


def test_a_few_of_many_documents_are_looked_up_and_not_searched_for():
    lengths = [5, 6, 7, 8] * (FEW // 2)
    ds = toy_store(*lengths).splice(8, content_length=4).shuffle().epochs(2).take(300)
    asked = [3, 20, 77]
    context, targets = slow_counts(ds, lengths, 300)
    found = coverage(ds, documents=asked, epochs=2)
    for document in asked:
        length = lengths[document]
        assert found.context(document).tolist() == [context[document, j] for j in range(length)]
        assert found.targets(document).tolist() == [targets[document, j] for j in range(length)]
    layout, calls = ds.run.layout, []
    known = layout.spans
    layout.spans = lambda epoch, rows: calls.append(len(rows)) or known(epoch, rows)
    coverage(ds, documents=asked, epochs=2)
    assert 0 < sum(calls) < 30  # of 300 rows


# -- evenness ------------------------------------------------------------------------------


@pytest.mark.parametrize("fill", ["one", "pack"])
@pytest.mark.parametrize("bos", [False, BOS])
@pytest.mark.parametrize("stride", [1, 2, 3, 6])
def test_clipped_windows_make_every_token_a_target_equally_often(fill, bos, stride):
    lengths = (7, 23, 60)
    options = {"content_length": 7, "edge": "clip", "fill": fill, "content_stride": stride}
    ds = toy_store(*lengths).splice(24, bos=bos, sampler="enumerate", **options)
    found = coverage(ds)
    for document in range(len(lengths)):
        targets = found.targets(document).tolist()
        assert set(targets[0 if bos else 1 :]) == {6 // stride}
        assert bos or targets[0] == 0
        assert found.variation(document) == 0.0
        assert f"{'0.000':>5}" in str(found)


def test_windows_inside_a_document_do_not():
    found = coverage(toy_store(60).splice(24, content_length=7))
    assert found.variation(0) > 0.1
    assert found.targets(0).tolist()[:8] == [0, 1, 2, 3, 4, 5, 6, 6]


def test_a_stride_that_does_not_divide_is_seen_to_be_uneven():
    with pytest.warns(UserWarning, match="content_stride"):
        ds = toy_store(60).splice(24, content_length=7, edge="clip", content_stride=4)
    found = coverage(ds.epochs(1))
    assert set(found.trained(0).tolist()) == {1, 2}
    assert found.variation(0) > 0.1


def test_edge_weights_show_as_published(tmp_path):
    """L = 50,000, K = 4,096: alpha 0 has CV 0.24, 0.5 has 0.22, 0.8 has 0.63; clipped has none."""
    write_flat(tmp_path / "one", np.arange(50_000) % 999, np.array([50_000]), vocab_size=1000)
    store = tl.open(tmp_path / "one")

    def variation(**options):
        return coverage(store.splice(8192, content_length=4096, **options)).variation(0)

    assert variation() == pytest.approx(0.24, abs=0.005)
    assert variation(alpha=0.5) == pytest.approx(0.22, abs=0.005)
    assert variation(alpha=0.8) == pytest.approx(0.63, abs=0.005)
    assert variation(edge="clip") == 0.0


def test_the_seam_of_a_roll_is_a_target_only_when_asked_for():
    options = {"content_start_mode": "cyclic_roll", "content_length": 4, "placement": "fit"}
    store = toy_store(6)
    plain, trained = (store.splice(4, roll_loss=one, **options) for one in (False, True))
    assert coverage(plain).targets(0).tolist() == [0, 3, 3, 3, 3, 3]
    assert coverage(trained).targets(0).tolist() == [3] * 6
    assert coverage(plain).context(0).tolist() == [4] * 6
    assert coverage(trained).variation(0) == 0.0


# -- asking --------------------------------------------------------------------------------


def test_more_epochs_than_there_are_are_not_counted():
    ds = toy_store(9).splice(8, content_length=4)
    assert coverage(ds, epochs=5).examples == coverage(ds).examples == len(ds)
    assert coverage(ds, epochs=5).epochs == 1
    assert coverage(ds.epochs(None), epochs=5).examples == 5 * len(ds)


def test_what_is_not_there_is_refused_in_words():
    ds = toy_store(9, 4).splice(8, content_length=4)
    with pytest.raises(IndexError, match="document 7: it is not among the 2 documents"):
        coverage(ds, documents=[0, 7])
    with pytest.raises(IndexError, match="document 1: it is not among the 1 document"):
        coverage(ds, documents=[0]).targets(1)
    with pytest.raises(ConfigError, match="bins"):
        coverage(ds).grid(0, bins=(0, 3))
    with pytest.raises(ConfigError, match=r"store\.splice"):
        coverage(toy_store(9).windows(4))


def test_counts_cannot_be_changed_by_mistake():
    found = coverage(toy_store(9).splice(8, content_length=4))
    with pytest.raises(ValueError, match="read-only"):
        found.targets(0)[0] = 1


def test_memory_is_that_of_the_documents_asked_for():
    ds = toy_store(20, 30, 40).splice(8, content_length=4)
    made = count(ds, np.array([1]), np.array([30]), len(ds))
    assert len(made.context) == len(made.targets) == 31
    assert len(made.starts) == 30


# -- text ----------------------------------------------------------------------------------


def test_a_histogram_is_as_wide_as_there_are_starts_and_no_wider_than_32():
    for length, wide in ((4, 1), (10, 7), (35, 32), (300, 30)):
        found = coverage(toy_store(length).splice(8, content_length=4))
        drawn = str(found).splitlines()[3].split()[-2]
        assert drawn == "█" * wide


def test_a_table_of_many_documents_is_short():
    found = coverage(toy_store(*[4] * 90).splice(4))
    assert len(str(found).splitlines()) == 3 + 40 + 1
    assert str(found).endswith("… 50 more documents")
    assert len(found.as_json()["documents"]) == 90


def worked():
    return coverage(
        toy_store(7, 5, 3).splice(8, content_length=4, adaptive_k=False, balance_mode="by_document")
    )


def test_the_map_has_starts_from_left_to_right_and_offsets_from_below():
    assert worked().map(0).splitlines() == [
        "s │",
        *[f"{s} │{'████' if s == 4 else ''}" for s in range(7, -1, -1)],
        "  └────",
        "   0  3 t",
    ]
    assert worked().map(2) == "not shown: it has no start"


def test_a_map_of_much_is_small():
    with pytest.warns(UserWarning, match="offsets"):
        ds = toy_store(400).splice(90, content_length=9, content_start_mode="slide_within")
    lines = coverage(ds).map(0).splitlines()
    assert len(lines) <= 16 + 3
    assert max(map(len, lines)) <= 64 + 8
    assert {"█", "─"} <= set("".join(lines))


def test_the_numbers_of_a_document_are_plain_json():
    about = worked().as_json()
    assert about["splices"] == about["examples"] == 8
    assert about["documents"][0]["targets"]["max"] == 3
    assert about["documents"][2]["targets"]["cv"] is None


def test_bars_say_none_little_and_most():
    assert bars([]) == ""
    assert bars([0, 0]) == "··"
    assert bars([0, 1, 1000]) == "·▁█"


# -- bins ----------------------------------------------------------------------------------


@given(
    st.lists(st.integers(-50, 200), min_size=0, max_size=60, unique=True).map(sorted),
    st.integers(1, 70),
)
def test_every_value_is_in_one_bin_and_bins_are_as_even_as_promised(values, most):
    found = np.array(values, np.int64)
    even, exact = even_bins(found, most), exact_bins(found, most)
    assert len(even) <= most
    assert len(exact) == min(most, len(values))
    for axis in (even, exact):
        assert axis.size.sum() == len(values)
        assert np.bincount(axis.of(found), minlength=len(axis)).tolist() == axis.size.tolist()
        assert axis.last == (values[-1] if values else 0)
        assert (np.diff(axis.edges) > 0).all()
    if len(even):
        assert len(set(even.size[:-1].tolist())) <= 1
        assert even.size[-1] <= even.size[0]
        assert exact.size.max() - exact.size.min() <= 1


# -- picture -------------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"


def numbers(path):
    return [float(one) for one in re.findall(r"-?\d+(?:\.\d+)?", path)]


def words_of(root):
    return [one.text for one in root.iter(f"{SVG}text")]


def drawings(root):
    """Each drawing of a picture with its width and height."""
    for one in root.iter(f"{SVG}svg"):
        if one is not root:
            yield one, float(one.get("width")), float(one.get("height"))


@given(spliced_datasets())
@settings(max_examples=60)
def test_any_document_can_be_drawn_and_its_picture_is_well_formed(case):
    ds, lengths = case
    found = coverage(ds)
    for document in range(len(lengths)):
        root = ET.fromstring(found.svg(document))
        assert root.find(f"{SVG}title").text.startswith(f"Document {document}: ")
        words = words_of(root)
        assert "How often each token is a target" in words
        shown = found.splices[document] > 0
        assert ("The document is never shown." in words) == (not shown)
        for said in ("place s in the frame, cells", "start t in the document, tokens"):
            assert (said in words) == shown
        assert len(list(drawings(root))) == (3 if shown else 1)
        for drawing, width, height in drawings(root):
            for one in drawing.iter(f"{SVG}text"):
                assert 0 <= float(one.get("x")) <= width
                assert 0 < float(one.get("y")) < height
            for one in drawing.iter(f"{SVG}path"):
                assert all(abs(value) <= max(width, height) for value in numbers(one.get("d")))


@pytest.mark.parametrize("starts", [1, 2, 1000, 10**6])
def test_a_picture_stays_small_for_any_number_of_starts(tmp_path, starts):
    length = starts + 3
    write_flat(tmp_path / "one", np.arange(length) % 999, np.array([length]), vocab_size=1000)
    store = tl.open(tmp_path / "one")
    found = coverage(store.splice(64, content_length=4, offset_jitter=9))
    assert len(found.starts(0).t) == starts
    drawn = found.svg(0)
    ET.fromstring(drawn)
    assert len(drawn) < 40_000
    assert drawn == coverage(store.splice(64, content_length=4, offset_jitter=9)).svg(0)


def map_of(drawn):
    """Which pixels of the map of a picture have a colour [over s, over t]."""
    data = re.search(r'href="data:image/png;base64,([^"]+)"', drawn)[1]
    colours = np.asarray(Image.open(BytesIO(base64.b64decode(data))).convert("RGBA"))
    assert {*colours[..., 3].ravel().tolist()} <= {0, *(round(2.55 * one) for one in STRENGTH)}
    return colours[..., 3] > 0


def test_one_start_of_a_long_document_can_be_seen(tmp_path):
    write_flat(tmp_path / "one", np.arange(10**6) % 999, np.array([10**6]), vocab_size=1000)
    ds = tl.open(tmp_path / "one").splice(
        64, content_length=8, content_start_mode="anchor_start", position_scheme="absolute"
    )
    seen = map_of(coverage(ds).svg(0))
    columns = seen.any(axis=0)
    assert columns[0]
    assert 3 / 440 < columns.mean() < 6 / 440  # of some 440 pixels, though a token is far less


def test_the_map_has_a_colour_where_there_are_splices_and_nowhere_else():
    ds = toy_store(61).splice(24, content_length=7, edge="clip", sampler="enumerate")
    seen = map_of(coverage(ds).svg(0))
    high, wide = seen.shape
    low, end = -5, 61  # of the axis: starts before the document are clipped
    first, last = (edge - low for edge in (min(t for _, t, _ in listed(ds, len(ds))), end - 2))
    columns = np.flatnonzero(seen.any(axis=0))
    assert columns[0] == pytest.approx(first * wide / (end - low), abs=wide / 120)
    assert columns[-1] == pytest.approx((last + 1) * wide / (end - low), abs=wide / 120)
    rows = {23 - int((row + 0.5) * 24 / high) for row in np.flatnonzero(seen.any(axis=1))}
    assert rows == {s for _, _, s in listed(ds, len(ds))}


def test_columns_of_the_same_height_above_the_map_mean_the_same_counts():
    found = coverage(toy_store(60).splice(24, content_length=7, edge="clip", sampler="enumerate"))
    root = ET.fromstring(found.svg(0))
    (line,) = [one for one in root.iter(f"{SVG}path") if one.get("class") == "line s1"]
    heights = re.findall(r"V([\d.]+)", line.get("d"))
    assert len(set(heights)) == 1  # every token but the first
