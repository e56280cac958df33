"""Other people's loaders, judged by what their batches tell; published rules show their defects."""

import numpy as np
import pytest
from auditruns import SEQ_LEN, store_of
from refusals import refused

import tokenloom as tl
from tokenloom import audit as audit_batches
from tokenloom.errors import ConfigError

N = 103


def shuffled(seed, n=N):
    return np.random.Generator(np.random.PCG64(seed)).permutation(n)


def broken(found):
    return {name for name, law in found.laws.items() if law.broken}


def cut(order, size):
    """Batches of `size` indices; what does not fill one is dropped."""
    return order[: len(order) // size * size].reshape(-1, size)


# -- published rules, as a few lines each ------------------------------------------------------


def test_a_loader_that_is_right_passes():
    found = audit_batches(np.concatenate([shuffled(0), shuffled(1)]), rows=N, epochs=2)
    assert found.ok, str(found)
    assert found.counts["given"] == 2 * N
    assert found.provenance == "index"


def windows_that_wrap():
    """Every window is permuted as if it were whole; what is outside wraps around."""
    first = [i // 16 * 16 for i in range(N)]
    return np.array([(low + shuffled(low, 16)[i % 16]) % N for i, low in enumerate(first)])


A, B = shuffled(0), shuffled(1)
TAILS = np.concatenate([cut(A, 10).reshape(-1), cut(B, 10).reshape(-1)])
TOGETHER = np.tile(np.arange(N), 2)[shuffled(3, 2 * N)]
EVEN = np.append(A, A[0])  # as samplers do that make ranks even
FILLED = np.append(A, -1)  # ours adds rows that train nothing

# what a rule gives to each rank, epochs, and the laws that it breaks
RULES = {
    "the last batch is dropped": ([TAILS], 2, {"lost"}),
    "a shuffle inside windows that wraps around": ([windows_that_wrap()], 1, {"lost", "repeated"}),
    "epochs are shuffled together": ([TOGETHER], 2, {"lost", "repeated"}),
    "the same, as one collection": ([TOGETHER], None, set()),
    "saved three batches of four too late": ([np.append(A[:60], A[48:])], None, {"replayed"}),
    "four rows are skipped": ([np.append(A[:60], A[64:])], None, {"lost"}),
    "a start index that is not reset": ([np.append(A, B[N - 13 :])], 2, {"lost"}),
    "ranks iterate the same stream": ([A, A], 1, {"ranks", "repeated"}),
    "ranks share a stream": ([A[:52], A[52:]], 1, set()),
    "ranks pad with a row": ([EVEN[0::2], EVEN[1::2]], 1, {"repeated"}),
    "ranks pad with filler": ([FILLED[0::2], FILLED[1::2]], 1, set()),
    "the same order in every epoch": ([np.tile(A, 3)], 3, {"fresh_orders"}),
    "stored order in every epoch": ([np.tile(np.arange(N), 3)], 3, set()),
}


@pytest.mark.parametrize("name", RULES)
def test_the_defects_of_a_rule_are_named(name):
    ranks, epochs, laws = RULES[name]
    found = audit_batches(*ranks, rows=N, epochs=epochs)
    assert laws <= broken(found)
    assert found.ok == (not laws)
    if name == "the last batch is dropped":
        assert found.laws["lost"].broken == 2 * (N % 10)


def documents(seed=0, count=200):
    rng = np.random.Generator(np.random.PCG64(seed))
    return rng.integers(1, 60, count)


def longest_first(lengths, room=64, size=16):
    """Rows of the longest two documents of a buffer that fit; nothing flushes it at the end."""
    buffer, rows = [], []
    for number, length in enumerate(lengths.tolist()):
        buffer.append((length, number))
        if len(buffer) < size:
            continue
        row, free = [], room
        for one in sorted(buffer, reverse=True):
            if one[0] <= free and len(row) < 2:
                row.append((one[1], 0, one[0]))
                free -= one[0]
        taken = {document for document, _, _ in row}
        buffer = [one for one in buffer if one[1] not in taken]
        rows.append(row)
    return rows


def test_a_packer_that_prefers_long_documents_starves_short_ones():
    lengths = np.where(np.arange(200) % 4 == 0, 3, documents())
    rows = longest_first(lengths)
    found = audit_batches([{"spans": row} for row in rows], lengths=lengths, epochs=1)
    assert {"starved", "tokens_lost"} <= broken(found)
    assert found.counts["mean_length_of_starved"] < found.counts["mean_length"]
    assert found.provenance == "spans"


def test_concatenate_and_cut_without_the_tail_loses_tokens():
    lengths = documents()
    ends = np.cumsum(lengths)
    batches = []
    for first in range(0, int(ends[-1]) // 64 * 64, 64):
        pieces = []
        for number in range(len(lengths)):
            low = max(first, int(ends[number] - lengths[number]))
            high = min(first + 64, int(ends[number]))
            if low < high:
                pieces.append((number, low - int(ends[number] - lengths[number]), high - low))
        batches.append({"spans": pieces})
    found = audit_batches(batches, lengths=lengths, epochs=1)
    assert found.counts["tokens_lost"] == int(ends[-1]) % 64
    assert broken(found) <= {"tokens_lost", "starved"}


PAD = EOS = 9


def padded(rows, width=8):
    """Rows of documents that end with EOS, padded with it."""
    tokens = np.full((len(rows), width), PAD)
    mask = np.zeros((len(rows), width), np.int64)
    for row, length in enumerate(rows):
        tokens[row, : length - 1] = np.arange(1, length)
        mask[row, :length] = 1
    return tokens, mask


def test_where_pad_is_eos_a_mask_by_value_trains_no_eos():
    tokens, mask = padded([5, 8, 3])
    by_value = np.where(tokens == PAD, -100, tokens)
    found = audit_batches(
        [{"input_ids": tokens, "labels": by_value, "attention_mask": mask}], eos_id=EOS
    )
    assert broken(found) == {"eos"}
    by_mask = np.where(mask == 0, -100, tokens)
    right = audit_batches(
        [{"input_ids": tokens, "labels": by_mask, "attention_mask": mask}], eos_id=EOS
    )
    assert right.ok, str(right)


def test_where_pad_is_eos_labels_without_a_mask_train_padding():
    tokens, mask = padded([5, 8, 3])
    found = audit_batches(
        [{"input_ids": tokens, "labels": tokens, "attention_mask": mask}], eos_id=EOS
    )
    assert "filler" in broken(found)


# -- what is told, and what is not ---------------------------------------------------------------


def test_without_provenance_only_laws_and_digests_are_judged_and_the_verdict_says_so():
    tokens, mask = padded([5, 8, 3])
    labels = np.where(mask == 0, -100, tokens)
    found = audit_batches([{"input_ids": tokens, "labels": labels, "attention_mask": mask}])
    assert found.provenance == "none"
    assert found.not_looked_at
    assert not {"lost", "repeated", "ranks"} & set(found.laws)
    leaking = {"input_ids": tokens, "segment_ids": mask, "position_ids": tokens * 0}
    assert "position_ids" in broken(audit_batches([leaking]))


def test_indices_outside_of_the_rows_are_found():
    found = audit_batches(np.array([0, 1, 2, 7, -5]), rows=5)
    assert {"in_range", "lost"} <= broken(found)
    refused(lambda: audit_batches(np.array([0.5])), ConfigError, "index", "float64")
    refused(audit_batches, ConfigError)
    refused(lambda: audit_batches([], lengths=[1 << 40]), ConfigError, "lengths")


# -- batches of a run ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    store = store_of(tmp_path_factory.mktemp("batches") / "a")
    return store.pack(SEQ_LEN).block_shuffle(io_block_size=3, window_blocks=1, lanes=3).epochs(2)


@pytest.mark.parametrize("world", [1, 3])
def test_what_loaders_deliver_is_the_run(run, world):
    ranks = [list(tl.Loader(run, 6, rank, world, end="pad")) for rank in range(world)]
    found = audit_batches(*ranks, run=run)
    assert found.ok, str(found)
    assert found.laws["tokens"].looked_at > 0
    assert found.as_json()["ok"]
    alone = audit_batches(run[:], run=run)
    assert alone.ok


def test_a_batch_that_lost_a_row_or_changed_a_cell_is_found(run):
    batches = list(tl.Loader(run, 6, 0, 1))
    short = audit_batches(batches[:-1], run=run)
    assert "lost" in broken(short)
    batches[2].tokens[1, 0] += 1
    assert "tokens" in broken(audit_batches(batches, run=run))
    assert "lost" not in broken(audit_batches(batches, run=run.take(len(batches) * 6)))
