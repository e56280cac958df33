"""zarr-python reads an export to Levanter: by_zarr.py FOLDER COLUMN…"""

import sys

import zarr
from told import tell

folder, *names = sys.argv[1:]


def rows(leaf):
    offsets = zarr.open_array(f"{folder}/{leaf}/offsets", mode="r")
    data = zarr.open_array(f"{folder}/{leaf}/data", mode="r")
    count = int(offsets[0])
    ends = [int(one) for one in offsets[1 : count + 1]] if count else []
    flat = data[: ends[-1]] if ends else []
    return [flat[a:b] for a, b in zip([0, *ends], ends, strict=False)]


tell(rows("input_ids"), {name: rows(name) for name in names})
