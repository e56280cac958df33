"""Stopping, resuming, ranks, ends, and settings that decide nothing."""

import hashlib
import json

import numpy as np
import pytest
import xxhash
from lawbook import law
from random_runs import draw_run, length_of, sources_of, stored_in_frame
from slow_examples import SlowRun

import tokenloom as tl
from tokenloom.testing import assert_elastic, assert_resumable

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def steps_of(run, batch_size, most=70):
    """Full steps of the first examples."""
    return length_of(run, most) // batch_size


def draw_batched(draw, known, largest=9):
    """A run with at least one full step, and the size of its batches."""
    while True:
        recipe, run = draw_run(draw, known)
        batch_size = draw.randrange(1, largest + 1)
        if steps_of(run, batch_size):
            return recipe, run, batch_size


def loader_of(run, *args, **options):
    return tl.Loader(run, *args, untrained="zero", **options)


@law(examples=0.5)
def test_a_run_resumes_at_every_step(known, draw):
    _, run, batch_size = draw_batched(draw, known)
    assert_resumable(run, batch_size=batch_size, steps=5, loader=loader_of)


@law(examples=0.4)
def test_every_number_of_ranks_has_the_same_steps(known, draw):
    _, run, _ = draw_batched(draw, known, 1)
    n = length_of(run)
    worlds = [world for world in (1, 7, 3, 16) if world <= n]
    batch_size = draw.randrange(max(worlds), min(n, 24) + 1) if n > max(worlds) else max(worlds)
    assert_elastic(run, worlds, batch_size=batch_size, steps=3, loader=loader_of)


@law
def test_rows_of_a_step_stand_in_the_order_of_lanes(known, draw):
    """By lane over lanes, then by index; without lanes by index. Ranks take stretches of it."""
    recipe, run, batch_size = draw_batched(draw, known, 24)
    slow = SlowRun(recipe, known)
    if recipe.shuffled:
        return
    picks = slow.picks(length_of(run))
    laned = {name for name, one in sources_of(recipe).items() if "lanes" in one.order}
    first = 0 if laned & recipe.sources.keys() else min(
        (e["at"] for e in recipe.edits if laned & e.get("add", {}).keys()), default=10**9
    )  # fmt: skip
    place = [
        slow.sources[source].fraction(item) if index >= first else 0.0
        for index, (source, item) in enumerate(picks)
    ]
    loader = loader_of(run, batch_size)
    for step in range(len(picks) // batch_size):
        indices = range(step * batch_size, (step + 1) * batch_size)
        expected = sorted(indices, key=lambda index: (place[index], index))
        assert next(loader).index.tolist() == expected
    loader.close()


@law
def test_the_end_of_a_run_is_what_was_asked_for(known, draw):
    """drop, pad and wrap against a list of indices."""
    _, run, batch_size = draw_batched(draw, known)
    if not run.is_finite or len(run) > 200:
        return
    n, end = len(run), draw.choice(["drop", "pad", "wrap"])
    steps = n // batch_size if end == "drop" else -(-n // batch_size)
    loader = loader_of(run, batch_size, end=end)
    for step in range(steps):
        places = range(step * batch_size, (step + 1) * batch_size)
        expected = [p if p < n else (-1 if end == "pad" else p % n) for p in places]
        batch = next(loader, None)
        assert batch is not None, "the run ended too early"
        assert sorted(batch.index.tolist()) == sorted(expected)
        real = batch.index >= 0
        assert not batch.trained()[~real].any()
        back = run.batch(batch.index[real])
        assert (batch.tokens[real] == back.tokens).all()
        assert (batch.segment_ids[~real] == 0).all()
    if end == "wrap":
        expected = {p % n for p in range(steps * batch_size, (steps + 1) * batch_size)}
        following = next(loader, None)
        assert following is not None
        assert set(following.index.tolist()) == expected
    else:
        assert next(loader, None) is None
    loader.close()


@law(examples=0.7)
def test_settings_of_a_loader_change_no_byte(known, draw):
    _, run, batch_size = draw_batched(draw, known)
    options = {
        "prefetch": draw.choice([0, 1, 3, 16]),
        "fetch": draw.choice(["auto", "blocks", "rows"]),
        "fields": draw.choice(
            [("tokens",), ("tokens", "labels", "position_ids"), ("segment_ids",)]
        ),
        "dtype": draw.choice(["int32", "int64"]),
    }
    hints = {
        "cache_bytes": draw.choice([0, 300, 1 << 20]),
        "verify": draw.choice(["first", "always", "never"]),
    }
    other = tl.from_config(json.loads(json.dumps(run.describe())), **hints)
    first, second = loader_of(run, batch_size, prefetch=0), loader_of(other, batch_size, **options)
    for _ in range(min(4, steps_of(run, batch_size))):
        a, b = next(first), next(second)
        assert a.index.tolist() == b.index.tolist()
        for name in ("tokens", "segment_ids", "position_ids", "cu_seqlens"):
            assert np.array_equal(getattr(a, name), getattr(b, name)), (name, options)
        assert (a.trained() == b.trained()).all()
    assert first.state_dict()["examples"] == second.state_dict()["examples"]
    first.close()
    second.close()


@law
def test_a_state_counts_what_was_delivered(known, draw):
    """Rows and tokens of each source, counted from the batches."""
    recipe, run, batch_size = draw_batched(draw, known)
    steps = draw.randrange(1, steps_of(run, batch_size) + 1)
    loader = loader_of(run, batch_size)
    rows, states = {}, []
    for _ in range(steps):
        batch = next(loader)
        states.append(batch.state()["examples"])
        spans = run.spans(batch.index)
        for row, name in enumerate(batch.source):
            count, tokens = rows.get(name, (0, 0))
            rows[name] = count + 1, tokens + stored_in_frame(spans, row)
    state = loader.state_dict()
    assert state["examples"] == steps * batch_size
    assert states == [(step + 1) * batch_size for step in range(steps)]
    assert run.state(steps * batch_size)["examples"] == state["examples"]
    if not any("quarantine" in edit for edit in recipe.edits):
        found = {one["name"]: (one["rows"], one["tokens"]) for one in state["sources"]}
        assert {name: pair for name, pair in found.items() if pair[0]} == rows
    loader.close()


@law
def test_any_step_is_reached_at_once(known, draw):
    _, run, batch_size = draw_batched(draw, known)
    step = draw.randrange(steps_of(run, batch_size))
    jumped, walked = loader_of(run, batch_size), loader_of(run, batch_size)
    for _ in range(step):
        next(walked)
    jumped.seek(step)
    assert jumped.state_dict() == walked.state_dict()
    a, b = next(jumped), next(walked)
    assert a.index.tolist() == b.index.tolist()
    assert (a.tokens == b.tokens).all()
    jumped.close()
    walked.close()


@law
def test_a_schedule_of_batch_sizes_only_cuts_the_run_elsewhere(known, draw):
    _, run = draw_run(draw, known)
    n = length_of(run, 60)
    if n < 12:
        return
    schedule = [(0, draw.randrange(1, 5)), (draw.randrange(1, 12), draw.randrange(1, 7))]
    loader, start = loader_of(run, schedule), 0
    for _ in range(4):
        size = [rows for first, rows in schedule if first <= start][-1]
        if start + size > n:
            break
        batch = next(loader)
        assert sorted(batch.index.tolist()) == list(range(start, start + size))
        start += size
        assert loader.state_dict()["examples"] == start
    loader.close()


@law
def test_loss_tokens_of_a_step_are_those_of_all_ranks(known, draw):
    recipe, run, _ = draw_batched(draw, known, 1)
    world = draw.choice([2, 3])
    batch_size = 2 * world - 1
    if not steps_of(run, batch_size):
        return
    loaders = [loader_of(run, batch_size, rank, world) for rank in range(world)]
    parts = [next(one) for one in loaders]
    assert [part.loss_tokens for part in parts] == [int(p.trained().sum()) for p in parts]
    try:
        counts = [part.step_loss_tokens for part in parts]
    except tl.ConfigError:  # the rows of other ranks would have to be read
        assert depends_on_token_values(recipe)
    else:  # also where no step near this one has rows of such a source
        assert counts == [sum(int(part.trained().sum()) for part in parts)] * world
    for one in loaders:
        one.close()


def depends_on_token_values(recipe):
    """Whether what is trained follows from tokens, not from boundaries alone."""
    renders = [one.render for one in sources_of(recipe).values()]
    return any(
        "ignore_id" in render or "segments" in render or render.get("eos_mask") == "all"
        for render in renders
    )


@law
def test_a_digest_is_the_hash_of_rows_in_order_of_index(known, draw):
    """From the arrays, with hashlib and xxhash alone."""
    _, run = draw_run(draw, known)
    n = length_of(run)
    first = draw.randrange(n + 1)
    rows = []
    if first < n:
        batch = run.batch(range(first, n))
        weights = weights_of(batch)
        for row in range(n - first):
            data = batch.tokens[row].astype("<i4").tobytes()
            data += batch.segment_ids[row].astype("<i4").tobytes()
            data += batch.position_ids[row].astype("<i4").tobytes()
            rows.append(xxhash.xxh3_128(data + weights[row].astype("<f4").tobytes()).digest())
    assert run.digest(first, n) == hashlib.sha256(b"".join(rows)).hexdigest()


def weights_of(batch):
    try:
        return batch.loss_weights
    except tl.NoTrainedTokens:
        return np.zeros(batch.tokens.shape, np.float32)


@law
def test_a_plan_digest_is_the_hash_of_spans(known, draw):
    recipe, run = draw_run(draw, known)
    n, names = length_of(run), list(sources_of(recipe))
    spans, rows = run.spans(range(n)), []
    epochs = run.locate(range(n))[0].tolist()
    for row in range(n):
        source = names.index(spans.sources[int(spans.source[row])])
        table = [
            (source, epochs[row], *(int(getattr(spans, name)[k]) for name in SPAN))
            for k in range(int(spans.frame[row]), int(spans.frame[row + 1]))
        ]
        rows.append(xxhash.xxh3_128(np.array(table, "<i8").tobytes()).digest())
    assert run.plan_digest(0, n) == hashlib.sha256(b"".join(rows)).hexdigest()


SPAN = ("document", "start", "length", "at", "flags")


@law
def test_a_longer_run_continues_a_shorter_one(known, draw):
    recipe, run, batch_size = draw_batched(draw, known, 4)
    steps = draw.randrange(1, steps_of(run, batch_size) + 1)
    if recipe.edits or recipe.shuffled or recipe.take:
        return
    short = run.take(steps * batch_size)
    assert short.fingerprint == run.fingerprint
    assert short.digest(0, len(short)) == run.digest(0, len(short))
    stopped = loader_of(short, batch_size)
    for _ in stopped:
        pass
    resumed = loader_of(run, batch_size)
    resumed.load_state_dict(json.loads(json.dumps(stopped.state_dict())))
    following = next(resumed, None)
    if steps_of(run, batch_size) > steps:
        expected = range(steps * batch_size, (steps + 1) * batch_size)
        assert sorted(following.index.tolist()) == list(expected)
    back = loader_of(short.take((steps - 1) * batch_size), batch_size) if steps > 1 else None
    if back is not None:
        with pytest.raises(tl.StateError):
            back.load_state_dict(stopped.state_dict())


@law
def test_another_run_refuses_the_state(known, draw):
    _, run, batch_size = draw_batched(draw, known)
    _, other = draw_run(draw, known)
    if other.fingerprint == run.fingerprint or not steps_of(other, batch_size):
        return
    loader = loader_of(run, batch_size)
    next(loader)
    with pytest.raises(tl.StateError):
        loader_of(other, batch_size).load_state_dict(loader.state_dict())


@law
def test_indices_outside_a_run_are_refused(known, draw):
    _, run = draw_run(draw, known)
    wrong = [-1, -(2**40)] + ([len(run), len(run) + 7] if run.is_finite else [])
    for index in wrong:
        for ask in (run.batch, run.spans, run.locate):
            with pytest.raises(IndexError):
                ask([index])
        with pytest.raises(IndexError):
            run[index]
    if not run.is_finite:
        with pytest.raises(TypeError):
            len(run)
