"""datatrove reads an export to Parquet, and raw tokens: by_datatrove.py FOLDER COLUMN…

Of a folder with a .bin it reads windows of one token and tells the tokens of the file as one
document.
"""

import sys
from pathlib import Path

from datatrove.pipeline.readers import ParquetReader
from datatrove.utils.dataset import DatatroveFileDataset
from told import tell

folder, *names = sys.argv[1:]
raw = sorted(Path(folder).glob("*.bin"))
if raw:
    dataset = DatatroveFileDataset(str(raw[0]), seq_len=0, token_size=int(names[0]))
    tell([[int(dataset[i]["input_ids"][0]) for i in range(len(dataset))]])
else:
    rows = []

    def adapter(self, data, path, number):
        rows.append(data)
        return {"text": "x", "id": str(number), "metadata": {}}

    list(ParquetReader(folder, adapter=adapter, glob_pattern="*.parquet").run())
    tell([row["input_ids"] for row in rows], {name: [row[name] for row in rows] for name in names})
