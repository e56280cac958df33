"""A cache that Levanter's own code wrote and tests/golden keeps, copied to caches/wiki/train.

The package on the registry has no TreeCache, so nothing is written here. zarr-python tells the
documents, and their hashes are those that were noted when Levanter wrote them.
"""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import zarr
from given import tell

CACHE = Path(__file__).parents[2] / "golden/levanter_caches/text_int32"

shutil.copytree(CACHE, "caches/wiki/train", ignore=shutil.ignore_patterns("expected.json"))
leaf = "caches/wiki/train/input_ids"
offsets = zarr.open_array(f"{leaf}/offsets", mode="r")
ends = offsets[1 : int(offsets[0]) + 1].tolist()
flat = zarr.open_array(f"{leaf}/data", mode="r")[: ends[-1]]
documents = np.split(flat, ends[:-1])
noted = json.loads((CACHE / "expected.json").read_text())["leaves"]["input_ids"]
hashes = [hashlib.sha256(ids.astype("<i8").tobytes()).hexdigest() for ids in documents]
assert hashes == noted["doc_sha256_int64_le"], "not what Levanter wrote"
tell(documents)
