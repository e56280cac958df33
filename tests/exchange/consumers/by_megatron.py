"""Megatron's own IndexedDataset reads an export: by_megatron.py FOLDER."""

import sys

from megatron.core.datasets.indexed_dataset import IndexedDataset
from told import tell

dataset = IndexedDataset(f"{sys.argv[1]}/text_document")
edges = dataset.document_indices
assert len(dataset) == len(edges) - 1, "one sequence for each document"
tell(dataset[i] for i in range(len(dataset)))
