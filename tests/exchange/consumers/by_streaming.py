"""MosaicML's streaming reads an export: by_streaming.py FOLDER COLUMN…

Its vision package wants torchvision when it is imported, for classes that nothing here uses: empty
modules take its place, after transformers has looked and found none.
"""

import sys
import types

import transformers.feature_extraction_utils  # noqa: F401
from told import tell

for name, content in {
    "torchvision": {},
    "torchvision.datasets": {"VisionDataset": object},
    "torchvision.transforms": {},
    "torchvision.transforms.functional": {"to_tensor": None},
}.items():
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(content)

from streaming import LocalDataset  # noqa: E402

dataset = LocalDataset(sys.argv[1])
rows = [dataset[i] for i in range(len(dataset))]
columns = {name: [row[name] for row in rows] for name in sys.argv[2:]}
tell([row["input_ids"] for row in rows], columns)
