"""How many places a splice of a document has: counted one by one."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenloom.errors import ConfigError
from tokenloom.layout.splice.choices import Balanced, Swept
from tokenloom.layout.splice.phase import SplicePhase
from tokenloom.layout.splice.spec import SpliceSpec
from tokenloom.layout.splice.turns import Even, Wrapped, _doubled
from tokenloom.random.keys import draws


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=5),
    st.integers(1, 12),
    st.integers(1, 7),
    st.integers(1, 6),
    st.booleans(),
    st.booleans(),
)
def test_balanced_starts_are_all_that_leave_the_content(
    lengths, content, stride, least, adaptive, tail
):
    content, least = max(content, least), min(content, least)
    choices = Balanced(16, content, stride, least, adaptive=adaptive, tail=tail)
    wanted = []
    for length in lengths:
        size = min(length, content)
        if size < (least if adaptive else content) or not size:
            wanted.append(0)
            continue
        starts = list(range(0, length - size + 1, stride))
        wanted.append(len(starts) + (tail and starts[-1] < length - size))
    assert choices.count(np.array(lengths)).tolist() == wanted


def places(spec, content, stride, length):
    """Every (start, offset) of a document, one by one."""
    if min(length, content) < spec.min_copy_len:
        return []
    mode, found = spec.content_start_mode, []
    starts = [0] if mode == "anchor_start" else range(0, length, stride)
    for start in starts:
        left = length if mode == "cyclic_roll" else length - start
        size = min(content, left)
        if size < spec.min_copy_len:
            continue
        room = spec.seq_len - (spec.min_copy_len if spec.placement == "truncate" else size)
        found += [(start, at) for at in range(0, room + 1, spec.offset_stride)]
    return found


@pytest.mark.parametrize("mode", ["slide_within", "anchor_start", "cyclic_roll"])
@pytest.mark.parametrize("placement", ["fit", "truncate"])
def test_swept_places_are_those_that_are_counted_one_by_one(mode, placement):
    for least, content, stride, step in itertools.product((1, 2, 5), (5, 8), (1, 3, 5, 9), (1, 4)):
        spec = SpliceSpec(
            seq_len=9,
            content_length=content,
            min_copy_len=least,
            content_stride=stride,
            offset_stride=step,
            content_start_mode=mode,
            placement=placement,
        )
        choices, lengths = Swept(spec, content, stride), np.arange(30)
        every = [places(spec, content, stride, length) for length in lengths.tolist()]
        assert choices.count(lengths).tolist() == list(map(len, every)), spec
        for length, wanted in enumerate(every):
            chosen = np.arange(len(wanted))
            start, offset = choices.place(chosen, np.full_like(chosen, length))
            found = zip((start * stride).tolist(), (offset * step).tolist(), strict=True)
            assert sorted(found) == sorted(wanted), (spec, length)


KINDS = [
    {},
    {"include_tail": True, "adaptive_k": True},
    {"edge": "clip"},
    {"edge": "clip", "min_copy_len": 1},
    {"grid": (3, 2), "sampler": "enumerate"},
    {"grid": (1, 1), "sampler": "enumerate"},
    *(
        {"content_start_mode": mode, "placement": placement, "offset_stride": step}
        for mode in ("slide_within", "anchor_start", "cyclic_roll")
        for placement in ("fit", "truncate")
        for step in (1, 4)
    ),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("content", [None, 5])
def test_every_choice_is_a_splice_of_its_own_inside_document_and_frame(kind, stride, content):
    options = {"content_start_mode": "coverage_balanced", "min_copy_len": 2, **kind}
    spec = SpliceSpec(seq_len=9, content_length=content, content_stride=stride, **options)
    length = np.arange(24)
    phase = SplicePhase(spec, length, length, 0 * length, content, len(length))
    most = []
    for document in length.tolist():
        choices, count = phase.choices_of(document), int(phase.choices[document])
        every = np.arange(count)
        size = np.full(count, document)
        start, offset = choices.place(every, size)
        found = choices.splice(start, offset, size)
        assert len(set(zip(found.t.tolist(), found.at.tolist(), strict=True))) == count
        assert (found.length >= options["min_copy_len"]).all()
        assert (found.at >= 0).all()
        assert (found.at + found.length <= spec.seq_len).all()
        assert ((found.start >= 0) & (found.start < document)).all()
        if spec.content_start_mode != "cyclic_roll":
            assert (found.start + found.length <= document).all()
        assert (found.length <= phase.content[document]).all()
        assert phase.starts[document] == (start.max() + 1 if count else 0)
        offsets = np.bincount(start, minlength=1)
        assert choices.offsets(start, size).tolist() == offsets[start].tolist()
        assert (start[1:] >= start[:-1]).all(), "starts come in order"
        assert sorted(set(start.tolist())) == list(range(phase.starts[document]))
        if choices.even:
            assert len(set(offsets.tolist())) == 1
        most.append(offsets.max() if count else 0)
    assert phase.most_offsets == max(most)


LISTED = {"sampler": "enumerate", "content_start_mode": "slide_within"}


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({**LISTED, "shuffle_offsets": True}, None),
        ({**LISTED, "shuffle_content": True}, None),
        ({**LISTED, "shuffle_offsets": 1, "shuffle_content": 2}, None),
        ({**LISTED, "shuffle_offsets": 0}, "shuffle_offsets: found 0"),
        ({**LISTED, "shuffle_content": -1}, "shuffle_content: found -1"),
        ({**LISTED, "offset_seed": 2**70}, "offset_seed: "),
        ({**LISTED, "content_seed": -1}, "content_seed: "),
        ({**LISTED, "grid": (1, 1)}, None),
        ({**LISTED, "grid": (2, 1)}, None),
        ({**LISTED, "grid": (0, 3)}, "grid: found"),
        ({**LISTED, "grid": (3, 0)}, "grid: found"),
        ({**LISTED, "grid": (2,)}, "grid: found"),
        ({**LISTED, "grid": (2, 2, 2)}, "grid: found"),
        ({"sampler": "quota"}, None),
        ({"sampler": "quota", "shuffle_offsets": True}, "shuffle_offsets, shuffle_content: found"),
        ({"sampler": "quota", "shuffle_content": 3}, "shuffle_offsets, shuffle_content: found"),
    ],
)
def test_orders_of_an_enumeration_are_refused_where_they_mean_nothing(given, refused):
    if refused is None:
        SpliceSpec(seq_len=9, content_length=5, **given)
        return
    with pytest.raises(ConfigError, match=f"^{refused}"):
        SpliceSpec(seq_len=9, content_length=5, **given)


@pytest.mark.parametrize("kind", [Even, Wrapped])
def test_what_was_shown_earlier_is_what_all_epochs_before_chose(kind):
    for choices, quota in itertools.product((1, 2, 3, 5, 6), (1, 2, 3, 4, 7, 12)):
        way = kind(np.array([9, choices]), np.array([4, quota]))
        every, place = np.arange(choices), np.full(choices, 1)
        seen = np.zeros(choices, np.int64)
        for epoch in range(8):
            assert way.earlier(place, every, epoch).tolist() == seen.tolist()
            assert way.shown(place, every, every + 1, epoch).tolist() == seen.tolist()
            chosen = way.choose(np.full(quota, 1), np.arange(quota), np.full(quota, epoch))
            seen += np.bincount(chosen, minlength=choices)
        assert seen.sum() == 8 * quota


@given(st.integers(1, 60), st.integers(1, 12), st.floats(0.1, 3), st.integers(1, 9), st.integers(0))
def test_starts_near_the_ends_are_doubled_by_their_distance_in_tokens(
    length, content, alpha, stride, stream
):
    content, stream = min(content, length), stream % 2**64
    starts = list(range(0, length - content + 1, stride))
    if starts[-1] < length - content:
        starts.append(length - content)  # the tail
    luck = draws(stream, np.arange(len(starts), dtype=np.uint64)) / 2.0**64
    wanted = []
    for number, t in enumerate(starts):
        distance = min(t + 1, length - content - t + 1, content)
        most = content**alpha
        chance = ((content / distance) ** alpha - 1) / (most - 1) if most > 1 else 0
        wanted += [number] * bool(luck[number] < chance)
    found = _doubled(length, content, alpha, len(starts), np.uint64(stream), stride)
    assert found.tolist() == wanted
