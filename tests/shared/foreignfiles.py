"""Files of other projects, written here byte by byte from their published layouts.

Nothing here asks the code under test anything. `WRITERS` are all raw formats: each writes documents
into a folder and answers (path to open, what must be said, documents that a reader must find).
"""

import gzip
import json
import struct
from pathlib import Path

import numpy as np

CODES = {"|u1": 1, "|i1": 2, "<i2": 3, "<i4": 4, "<i8": 5, "<u2": 8, "<u4": 9, "<u8": 10}

EOT = 999  # ends or starts documents where nothing else does


def some_documents(seed=0, count=60, longest=40, below=900):
    rng = np.random.Generator(np.random.PCG64(seed))
    lengths = rng.integers(0, longest, count)
    lengths[:2] = 0, longest  # an empty one, and one that goes over the end of a file
    return [rng.integers(1, below, int(length)).tolist() for length in lengths]


def joined(documents, dtype):
    return np.array([token for document in documents for token in document], np.int64).astype(dtype)


def write_megatron(stem, documents, dtype="<u2", *, sequences=None, modes=None, sizes="<i4"):
    """`sequences`: lengths of all sequences, and the document index, if a document has several."""
    stem = Path(stem)
    ids = joined(documents, dtype)
    ids.tofile(f"{stem}.bin")
    lengths = [len(document) for document in documents]
    index = list(range(len(documents) + 1))
    if sequences is not None:
        lengths, index = sequences
    item = np.dtype(dtype).itemsize
    pointers, place = [], 0
    for length in lengths:
        pointers.append(place)
        place += length * item
    with open(f"{stem}.idx", "wb") as file:
        head = (b"MMIDIDX\0\0", 1, CODES[np.dtype(dtype).str], len(lengths), len(index))
        file.write(struct.pack("<9sQBQQ", *head))
        file.write(np.array(lengths, sizes).tobytes())
        file.write(np.array(pointers, "<i8").tobytes())
        file.write(np.array(index, "<i8").tobytes())
        if modes is not None:
            file.write(np.array(modes, "|i1").tobytes())
    return str(stem)


def write_datatrove(path, documents, dtype="<u2", *, loss=None, tokenizer=None, width=2):
    joined(documents, dtype).tofile(path)
    ends, total = [], 0
    for document in documents:
        total += len(document)
        ends.append(total)
    Path(f"{path}.index").write_bytes(struct.pack(f"<{len(ends)}Q", *ends))
    if loss is not None:
        Path(f"{path}.loss").write_bytes(bytes(x for one in loss for x in one))
    if tokenizer is not None:
        Path(f"{path}.metadata").write_text(f"{tokenizer}|{width}\n{total}\n{total} T")
    return str(path)


def write_llm_c(path, ids, dtype="<u2", magic=None, version=None):
    magic = magic or {"<u2": 20240520, "<u4": 20240801}[dtype]
    version = version or {20240520: 1, 20240801: 7, 278895051: 1}.get(magic, 1)
    header = np.zeros(256, "<i4")
    header[:4] = magic, version, len(ids), np.dtype(dtype).itemsize
    Path(path).write_bytes(header.tobytes() + np.asarray(ids).astype(dtype).tobytes())
    return str(path)


def write_list(path, documents):
    """OLMo's list of documents beside an array."""
    lines, start = [], 0
    for number, document in enumerate(documents):
        lines.append(f"{start},{start + len(document)},doc-{number},source.jsonl.gz,{number}\n")
        start += len(document)
    with gzip.open(path, "wt") as file:
        file.write("".join(lines))


def write_litdata(folder, documents, *, files=1, bare=True, dtype="<i4", **config):
    """What LitData writes."""
    folder.mkdir(exist_ok=True)
    edges = [len(documents) * part // files for part in range(files + 1)]
    chunks = []
    for number in range(files):
        some = documents[edges[number] : edges[number + 1]]
        items = [np.array(one, dtype).tobytes() for one in some]
        if not bare:
            items = [len(one).to_bytes(4, "little") + one for one in items]
        head = 4 * (len(items) + 2)
        starts = np.cumsum([head, *map(len, items)]).astype("<u4")
        raw = np.uint32(len(items)).tobytes() + starts.tobytes() + b"".join(items)
        name = f"chunk-0-{number}.bin"
        (folder / name).write_bytes(raw)
        chunks.append({"chunk_bytes": len(raw), "chunk_size": len(items), "filename": name})
    loader = "TokensLoader" if bare else "PyTreeLoader"
    told = {"data_format": ["no_header_tensor:16"], "item_loader": loader, **config}
    (folder / "index.json").write_text(json.dumps({"chunks": chunks, "config": told}))


def write_mds(folder, columns, *, files=1):
    """What streaming writes: name → an array for each sample."""
    folder.mkdir(exist_ok=True)
    names = sorted(columns)
    samples = list(zip(*(columns[name] for name in names), strict=True))
    edges = [len(samples) * part // files for part in range(files + 1)]
    shards = []
    for number in range(files):
        cells = [
            [bytes([4 | 3]) + len(one).to_bytes(8, "little") + one.tobytes() for one in sample]
            for sample in samples[edges[number] : edges[number + 1]]
        ]
        items = [np.array([*map(len, one)], "<u4").tobytes() + b"".join(one) for one in cells]
        starts = np.cumsum([4 * (len(items) + 2), *map(len, items)]).astype("<u4")
        raw = np.uint32(len(items)).tobytes() + starts.tobytes() + b"".join(items)
        name = f"shard.{number:05d}.mds"
        (folder / name).write_bytes(raw)
        shard = {
            "version": 2,
            "format": "mds",
            "compression": None,
            "hashes": [],
            "size_limit": 1 << 26,
            "column_names": names,
            "column_encodings": [f"ndarray:{columns[name][0].dtype}" for name in names],
            "column_sizes": [None] * len(names),
            "raw_data": {"basename": name, "bytes": len(raw), "hashes": {}},
            "samples": len(items),
            "zip_data": None,
        }
        shards.append(shard)
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))
    return folder


# -- all raw formats -------------------------------------------------------------------------


def megatron(dtype):
    def write(folder, documents):
        return write_megatron(folder / "corpus", documents, dtype), {}, documents

    return write


def datatrove(dtype, files=1):
    def write(folder, documents):
        edges = [len(documents) * part // files for part in range(files + 1)]
        for number in range(files):
            part = documents[edges[number] : edges[number + 1]]
            write_datatrove(folder / f"{number:05d}_unshuffled.ds", part, dtype)
        return str(folder), {}, documents

    return write


def with_ends(documents):
    """Documents that end with the token that tells them apart; none is empty then."""
    return [[t for t in document if t != EOT] + [EOT] for document in documents]


def with_starts(documents):
    return [[EOT] + [t for t in document if t != EOT] for document in documents]


def llm_c(dtype, files=1, magic=None):
    def write(folder, documents):
        documents = with_starts(documents)
        ids = joined(documents, dtype)
        edges = [len(ids) * part // files for part in range(files + 1)]  # anywhere
        for number in range(files):
            part = ids[edges[number] : edges[number + 1]]
            write_llm_c(folder / f"fineweb_train_{number:06d}.bin", part, dtype, magic)
        return str(folder), {"bos": EOT}, documents

    return write


def flat(dtype):
    def write(folder, documents):
        documents = with_ends(documents)
        joined(documents, dtype).tofile(folder / "train.bin")
        said = {"dtype": np.dtype(dtype).name, "eos": EOT}
        return str(folder / "train.bin"), said, documents

    return write


def olmo(dtype, files=1):
    def write(folder, documents):
        documents = [document for document in documents if document]
        edges = [len(documents) * part // files for part in range(files + 1)]
        for number in range(files):
            part = documents[edges[number] : edges[number + 1]]
            joined(part, dtype).tofile(folder / f"part-{number}-00000.npy")
            write_list(folder / f"part-{number}-00000.csv.gz", part)
        return str(folder), {"dtype": np.dtype(dtype).name}, documents

    return write


def npy(dtype):
    def write(folder, documents):
        documents = with_ends(documents)
        np.save(folder / "ids.npy", joined(documents, dtype))
        return str(folder / "ids.npy"), {"eos": EOT}, documents

    return write


WRITERS = {
    "megatron uint16": megatron("<u2"),
    "megatron int32": megatron("<i4"),
    "megatron int64": megatron("<i8"),
    "megatron int16": megatron("<i2"),
    "datatrove": datatrove("<u2"),
    "datatrove, three files of uint32": datatrove("<u4", files=3),
    "llm.c": llm_c("<u2"),
    "llm.c, four shards of uint32": llm_c("<u4", files=4),
    "llm.c kin": llm_c("<u4", files=2, magic=278895051),
    "flat uint16": flat("<u2"),
    "flat uint64": flat("<u8"),
    "OLMo, two files": olmo("<u4", files=2),
    "npy": npy("<u4"),
    "npy, big-endian": npy(">i4"),
}
