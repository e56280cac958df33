"""No piece of a packed row is an EOS alone: it would be neither predicted nor context."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenloom as tl
from tokenloom.streams import stream_packer
from tokenloom.testing import write_store

BOS, EOS = 1, 2

BIN_STRATEGIES = (
    "best_fit_decreasing",
    "first_fit_decreasing",
    "best_fit",
    "first_fit",
    "greedy",
    "one_doc",
)


def segments_of(batch):
    """The ids of every segment of every row."""
    for ids, segments in zip(batch.tokens.tolist(), batch.segment_ids.tolist(), strict=True):
        for number in range(1, max(segments) + 1):
            yield [token for token, one in zip(ids, segments, strict=True) if one == number]


@pytest.mark.parametrize("strategy", BIN_STRATEGIES)
def test_one_token_between_bos_and_eos_in_rows_of_two(tmp_path, strategy):
    store = tl.build([{"input_ids": [9]}], tmp_path / "s", tokenizer=None, vocab_size=20)
    run = store.pack(2, strategy=strategy, add_bos=True, bos_id=BOS, add_eos=True, eos_id=EOS)
    batch = run.batch(range(len(run)))
    assert sorted(segments_of(batch)) == [[BOS], [9, EOS]]
    assert batch.loss_mask.sum() == 1  # EOS, from the token before it
    ends_document = batch.tokens[:, 0] == 9
    assert batch.continues[:, 0].tolist() == ends_document.tolist()
    assert run.audit().ok


@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    seq_len=st.integers(2, 5),
    stride=st.integers(0, 1),
    bos=st.booleans(),
    strategy=st.sampled_from(BIN_STRATEGIES),
)
def test_every_eos_follows_the_last_token_of_its_document(
    tmp_path_factory, sizes, seq_len, stride, bos, strategy
):
    folder = tmp_path_factory.mktemp("store")
    last = [100 * number + size for number, size in enumerate(sizes, 1)]
    documents = [
        list(range(end - size + 1, end + 1)) for end, size in zip(last, sizes, strict=True)
    ]
    write_store(folder, [documents], vocab_size=2000)
    options = {"add_eos": True, "eos_id": EOS, "stride": stride}
    if bos:
        options |= {"add_bos": True, "bos_id": BOS}
    run = tl.open(folder).pack(seq_len, strategy=strategy, **options)
    ended = [ids[-2] for ids in segments_of(run.batch(range(len(run)))) if ids[-1] == EOS]
    assert sorted(ended) == last


@pytest.mark.parametrize("mode", ["bin", "multipack", "one_doc"])
def test_streams_cut_alike(mode):
    packer = stream_packer(mode, 2, bos_id=BOS, eos_id=EOS, pad_id=0)
    rows = [row.tokens.tolist() for row in packer.rows([[9]])]
    assert sorted(rows) == [[BOS, 0], [9, EOS]]
