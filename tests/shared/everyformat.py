"""Every format that opens in place, as a writer each: (path to open, what is said, documents).

`NAMED` are those whose index can be named in place of the folder, which a server without listings
asks for; `FOLDERS` are those that need a listing, whatever is named.
"""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from foreignfiles import EOT, WRITERS, write_litdata
from levanterfiles import write_cache
from quickfolder import quick_folder

import tokenloom as tl
from tokenloom.exchange import export
from tokenloom.testing import write_store


def rows_of(documents):
    masks = [[token % 2 for token in document] for document in documents]
    return pa.table({"input_ids": documents, "loss_mask": masks, "n": range(len(documents))})


def parquet(folder, documents):
    half = len(documents) // 2
    for number, part in enumerate((documents[:half], documents[half:])):
        pq.write_table(rows_of(part), folder / f"part-{number}.parquet", row_group_size=7)
    return folder, {}, documents


def arrow(make):
    def write(folder, documents):
        of = rows_of(documents)
        with make(folder / "a.arrow", of.schema) as writer:
            for one in of.to_batches(max_chunksize=9):
                writer.write_batch(one)
        return folder / "a.arrow", {}, documents

    return write


def saved(folder, documents):
    arrow(pa.ipc.new_stream)(folder, documents)
    state = {"_data_files": [{"filename": "a.arrow"}], "_indices_files": None}
    (folder / "state.json").write_text(json.dumps(state))
    return folder, {}, documents


def levanter(shards):
    def write(folder, documents):
        masks = [[token % 2 for token in document] for document in documents]
        leaves = {"input_ids": documents, "assistant_masks": masks}
        write_cache(folder / "cache", leaves, shards=shards)
        return folder / "cache", {}, documents

    return write


def exported(to):
    def write(folder, documents):
        if to == "mds":  # its writer refuses empty ones
            documents = [one for one in documents if one]
        half = len(documents) // 2
        with quick_folder() as own:
            shards = [documents[:half], documents[half:]]
            write_store(own / "own", shards, vocab_size=EOT + 1)
            export(tl.open(own / "own"), folder / "out", to=to)
        return folder / "out", {}, documents

    return write


def packed(folder, documents):
    """MDS as its writer compresses it."""
    path, said, expected = exported("mds")(folder, documents)
    index = json.loads((path / "index.json").read_text())
    for shard in index["shards"]:
        name = shard["raw_data"]["basename"]
        raw = zstandard.compress((path / name).read_bytes())
        (path / name).unlink()
        (path / f"{name}.zstd").write_bytes(raw)
        shard |= {
            "compression": "zstd",
            "zip_data": {"basename": f"{name}.zstd", "bytes": len(raw)},
        }
    (path / "index.json").write_text(json.dumps(index))
    return path, said, expected


def litdata(bare, files):
    def write(folder, documents):
        write_litdata(folder / "chunks", documents, bare=bare, files=files)
        return folder / "chunks", {}, documents

    return write


EVERY = {
    **WRITERS,
    "parquet, two files": parquet,
    "arrow with a footer": arrow(pa.ipc.new_file),
    "arrow as a stream": arrow(pa.ipc.new_stream),
    "a saved dataset": saved,
    "levanter": levanter(1),
    "levanter, three shards": levanter(3),
    "mds": exported("mds"),
    "mds, compressed": packed,
    "litdata": litdata(bare=True, files=1),
    "litdata, three chunks": litdata(bare=True, files=3),
    "litdata, coded": litdata(bare=False, files=2),
    "arrays": exported("npy"),
}

NAMED = {
    "a saved dataset": "state.json",
    "mds": "index.json",
    "mds, compressed": "index.json",
    "litdata": "index.json",
    "litdata, three chunks": "index.json",
    "litdata, coded": "index.json",
    "arrays": "document_ends.npy",
}

FOLDERS = {
    "parquet, two files",
    "levanter",
    "levanter, three shards",
    "datatrove, three files of uint32",
    "llm.c kin",
    "llm.c, four shards of uint32",
    "OLMo, two files",
}
