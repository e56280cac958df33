"""The plan of a group equals lists and loops, and every token is accounted for."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from slowpack import B, E, slow_documents, slow_rows

import tokenloom as tl
from tokenloom.layout.pack.packers import STRATEGIES
from tokenloom.layout.pack.plan import plan_group
from tokenloom.layout.pack.spec import PackSpec
from tokenloom.layout.spans import BOS, EOS


@st.composite
def specs(draw):
    seq_len = draw(st.integers(2, 9))
    strategy = draw(st.sampled_from(["sequential", *STRATEGIES]))
    lookahead = draw(st.booleans())
    options = {"seq_len": seq_len, "strategy": strategy, "lookahead": lookahead}
    optional = {
        "min_len": st.integers(1, 3),
        "max_len": st.integers(3, 40),
        "max_doc_tokens": st.integers(1, 25),
        "min_row_len": st.integers(1, 4),
        "bos_id": st.just(1),
        "eos_id": st.just(2),
        "shuffle_output": st.just(True),
        "shuffle_seed": st.integers(0, 5),
    }
    if strategy == "sequential":
        if lookahead:
            optional["overlap"] = st.integers(0, 1)
    else:
        optional["max_docs_per_bin"] = st.integers(1, 3)
        options["overflow"] = draw(st.sampled_from(["split", "split", "truncate", "drop"]))
        if options["overflow"] == "split":
            optional["stride"] = st.integers(0, seq_len + lookahead - 1)
            optional["mask_overlap"] = st.booleans()
    for name, values in optional.items():
        if draw(st.booleans()):
            options[name] = draw(values)
    return PackSpec(**options)


def lengths_for(spec):
    edges = [0, 1, spec.seq_len, spec.seq_len + 1, 10 * spec.seq_len]
    return st.lists(st.sampled_from(edges) | st.integers(0, 40), max_size=12)


def cells_of(rows):
    """Rows of a plan as lists of pieces (document, cells, tokens seen before)."""
    found = []
    for low, high in zip(rows.edges[:-1].tolist(), rows.edges[1:].tolist(), strict=True):
        row, at = [], 0
        for i in range(low, high):
            pieces = rows.pieces
            number, start, length = (
                int(getattr(pieces, name)[i]) for name in ("document", "start", "length")
            )
            cells = [(number, start + k) for k in range(length)]
            cells = [B] * bool(pieces.flags[i] & BOS) + cells + [E] * bool(pieces.flags[i] & EOS)
            assert rows.at[i] == at  # pieces of a row are adjacent
            assert pieces.cells[i] == len(cells) > 0
            row.append((number, cells, int(pieces.seen[i])))
            at += len(cells)
        found.append(row)
    return found


@given(st.data())
def test_a_plan_equals_lists_and_loops(data):
    spec = data.draw(specs())
    lengths = data.draw(lengths_for(spec))
    group = data.draw(st.integers(0, 3))
    rows = plan_group(np.array(lengths, np.int64), spec, group)
    assert cells_of(rows) == slow_rows(lengths, spec, group)


@pytest.mark.parametrize("strategy", ["sequential", *STRATEGIES])
@pytest.mark.parametrize("overflow", ["split", "truncate", "drop"])
def test_long_frames_equal_lists_and_loops(strategy, overflow):
    """Flags are bytes: sums with them used to overflow."""
    if strategy == "sequential" and overflow != "split":
        return
    spec = PackSpec(seq_len=1000, strategy=strategy, overflow=overflow, bos_id=1, eos_id=2)
    lengths = [1500, 998, 999, 1000, 1, 0, 300, 2999, 400]
    assert cells_of(plan_group(np.array(lengths), spec)) == slow_rows(lengths, spec)


@given(st.data())
def test_every_token_is_in_a_cell_or_counted(data):
    """Counted from the cells of the oracle, not from the plan."""
    spec = data.draw(specs())
    lengths = data.draw(lengths_for(spec))
    rows = slow_rows(lengths, spec)
    tally = plan_group(np.array(lengths, np.int64), spec).tally
    placed = [cell for row in rows for _, cells, _ in row for cell in cells if cell not in (B, E)]
    assert (tally.documents, tally.tokens) == (len(lengths), sum(lengths))
    assert tally.lost == tally.tokens - len(set(placed))
    if not tally.short_rows:
        assert tally.repeated == len(placed) - len(set(placed)) or spec.strategy == "sequential"
    assert tally.empty == lengths.count(0)
    assert tally.rows == len(rows)
    assert tally.cells == len(rows) * spec.seq_len
    inside = [row_cells(row)[: spec.seq_len] for row in rows]
    assert tally.placed == sum(map(len, inside))
    filters = spec.min_row_len, spec.min_len, spec.max_len, spec.max_doc_tokens
    if spec.overflow == "split" and filters == (1, 1, None, None):
        assert tally.lost == 0


def row_cells(row):
    return [cell for _, cells, _ in row for cell in cells]


@given(st.data())
def test_trained_and_attention_are_counted_cell_by_cell(data):
    spec = data.draw(specs())
    lengths = data.draw(lengths_for(spec))
    tally = plan_group(np.array(lengths, np.int64), spec).tally
    trained = attention = segments = 0
    for row in slow_rows(lengths, spec):
        owner = [k for k, (_, cells, _) in enumerate(row) for _ in cells]
        place = [i for _, cells, _ in row for i in range(len(cells))]
        seen = [row[k][2] for k in owner]
        last = spec.width if spec.lookahead else spec.seq_len
        trained += sum(place[i] > 0 and place[i] >= seen[i] for i in range(min(last, len(owner))))
        frame = owner[: spec.seq_len]
        attention += sum(frame.count(k) ** 2 for k in set(frame))
        segments += len(set(frame))
    assert (tally.trained, tally.attention, tally.segments) == (trained, attention, segments)


@given(st.data())
def test_cut_documents_are_counted_needless_ones_apart(data):
    spec = data.draw(specs())
    lengths = data.draw(lengths_for(spec))
    tally = plan_group(np.array(lengths, np.int64), spec).tally
    pieces = [number for row in slow_rows(lengths, spec) for number, _, _ in row]
    sizes = {number: len(cells) for number, cells in slow_documents(lengths, spec)}
    cut = [number for number in sizes if pieces.count(number) > 1]
    assert tally.cut == len(cut)
    assert tally.cut_needlessly == sum(sizes[number] <= spec.width for number in cut)


# -- worked values -------------------------------------------------------------------------


def planned(lengths, **options):
    return cells_of(plan_group(np.array(lengths), PackSpec(**options)))


def sizes(rows):
    return [[len(cells) for _, cells, _ in row] for row in rows]


def test_an_eos_is_never_alone_in_a_row():
    assert sizes(planned([5], seq_len=5, eos_id=2, strategy="one_doc")) == [[4], [2]]
    assert sizes(planned([9], seq_len=5, eos_id=2, strategy="one_doc")) == [[5], [5]]
    assert sizes(planned([1], seq_len=2, bos_id=1, eos_id=2, strategy="one_doc")) == [[1], [2]]


def test_a_document_that_does_not_fit_is_named_under_error():
    with pytest.raises(tl.ConfigError, match=r"overflow: document 1 has 9 tokens .* 8 cells \(2 "):
        plan_group(np.array([8, 9, 3, 10]), PackSpec(seq_len=8, overflow="error"))
    rows = plan_group(np.array([8, 3]), PackSpec(seq_len=8, overflow="error"))
    assert len(rows) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seq_len": 1}, "seq_len: found 1"),
        ({"strategy": "best"}, "strategy: found 'best'"),
        ({"overflow": "spilt"}, "overflow: found 'spilt'.*Did you mean 'split'"),
        ({"min_len": 0}, "min_len: found 0"),
        ({"max_len": 2, "min_len": 3}, "max_len: found 2"),
        ({"max_docs_per_bin": 0}, "max_docs_per_bin: found 0"),
        ({"bos_id": -1}, "bos_id: found -1"),
        ({"eos_id": 1 << 31}, "eos_id: found"),
        ({"overlap": 1}, "overlap: found 1"),
        ({"overlap": 1, "lookahead": True}, "overlap: found 1 with strategy"),
        ({"strategy": "sequential", "stride": 1}, "stride: found 1 with strategy='sequential'"),
        ({"overflow": "truncate", "stride": 1}, "stride: found 1 with"),
        ({"strategy": "sequential", "overflow": "drop"}, "overflow: found drop with"),
        ({"strategy": "sequential", "max_docs_per_bin": 2}, "max_docs_per_bin: found 2 with"),
        ({"group_docs": 0}, "group_docs: found 0"),
        ({"shuffle_seed": -1}, "seed: found -1"),
        ({"seq_len": 4.0}, "seq_len: found 4.0"),
        ({"shuffle_output": 1}, "shuffle_output: found 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(options, message):
    with pytest.raises(tl.ConfigError, match=message):
        PackSpec(**({"seq_len": 8} | options))


def test_an_alias_is_the_same_setting():
    assert PackSpec(seq_len=8, strategy="bin") == PackSpec(
        seq_len=8, strategy="first_fit_decreasing"
    )


@example([0, 0])
@given(st.lists(st.just(0), max_size=3))
def test_empty_documents_give_no_row(lengths):
    for strategy in ("sequential", *STRATEGIES):
        spec = PackSpec(seq_len=8, strategy=strategy, bos_id=1, eos_id=2)
        rows = plan_group(np.array(lengths, np.int64), spec)
        assert (len(rows), rows.tally.empty) == (0, len(lengths))
