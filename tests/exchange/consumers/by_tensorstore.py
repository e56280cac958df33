"""TensorStore reads an export to Levanter, in the way of its JaggedArrayStore: FOLDER COLUMN…"""

import sys

import tensorstore as ts
from told import tell

folder, *names = sys.argv[1:]


# what Levanter's reader demands of the metadata; TensorStore refuses an array that differs
DEMANDED = {
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [262144 * 512]}},
    "codecs": [
        {
            "name": "sharding_indexed",
            "configuration": {
                "chunk_shape": [262144],
                "codecs": [{"name": "blosc", "configuration": {"clevel": 5}}],
            },
        }
    ],
}


def array(leaf, kind):
    place = {"driver": "file", "path": f"{folder}/{leaf}/{kind}"}
    spec = {"driver": "zarr3", "kvstore": place, "metadata": DEMANDED}
    return ts.open(spec, open=True, read=True).result()


def rows(leaf):
    offsets, data = array(leaf, "offsets"), array(leaf, "data")
    count = int(offsets[0].read().result())
    ends = offsets[1 : count + 1].read().result() if count else []
    with ts.Batch():
        starts = [0, *map(int, ends)][:-1]
        found = [data[a:b].read() for a, b in zip(starts, map(int, ends), strict=True)]
    return [one.result() for one in found]


tell(rows("input_ids"), {name: rows(name) for name in names})
