"""Damaged, cut and hostile files: a clear error before memory is taken, never a wrong token."""

import os
import struct
import tracemalloc

import numpy as np
import pytest
from foreignfiles import WRITERS, some_documents, write_datatrove, write_llm_c, write_megatron
from hypothesis import given, settings
from hypothesis import strategies as st
from quickfolder import quick_folder

import tokenloom as tl

DOCUMENTS = some_documents(count=9, longest=12)

LITTLE = 32 << 20  # bytes of memory that a refusal may take


def refused(path, **said):
    """The error for some files, which must come without much memory; None if they open."""
    tracemalloc.start()
    try:
        store = tl.open(path, vocab_size=1000, **said)
        store.documents(range(store.num_documents))
    except tl.TokenloomError as error:
        return error
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < LITTLE
    return None


@settings(max_examples=80)
@given(name=st.sampled_from(sorted(WRITERS)), data=st.data())
def test_a_file_that_is_cut_anywhere_is_refused_or_has_fewer_tokens(name, data):
    with quick_folder() as folder:
        path, said, expected = WRITERS[name](folder, DOCUMENTS)
        victims = sorted(one for one in folder.iterdir() if one.stat().st_size)
        victim = data.draw(st.sampled_from(victims))
        raw = victim.read_bytes()
        victim.write_bytes(raw[: data.draw(st.integers(0, len(raw) - 1))])
        if refused(path, **said) is None:
            assert tl.open(path, vocab_size=1000, **said).num_tokens < sum(map(len, expected))


@settings(max_examples=150)
@given(name=st.sampled_from(sorted(WRITERS)), data=st.data())
def test_any_bytes_in_place_of_any_bytes_are_refused_or_read_as_ids(name, data):
    with quick_folder() as folder:
        path, said, _ = WRITERS[name](folder, DOCUMENTS)
        victim = data.draw(st.sampled_from(sorted(folder.iterdir())))
        raw = bytearray(victim.read_bytes())
        new = data.draw(st.binary(min_size=1, max_size=16))
        at = data.draw(st.integers(0, max(0, min(len(raw), 80) - 1)))
        raw[at : at + len(new)] = new
        victim.write_bytes(raw)
        if refused(path, **said) is None:
            store = tl.open(path, vocab_size=1000, **said)
            assert store.tokens(0, store.num_tokens).max(initial=0) < 1000


@settings(max_examples=60)
@given(
    st.sampled_from(["x.idx", "x.ds", "x.bin", "x.npy"]),
    st.binary(max_size=80),
    st.sampled_from([b"", b"MMIDIDX\0\0", b"\x93NUMPY\x01\0", (20240520).to_bytes(4, "little")]),
)
def test_bytes_that_nobody_wrote_are_refused_or_read_as_ids(name, raw, start):
    with quick_folder() as folder:
        (folder / name).write_bytes(start + raw)
        (folder / f"{name}.index").write_bytes(raw[: len(raw) // 8 * 8])
        refused(folder / name, dtype="uint16")


def megatron_index(sequences, entries, code=8, *, body=b""):
    return struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, code, sequences, entries) + body


@pytest.mark.parametrize("count", [1 << 31, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_counts_that_no_file_can_hold_take_no_memory(tmp_path, count):
    (tmp_path / "x.bin").write_bytes(bytes(8))
    for sequences, entries in ((count, 2), (1, count), (count, count)):
        (tmp_path / "x.idx").write_bytes(megatron_index(sequences, entries, body=bytes(100)))
        assert "x.idx" in str(refused(tmp_path / "x"))
    write_datatrove(tmp_path / "y.ds", [[1]])
    (tmp_path / "y.ds.index").write_bytes(struct.pack("<Q", count))
    assert "y.ds" in str(refused(tmp_path / "y.ds"))


def test_negative_lengths_and_indices_that_leave_the_file_are_refused(tmp_path):
    (tmp_path / "x.bin").write_bytes(bytes(8))
    lengths, pointers = np.array([-4, 8], "<i4"), np.array([0, -8], "<i8")
    documents = np.array([0, 1, 2], "<i8")
    body = b"".join(one.tobytes() for one in (lengths, pointers, documents))
    (tmp_path / "x.idx").write_bytes(megatron_index(2, 3, body=body))
    assert "-4" in str(refused(tmp_path / "x"))
    lengths, pointers = np.array([2, 2], "<i4"), np.array([0, 4], "<i8")
    for wrong in ([0, 3, 2], [1, 1, 2], [0, 1, 9], [0, -1, 2]):
        index = np.array(wrong, "<i8")
        body = b"".join(one.tobytes() for one in (lengths, pointers, index))
        (tmp_path / "x.idx").write_bytes(megatron_index(2, 3, body=body))
        assert "x.idx" in str(refused(tmp_path / "x"))


def test_an_index_of_another_file_is_refused(tmp_path):
    write_megatron(tmp_path / "a", [[1, 2, 3], [4]])
    write_megatron(tmp_path / "b", [[1, 2], [3, 4, 5]])
    os.replace(tmp_path / "b.idx", tmp_path / "a.idx")
    assert "a." in str(refused(tmp_path / "a"))
    write_datatrove(tmp_path / "c.ds", [[1, 2, 3]])
    write_datatrove(tmp_path / "d.ds", [[1]])
    os.replace(tmp_path / "d.ds.index", tmp_path / "c.ds.index")
    assert "c.ds" in str(refused(tmp_path / "c.ds"))


def test_an_index_that_runs_backwards_is_refused(tmp_path):
    path = write_datatrove(tmp_path / "x.ds", [[1, 2], [3]])
    (tmp_path / "x.ds.index").write_bytes(struct.pack("<3Q", 2, 1, 3))
    assert "document 1" in str(refused(path))


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_file_is_not_opened(tmp_path, kind):
    folder = tmp_path / "data"
    folder.mkdir()
    path = write_llm_c(folder / "a_0.bin", [1, 2])
    place = folder / "a_1.bin"
    if kind == "link":
        write_llm_c(tmp_path / "elsewhere.bin", [9])
        place.symlink_to(tmp_path / "elsewhere.bin")
    if kind == "pipe":
        os.mkfifo(place)
    if kind == "folder":
        place.mkdir()
        assert tl.open(folder).num_tokens == 2  # folders are none of its files
        return
    assert "a_1.bin" in str(refused(folder))
    assert tl.open(path).num_tokens == 2


def test_a_path_that_is_a_link_is_where_it_leads(tmp_path):
    write_llm_c(tmp_path / "a.bin", [1, 2])
    (tmp_path / "link.bin").symlink_to(tmp_path / "a.bin")
    assert tl.open(tmp_path / "link.bin").num_tokens == 2


def test_a_file_that_is_cut_after_it_was_opened_is_refused(tmp_path):
    path = write_llm_c(tmp_path / "a.bin", np.arange(9000) % 500)
    for fetch in ("rows", "blocks"):
        store = tl.open(path, cache_bytes=0)
        os.truncate(path, 6000)
        with (
            pytest.raises(tl.StoreError, match=r"a\.bin"),
            tl.Loader(store.windows(64), 8, fetch=fetch) as loader,
        ):
            for _ in loader:
                pass
        write_llm_c(tmp_path / "a.bin", np.arange(9000) % 500)


def test_a_header_of_a_matrix_that_lies_takes_no_memory(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(6, dtype="<i4"))
    raw = (tmp_path / "a.npy").read_bytes()
    for shape in ("(99999999999,)", "(-6,)", "(6, 1, 1)", "(2**70,)", "open('x')"):
        changed = raw.replace(b"(6,)", shape.encode()).ljust(len(raw))
        (tmp_path / "a.npy").write_bytes(changed)
        assert refused(tmp_path / "a.npy") is not None
