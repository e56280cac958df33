"""Flat arrays as nanoGPT, llm.c and OLMo write them, which is a few lines of NumPy in each."""

import os

import numpy as np
from given import documents, tell

os.makedirs("data", exist_ok=True)
flat = np.array([token for ids in documents() for token in ids], np.uint16)
flat.tofile("data/train.bin")  # nanoGPT: prepare.py
first = np.concatenate([np.zeros(1, np.uint16), flat[:-1]])  # llm.c puts EOS before a document
header = np.zeros(256, np.int32)
header[:3] = 20240520, 1, len(first)
with open("data/fineweb_train_000001.bin", "wb") as out:
    out.write(header.tobytes() + first.tobytes())
memory = np.memmap("data/part-0-00000.npy", np.uint16, "w+", shape=flat.shape)  # OLMo: no header
memory[:] = flat
memory.flush()
tell(documents())
