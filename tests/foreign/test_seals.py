"""Seals: foreign files whose every byte is checked, as in a store of ours."""

import json
import os
import pickle
import shutil

import numpy as np
import pytest
from crashdisk import mix
from everyformat import EVERY
from foreignfiles import WRITERS, some_documents, write_megatron
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import quick_folder

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.foreign import identities, seals

DOCUMENTS = some_documents(count=40, longest=300)


def seal(path, said, *options):
    words = [word for name, value in said.items() for word in (f"--{name}", str(value))]
    assert main(["seal", str(path), *words, *options, "--quiet"]) == 0


def sealed(folder, name, documents=DOCUMENTS):
    path, said, expected = EVERY[name](folder, documents)
    seal(path, said)
    return path, said, expected


def read_all(store, fetch):
    run = store.windows(64, tail="keep").shuffle()
    with tl.Loader(run, 8, fetch=fetch, untrained="zero", end="pad") as loader:
        return [batch.tokens for batch in loader]


def use_all(path):
    store = tl.open(path, cache_bytes=0)
    read_all(store, "rows")
    read_all(store, "blocks")
    store.verify()


@pytest.mark.parametrize("name", sorted(EVERY))
def test_a_sealed_store_is_the_store_that_was_sealed(tmp_path, monkeypatch, name):
    path, said, expected = EVERY[name](tmp_path, DOCUMENTS)
    before = tl.open(path, **said)
    seal(path, said)
    monkeypatch.setattr(identities, "document_lengths", None)  # nothing is passed over again
    after = tl.open(path, cache_bytes=1 << 20, **said)
    assert after.digest == before.digest
    assert after.reader.inside.is_sealed
    assert [one.tolist() for one in after.documents(range(len(expected)))] == expected
    monkeypatch.undo()
    assert after.verify().unguarded == ()
    again = pickle.loads(pickle.dumps(after))
    assert again.reader.inside.is_sealed
    for fetch in ("rows", "blocks"):
        assert all(map(np.array_equal, read_all(before, fetch), read_all(after, fetch)))


@settings(max_examples=40)
@given(
    name=st.sampled_from(sorted(WRITERS)),
    fetch=st.sampled_from(["rows", "blocks"]),
    verify=st.sampled_from(["first", "always"]),
    data=st.data(),
)
def test_any_changed_bit_of_a_sealed_file_is_found(name, fetch, verify, data):
    with quick_folder() as folder:
        path, said, _ = sealed(folder, name, DOCUMENTS[:12])
        store = tl.open(path, **said)
        pieces = store.reader.inside.described.tokens
        piece = data.draw(st.sampled_from([one for one in pieces if one.elements]))
        at = data.draw(st.integers(piece.first_byte, piece.end_byte - 1))
        victim = folder / piece.file
        stamp, raw = victim.stat(), bytearray(victim.read_bytes())
        raw[at] ^= 1 << data.draw(st.integers(0, 7))
        victim.write_bytes(raw)
        os.utime(victim, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        with pytest.raises(tl.StoreCorrupt):
            read_all(tl.open(path, cache_bytes=1 << 20, verify=verify, **said), fetch)


def content(path, said):
    """All documents of a store, and the values of its columns."""
    store = tl.open(path, cache_bytes=1 << 20, **said)
    every, names = range(len(store)), (None, *store.columns)
    return [[one.tolist() for one in store.documents(every, name)] for name in names]


@pytest.fixture
def unsampled(monkeypatch):
    """Files so large that no sample of their bytes meets the changed one."""
    for module in (identities, seals):
        monkeypatch.setattr(module, "sample_of_bytes", lambda *_: "of other bytes")


def flipped(folder, path, said, places):
    """How many flips were refused; each of the others gives the content that was sealed.

    A place is a file, a byte in it and a bit.
    """
    right, refused = content(path, said), 0
    for file, byte, bit in places:
        stamp, raw = file.stat(), file.read_bytes()
        changed = bytearray(raw)
        changed[byte] ^= 1 << bit
        for data in (changed, raw):
            file.write_bytes(data)
            os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
            if data is raw:
                continue
            try:
                found = content(path, said)
            except tl.TokenloomError:
                refused += 1
            else:
                assert found == right, (str(file.relative_to(folder)), byte, bit)
    return refused


def files_of(folder):
    """What a reader looks at: all but what an export notes about itself."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in found if path.name != "export.json"]


@pytest.mark.parametrize("name", sorted(EVERY))
def test_a_bit_of_any_file_is_refused_or_changes_nothing(name, unsampled):
    with quick_folder() as folder:
        path, said, _ = sealed(folder, name, some_documents(count=10, longest=12))
        files = files_of(folder)
        places = [
            (file, mix(number, draw) % file.stat().st_size, mix(number, draw, 1) % 8)
            for number, file in enumerate(files)
            for draw in range(-(-40 // len(files)))
        ]
        assert flipped(folder, path, said, places) >= len(places) // 4


def test_a_sealed_column_of_another_name_is_told(tmp_path, unsampled):
    """It would be no loss mask any more, and every token would be trained on."""
    path, said, _ = sealed(tmp_path, "arrow as a stream")
    stamp = path.stat()
    path.write_bytes(path.read_bytes().replace(b"loss_mask", b"loss_masc"))
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    with pytest.raises(tl.StoreCorrupt, match=r"their columns were loss_mask and are none\."):
        tl.open(path, **said)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(EVERY))
def test_a_bit_of_every_byte_is_refused_or_changes_nothing(name, unsampled):
    with quick_folder() as folder:
        path, said, _ = sealed(folder, name, some_documents(count=10, longest=12))
        places = [
            (file, byte, mix(number, byte) % 8)
            for number, file in enumerate(files_of(folder))
            for byte in range(file.stat().st_size)
        ]
        assert flipped(folder, path, said, places) >= len(places) // 4


def test_an_unsealed_change_of_an_id_into_another_is_not_found(tmp_path):
    """The control: without a seal nothing tells it, and that is said."""
    path = write_megatron(tmp_path / "x", DOCUMENTS)
    store = tl.open(path, cache_bytes=0)
    assert "not sealed" in store.check().unguarded[0]
    ids = np.fromfile(f"{path}.bin", "<u2")
    ids[5] += 1
    ids.tofile(f"{path}.bin")
    assert store.tokens(5, 6).tolist() == [ids[5]]
    assert "differ from what was remembered" in store.check().problems[0]  # but a check tells


def test_a_seal_elsewhere_must_be_named(tmp_path, capsys):
    path = write_megatron(tmp_path / "x", DOCUMENTS)
    seal(path, {}, "--to", str(tmp_path / "other.seal"))
    assert "seal=" in capsys.readouterr().out
    assert not tl.open(path).reader.inside.is_sealed
    store = tl.open(path, seal=str(tmp_path / "other.seal"))
    assert store.reader.inside.is_sealed
    assert tl.from_config(store.windows(8).describe()).sources["main"].reader.inside.is_sealed
    with pytest.raises(tl.StoreError, match="there is no such seal"):
        tl.open(path, seal=str(tmp_path / "none.seal"))


def test_a_seal_beside_the_files_wins_over_a_sample(tmp_path, unsampled, caplog):
    """The full identity is free then, and reads are checked."""
    path = write_megatron(tmp_path / "x", DOCUMENTS)
    sampled = tl.open(path, identity="sample")  # the control: without a seal
    assert sampled.reader.opened_as["identity"] == "sample"
    seal(path, {})
    with caplog.at_level("INFO", "tokenloom"):
        store = tl.open(path, identity="sample", cache_bytes=0)
    assert "sealed, so its identity is the full one and no sample" in caplog.text
    assert store.reader.inside.is_sealed
    assert "identity" not in store.reader.opened_as
    assert store.digest == tl.open(path).digest != sampled.digest
    assert pickle.loads(pickle.dumps(store)).digest == store.digest
    ids = np.fromfile(f"{path}.bin", "<u2")
    ids[5] ^= 1
    ids.tofile(f"{path}.bin")
    assert sampled.tokens(5, 6).tolist() == [ids[5]]
    with pytest.raises(tl.StoreCorrupt, match="crc32c"):
        tl.open(path, identity="sample", cache_bytes=0).tokens(5, 6)


def test_a_sample_and_a_seal_cannot_both_be_asked_for(tmp_path):
    path = write_megatron(tmp_path / "x", DOCUMENTS)
    seal(path, {}, "--to", str(tmp_path / "other.seal"))
    with pytest.raises(tl.ConfigError, match=r"found 'sample' and a seal .* leave `identity` out"):
        tl.open(path, identity="sample", seal=str(tmp_path / "other.seal"))


def test_the_seal_of_another_file_is_refused(tmp_path):
    first = write_megatron(tmp_path / "x", DOCUMENTS)
    second = write_megatron(tmp_path / "y", DOCUMENTS[::-1])
    seal(first, {})
    shutil.copy(f"{first}.bin.seal", f"{second}.bin.seal")
    with pytest.raises(tl.StoreCorrupt, match="it is not the seal of these files"):
        tl.open(second)
    seal(second, {})  # sealing again puts the right one there
    assert tl.open(second).reader.inside.is_sealed


def test_a_seal_of_other_boundaries_is_refused(tmp_path):
    path, said, _ = WRITERS["flat uint16"](tmp_path, DOCUMENTS)
    seal(path, said)
    with pytest.raises(tl.StoreCorrupt, match=r"these files: eos was 999 and is not said\."):
        tl.open(path, dtype="uint16")


def test_a_seal_that_does_not_fit_says_in_words_why(tmp_path):
    path = write_megatron(tmp_path / "x", DOCUMENTS)
    seal(path, {})
    before = (tmp_path / "x.bin").stat().st_size
    write_megatron(tmp_path / "x", [*DOCUMENTS, [1, 2]])
    shutil.copy(f"{path}.bin.seal", tmp_path / "y.bin.seal")
    write_megatron(tmp_path / "y", DOCUMENTS)
    np.arange(9, dtype="<u2").tofile(tmp_path / "z.uint16.bin")
    shutil.copy(f"{path}.bin.seal", tmp_path / "z.uint16.bin.seal")
    for name, words in (
        ("x", f"x.bin had {before:,} bytes and has {before + 4:,}. If"),
        ("y", "y.bin was not among them. If"),
        ("z.uint16.bin", "their format was megatron and is flat. If"),
    ):
        with pytest.raises(tl.StoreCorrupt) as raised:
            tl.open(tmp_path / name)
        assert f"it is not the seal of these files: {words}" in str(raised.value)


@settings(max_examples=30)
@given(st.data())
def test_a_damaged_seal_is_told_and_never_believed(data):
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


def test_sealing_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    path = write_megatron(tmp_path / "x", DOCUMENTS)
    monkeypatch.setattr(os, "replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["seal", path, "--quiet", "--debug"])
    assert sorted(one.name for one in tmp_path.iterdir()) == ["x.bin", "x.idx"]


@pytest.mark.parametrize("name", sorted(EVERY))
def test_info_and_verify_say_what_is_guarded(tmp_path, capsys, name):
    path, said, _ = EVERY[name](tmp_path, DOCUMENTS[:12])
    words = [word for key, value in said.items() for word in (f"--{key}", str(value))]
    for guard, well in (("not sealed", "what can be checked is well"), ("sealed", "all is well")):
        assert main(["info", str(path), *words]) == 0
        told = capsys.readouterr().out
        assert f"guard       {guard}: " in told
        assert f"files of format {FORMATS[name.partition(' ')[0].rstrip(',')]}" in told
        assert main(["verify", str(path), *words]) == 0
        told = capsys.readouterr().out
        assert well in told
        assert ("not sealed" in told) == (guard == "not sealed")
        assert main(["info", str(path), *words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["guard"][0].startswith(guard)
        seal(path, said)
        capsys.readouterr()


# what `info` calls the formats, by the first word of a writer
FORMATS = {
    "OLMo": "flat",
    "a": "arrow",
    **{name: name for name in ("arrays", "arrow", "datatrove", "flat", "levanter", "litdata")},
    **{name: name for name in ("llm.c", "mds", "megatron", "npy", "parquet")},
}


def test_a_store_of_ours_has_its_seal_inside(tmp_path, capsys):
    tl.testing.write_store(tmp_path / "own", [[[1]]])
    assert main(["seal", str(tmp_path / "own")]) != 0
    assert "A store of ours has its checksums inside" in capsys.readouterr().err
