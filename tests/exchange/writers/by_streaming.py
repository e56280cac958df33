"""MosaicML's streaming writes an MDS dataset to data/mds and, compressed, to data/packed."""

import sys
import types

import numpy as np
import transformers.feature_extraction_utils  # noqa: F401
from given import documents, tell

for name, content in {
    "torchvision": {},
    "torchvision.datasets": {"VisionDataset": object},
    "torchvision.transforms": {},
    "torchvision.transforms.functional": {"to_tensor": None},
}.items():
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(content)

from streaming import MDSWriter  # noqa: E402

for out, encoding, compression in (
    ("data/mds", "ndarray:int32", None),
    ("data/packed", "ndarray:uint16", "zstd:3"),
    ("data/foundry", "bytes", None),  # as LLM Foundry: the bytes of int64
):
    columns = {"tokens": encoding, "source": "str"}
    with MDSWriter(out=out, columns=columns, compression=compression, size_limit=4096) as writer:
        for number, ids in enumerate(documents()):
            array = np.array(ids, {"bytes": np.int64}.get(encoding) or encoding[8:])
            tokens = array.tobytes() if encoding == "bytes" else array
            writer.write({"tokens": tokens, "source": f"page {number}"})
tell(documents())
