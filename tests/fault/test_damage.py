"""D5, D6, D7: a flipped, cut, missing, swapped or foreign file is named; no wrong token is read."""

import errno
import os
import shutil

import numpy as np
import pytest
from crashdisk import mix
from kit import QUICK, read_everything, texts, tree

import tokenloom as tl
from tokenloom.store.byte_source import LocalSource
from tokenloom.testing import FaultSource


def rows(count, seed=0, change=0):
    """Ready-made ids with a column, and metadata of several kinds."""
    return [
        {
            "input_ids": [byte ^ change for byte in text.encode()],
            "loss_mask": [mix(seed, i, j) & 1 for j in range(len(text.encode()))],
            "id": f"doc-{i}",
            "score": i / 2,
        }
        for i, text in enumerate(texts(count, seed))
    ]


def make(path, count=12, seed=0, change=0, **options):
    """A store with tokens, a compressed column, metadata and the file of a tokenizer."""
    from tokenizers import Tokenizer, models

    words = Tokenizer(models.WordLevel({chr(i): i for i in range(256)}, unk_token="a"))
    settings = {"inner": 64, "shard_tokens": 200, "chunk_tokens": 128, **options}
    records = rows(count, seed, change)
    return tl.build(records, path, tokenizer=words, ids_key="input_ids", files=QUICK, **settings)


def judge(store, name, truth, *, part=None):
    """What is wrong with how a damaged store behaves; empty if the damage is seen and named.

    Opening and verify must name the file; a read may name `part`, where that is all it can know.
    """
    reading = read_everything(store)
    problems = [f"{step}: wrong answer" for step, v in reading.values.items() if v != truth[step]]
    problems += [f"{step}: {text}" for step, text in reading.strangers().items()]
    for step, error in reading.errors.items():
        if not isinstance(error, tl.StoreCorrupt):
            problems.append(f"{step}: {type(error).__name__}, not StoreCorrupt")
        elif (name if step in ("open", "verify") else part or name) not in str(error):
            problems.append(f"{step}: the message does not name {name}: {error!s:.120}")
    if not {"open", "verify"} & reading.errors.keys():
        problems.append("neither opening nor verify saw it")
    return problems


@pytest.fixture
def store(scratch):
    path = scratch / "store"
    made = make(path)
    assert len(made.reader.manifest.shards) == 2
    assert made.verify(progress=False).ok
    reading = read_everything(path)
    assert not reading.errors
    return path, reading.values


# -- D5: flipped bits ----------------------------------------------------------------------


def flip_everywhere(path, truth, places):
    """Flip one bit at a time at (file, byte) `places`; gives what was wrong with the answers."""
    problems = []
    for name, place in places:
        file = path / name
        raw = file.read_bytes()
        changed = bytearray(raw)
        bit = mix(place, len(raw)) % 8
        changed[place] ^= 1 << bit
        file.write_bytes(changed)
        problems += [f"{name} byte {place} bit {bit}: {p}" for p in judge(path, name, truth)]
        file.write_bytes(raw)
    return problems


def bytes_of(path):
    return [(n, len(raw)) for n, raw in tree(path).items() if raw is not None]


def test_d5_a_flipped_bit_in_any_file_is_noticed_and_the_file_is_named(store):
    """Some bytes of every file; the first and the last always among them."""
    path, truth = store
    places = [
        (name, place)
        for name, size in bytes_of(path)
        for place in sorted({0, size - 1, *(mix(size, i) % size for i in range(4))})
    ]
    assert len(places) > 120
    problems = flip_everywhere(path, truth, places)
    assert problems == []


def test_d5_the_questions_would_see_a_wrong_token_where_nothing_is_checked(store):
    """The same damage, read with ``verify="never"``: a harness that cannot fail proves nothing."""
    path, truth = store
    file = path / "shard-00000/input_ids/c/0"
    raw = bytearray(file.read_bytes())
    raw[0] ^= 1
    file.write_bytes(raw)
    reading = read_everything(path, check=False, verify="never")
    wrong = {step for step, value in reading.values.items() if value != truth[step]}
    assert {"document 0", "rows"} <= wrong
    assert reading.errors == {}


@pytest.mark.slow
@pytest.mark.parametrize("quarter", range(4))  # so that several processes share the work
def test_d5_every_byte_of_a_store_flipped_one_at_a_time_is_noticed(quarter, scratch):
    path = scratch / "store"
    make(path, count=5)
    truth = read_everything(path).values
    places = [(name, place) for name, size in bytes_of(path) for place in range(size)]
    assert len(places) > 10_000
    assert flip_everywhere(path, truth, places[quarter::4]) == []


@pytest.mark.parametrize("count", [40, pytest.param(2000, marks=pytest.mark.slow)])
def test_d5_flips_in_a_store_of_the_default_geometry_are_noticed(count, scratch):
    path = scratch / "store"
    ids = {"input_ids": [mix(i) % 50_000 for i in range(70_000)], "loss_mask": [1] * 70_000}
    tl.build([ids, {"input_ids": [7], "loss_mask": [0]}], path, tokenizer=None, vocab_size=50_000)
    truth = read_everything(path).values
    files = bytes_of(path)
    places = []
    for i in range(count):
        name, size = files[i % len(files)]
        places.append((name, mix(i, 5) % size))
    assert flip_everywhere(path, truth, places) == []


def test_d5_a_bit_that_flips_on_the_way_is_noticed_when_every_read_is_checked(store):
    """With "first" a chunk is believed once it was right: the way from the disk is trusted."""
    path, truth = store
    reads = FaultSource(LocalSource(path))
    read_everything(path, source=reads, check=False, verify="always")
    for number in range(1, len(reads.requests), 5):
        flaky = FaultSource(LocalSource(path), at=number, action="flip", bit=mix(number) % 4096)
        reading = read_everything(path, source=flaky, check=False, verify="always")
        assert reading.strangers() == {}
        assert all(value == truth[step] for step, value in reading.values.items())
        assert all(isinstance(error, tl.StoreCorrupt) for error in reading.errors.values())
        assert reading.errors or not flaky.happened, f"a flip in read {number} went unnoticed"
    assert number > 50


# -- D5b: sources that misbehave -----------------------------------------------------------


@pytest.mark.parametrize("action", ["raise", "short"])
def test_d5_a_source_that_fails_or_comes_short_gives_an_error_and_no_wrong_token(action, store):
    path, truth = store
    problems = []
    for number in range(1, 60, 3):
        flaky = FaultSource(LocalSource(path), at=number, action=action, error=errno.EIO)
        reading = read_everything(path, source=flaky, check=False)
        assert all(value == truth[step] for step, value in reading.values.items())
        if flaky.happened:
            assert reading.errors, f"read {number} failed unnoticed"
        problems += [
            f"read {number}, {step}: {error!r:.150}"
            for step, error in reading.errors.items()
            if not isinstance(error, OSError)  # of the source, or a StoreError
        ]
    assert problems == []


def test_d5_verify_reports_a_source_that_fails(store):
    path, _ = store
    for number in range(2, 40, 5):
        flaky = FaultSource(LocalSource(path), at=number, error=errno.EIO)
        report = tl.open(path, source=flaky, cache_bytes=0).check(progress=False)
        assert not report.ok


# -- D6: files cut, longer, gone, swapped, foreign ------------------------------------------


def damages(path):
    """(what, file, how) of everything that can happen to one file."""
    for name, size in bytes_of(path):
        for cut in sorted({size - 1, size - 3, size - 4096, 0}):
            if 0 <= cut < size:
                yield f"cut to {cut}", name, lambda file, cut=cut: os.truncate(file, cut)
        for more in (b"\0", b"x" * 4096):
            yield f"{len(more)} bytes longer", name, lambda file, more=more: _append(file, more)
        yield "removed", name, lambda file: file.unlink()


def _append(file, more):
    with open(file, "ab") as out:
        out.write(more)


def test_d6_a_file_that_is_cut_longer_or_gone_is_named(store, scratch):
    path, truth = store
    problems, count = [], 0
    for what, name, damage in damages(path):
        raw = (path / name).read_bytes()
        damage(path / name)
        if name.startswith("manifest") and what == "removed":
            with pytest.raises(tl.StoreNotFound, match="incomplete"):
                tl.open(path)
        else:
            problems += [f"{name} {what}: {p}" for p in judge(path, name, truth)]
        (path / name).write_bytes(raw)
        count += 1
    assert count > 100
    assert problems == []


def test_d6_files_swapped_with_a_sibling_are_named(store):
    path, truth = store
    problems = []
    names = [name for name, _ in bytes_of(path) if "/" in name]
    pairs = [
        (name, name.replace("shard-00000", "shard-00001"))
        for name in names
        if name.startswith("shard-00000")
    ]
    pairs += [("shard-00000/input_ids/c/0", "shard-00000/offsets/c/0")]
    pairs += [("shard-00000/input_ids/zarr.json", "shard-00000/crc32c/zarr.json")]
    for a, b in pairs:
        one, other = (path / a).read_bytes(), (path / b).read_bytes()
        if one == other:
            continue
        (path / a).write_bytes(other)
        (path / b).write_bytes(one)
        reading = read_everything(path)
        problems += [
            f"{a} and {b}: {step}: wrong answer"
            for step, value in reading.values.items()
            if value != truth[step]
        ]
        problems += [f"{a} and {b}: {t}" for t in reading.strangers().items()]
        seen = " ".join(map(str, reading.errors.values()))
        if a not in seen and b not in seen:
            problems.append(f"{a} and {b}: neither is named")
        (path / a).write_bytes(one)
        (path / b).write_bytes(other)
    assert problems == []


def test_d6_a_compressed_column_of_a_sibling_of_the_same_size_is_not_believed(scratch):
    """It agrees with the checksums that it has itself, but not with those of its shard."""
    path = scratch / "s"
    masks = [[1, 0] * 75, [0, 1] * 75]
    rows = [{"input_ids": [7] * 150, "loss_mask": mask} for mask in masks]
    store = tl.build(rows, path, tokenizer=None, vocab_size=8, shard_tokens=150, files=QUICK)
    assert [store.document(i, "loss_mask").tolist() for i in range(2)] == masks
    one, other = (path / f"shard-0000{i}/loss_mask/c/0" for i in range(2))
    assert one.stat().st_size == other.stat().st_size
    raw = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(raw)
    for number in range(2):
        with pytest.raises(tl.StoreCorrupt, match=f"shard-0000{number}/loss_mask/c/0: chunk 0"):
            tl.open(path, cache_bytes=0).document(number, "loss_mask")


def test_d6_whole_shards_that_are_swapped_are_noticed(store):
    path, truth = store
    os.rename(path / "shard-00000", path / "x")
    os.rename(path / "shard-00001", path / "shard-00000")
    os.rename(path / "x", path / "shard-00001")
    reading = read_everything(path)
    assert reading.errors
    assert reading.strangers() == {}
    assert all(value == truth[step] for step, value in reading.values.items())


def test_d6_a_file_of_another_store_is_named(store, scratch):
    """Same names, same sizes, other content: what a half-finished copy leaves."""
    path, truth = store
    make(scratch / "other", change=1)
    problems, count = [], 0
    for name, _ in bytes_of(path):
        mine, theirs = (path / name).read_bytes(), (scratch / "other" / name).read_bytes()
        if mine == theirs or name.startswith("manifest"):
            continue
        (path / name).write_bytes(theirs)
        # checksums of another store agree with themselves: a read cannot tell which file is wrong
        part = name.split("/")[0] if "crc32c" in name else None
        problems += [f"{name}: {p}" for p in judge(path, name, truth, part=part)]
        (path / name).write_bytes(mine)
        count += 1
    assert count > 6
    assert problems == []


def test_d6_a_manifest_of_another_store_does_not_fit_these_files(store, scratch):
    path, _ = store
    make(scratch / "other", seed=8)
    shutil.copy(scratch / "other/manifest-000001.json", path / "manifest-000001.json")
    reading = read_everything(path)
    assert reading.errors
    assert reading.strangers() == {}
    assert not any(step.startswith(("document", "tokens")) for step in reading.values)


@pytest.mark.parametrize(
    "name",
    [
        "shard-00000/extra.bin",
        "shard-00001/input_ids/c/1",
        "shard-00000/evil/zarr.json",
        "notes.txt",
        "pickle.pkl",
    ],
)
def test_d6_a_foreign_file_does_no_harm_and_verify_reports_it(name, store):
    path, truth = store
    (path / name).parent.mkdir(exist_ok=True)
    (path / name).write_bytes(b"hello")
    reading = read_everything(path)
    assert list(reading.errors) == ["verify"]
    place = name if not name.startswith("shard-00000/evil") else "shard-00000/evil"
    assert place in str(reading.errors["verify"])
    assert {**truth} == {**reading.values, "verify": True}


@pytest.mark.parametrize("how", ["flipped", "not json", "not a list", "gone"])
def test_d6_an_append_to_a_damaged_store_is_refused(how, store):
    """The list of inputs is what an append compares its own inputs with."""
    path, _ = store
    file = path / "inputs-000001.json"
    raw = file.read_bytes()
    damage = {
        "flipped": raw.replace(b'"sha256": "', b'"sha256": "x', 1)[: len(raw)],
        "not json": b"{" * len(raw),
        "not a list": b"7".ljust(len(raw)),
    }
    if how == "gone":
        file.unlink()
    else:
        file.write_bytes(damage[how])
    with pytest.raises(tl.StoreCorrupt, match=r"inputs-000001\.json"):
        make(path, count=3, seed=77, append=True)
    assert not (path / "manifest-000002.json").exists()


# -- D7: damage under an open store ---------------------------------------------------------


@pytest.mark.parametrize("verify", ["first", "always", "never"])
@pytest.mark.parametrize("damage", [0, 5_000, 100_001, "remove"])
def test_d7_a_file_cut_while_open_raises_and_never_kills_the_process(
    damage, verify, nursery, scratch
):
    path = scratch / "s"
    ids = np.arange(200_000) % 256
    tl.build([{"input_ids": ids.tolist()}], path, tokenizer=None, vocab_size=256, files=QUICK)
    file = "shard-00000/input_ids/c/0"
    child = nursery.start(
        "read_while_damaged", path=str(path), file=file, damage=damage, verify=verify
    )
    seen = child.value()  # an exit code of -7 would be the SIGBUS of a memory map
    assert seen["wrong"] == 0
    if damage == "remove":  # the open file is still there for whoever holds it
        assert seen["right"] == 1999
        with pytest.raises(tl.StoreCorrupt, match=file):
            tl.open(path)
    else:
        assert seen["errors"]
        assert all(file in text for text in seen["errors"])
