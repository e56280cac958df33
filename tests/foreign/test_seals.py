"""Seals of files so large that no sample of their bytes meets a changed one."""

import os

import pytest
from crashdisk import mix
from everyformat import EVERY
from foreignfiles import some_documents
from quickfolder import quick_folder

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


def test_a_sealed_column_of_another_name_is_refused(tmp_path, unsampled):
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
