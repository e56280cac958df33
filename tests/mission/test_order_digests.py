"""Six reference orders, pinned: a run that was started today must find its order in ten years.

If one of these digests changes, every run made with it changes. That is allowed only together with
a new ORDER_VERSION, the old one staying runnable.
"""

import hashlib

import numpy as np
import pytest

from tokenloom.order import ORDER_VERSION, Blocks, block, era, full


def unequal():
    """5,000 blocks of 0 to 96 rows."""
    return Blocks.cut(np.concatenate([[0], np.cumsum(np.arange(5000) * 37 % 97)]))


DIGESTS = {
    "full n=10^9": (
        lambda: full(10**9, seed=1),
        "dbd80ad9d40f758480dd42c8784b6ba462d429051408ae1d3ea2f9132db20e32",
    ),
    "linear n=10^6": (
        lambda: full(10**6, seed=2, perm_type="linear"),
        "fcf86c6a5de9e141007c7f2a8b59d9d9a29d60d69585459a2a6037622a2cd1e4",
    ),
    "era of 1,024": (
        lambda: era(10**6, 1024, seed=3, epoch=1),
        "c324b79fe57e97e9a04b9b2b25c8e4af4e0622361750a5c952879325f2c813c4",
    ),
    "block 128 x 8": (
        lambda: block(10**6, 128, 8, seed=4, source="wiki"),
        "7fd410134d550e44c43172f361f705dcd443a0325fa292ca0840c76f80461808",
    ),
    "block 128 x 8 in 64 lanes": (
        lambda: block(10**6, 128, 8, lanes=64, seed=5, epoch=7),
        "b04827c543e8e938a95cee8f97d4bfb4c8b1d1263e153386f1d6659c7d7d03eb",
    ),
    "block over unequal blocks": (
        lambda: block(unequal(), None, 16, lanes=4, seed=6),
        "08de94ad0e2ac6aa11e95828f5cc0c5c0d5a380d05f3611bb52079e6565171ed",
    ),
}


@pytest.mark.parametrize("name", DIGESTS)
def test_reference_orders_keep_their_digests(name):
    make, expected = DIGESTS[name]
    rows = make().map(np.arange(100_000))
    assert hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest() == expected
    assert ORDER_VERSION == 3  # 2: clipped and packed splices, 3: pieces of packed rows of two
