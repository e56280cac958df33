"""CK: a run that stops at any step continues exactly, and with any number of ranks."""

import copy
import itertools
import json
import logging
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import resuming
from counted import CountedFiles
from hypothesis import given
from hypothesis import strategies as st

import tokenloom as tl
from tokenloom.loader import latest_state, read_state, write_state
from tokenloom.streams import (
    Offset,
    interleave,
    locate_row,
    read_offsets,
    stream_packer,
    write_offsets,
)

SEQ_LEN = 8


def as_json(value):
    """As it comes back from a checkpoint."""
    return json.loads(json.dumps(value, allow_nan=False))


def entry(spec, rows=None, tokens=None, **more):
    found = {"spec": spec, "row_offset": rows, "token_offset": tokens, **more}
    return {key: value for key, value in found.items() if value is not None}


def checkpoint(*entries, **more):
    return {"datasets": list(entries), **more}


def specs_of(saved):
    return [each["spec"] for each in saved["datasets"]]


@pytest.fixture
def equal_rows(store_of):
    """Datasets by name, each of 100 rows of 8 tokens, as stored."""

    def make(*names):
        return {
            name: store_of([list(range(100 * k, 100 * k + SEQ_LEN * 100))]).windows(SEQ_LEN)
            for k, name in enumerate(names)
        }

    return make


# -- the published checkpoint: counts of rows and tokens by spec ---------------------------


def test_ck_01_offsets_have_the_published_form():
    saved = write_offsets({"hf:wiki": Offset(123, 456), "txt:code": Offset(7, 89)})
    assert json.dumps(saved) == json.dumps(
        {
            "datasets": [
                {"spec": "hf:wiki", "row_offset": 123, "token_offset": 456},
                {"spec": "txt:code", "row_offset": 7, "token_offset": 89},
            ]
        }
    )
    assert write_offsets(read_offsets(saved, ["hf:wiki", "txt:code"])) == saved


def offsets_of(loader):
    """The counts of a loader's sources."""
    sources = loader.state_dict()["sources"]
    return {one["name"]: Offset(one["rows"], one["tokens"]) for one in sources}


def test_ck_01_ck_02_ck_16_counts_of_a_loader_are_written_and_read_for_all_specs(
    equal_rows, tmp_path
):
    run = tl.mix(equal_rows("hf:wiki", "txt:code"), weights={"hf:wiki": 3})
    path = tmp_path / "resume_state.json"
    with tl.Loader(run, 16, prefetch=0) as loader:
        next(loader)
        path.write_text(json.dumps(write_offsets(offsets_of(loader))))
    saved = json.loads(path.read_text())
    assert saved == checkpoint(entry("hf:wiki", 12, 96), entry("txt:code", 4, 32))
    loaded = read_offsets(saved, ["txt:code", "hf:wiki"])
    assert loaded == {"txt:code": Offset(4, 32), "hf:wiki": Offset(12, 96)}


def test_ck_02_ck_16_counts_of_a_stream_are_written_read_and_continued():
    sources = {"a": [[1, 1]] * 9, "b": [[1, 1, 1]] * 9}
    stream = interleave(sources, seed=1)
    taken = Counter(sample.source for sample in itertools.islice(stream, 7))
    saved = as_json(write_offsets(stream.offsets, active=stream.active))
    loaded = read_offsets(saved, ["a", "b"])
    assert loaded == {
        "a": Offset(taken["a"], 2 * taken["a"]),
        "b": Offset(taken["b"], 3 * taken["b"]),
    }
    again = interleave(sources, seed=1, offsets=loaded)
    assert [(s.source, s.row) for s in again] == [(s.source, s.row) for s in stream]


def test_ck_03_c_48_unknown_specs_are_preserved_byte_for_byte():
    """Save, load, save: the old spec keeps its 50 and is not lifted to the baseline."""
    old = {"token_offset": 50, "spec": "old", "row_offset": 5, "note": {"by": ["hand", 1.5]}}
    first = checkpoint(entry("a", 100, 1000), old)
    second = write_offsets(read_offsets(first, ["a", "b"]), first)
    third = write_offsets(read_offsets(second, ["a", "b"]), second)
    for saved in (second, third):
        assert json.dumps(saved["datasets"][-1]) == json.dumps(old)
    assert json.dumps(second) == json.dumps(third)
    assert first == checkpoint(entry("a", 100, 1000), old)  # it is not changed itself


def test_c_48_a_preserved_spec_that_is_active_again_is_lifted_to_the_baseline():
    saved = write_offsets(
        {"a": Offset(100, 1000), "b": Offset(90, 1008)},
        checkpoint(entry("low", 5, 50), entry("high", 500, 5000)),
    )
    found = read_offsets(saved, ["a", "b", "low", "high"])
    assert found["low"] == Offset(5, 1000)
    assert found["high"] == Offset(500, 5000)
    assert found["a"] == Offset(100, 1000)
    assert read_offsets(saved, ["a", "low"], missing="zero")["low"] == Offset(5, 50)


def test_c_48_without_a_mark_what_the_run_still_has_was_active():
    saved = checkpoint(entry("a", 1, 1000), entry("low", 5, 50))
    assert read_offsets(saved, ["a", "new"])["new"].tokens == 1000
    assert read_offsets(saved, ["a", "low"])["low"].tokens == 50
    assert read_offsets(saved, ["a", "low"], active=["a"])["low"].tokens == 1000


def test_ck_04_c_47_missing_tokens_are_zero_if_asked_for():
    saved = checkpoint(entry("a", 7), entry("b", 9, 120))
    found = read_offsets(saved, ["a", "b", "c"], missing="zero")
    assert found == {"a": Offset(7, 0), "b": Offset(9, 120), "c": Offset(0, 0)}


def test_ck_05_c_47_missing_tokens_are_the_baseline():
    saved = checkpoint(entry("old", 9, 120))
    assert read_offsets(saved, ["old", "new"])["new"] == Offset(0, 120)
    saved = checkpoint(entry("old", 9, 120), entry("rows", 4), entry("more", 1, 130))
    found = read_offsets(saved, ["old", "rows", "more"])
    assert found == {"old": Offset(9, 120), "rows": Offset(4, 120), "more": Offset(1, 130)}


def test_ck_04_ck_05_ck_06_ck_07_c_47_a_new_spec_starts_at_the_baseline(equal_rows):
    """Its share of the next hundred samples is a third; from 0 it would catch up first."""
    names = ("a", "b", "new")
    saved = checkpoint(entry("a", 15, 120), entry("b", 15))  # b of before tokens were counted
    taken = {}
    for missing, counts in (("baseline", [120, 120, 120]), ("zero", [120, 0, 0])):
        found = read_offsets(saved, names, missing=missing)
        initial = {name: offset.tokens for name, offset in found.items()}
        assert list(initial.values()) == counts
        sources = {name: ds.epochs(None) for name, ds in equal_rows(*names).items()}
        taken[missing] = Counter(tl.mix(sources, initial=initial).batch(range(100)).source)
    assert sorted(taken["baseline"].values()) == [33, 33, 34]
    # from 0 the two catch up with 15 rows each, and only the other 70 are shared
    assert taken["zero"]["a"] in (23, 24)
    assert {taken["zero"]["b"], taken["zero"]["new"]} <= {38, 39}


def test_ck_06_a_source_that_joins_has_its_share_at_every_prefix(equal_rows):
    sources = {name: ds.epochs(None) for name, ds in equal_rows("a", "b", "new").items()}
    run = tl.mix({name: sources[name] for name in "ab"}).seed(1)
    names = run.edit(at=60, add={"new": sources["new"]}).batch(range(60, 160)).source
    for count in range(1, 101):
        assert abs(names[:count].count("new") - count / 3) <= 1
    control = tl.mix(sources, initial={"a": 240, "b": 240}).batch(range(30)).source
    assert control == ["new"] * 30


def test_ck_06_a_spec_that_joins_a_stream_does_not_dominate():
    sources = {name: [[1] * 8] * 200 for name in ("a", "b", "new")}
    saved = checkpoint(entry("a", 50, 400), entry("b", 50, 400))

    def taken(missing):
        stream = interleave(sources, offsets=read_offsets(saved, list(sources), missing=missing))
        return Counter(sample.source for sample in itertools.islice(stream, 100))

    assert sorted(taken("baseline").values()) == [33, 33, 34]
    assert taken("zero")["new"] > 60


def test_ck_07_old_checkpoints_without_tokens_load():
    saved = checkpoint(entry("a", 7), entry("b", 9))
    assert read_offsets(saved, ["a", "b"]) == {"a": Offset(7, 0), "b": Offset(9, 0)}
    null = {"datasets": [{"spec": "a", "row_offset": 7, "token_offset": None}]}
    assert read_offsets(null, ["a"]) == {"a": Offset(7, 0)}
    assert read_offsets(checkpoint({"spec": "a"}), ["a"]) == {"a": Offset()}
    for empty in (None, {}, checkpoint()):
        assert read_offsets(empty, ["a"]) == {"a": Offset(0, 0)}
        assert specs_of(write_offsets({"a": Offset(1, 2)}, empty)) == ["a"]


def test_ck_08_current_specs_come_first_and_old_ones_sorted_after():
    saved = checkpoint(*(entry(spec, 1, 1) for spec in ("z", "c", "a", "y", "b")))
    written = write_offsets({"y": Offset(2, 2), "b": Offset(3, 3), "new": Offset(4, 4)}, saved)
    assert specs_of(written) == ["y", "b", "new", "a", "c", "z"]


@pytest.mark.parametrize(
    ("row", "place"), [(0, (0, 0)), (2, (0, 2)), (3, (1, 0)), (4, (1, 1)), (5, (1, 2)), (6, (2, 0))]
)
def test_ck_17_a_row_offset_is_a_shard_and_a_row_in_it(row, place):
    """Two shards of three rows."""
    assert locate_row([3, 3], row) == place


def test_ck_17_an_index_reads_the_row_of_that_shard(tmp_path):
    """3 + 3 rows: offset 4 is row 1 of shard 1, and 6 is row 0 of the next pass."""
    rows = [list(range(SEQ_LEN * n, SEQ_LEN * (n + 1))) for n in range(6)]
    options = {"vocab_size": 1000, "shard_tokens": 3 * SEQ_LEN, "block_bytes": 1}
    records = [{"input_ids": row} for row in rows]
    store = tl.build(records, tmp_path / "s", tokenizer=None, progress=False, **options)
    stored = {
        shard: np.fromfile(store.path / f"shard-0000{shard}/input_ids/c/0", "<u2")
        for shard in (0, 1)
    }
    run = store.windows(SEQ_LEN).epochs(None)
    places = {0: (0, 0, 0), 2: (0, 0, 2), 3: (0, 1, 0), 4: (0, 1, 1), 6: (1, 0, 0), 15: (2, 1, 0)}
    for offset, (epoch, shard, row) in places.items():
        assert locate_row([3, 3], offset % 6) == (shard, row)
        assert [(s.epoch, s.document) for s in run.at(offset).spans] == [(epoch, 3 * shard + row)]
        expected = stored[shard][SEQ_LEN * row : SEQ_LEN * (row + 1)]
        assert run[offset].tokens[0].tolist() == expected.tolist() == rows[offset % 6]


def rows_of(saved, totals):
    found = read_offsets(saved, specs_of(saved), totals=totals)
    return {spec: offset.rows for spec, offset in found.items()}


def test_ck_18_offsets_beyond_totals_are_clamped_and_passes_aligned():
    ten = {"a": 10, "b": 10}
    for rows, expected in (
        ((15, 3), (10, 3)),
        ((12, 15), (2, 5)),
        ((25, 15), (10, 5)),
        ((20, 20), (0, 0)),
    ):
        saved = checkpoint(entry("a", rows[0], 500), entry("b", rows[1], 510))
        assert rows_of(saved, ten) == dict(zip("ab", expected, strict=True))
        found = read_offsets(saved, ["a", "b"], totals=ten)
        assert (found["a"].tokens, found["b"].tokens) == (500, 510)
    saved = checkpoint(entry("a", 15, 5), entry("b", 30, 5))
    assert rows_of(saved, {"a": 10}) == {"a": 10, "b": 30}  # nothing is known of b


@given(
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 50), min_size=1),
    st.fixed_dictionaries({name: st.integers(1, 9) for name in "abc"}),
)
def test_ck_18_rows_are_aligned_as_by_counting_passes(rows, totals):
    left = dict(rows)
    while all(left[name] >= totals[name] for name in left):
        left = {name: left[name] - totals[name] for name in left}
    expected = {name: min(left[name], totals[name]) for name in left}
    saved = checkpoint(*(entry(name, count, 0) for name, count in rows.items()))
    assert rows_of(saved, totals) == expected


# -- a run: the state is one number and a fingerprint --------------------------------------


@pytest.fixture
def store(store_of):
    """Documents of 0 to 20 tokens with loss weights."""
    rng = np.random.Generator(np.random.PCG64(3))
    documents = [rng.integers(1, 1000, n).tolist() for n in rng.integers(0, 21, 170)]
    weights = [{"loss_weights": [t % 3 / 2 for t in ids]} for ids in documents]
    return store_of(documents, more=weights, chunk_tokens=32)


PIPELINES = {
    "shuffled windows": lambda store: store.windows(SEQ_LEN, lookahead=True).shuffle(),
    "lanes": lambda store: store.windows(SEQ_LEN).block_shuffle(window_blocks=2, lanes=3),
    "packed": lambda store: store.pack(16, group_docs=20, add_eos=True, eos_id=0).shuffle(32),
    "spliced": lambda store: store.splice(16, content_length=6, offset_jitter=2).shuffle(),
    "mixed": lambda store: tl.mix(
        {
            "windows": store.windows(SEQ_LEN).shuffle(),
            "packed": store.pack(SEQ_LEN, overflow="split").block_shuffle(window_blocks=2),
        },
        weights={"packed": 2},
    ),
}


def pipeline(kind, store):
    run = PIPELINES[kind](store).seed(7)
    return run if kind == "mixed" else run.epochs(4)


def test_ck_12_every_one_of_50_states_continues_in_another_process(store):
    """Tokens and all other arrays of the next two steps, from nothing but the state."""
    steps, works, expected = 50, [], {}
    for kind in PIPELINES:
        states, hashes = [], []
        with tl.Loader(pipeline(kind, store), 3) as loader:
            for batch in itertools.islice(loader, steps + 2):
                hashes.append(resuming.digest(batch))
                states.append(loader.state_dict())
        assert len(set(hashes)) == steps + 2, kind
        works.append({"states": states[:steps], "batch_size": 3, "prefetch": 2, "steps": 2})
        expected[kind] = [hashes[k : k + 2] for k in range(1, steps + 1)]
    done = subprocess.run(
        [sys.executable, resuming.__file__],
        input="".join(json.dumps(work) + "\n" for work in works),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert dict(zip(PIPELINES, found, strict=True)) == expected


@pytest.mark.parametrize("kind", PIPELINES)
def test_ck_12_a_run_that_is_killed_before_every_step_is_the_run_without_a_stop(store, kind):
    run, steps = pipeline(kind, store), 50
    with tl.Loader(run, 3) as loader:
        expected = resuming.digests(loader, steps)
    found, state = [], None
    for _ in range(steps):
        with tl.Loader(run, 3, prefetch=0) as loader:
            if state is not None:
                loader.load_state_dict(state)
            found += resuming.digests(loader, 1)
            state = as_json(loader.state_dict())
    assert found == expected


@pytest.mark.parametrize("rule", ["least_consumed", "round_robin", "probability"])
def test_ck_12_a_stream_that_is_killed_before_every_sample_is_the_stream_without_a_stop(rule):
    sources = {"a": [[1] * (1 + n % 4) for n in range(23)], "b": [[2] * 3] * 9, "c": []}

    def make():
        return interleave(sources, rule=rule, seed=5)

    expected = [(s.source, s.index, s.row, s.tokens, s.value) for s in make()]
    assert len(expected) == 32
    stream, found = make(), []
    while True:
        state, stream = as_json(stream.state_dict()), make()
        stream.load_state_dict(state)
        sample = next(stream, None)
        if sample is None:
            break
        found.append((sample.source, sample.index, sample.row, sample.tokens, sample.value))
    assert found == expected


def test_ck_09_what_decides_in_a_state_is_under_1_kb_for_any_number_of_sources(store):
    for sources in (1, 2, 300):
        named = {f"a source with a long name, number {n}": store.windows(8) for n in range(sources)}
        run = tl.mix(named).seed(2) if sources > 1 else store.windows(8).shuffle()
        with tl.Loader(run, 4, prefetch=0) as loader:
            next(loader)
            state, expected = loader.state_dict(), next(loader)
        deciding = {k: v for k, v in state.items() if k not in ("dataset", "sources")}
        assert len(json.dumps(deciding)) < 1024
        with tl.Loader(run, 4, prefetch=0) as loader:
            loader.load_state_dict(as_json(deciding))
            assert resuming.digest(next(loader)) == resuming.digest(expected)


def calls_of(work):
    """Calls of functions, in Python and in C, that something takes."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("kind", ["shuffled windows", "lanes", "spliced"])
def test_ck_09_going_to_any_step_takes_the_same_work(store, kind):
    """Counted in calls and in reads: step 10^12 is no further away than step 10."""
    files = CountedFiles(store.path)
    opened = tl.open(store.path, source=files, verify="never", cache_bytes=0)
    run = pipeline(kind, opened).epochs(None)
    run.batch([5])  # makes what is made once
    rows = len(run.epochs(1))
    calls, reads = {}, {}
    for step in (10, 10**6, 10**12):
        step = step * rows // 4  # at the same place in an epoch
        state = run.state(4 * step, step=step)
        with tl.Loader(run, 4, prefetch=0, fetch="rows") as loader:
            files.token_requests()
            loader.load_state_dict(state)
            assert files.token_requests() == []
            calls[step] = calls_of(lambda loader=loader: next(loader))
            assert loader.examples == 4 * step + 4
            reads[step] = sum(map(len, files.token_requests()))
    near, *far = calls.values()
    assert max(far) < 1.5 * near
    assert max(reads.values()) <= 4 * 6  # four rows of a few documents


def test_ck_21_what_stands_at_an_index_follows_from_seed_epoch_and_index(store):
    """Whatever was asked before, in whatever order, from whatever state."""
    for kind in ("shuffled windows", "lanes", "spliced"):
        indices = [0, 1, 7, 10**9, 10**12, 10**12 + 1]
        expected = [resuming.digest(pipeline(kind, store).epochs(None)[i]) for i in indices]
        walked = pipeline(kind, store).epochs(None)
        walked.batch(range(100))
        found = {i: resuming.digest(walked[i]) for i in reversed(indices)}
        assert [found[i] for i in indices] == expected, kind
        with tl.Loader(pipeline(kind, store).epochs(None), 1, prefetch=0) as loader:
            loader.load_state_dict(walked.state(10**12))
            assert resuming.digests(loader, 2) == expected[4:], kind
        assert resuming.digest(walked.seed(8)[10**12]) != expected[4]


@pytest.mark.parametrize("prefetch", [0, 4, 64])
@pytest.mark.parametrize("fetch", ["rows", "blocks"])
def test_ck_13_what_was_prefetched_is_neither_lost_nor_repeated(store, prefetch, fetch):
    run, found = pipeline("lanes", store).epochs(1), []
    with tl.Loader(run, 5) as loader:
        state = loader.state_dict()
    while True:
        loader = tl.Loader(run, 5, prefetch=prefetch, fetch=fetch)
        loader.load_state_dict(state)
        if not len(loader):
            break
        for batch in itertools.islice(loader, 3):
            found += batch.index.tolist()
            assert loader.state_dict()["examples"] == len(found)
            assert batch.state()["examples"] == len(found)
        state = as_json(loader.state_dict())
        del loader  # with batches in flight
    assert sorted(found) == list(range(len(run) // 5 * 5))
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("kind", PIPELINES)
def test_ck_14_ranks_may_change_from_four_to_two_to_eight(store, kind):
    run = pipeline(kind, store)
    with tl.Loader(run, 16) as alone:
        expected = [(b.index.tolist(), b.tokens) for b in itertools.islice(alone, 6)]
    found, state = [], None
    for world in (4, 2, 8):
        ranks = [tl.Loader(run, 16, rank, world) for rank in range(world)]
        for rank in ranks if state else ():
            rank.load_state_dict(state)
        for _ in range(2):
            parts = [next(rank) for rank in ranks]
            index = [i for part in parts for i in part.index.tolist()]
            found.append((index, np.concatenate([part.tokens for part in parts])))
        states = [as_json(rank.state_dict()) for rank in ranks]
        assert all(one == states[0] for one in states)
        state = states[-1]
        for rank in ranks:
            rank.close()
    for (index, tokens), (wanted, wanted_tokens) in zip(found, expected, strict=True):
        assert index == wanted
        assert np.array_equal(tokens, wanted_tokens)


def test_ck_14_ranks_may_change_where_a_mix_is_edited(equal_rows):
    mixed = tl.mix(equal_rows("wiki", "code", "book")).seed(6)
    edited = mixed.edit(at=32, weights={"code": 4})
    expected, found, state = edited.batch(range(96)).tokens, [], None
    for world, run in ((4, mixed), (2, edited), (8, edited)):
        ranks = [tl.Loader(run, 16, rank, world, prefetch=0) for rank in range(world)]
        for rank in ranks if state else ():
            rank.load_state_dict(state)
        for _ in range(2):
            found += [next(rank).tokens for rank in ranks]
        state = ranks[0].state_dict()
    assert np.array_equal(np.concatenate(found), expected)
    assert not np.array_equal(mixed.batch(range(96)).tokens, expected)


def test_ck_15_a_state_of_another_run_is_refused_with_every_key_and_both_values(store):
    state = store.windows(8).shuffle().seed(7).state(12)
    other = store.windows(16).shuffle().seed(9)
    with pytest.raises(tl.StateError) as refused:
        tl.Loader(other, 4).load_state_dict(state)
    lines = str(refused.value).splitlines()
    for key, saved, here in (("seq_len", "8", "16"), ("seed", "7", "9")):
        (line,) = [line for line in lines if key in line]
        assert saved in line
        assert here in line
    assert "allow_mismatch" in str(refused.value)
    loader = tl.Loader(other, 4)
    loader.load_state_dict(state, allow_mismatch=True)
    assert (loader.examples, next(loader).index.tolist()) == (12, [12, 13, 14, 15])
    loader.close()


def test_ck_15_masks_are_part_of_what_must_match_and_ends_are_not(store):
    run = store.windows(8).shuffle().seed(7)
    state = run.state(12)
    with pytest.raises(tl.StateError, match=r"pad_id.*\b0\b.*\b9\b"):
        tl.Loader(run.render(pad_id=9), 4).load_state_dict(state)
    for same in (run.epochs(5), run.take(40)):
        loader = tl.Loader(same, 4)
        loader.load_state_dict(state)
        assert loader.examples == 12


# -- states are plain, versioned and strict ------------------------------------------------

MUTATIONS = {
    "another format": {"format": "tokenloom.state/99"},
    "no format": {"format": None},
    "a negative number": {"examples": -1},
    "a number as text": {"examples": "4"},
    "a fraction": {"examples": 1.5},
    "a bool": {"examples": True},
    "nothing": {"examples": None},
    "too many": {"examples": 10**30},
    "another fingerprint": {"fingerprint": "0" * 64},
    "no fingerprint": {"fingerprint": 5},
    "a step as text": {"step": "x"},
    "no render": {"render": None},
}


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS)
def test_ck_11_a_state_of_a_loader_that_was_changed_is_refused(store, mutation):
    run = store.windows(8).shuffle()
    with tl.Loader(run, 4) as loader:
        next(loader)
        state = loader.state_dict()
    assert set(mutation) <= set(state)
    loader = tl.Loader(run, 4)
    with pytest.raises(tl.StateError):
        loader.load_state_dict(state | mutation)
    for key in mutation:
        with pytest.raises(tl.StateError, match=key):
            loader.load_state_dict({k: v for k, v in state.items() if k != key})
    assert loader.examples == 0


def packer_state(mode="bin"):
    packer = busy_packer(mode)
    return packer, packer.state_dict()


def mix_state():
    stream = interleave({"a": [[1, 1]] * 9, "b": [[2]] * 9}, seed=3)
    for _ in range(5):
        next(stream)
    return stream, stream.state_dict()


@pytest.mark.parametrize("make", [packer_state, mix_state])
def test_ck_11_a_state_of_a_stream_that_was_changed_is_refused(make):
    stream, state = make()
    assert as_json(state) == state
    spoiled = {
        **{f"no {key}": {k: v for k, v in state.items() if k != key} for key in state},
        **{f"{key} is text": state | {key: "x"} for key in state},
        "another format": state | {"format": state["format"] + "9"},
        "an unknown key": state | {"more": 1},
        "no state": None,
        "a list": [state],
    }
    for what, wrong in spoiled.items():
        with pytest.raises(tl.StateError):
            stream.load_state_dict(wrong)
        assert stream.state_dict() == state, what
    stream.load_state_dict(state)


@pytest.mark.parametrize(
    "path",
    [
        ("tokens", 0),
        ("tokens", -1),
        ("lengths", 0),
        ("continues", 0),
        ("counters", "documents_seen"),
        ("counters", "tokens_observed"),
    ],
)
def test_ck_11_buffers_of_a_packer_that_do_not_add_up_are_refused(path):
    _, state = packer_state()
    wrong = copy.deepcopy(state)
    *parents, last = path
    inner = wrong
    for key in parents:
        inner = inner[key]
    for value in (-1, "x", 1.5, None, 10**30):
        inner[last] = value
        with pytest.raises(tl.StateError):
            busy_packer("bin").load_state_dict(wrong)


@pytest.mark.parametrize(
    "saved",
    [
        "x",
        {"datasets": {}},
        checkpoint(3),
        checkpoint({"row_offset": 1}),
        checkpoint(entry("a", 1, 1), entry("a", 2, 2)),
        checkpoint(entry("a", -1, 1)),
        checkpoint(entry("a", "7", 1)),
        checkpoint(entry("a", True, 1)),
        checkpoint(entry("a", 1, 1.5)),
        checkpoint(entry("a", 1, float("nan"))),
        checkpoint(entry("a", 1, 1 << 63)),
        checkpoint(entry("a", 1, 1), active=["b"]),
    ],
)
def test_ck_11_a_damaged_checkpoint_of_offsets_is_refused(saved):
    with pytest.raises(tl.StateError):
        read_offsets(saved, ["a"])
    with pytest.raises(tl.StateError):
        write_offsets({"a": Offset(1, 1)}, saved)


# -- files ---------------------------------------------------------------------------------


def test_ck_19_every_truncation_of_the_newest_state_is_skipped(store, tmp_path, caplog):
    run = store.windows(8).shuffle()
    old, new = run.state(12), run.state(20)
    write_state(old, tmp_path)
    path = Path(write_state(new, tmp_path))
    whole = path.read_bytes()
    for size in range(0, len(whole) - 2, 7):  # without the last brace
        path.write_bytes(whole[:size])
        assert latest_state(tmp_path) == old, size
        with pytest.raises(tl.StateError, match=path.name):
            read_state(path)
    assert path.name in caplog.text
    path.write_bytes(whole)
    assert latest_state(tmp_path) == new
    assert latest_state(tmp_path / "nothing") is None


def test_ck_19_a_state_is_replaced_as_a_whole_or_not_at_all(store, tmp_path, monkeypatch):
    run = store.windows(8).shuffle()
    path = tmp_path / "state.json"
    write_state(run.state(12), path)
    for wrong in ({"note": b"bytes"}, {"examples": -1}):
        with pytest.raises(tl.StateError):
            write_state(run.state(20) | wrong, path)
        assert read_state(path) == run.state(12)

    def killed(*_, **__):
        raise KeyboardInterrupt

    outcomes = []
    for call in ("fsync", "rename", "replace", "link"):  # wherever a kill may come
        with monkeypatch.context() as patch:
            patch.setattr(os, call, killed)
            try:
                write_state(run.state(20), path)
                outcomes.append(20)
            except KeyboardInterrupt:
                outcomes.append(12)
        assert read_state(path) == latest_state(tmp_path) == run.state(outcomes[-1])
        write_state(run.state(12), path)
    assert 12 in outcomes


# -- packers of streams --------------------------------------------------------------------

MODES = ("sequential", "bin", "multipack", "one_doc")  # multipack: by groups of documents


def numbered(lengths):
    """Documents in which no token occurs twice."""
    edges = [100, *itertools.accumulate(lengths, initial=100)][1:]
    return [list(range(a, b)) for a, b in itertools.pairwise(edges)]


DOCUMENTS = numbered([3, 20, 0, 7, 2, 5, 4])


def new_packer(mode, **options):
    usual = {"packing_buffer_docs": 3, "group_docs": 3}
    return stream_packer(mode, SEQ_LEN, **usual | options)


def busy_packer(mode):
    """A packer with a popped row, rows that are ready and, mostly, documents that wait."""
    packer = new_packer(mode)
    for tokens in DOCUMENTS:
        packer.add(tokens)
    packer.pop()
    return packer


def plain(row):
    arrays = (row.tokens, row.segment_ids, row.document_starts, row.continues, row.documents)
    return [array.tolist() for array in arrays]


def popped(packer):
    rows = []
    while packer.can_pop():
        rows.append(plain(packer.pop()))
    return rows


@pytest.mark.parametrize("mode", MODES)
@given(st.lists(st.integers(0, 30), max_size=12), st.sampled_from(["T", "T+1"]))
def test_ck_10_ck_20_a_packer_continues_from_any_moment_with_its_counters(mode, lengths, window):
    """It is made anew and restored after every document and every row."""
    documents, options = numbered(lengths), {"window": window, "eos_id": 2}
    straight = new_packer(mode, **options)
    expected = [plain(row) for row in straight.rows(documents)]
    packer, found = new_packer(mode, **options), []

    def restored():
        state, again = as_json(packer.state_dict()), new_packer(mode, **options)
        assert again.load_state_dict(state) == 0
        assert again.state_dict() == state
        assert again.stats == packer.stats
        return again

    for count, tokens in enumerate(documents, 1):
        packer.add(tokens)
        packer = restored()
        assert packer.stats.documents_seen == count
        if packer.can_pop():
            found.append(plain(packer.pop()))
            packer = restored()
    packer.finish()
    while (packer := restored()).can_pop():
        found.append(plain(packer.pop()))
    assert found == expected
    assert packer.stats == straight.stats


def test_ck_20_counts_of_a_loader_continue(store):
    run = pipeline("mixed", store)
    with tl.Loader(run, 4) as loader:
        for _ in range(5):
            next(loader)
        state = as_json(loader.state_dict())
        next(loader)
        expected = loader.state_dict()["sources"]
    with tl.Loader(run, 4) as loader:
        loader.load_state_dict(state)
        assert loader.state_dict()["sources"] == state["sources"]
        next(loader)
        assert loader.state_dict()["sources"] == expected
    assert sum(one["rows"] for one in expected) == 24


@pytest.mark.parametrize(("then", "now"), [*itertools.permutations(MODES, 2)])
def test_ck_22_another_packing_mode_keeps_the_position_and_reports_what_it_discards(
    then, now, caplog
):
    old, new = busy_packer(then), new_packer(now)
    state = as_json(old.state_dict())
    with pytest.raises(tl.StateError, match=rf"mode.*'{then}'.*'{now}'"):
        new.load_state_dict(state)
    with caplog.at_level(logging.WARNING, logger="tokenloom"):
        discarded = new.load_state_dict(state, on_mode_change="discard")
    delivered = sum(map(len, DOCUMENTS)) - discarded
    assert delivered == len([token for token in busy_first_row(then) if token])
    assert str(discarded) in caplog.text
    assert (new.stats.documents_seen, new.can_pop()) == (7, False)
    new.add([1, 2])
    new.finish()
    assert [row[4] for row in popped(new)] == [[7]]  # documents are counted on


def busy_first_row(mode):
    packer = new_packer(mode)
    for tokens in DOCUMENTS:
        packer.add(tokens)
    return packer.pop().tokens.tolist()


@pytest.mark.parametrize("mode", MODES)
def test_ck_22_the_same_mode_discards_nothing(mode):
    old, new = busy_packer(mode), new_packer(mode)
    assert new.load_state_dict(old.state_dict(), on_mode_change="discard") == 0
    assert new.state_dict() == old.state_dict()
    other = stream_packer(mode, SEQ_LEN + 1)
    with pytest.raises(tl.StateError, match=r"seq_len.*\b8\b.*\b9\b"):
        other.load_state_dict(old.state_dict(), on_mode_change="discard")
