"""D11, D12, D13: ids, offsets and inputs that are impossible are refused, nothing is published."""

import json
import os
import re
import shutil

import numpy as np
import pytest
from forge import write_shards
from kit import QUICK, SMALL, read_everything, write_corpus

import tokenloom as tl
from tokenloom.store.writer import ShardWriter, publish_manifest
from tokenloom.testing.stores import first_manifest

# -- D11: ids ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vocab", "bad"),
    [
        (100, 100),
        (100, -1),
        (65_536, 65_536),
        (65_536, 65_537),
        (70_000, 70_000),
        (70_000, -(1 << 31)),
        (1 << 31, 1 << 31),
        (1 << 31, 1 << 32),
        (256, 256 + (1 << 16)),  # would look right in 16 bits
        (70_000, (1 << 32) + 5),  # would look right in 32 bits
        (256, 1 << 63),
        (256, 1 << 64),
        (256, -(1 << 63)),
    ],
)
@pytest.mark.parametrize("mixed", [False, True])
def test_d11_an_id_outside_the_vocabulary_is_refused_and_nothing_is_published(
    mixed, vocab, bad, scratch
):
    rows = [{"input_ids": [0, 1, vocab - 1]}] * 3 + [{"input_ids": [0, bad] if mixed else [bad]}]
    with pytest.raises(tl.TokenloomError, match=re.escape(str(bad)) + r"|whole numbers"):
        tl.build(rows, scratch / "s", tokenizer=None, vocab_size=vocab, files=QUICK)
    with pytest.raises(tl.StoreNotFound):
        tl.open(scratch / "s")


@pytest.mark.parametrize("bad", [1.5, "7", None, [1], float("nan")])
def test_d11_something_else_than_an_id_is_refused(bad, scratch):
    rows = [{"input_ids": [0, 1]}, {"input_ids": [0, bad]}]
    with pytest.raises(tl.TokenloomError):
        tl.build(rows, scratch / "s", tokenizer=None, vocab_size=10, files=QUICK)
    with pytest.raises(tl.StoreNotFound):
        tl.open(scratch / "s")


def test_d11_the_largest_ids_survive_the_way_through_the_store(scratch):
    for vocab in (1, 256, 65_536, 65_537, 1 << 31):
        rows = [{"input_ids": [0, vocab - 1]}]
        store = tl.build(rows, scratch / str(vocab), tokenizer=None, vocab_size=vocab, files=QUICK)
        assert store.tokens(0, 2).tolist() == [0, vocab - 1]
        assert store.document(0).dtype == np.int32


def test_d11_a_tokenizer_that_gives_ids_beyond_its_vocabulary_is_caught(scratch):
    rows = [{"text": "a"}]
    with pytest.raises(tl.TokenizerError, match="97"):
        tl.build(rows, scratch / "s", tokenizer=lambda text: [ord(c) for c in text], vocab_size=97)
    with pytest.raises(tl.StoreNotFound):
        tl.open(scratch / "s")


def test_d11_verify_finds_ids_beyond_the_vocabulary_under_right_checksums(scratch):
    root = write_shards(scratch / "s", [([1, 2, 300, 4], [2, 4], None)], vocab=256)
    reading = read_everything(root)
    assert list(reading.errors) == ["verify"]
    assert re.search(
        r"shard-00000/input_ids: id 300 at token 2\b.*256", str(reading.errors["verify"])
    )


def test_d11_verify_finds_ids_that_no_int32_can_hold(scratch):
    ids = [1, (1 << 31) + 5, 3]
    root = write_shards(scratch / "s", [(ids, [3], None)], vocab=1 << 31, dtype="uint32")
    assert "2147483653" in str(read_everything(root).errors["verify"])


# -- D12: offsets --------------------------------------------------------------------------


IDS = list(range(100))
HOSTILE = {
    "backwards": ([10, 5, 100], None),
    "beyond the shard": ([10, 150, 100], None),
    "the last beyond the shard": ([10, 50, 150], 100),
    "the last before the end": ([10, 50, 90], 100),
    "around 2^32": ([10, (1 << 32) - 1, 100], None),
    "around 2^31": ([10, 1 << 31, 100], None),
    "all beyond": ([200, 300, 100], None),
    "one long backwards run": ([100, 90, 80, 70, 100], None),
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("verify", ["first", "never"])
def test_d12_offsets_that_lie_are_noticed_before_a_slice_is_made(kind, verify, scratch):
    ends, declared = HOSTILE[kind]
    root = write_shards(scratch / "s", [(IDS, ends, declared), (IDS, [40, 100], None)])
    reading = read_everything(root, verify=verify)
    assert reading.strangers() == {}
    assert isinstance(reading.errors.get("lengths"), tl.StoreCorrupt)
    assert isinstance(reading.errors.get("verify"), tl.StoreCorrupt)
    assert "shard-00000/offsets" in str(reading.errors["lengths"])
    assert "shard-00000/offsets" in str(reading.errors["verify"])
    offsets = [0, *ends]
    for i in range(len(ends)):
        a, b = offsets[i], offsets[i + 1]
        if a > b or b > 100:
            assert isinstance(reading.errors.get(f"document {i}"), tl.StoreCorrupt), i
        elif f"document {i}" in reading.values:  # between neighbours all is well
            assert reading.values[f"document {i}"] == IDS[a:b]
    # the other shard is not concerned
    assert reading.values[f"document {len(ends)}"] == IDS[:40]


def test_d12_offsets_that_do_not_begin_at_nought_are_noticed(scratch):
    """Tokens before the first document would belong to nobody."""
    root = scratch / "s"
    root.mkdir()
    writer = ShardWriter(QUICK, root, 0, dtype="uint16", inner=64)
    column = writer._columns["offsets"]
    column._tail = np.array([7], column._tail.dtype)  # where every shard has its 0
    writer.append(np.arange(100), np.array([40, 60]))
    entry = writer.commit(fingerprint="0" * 64, engine="none", progress={})
    publish_manifest(QUICK, root, first_manifest([entry], vocab_size=256, inner=64))
    reading = read_everything(root)
    assert reading.strangers() == {}
    assert "shard-00000/offsets" in str(reading.errors.get("lengths"))
    assert "shard-00000/offsets" in str(reading.errors.get("verify"))


# -- D13: duplicates -----------------------------------------------------------------------


def build(inputs, out, **more):
    return tl.build(inputs, out, files=QUICK, **SMALL, **more)


def test_d13_the_same_file_twice_is_found_by_path_by_link_and_by_content(scratch):
    (one,) = write_corpus(scratch / "in")
    link, hard, copy = (str(scratch / "in" / f"{n}.jsonl") for n in ("link", "hard", "copy"))
    os.symlink(one, link)
    os.link(one, hard)
    shutil.copy(one, copy)
    roundabout = str(scratch / "in" / ".." / "in" / "part-0.jsonl")
    for other in (one, roundabout, link, hard, copy):
        with pytest.raises(tl.InputError, match=r"duplicates.*part-0\.jsonl"):
            build([one, other], scratch / "s", duplicates="error")
        assert not (scratch / "s").exists(), "nothing is made before the inputs are known"
    with pytest.raises(tl.InputError, match="found 3 among 4 inputs"):
        build(str(scratch / "in"), scratch / "s", duplicates="error")


def test_d13_duplicates_are_taken_when_they_are_meant(scratch):
    (one,) = write_corpus(scratch / "in", count=5)
    store = build([one, one], scratch / "s", duplicates="allow")
    assert store.num_documents == 10
    first, second = (store.documents(range(a, a + 5)) for a in (0, 5))
    assert [d.tolist() for d in first] == [d.tolist() for d in second]
    assert store.verify(progress=False).ok


def test_d13_an_append_of_what_is_already_there_is_refused_where_asked_for(scratch):
    (one,) = write_corpus(scratch / "in", count=5)
    (two,) = write_corpus(scratch / "in2", count=5, seed=2)
    build(one, scratch / "s")
    copy = scratch / "renamed.jsonl"
    shutil.copy(one, copy)
    with pytest.raises(tl.InputError, match=r"renamed\.jsonl.*part-0\.jsonl"):
        build([two, str(copy)], scratch / "s", append=True, duplicates="error")
    assert tl.open(scratch / "s").snapshot == 1
    assert build([two], scratch / "s", append=True).snapshot == 2
    both = build(str(copy), scratch / "s", append=True, duplicates="allow")
    assert (both.snapshot, both.num_documents) == (3, 15)


def test_d13_the_same_records_in_memory_are_duplicates_too(scratch):
    rows = [{"text": "a"}, {"text": "b"}]
    with pytest.raises(tl.InputError, match="rows-1"):
        build(
            [rows, [json.loads(json.dumps(row)) for row in rows]],
            scratch / "s",
            duplicates="error",
        )


@pytest.mark.filterwarnings("ignore:.*nothing to train on")
def test_d13_two_empty_files_are_no_duplicates(scratch):
    for name in ("a", "b"):
        (scratch / f"{name}.jsonl").write_text("")
    store = build([str(scratch / "a.jsonl"), str(scratch / "b.jsonl")], scratch / "s")
    assert store.num_documents == 0
