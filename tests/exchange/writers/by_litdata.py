"""LitData writes chunks to data/chunks (a TokensLoader's) and data/items (the default loader's)."""

import torch
from given import documents, tell
from litdata import TokensLoader, optimize


def ids_of(number):
    return torch.tensor(documents()[number], dtype=torch.int32)


if __name__ == "__main__":
    inputs = list(range(len(documents())))
    common = {"fn": ids_of, "inputs": inputs, "num_workers": 1, "chunk_bytes": "4KB"}
    optimize(output_dir="data/chunks", item_loader=TokensLoader(), **common)
    optimize(output_dir="data/items", **common)
    tell(documents())
