"""Hugging Face `datasets` reads an export to Parquet: by_datasets.py FOLDER CACHE COLUMN…"""

import sys
from pathlib import Path

import datasets
from told import tell

folder, cache, *names = sys.argv[1:]
files = [str(path) for path in sorted(Path(folder).glob("part-*.parquet"))]
rows = datasets.load_dataset("parquet", data_files=files, cache_dir=cache, split="train")
tell(rows["input_ids"], {name: rows[name] for name in names})
