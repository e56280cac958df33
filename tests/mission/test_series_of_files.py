"""Which files of a folder are one store, and in which order."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from foreignfiles import write_datatrove, write_llm_c

import tokenloom as tl

IDS = np.arange(1, 25, dtype="<u2")


def write_parquet(path):
    pq.write_table(pa.table({"input_ids": [[1, 2]]}), path)


def write_arrow(path):
    table = pa.table({"input_ids": [[1, 2]]})
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


WRITERS = {
    "a.npy": lambda path: np.save(path, IDS),
    "b.bin": IDS.tofile,
    "c.dat": IDS.tofile,
    "d.ds": lambda path: write_datatrove(path, [IDS.tolist()]),
    "e.bin": lambda path: write_llm_c(path, IDS),
    "f.parquet": write_parquet,
    "g.arrow": write_arrow,
}


@pytest.mark.parametrize(("one", "other"), [*itertools.combinations(WRITERS, 2)])
def test_a_folder_with_files_of_two_formats_is_refused(tmp_path, one, other):
    for name in (one, other):
        WRITERS[name](tmp_path / name)
    with pytest.raises(tl.ConfigError) as refused:
        tl.open(tmp_path, dtype="uint16")
    assert one in str(refused.value)
    assert other in str(refused.value)


@pytest.mark.parametrize("said", [{}, {"dtype": "uint16"}])
def test_a_file_or_the_format_says_which_of_them_is_meant(tmp_path, said):
    for name in ("a.npy", "d.ds", "f.parquet"):
        WRITERS[name](tmp_path / name)
    assert tl.open(tmp_path / "a.npy", **said).num_tokens == len(IDS)
    assert tl.open(tmp_path, format="npy", **said).num_tokens == len(IDS)
    assert tl.open(tmp_path, format="datatrove", **said).num_tokens == len(IDS)
    assert tl.open(tmp_path, format="parquet", **said).num_tokens == 2


def test_a_named_format_does_not_say_which_of_two_kinds_of_bare_arrays_is_meant(tmp_path):
    for name in ("b.bin", "c.dat"):
        WRITERS[name](tmp_path / name)
    for said in ({}, {"format": "flat"}):
        with pytest.raises(tl.ConfigError, match=r"b\.bin.* c\.dat"):
            tl.open(tmp_path, dtype="uint16", **said)


def test_the_start_of_names_with_two_kinds_of_files_is_refused(tmp_path):
    np.save(tmp_path / "train_0.npy", IDS)
    IDS.tofile(tmp_path / "train_1.bin")
    IDS.tofile(tmp_path / "val_1.bin")
    with pytest.raises(tl.ConfigError, match=r"train_0\.npy.* train_1\.bin"):
        tl.open(tmp_path / "train", dtype="uint16")
    assert tl.open(tmp_path / "val", dtype="uint16").num_tokens == len(IDS)


def test_other_things_in_a_folder_are_no_tokens(tmp_path):
    np.save(tmp_path / "s_0.npy", IDS)
    (tmp_path / "README.md").write_text("about")
    (tmp_path / "meta.pkl").write_bytes(b"never opened")
    (tmp_path / "cache.bin").mkdir()
    assert tl.open(tmp_path).num_tokens == len(IDS)


def pieces(count):
    return [part.tolist() for part in np.split(IDS, count)]


@pytest.mark.parametrize("pattern", ["s_{}", "s_{:02d}", "part{}-of-12", "v2_{}_x3"])
@pytest.mark.parametrize("kind", ["npy", "bin", "llm.c", "ds"])
def test_a_series_is_in_order_of_its_numbers(tmp_path, kind, pattern):
    """A shard of llm.c ends anywhere: in another order it would join halves of documents."""
    parts = pieces(12)
    for number, part in enumerate(parts):
        path = tmp_path / pattern.format(number)
        if kind == "npy":
            np.save(f"{path}.npy", np.array(part, "<u2"))
        elif kind == "bin":
            np.array(part, "<u2").tofile(f"{path}.bin")
        elif kind == "ds":
            write_datatrove(f"{path}.ds", [part])
        else:
            write_llm_c(f"{path}.bin", part)
    store = tl.open(tmp_path, dtype="uint16")
    assert store.tokens(0, len(IDS)).tolist() == IDS.tolist()


def test_a_document_over_the_end_of_an_unpadded_shard_goes_on_in_the_next(tmp_path):
    documents = [[99, *range(number, number + 4)] for number in range(12)]
    ids = [token for one in documents for token in one]
    edges = [0, *range(7, 60, 5), 60]  # a shard ends inside of a document
    for number, (low, high) in enumerate(itertools.pairwise(edges)):
        write_llm_c(tmp_path / f"s_{number}.bin", ids[low:high])
    store = tl.open(tmp_path, bos=99)
    assert [one.tolist() for one in store.documents(range(len(store)))] == documents
