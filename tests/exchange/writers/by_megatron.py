"""Megatron's own builder writes data/text_document.{bin,idx}."""

import os

import numpy as np
import torch
from given import documents, tell
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

os.makedirs("data", exist_ok=True)
builder = IndexedDatasetBuilder("data/text_document.bin", dtype=np.uint16)
for ids in documents():
    builder.add_item(torch.tensor(ids))
    builder.end_document()
builder.finalize("data/text_document.idx")
tell(documents())
