"""A report warns where it should, with what to change; and not where nothing is wrong."""

import shutil

import pytest
from reports import LAYOUTS, Read, read_report, store_of
from toyruns import toy_store

import tokenloom as tl
from tokenloom.inspect import audit_run
from tokenloom.report import report_on

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

SPEED = {"latency": 0.01, "bandwidth": 1e6, "step_seconds": 0.001}


def warned(run, *words, **asked):
    """The warnings about a run that have all these words."""
    found = read_report(run, **asked).warnings
    return [one for one in found if all(word in one for word in words)]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pack, drop", ["overflow='split'"]),
        ("pack, truncate", ["overflow='split'"]),
        ("pack, lengths", ["min_len"]),
        ("pack, short rows", ["min_row_len"]),
        ("pack, sequential", ["best_fit_decreasing"]),
        ("windows", ["stored order", ".shuffle()"]),
        ("splice, epochs", ["fill='pack'"]),
    ],
)
def test_a_layout_that_loses_or_wastes_is_warned_about_with_the_setting(layouts, name, words):
    _, runs = layouts
    assert len(warned(runs[name], *words, batch_size=1)) == 1
    assert not warned(runs["pack"], *words, batch_size=1)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lanes", ["6 epochs", "max_epochs"]),
        ("runs out", ["code runs out"]),
        ("stored order", ["stored order", ".shuffle()"]),
        ("taken", ["4 of 100", "end='pad'"]),
        ("empty", ["seq_len"]),
    ],
)
def test_a_run_that_repeats_ends_or_stays_in_order_is_warned_about(orders, name, words):
    assert len(warned(orders[name], *words)) == 1
    assert not warned(orders["one source"], *words)
    assert not warned(orders["endless mix"], *words)


def test_weak_orders_are_warned_about_with_a_better_one(tmp_path):
    windows = toy_store(tmp_path, rows=3000).windows(8)
    for kind in ("linear", "levanter"):
        assert len(warned(windows.shuffle(perm_type=kind), "feistel")) == 1
    assert len(warned(windows.block_shuffle(window_blocks=2), "window_blocks")) == 1
    assert not warned(windows.shuffle(), "feistel")
    whole = tl.mix({"a": windows, "b": windows.shuffle()}).shuffle()
    assert not warned(whole, ".shuffle()")  # sources of a shuffled mix need no order


def test_waiting_and_a_small_cache_are_warned_about(tmp_path):
    store = toy_store(tmp_path, rows=3000, cache_bytes=6000)
    run = store.windows(8).block_shuffle(window_blocks=16, lanes=16)
    found = run.simulate(batch_size=8, **SPEED)
    assert found.ranks[0].how == "thrashes"
    later = found.stalls.waited - found.stalls.first_wait
    share = 100 * later / (found.stalls.seconds - found.stalls.first_wait)
    assert len(warned(run, "waits", f"{share:.1f}", **SPEED)) == 1
    assert warned(run, "cache_bytes", "window_blocks", **SPEED)
    large = tl.open(tmp_path, cache_bytes=1 << 24).windows(8).block_shuffle(window_blocks=16)
    fast = {"latency": 1e-9, "bandwidth": 1e12, "step_seconds": 1.0}
    assert not warned(large, "waits", **fast)
    assert not warned(large, "cache_bytes", **fast)


def test_the_wait_for_the_first_step_is_no_warning(tmp_path):
    store = tl.build([{"text": "abcdefgh" * 88}], tmp_path / "one", tokenizer="bytes")
    run = store.windows(8).shuffle()
    slow_start = {"latency": 5.0, "bandwidth": 1e9, "step_seconds": 0.1}
    stalls = run.simulate(batch_size=8, **slow_start).stalls
    assert stalls.waited == stalls.first_wait > stalls.seconds / 2
    assert not warned(run, "waits", **slow_start)


def test_a_step_larger_than_an_epoch_of_an_endless_run_is_counted(orders):
    read = read_report(orders["endless"], batch_size=5000)
    trained = read.answers["trained"]
    assert (trained["steps"], trained["examples"]) == (1, 5000)
    (answer,) = (one for one in read.report["answers"] if one["name"] == "trained")
    assert "endless" in answer["sentence"]


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_warning_has_a_remedy_and_leads_to_a_figure_that_is_there(layouts, name):
    _, runs = layouts
    read = read_report(runs[name], batch_size=7)
    for one in read.report["warnings"]:
        assert one["remedy"]
        assert one["figure"] in ("", *read.figures)


def test_the_gravest_warning_comes_first(tmp_path):
    run = store_of(tmp_path / "s", count=200).windows(8).epochs(9)
    other = audit_run(run.seed(3), progress=False)
    slow = {"latency": 1.0, "bandwidth": 1e3, "step_seconds": 0.01}
    report = report_on(run, batch_size=8, certificate=other, **slow)
    grave = [one.gravity for one in report.cautions]
    assert grave == sorted(grave, reverse=True)
    assert set(grave) == {3, 2, 1}
    assert "certificate" in Read(report.to_dict()).warnings[0]


def test_documents_that_two_sources_share_are_counted(tmp_path):
    store = toy_store(tmp_path / "a", rows=60)
    count = store.num_documents
    shutil.copytree(tmp_path / "a", tmp_path / "copy")

    def shared(one, two, path="a"):
        opened = tl.open(tmp_path / path)
        pair = {
            "one": store.select(doc_index=list(one)).windows(8).shuffle(),
            "two": opened.select(doc_index=list(two)).windows(8).shuffle(),
        }
        return warned(tl.mix(pair), "more than once")

    half = range(count // 2)
    assert not shared(half, range(count // 2, count))
    for path in ("a", "copy"):
        (warning,) = shared(half, range(count // 2 - 2, count), path)
        assert "2 documents" in warning
