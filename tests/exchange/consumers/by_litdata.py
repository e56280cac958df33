"""LitData reads an export to Parquet through its own loader: by_litdata.py FOLDER COLUMN…"""

import sys

from litdata import StreamingDataset, index_parquet_dataset
from litdata.streaming.item_loader import ParquetLoader
from told import tell

index_parquet_dataset(sys.argv[1])
dataset = StreamingDataset(sys.argv[1], item_loader=ParquetLoader())
rows = [dataset[i] for i in range(len(dataset))]
columns = {name: [row[name] for row in rows] for name in sys.argv[2:]}
tell([row["input_ids"] for row in rows], columns)
