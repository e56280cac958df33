"""Seals: files of other formats whose every byte is checked, as in a tokenloom store."""

import json
import os
import pickle
import shutil

import numpy as np
import pytest
from commandline import command
from everyformat import EVERY
from foreignfiles import WRITERS, some_documents, write_megatron
from hypothesis import given, settings
from hypothesis import strategies as st
from quickfolder import quick_folder

import tokenloom as tl
from tokenloom.testing import write_store

DOCUMENTS = some_documents(count=40, longest=300)


def words(said):
    return [f"--{name}={value}" for name, value in said.items()]


def seal(path, said, *options):
    command("seal", path, *words(said), *options, "--quiet")


def sealed(folder, name, documents=DOCUMENTS):
    path, said, expected = EVERY[name](folder, documents)
    seal(path, said)
    return path, said, expected


def is_sealed(store):
    return store.check(progress=False).unguarded == ()


def read_all(store, fetch):
    run = store.windows(64, tail="keep").shuffle()
    with tl.Loader(run, 8, fetch=fetch, untrained="zero", end="pad") as loader:
        return [batch.tokens.tolist() for batch in loader]


def use_all(path):
    store = tl.open(path, cache_bytes=0)
    read_all(store, "rows")
    read_all(store, "blocks")
    store.verify()


@pytest.mark.parametrize("name", sorted(EVERY))
def test_a_sealed_store_is_the_store_that_was_sealed(tmp_path, name):
    path, said, expected = EVERY[name](tmp_path, DOCUMENTS[:14])
    before = tl.open(path, **said)
    assert not is_sealed(before)
    seal(path, said)
    after = tl.open(path, cache_bytes=1 << 20, **said)
    assert after.digest == before.digest
    assert [one.tolist() for one in after.documents(range(len(expected)))] == expected
    assert after.verify(progress=False).unguarded == ()
    assert is_sealed(pickle.loads(pickle.dumps(after)))
    for fetch in ("rows", "blocks"):
        assert read_all(before, fetch) == read_all(after, fetch)


def content(store):
    """All documents of a store, and the values of its columns."""
    every, names = range(len(store)), (None, *store.columns)
    return [[one.tolist() for one in store.documents(every, name)] for name in names]


def files_of(folder):
    """What a reader looks at: all but what an export notes about itself."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in found if path.name != "export.json"]


@pytest.mark.parametrize("name", sorted(EVERY))
def test_a_changed_bit_of_any_file_is_refused_or_changes_nothing(name):
    """Before the files are opened, and after."""
    with quick_folder() as folder:
        path, said, _ = sealed(folder, name, some_documents(count=10, longest=12))
        right, refused = content(tl.open(path, **said)), []
        rng = np.random.default_rng(7)
        files = files_of(folder)
        for number, file in enumerate(files * max(1, 8 // len(files))):
            raw, stamp = file.read_bytes(), file.stat()
            flipped = bytearray(raw)
            flipped[rng.integers(len(raw))] ^= 1 << int(rng.integers(8))
            opened = tl.open(path, cache_bytes=0, **said)
            file.write_bytes(flipped)
            os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
            for reopened in (False, True):
                try:
                    found = content(tl.open(path, **said) if reopened else opened)
                except (tl.StoreError, tl.ConfigError):
                    refused.append(reopened)
                else:
                    assert found == right, (file.name, number, reopened)
            file.write_bytes(raw)
            os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        assert True in refused


@settings(max_examples=25)
@given(
    name=st.sampled_from(sorted(WRITERS)),
    fetch=st.sampled_from(["rows", "blocks"]),
    verify=st.sampled_from(["first", "always"]),
    data=st.data(),
)
def test_any_changed_bit_of_the_tokens_is_found_when_they_are_read(name, fetch, verify, data):
    with quick_folder() as folder:
        path, said, _ = EVERY[name](folder, DOCUMENTS[:12])
        payload = {"megatron": "*.bin", "datatrove": "*.ds"}.get(name.split(",")[0].split()[0])
        victims = sorted(folder.glob(payload or "*.[bn][ip][ny]"))
        seal(path, said)
        store = tl.open(path, cache_bytes=1 << 20, verify=verify, **said)
        victim = data.draw(st.sampled_from([one for one in victims if one.stat().st_size]))
        raw = bytearray(victim.read_bytes())
        header = 1024 if name.startswith("llm.c") else 128 if name.startswith("npy") else 0
        raw[data.draw(st.integers(header, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        victim.write_bytes(raw)
        with pytest.raises(tl.StoreCorrupt, match=victim.name):
            read_all(store, fetch)
        assert any(victim.name in one for one in store.check(progress=False).problems)


def test_a_sealed_column_of_another_name_is_refused(tmp_path):
    """It would be no loss mask any more, and every token would be trained on."""
    path, said, _ = sealed(tmp_path, "arrow as a stream")
    path.write_bytes(path.read_bytes().replace(b"loss_mask", b"loss_masc"))
    with pytest.raises(tl.StoreCorrupt, match=path.name):
        tl.open(path, **said)


def test_an_unsealed_change_of_an_id_into_another_is_found_by_a_check_only(tmp_path):
    path = write_megatron(tmp_path / "x", DOCUMENTS)
    store = tl.open(path, cache_bytes=0)
    ids = np.fromfile(f"{path}.bin", "<u2")
    ids[5] += 1
    ids.tofile(f"{path}.bin")
    assert store.tokens(5, 6).tolist() == [ids[5]]
    check = store.check(progress=False)
    assert check.unguarded
    assert len(check.problems) == 1


def test_a_check_of_files_that_were_cut_or_cut_otherwise_is_not_well(tmp_path):
    path = write_megatron(tmp_path / "x", DOCUMENTS)
    for guarded in (False, True):
        store = tl.open(path, cache_bytes=0)
        raw = (tmp_path / "x.bin").read_bytes()
        os.truncate(f"{path}.bin", len(raw) - 100)
        assert store.check(progress=False).problems
        with pytest.raises(tl.StoreCorrupt):
            store.verify(progress=False)
        (tmp_path / "x.bin").write_bytes(raw)
        if not guarded:
            seal(path, {})


def test_a_check_of_a_sampled_store_looks_at_every_id(tmp_path):
    path = write_megatron(tmp_path / "x", DOCUMENTS, "<i4")
    store = tl.open(path, identity="sample", vocab_size=1000, cache_bytes=0)
    assert store.check(progress=False).problems == ()
    ids = np.fromfile(f"{path}.bin", "<i4")
    ids[-3] = 5000
    ids.tofile(f"{path}.bin")
    assert "5,000" in store.check(progress=False).problems[0]
    with pytest.raises(tl.ConfigError, match="identity"):
        store.document_hashes([0])


def test_a_seal_elsewhere_must_be_named(tmp_path):
    path = write_megatron(tmp_path / "x", DOCUMENTS)
    assert "seal=" in command("seal", path, "--to", tmp_path / "other.seal")
    assert not is_sealed(tl.open(path))
    store = tl.open(path, seal=str(tmp_path / "other.seal"))
    assert is_sealed(store)
    described = store.windows(8).describe()
    assert described["store"]["foreign"]["seal"] == str(tmp_path / "other.seal")
    assert tl.from_config(described).fingerprint == store.windows(8).fingerprint
    with pytest.raises(tl.StoreError, match=r"none\.seal"):
        tl.open(path, seal=str(tmp_path / "none.seal"))


def test_a_seal_beside_the_files_wins_over_a_sample(tmp_path):
    """The full identity is free then, and reads are checked."""
    path = write_megatron(tmp_path / "x", DOCUMENTS)
    sampled = tl.open(path, identity="sample").windows(8).describe()  # the control: no seal
    assert sampled["store"]["identity"] == "sample"
    seal(path, {})
    store = tl.open(path, identity="sample", cache_bytes=0)
    assert is_sealed(store)
    assert "identity" not in store.windows(8).describe()["store"]
    assert store.digest == tl.open(path).digest
    assert pickle.loads(pickle.dumps(store)).digest == store.digest


def test_a_sample_and_a_seal_cannot_both_be_asked_for(tmp_path):
    path = write_megatron(tmp_path / "x", DOCUMENTS)
    seal(path, {}, "--to", tmp_path / "other.seal")
    with pytest.raises(tl.ConfigError, match="identity"):
        tl.open(path, identity="sample", seal=str(tmp_path / "other.seal"))


def test_the_seal_of_another_file_is_refused(tmp_path):
    first = write_megatron(tmp_path / "x", DOCUMENTS)
    second = write_megatron(tmp_path / "y", DOCUMENTS[::-1])
    seal(first, {})
    shutil.copy(f"{first}.bin.seal", f"{second}.bin.seal")
    with pytest.raises(tl.StoreCorrupt, match=r"y\.bin\.seal"):
        tl.open(second)
    seal(second, {})  # sealing again puts the right one there
    assert is_sealed(tl.open(second))


def test_a_seal_of_other_options_is_refused(tmp_path):
    path, said, _ = WRITERS["flat uint16"](tmp_path, DOCUMENTS)
    seal(path, said)
    with pytest.raises(tl.StoreCorrupt, match=r"eos .*999"):
        tl.open(path, dtype="uint16")
    with pytest.raises(tl.StoreCorrupt, match=r"eos .*999.*998"):
        tl.open(path, dtype="uint16", eos=998)


def test_a_seal_that_does_not_fit_says_why(tmp_path):
    path = write_megatron(tmp_path / "x", DOCUMENTS)
    seal(path, {})
    before = (tmp_path / "x.bin").stat().st_size
    shutil.copy(f"{path}.bin.seal", tmp_path / "y.bin.seal")
    shutil.copy(f"{path}.bin.seal", tmp_path / "z.uint16.bin.seal")
    write_megatron(tmp_path / "x", [*DOCUMENTS, [1, 2]])
    write_megatron(tmp_path / "y", DOCUMENTS)
    np.arange(9, dtype="<u2").tofile(tmp_path / "z.uint16.bin")
    for name, *values in (
        ("x", "x.bin", f"{before:,}", f"{before + 4:,}"),
        ("y", "y.bin"),
        ("z.uint16.bin", "megatron", "flat"),
    ):
        with pytest.raises(tl.StoreCorrupt) as raised:
            tl.open(tmp_path / name)
        assert all(value in str(raised.value) for value in values)


@pytest.mark.parametrize("change", ["one more", "one fewer", "renamed"])
def test_the_seal_of_a_set_is_refused_for_another_set(tmp_path, change):
    path, said, _ = EVERY["datatrove, three files of uint32"](tmp_path, DOCUMENTS)
    seal(path, said)
    for file in sorted(tmp_path.glob("00002*")):
        other = file.with_name(file.name.replace("00002", "00003"))
        if change == "one more":
            shutil.copy(file, other)
        elif change == "renamed":
            file.rename(other)
        else:
            file.unlink()
    with pytest.raises(tl.StoreCorrupt, match=r"0000[23]"):
        tl.open(path, **said)


@settings(max_examples=25)
@given(st.data())
def test_a_damaged_seal_is_refused(data):
    with quick_folder() as folder:
        path, _, _ = sealed(folder, "megatron uint16", DOCUMENTS[:6])
        place = folder / "corpus.bin.seal"
        raw = bytearray(place.read_bytes())
        cut = data.draw(st.integers(0, len(raw)))
        if data.draw(st.booleans()):
            place.write_bytes(raw[: min(cut, len(raw) - 1)])
        else:
            raw[min(cut, len(raw) - 1)] ^= 1 << data.draw(st.integers(0, 7))
            place.write_bytes(raw)
        with pytest.raises(tl.StoreError):
            use_all(path)


LAST_LINES = [
    {"format": "tokenloom.seal/9"},
    {"parts": 0},
    {"parts": -1},
    {"parts": 1 << 60},
    {"parts": "many"},
    {"sha256": "0" * 64},
    {"sha256": None},
]


@pytest.mark.parametrize("fields", LAST_LINES)
def test_the_last_line_of_a_seal_is_believed_only_if_it_can_be_right(tmp_path, fields):
    path, _, _ = sealed(tmp_path, "megatron uint16", DOCUMENTS[:6])
    place = tmp_path / "corpus.bin.seal"
    raw, _, last = place.read_bytes().rpartition(b"\n")
    place.write_bytes(raw + b"\n" + json.dumps({**json.loads(last), **fields}).encode())
    with pytest.raises(tl.StoreCorrupt, match=r"corpus\.bin\.seal"):
        tl.open(path)


def test_a_seal_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    path = write_megatron(tmp_path / "x", DOCUMENTS)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    command("seal", path, "--quiet", code=1)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["x.bin", "x.idx"]


FORMATS = {"OLMo": "flat", "a": "arrow"}  # what `info` calls those that are called otherwise here


@pytest.mark.parametrize("name", sorted(EVERY))
def test_info_and_verify_say_what_is_guarded(tmp_path, name):
    path, said, _ = EVERY[name](tmp_path, DOCUMENTS[:12])
    first = name.partition(" ")[0].rstrip(",")
    for guarded in (False, True):
        told = json.loads(command("info", path, *words(said), "--json"))
        assert told["guard"][0].startswith("sealed") == guarded
        assert FORMATS.get(first, first) in command("info", path, *words(said))
        assert ("not sealed" in command("verify", path, *words(said))) == (not guarded)
        if not guarded:
            seal(path, said)


def test_a_tokenloom_store_has_its_seal_inside(tmp_path):
    write_store(tmp_path / "own", [[[1]]])
    assert str(tmp_path / "own") in command("seal", tmp_path / "own", code=2)


def test_a_changed_bit_of_a_file_that_is_too_large_to_be_sampled_is_found_when_it_is_read(tmp_path):
    """Opening looks at some places of a file; the seal knows every byte."""
    documents = some_documents(count=1000, longest=1200)
    path, said, expected = sealed(tmp_path, "megatron uint16", documents)
    file = tmp_path / "corpus.bin"
    size, stamp, raw = file.stat().st_size, file.stat(), file.read_bytes()
    assert size > 4 * 64 * 4096
    unseen = 0
    for place in range(size // 9, size - 1, size // 9):
        changed = bytearray(raw)
        changed[place] ^= 4
        file.write_bytes(changed)
        os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        try:
            store = tl.open(path, cache_bytes=0, **said)
        except tl.StoreError:
            continue  # this place is one of the sample
        unseen += 1
        edges = np.cumsum([0, *map(len, expected)])
        document = int(np.searchsorted(edges, place // 2, side="right")) - 1
        with pytest.raises(tl.StoreCorrupt, match="corpus"):
            store.document(document)
        assert not store.check(progress=False).ok
    assert unseen > 3
