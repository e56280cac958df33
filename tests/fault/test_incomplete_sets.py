"""A set of files that lacks one: what is left is never taken for something else."""

import json

import pytest
from commandline import command
from everyformat import EVERY
from foreignfiles import some_documents, write_llm_c

import tokenloom as tl
from tokenloom.exchange import export

DOCUMENTS = [[5, 6, 7], [8, 9], [1, 2, 3, 4]]


def exported(folder, to, **columns):
    rows = [{"input_ids": one, **{name: [1] * len(one) for name in columns}} for one in DOCUMENTS]
    store = tl.build(rows, folder / "own", tokenizer=None, vocab_size=10, columns=columns)
    export(store, folder / "out", to=to)
    return store, folder / "out"


# -- exports ---------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["input_ids.npy", "document_ends.npy", "score.npy", "part.npy"])
def test_exported_arrays_without_one_of_their_files_are_refused(tmp_path, lost):
    store, out = exported(tmp_path, "npy", score="float32", part="int32")
    assert tl.open(out).digest == store.digest
    (out / lost).unlink()
    for path in (out, out / "document_ends.npy"):
        if path.exists():
            with pytest.raises(tl.StoreCorrupt) as refused:
                tl.open(path)
            assert lost in str(refused.value)
            assert str(out) in str(refused.value)


def test_a_single_file_of_an_incomplete_export_can_be_named(tmp_path):
    _, out = exported(tmp_path, "npy")
    (out / "document_ends.npy").unlink()
    assert tl.open(out / "input_ids.npy").num_tokens == 9


def test_exported_samples_without_their_index_are_refused(tmp_path):
    _, out = exported(tmp_path, "mds")
    (out / "index.json").unlink()
    with pytest.raises(tl.StoreCorrupt, match=r"index\.json"):
        tl.open(out)


@pytest.mark.parametrize(
    ("files", "word"),
    [("input_ids.npy", "files"), ([7], "files"), (["../own"], "files"), (["gone.npy"], "gone.npy")],
)
def test_files_of_an_export_that_cannot_be_right_are_refused(tmp_path, files, word):
    _, out = exported(tmp_path, "npy")
    path = out / "export.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"files": files}))
    with pytest.raises(tl.StoreCorrupt) as refused:
        tl.open(out)
    assert word in str(refused.value)
    assert str(out) in str(refused.value)


# -- sealed sets -----------------------------------------------------------------------------

SEVERAL = [
    "llm.c, four shards of uint32",
    "datatrove, three files of uint32",
    "OLMo, two files",
    "parquet, two files",
    "litdata, three chunks",
    "arrays",
    "mds",
    "levanter",
    "megatron uint16",
]


@pytest.mark.parametrize("name", SEVERAL)
def test_a_sealed_set_without_any_of_its_files_is_refused(tmp_path, name):
    (tmp_path / "files").mkdir()
    path, said, _ = EVERY[name](tmp_path / "files", some_documents())
    words = [f"--{key}={value}" for key, value in said.items()]
    command("seal", path, *words)
    seal = next((tmp_path / "files").rglob("*.seal"))
    folder = seal.parent
    lost = [one for one in folder.rglob("*") if one.is_file() and one != seal]
    lost = [one for one in lost if one.name != "export.json"]
    assert seal.with_suffix("") in lost
    for one in lost:
        kept = one.read_bytes()
        one.unlink()
        with pytest.raises((tl.StoreError, tl.ConfigError)):
            tl.open(folder, **said)
        one.write_bytes(kept)
    first = seal.with_suffix("")
    first.unlink()
    with pytest.raises(tl.StoreCorrupt) as refused:
        tl.open(folder, **said)
    assert first.name in str(refused.value)


def test_the_start_of_names_finds_the_seal_whose_file_is_missing(tmp_path):
    for series in ("train", "train_long", "val"):
        for number in range(3):
            write_llm_c(tmp_path / f"{series}_{number}.bin", [9, 1, 2, 9, 3])
    for series in ("train", "val"):
        command("seal", tmp_path / series, "--bos=9")
    (tmp_path / "train_0.bin").unlink()
    with pytest.raises(tl.StoreCorrupt, match=r"train_0\.bin"):
        tl.open(tmp_path / "train", bos=9)
    assert tl.open(tmp_path / "val", bos=9).num_tokens == 15  # another series
    assert tl.open(tmp_path / "train_long", bos=9).num_tokens == 15
    assert tl.open(tmp_path / "train_1.bin", bos=9).num_tokens == 5  # it was named
    (tmp_path / "train_0.bin.seal").unlink()
    assert tl.open(tmp_path / "train", bos=9).num_tokens == 10


def test_a_file_that_is_called_a_seal_and_is_none_says_nothing(tmp_path):
    write_llm_c(tmp_path / "a_1.bin", [9, 1, 2])
    (tmp_path / "a_0.bin.seal").write_bytes(b"wax")
    assert tl.open(tmp_path, bos=9).num_tokens == 3
