"""What a loader tells loggers and notebooks, against a count over the rows that were delivered."""

import re
import time
from xml.etree import ElementTree

import pytest
from counted import CountedFiles
from toyruns import SEQ_LEN, close_all, ranks_of, toy_run, toy_store

import tokenloom as tl

WEB, CHAT = "web", "chat <b>&"  # the second has characters that HTML reads
SIZE = 6


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """37 rows of 8 tokens an epoch."""
    return toy_store(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """10 packed rows of up to 8 tokens an epoch."""
    return toy_store(tmp_path_factory.mktemp("small"), rows=9)


@pytest.fixture
def mix(store, small):
    """Windows, 37 an epoch, and packed rows with filler; endless."""
    sources = {WEB: store.windows(SEQ_LEN).shuffle(), CHAT: small.pack(SEQ_LEN).shuffle()}
    return tl.mix({name: one.epochs(None) for name, one in sources.items()}).seed(5)


def counted(run, indices, rows_an_epoch):
    """Rows, tokens and complete epochs of every source, one row after the other."""
    found = {name: [0, 0, 0] for name in rows_an_epoch}
    for index in indices:
        spans = run.spans([index])
        one = found[spans.sources[int(spans.source[0])]]
        one[0] += 1
        one[1] += int(spans.length.sum())
    for name, rows in rows_an_epoch.items():
        found[name][2] = found[name][0] // rows
    return found


def test_metrics_of_two_ranks_are_a_count_over_the_rows_that_both_delivered(mix):
    ranks = ranks_of(mix, SIZE, 2, prefetch=0)
    delivered = []
    for step in range(1, 26):
        for rank in ranks:
            batch = next(rank)
            delivered += batch.index.tolist()
        if step not in (1, 7, 25):
            continue
        wanted = counted(mix, sorted(delivered), {WEB: 37, CHAT: 10})
        for rank in ranks:
            found = rank.metrics("")
            assert found["step"] == step
            assert found["examples"] == len(delivered) == step * SIZE
            assert found["cells"] == step * SIZE // 2 * SEQ_LEN  # of this rank
            assert found["tokens"] == sum(one[1] for one in wanted.values()) < 2 * found["cells"]
            for name in (WEB, CHAT):
                told = [found[f"{name}/{what}"] for what in ("rows", "tokens", "epochs")]
                assert told == wanted[name]
            assert found["epoch"] == rank.epoch == min(one[2] for one in wanted.values())
    assert wanted[WEB][2] != wanted[CHAT][2] > 0  # the last count tells epochs apart
    close_all(ranks)


def test_rates_and_the_share_of_waiting_follow_the_clock(store, monkeypatch):
    """Seconds go by only when this test says so: 3 for each step that is read, 1 between steps."""
    clock = [1000.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    class Slow(CountedFiles):
        def read(self, ranges):
            clock[0] += 3.0 * any("input_ids/c" in one[0] for one in ranges)
            return super().read(ranges)

    slow = tl.open(store.path, source=Slow(store.path), cache_bytes=0, verify="never")
    slow.tokens(0, slow.num_tokens)  # files are open
    with tl.Loader(toy_run(slow), 6, 1, 2, prefetch=0, fetch="rows") as loader:
        before = loader.metrics()
        assert before["data/cells_per_second"] == before["data/wait_share"] == 0.0
        for _ in range(5):
            next(loader)
            clock[0] += 1.0
        found, stats = loader.metrics(), loader.stats()
        assert (stats.wait_seconds, stats.seconds) == (15.0, 20.0)
        assert found["data/wait_share"] == 15.0 / 20.0
        assert found["data/cells_per_second"] == stats.cells_per_second == 5 * 3 * SEQ_LEN / 20.0
        clock[0] += 100.0  # nobody waits for batches during an evaluation
        assert loader.metrics()["data/wait_share"] == 15.0 / 120.0
        next(loader.seek(9))  # what was waited for before a seek still counts
        assert (loader.stats().wait_seconds, loader.stats().seconds) == (18.0, 123.0)


def test_every_value_is_a_number_under_the_prefix_and_reads_are_counted(mix):
    with tl.Loader(mix, SIZE, 0, 1) as loader:
        next(loader)
        found, stats = loader.metrics("input/"), loader.stats()
        assert all(name.startswith("input/") for name in found)
        assert {type(value) for value in found.values()} <= {int, float}
        assert found["input/reads"] == stats.reads.read_ops > 0
        assert found["input/read_bytes"] == stats.reads.bytes > 0
        bare = {name.removeprefix("input/") for name in found}
        assert bare == set(loader.metrics(""))


def test_epoch_and_steps_total_count_delivered_epochs_and_all_steps(store):
    run = toy_run(store, epochs=3)  # 37 rows an epoch
    with tl.Loader(run, 8, 0, 1) as loader:
        assert loader.steps_total == len(loader) == 111 // 8
        epochs = []
        for batch in loader:
            delivered = int(batch.index.max()) + 1
            epochs.append((loader.epoch, delivered // 37))
        assert all(told == wanted for told, wanted in epochs)
        assert {told for told, _ in epochs} == {0, 1, 2}
        assert (loader.steps_total, len(loader)) == (13, 0)
    with tl.Loader(run, 8, 0, 1, end="pad") as loader:
        assert loader.steps_total == 14
    with tl.Loader(run, 8, 0, 1).seek(10) as loader:
        assert (loader.epoch, loader.steps_total, len(loader)) == (2, 13, 3)


def test_a_run_without_an_end_says_so(store):
    run = toy_run(store, epochs=None)
    for loader in (tl.Loader(run, 8, 0, 1), tl.Loader(run.take(10), 8, 0, 1, end="wrap")):
        with loader:
            assert loader.steps_total is None
            assert "step 0 endless" in repr(loader)
            with pytest.raises(TypeError):
                len(loader)
    with tl.Loader(run, 8, 0, 1).seek(10**9) as loader:
        next(loader)
        assert loader.epoch == loader.metrics()["data/epoch"] == 8 * (10**9 + 1) // 37


def test_the_repr_of_a_loader_says_where_it_is(store):
    run = toy_run(store, epochs=300)
    with tl.Loader(run, [(0, 8), (64, 16)], 1, 2) as loader:
        next(loader)
        parts = (f"step 1 of {loader.steps_total:,}", "[(0, 8), (64, 16)]", "rank 1 of 2")
        assert [one for one in (*parts, run.fingerprint[:12]) if one not in repr(loader)] == []


# -- notebooks -----------------------------------------------------------------------------


def piece(html):
    """What is beside the style; strict: an unescaped name would not parse."""
    return ElementTree.fromstring(re.sub("<style>.*?</style>", "", html))


def cells(html):
    """Name → value of a table of two columns, unescaped by Python's own parser."""
    table = piece(html).find("table")
    head = "".join(table.find("caption").itertext())
    return head, {row.find("th").text: row.find("td").text for row in table.iter("tr")}


def test_a_notebook_shows_the_metrics_of_a_loader_with_escaped_names(mix, monkeypatch):
    with tl.Loader(mix, SIZE, 0, 1, prefetch=0) as loader:
        next(loader)
        now = time.perf_counter()
        monkeypatch.setattr(time, "perf_counter", lambda: now)
        head, shown = cells(loader._repr_html_())
        assert head.replace("\xa0", " ") == repr(loader)
        found = loader.metrics("")
        assert set(shown) == set(found)
        for name, value in found.items():
            assert shown[name] == (f"{value:,}" if isinstance(value, int) else f"{value:,.3f}")
        assert f"{CHAT}/rows" in shown
        assert "<b>&" not in loader._repr_html_().replace("<b>Loader", "")


def test_a_notebook_shows_what_a_store_holds(tmp_path, store):
    folder = tmp_path / "a <script> & more"
    odd = toy_store(folder)
    head, shown = cells(odd._repr_html_())
    assert head == f"Store {folder}"
    assert shown == {
        "documents": f"{odd.num_documents:,}",
        "tokens": "299",
        "dtype": odd.dtype.name,
        "vocabulary": f"{odd.vocab_size:,}",
        "columns": "none",
        "digest": odd.digest,
    }
    assert "<script>" not in odd._repr_html_()


def test_a_notebook_shows_the_tree_of_a_dataset_with_escaped_names(mix):
    shown = piece(mix._repr_html_()).find("pre")
    assert shown.text == repr(mix)
    assert CHAT in shown.text
    assert CHAT not in mix._repr_html_()
