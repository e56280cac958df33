"""Hugging Face `datasets` saves rows to data/saved and writes data/rows.parquet."""

import datasets
from given import documents, tell

rows = {"input_ids": documents(), "source": [f"page {n}" for n in range(len(documents()))]}
dataset = datasets.Dataset.from_dict(rows)
dataset.save_to_disk("data/saved", num_shards=3)
dataset.to_parquet("data/rows.parquet")
tell(documents())
