"""Slow, obvious orders: Python's own integers, lists and loops, written from the rules.

Nothing here imports the code under test. Only the names on the paths of keys ("order", "window", …)
are agreed on.
"""

from functools import lru_cache
from itertools import pairwise
from math import gcd, isqrt

WORD = 2**64
GOLDEN = 0x9E3779B97F4A7C15
A, B = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def finalise(word):
    """Splitmix64's last three lines."""
    word = (word ^ word >> 30) * A % WORD
    word = (word ^ word >> 27) * B % WORD
    return word ^ word >> 31


def step(state, word):
    return finalise(((state ^ word) + GOLDEN) % WORD)


def slow_child(parent, *path):
    """Each part begins with its kind (1 integer, 2 string); strings go on with their length."""
    state = parent
    for part in path:
        if isinstance(part, str):
            data = part.encode()
            state = step(step(state, 2), len(data))
            while data:
                state = step(state, int.from_bytes(data[:8], "little"))
                data = data[8:]
        else:
            state = step(step(state, 1), part)
    return state


def slow_key(seed, *path):
    return slow_child(finalise((seed + GOLDEN) % WORD), *path)


def slow_draw(stream, number):
    """Output `number` of a splitmix64 generator whose state starts at `stream`."""
    return finalise((stream + (number + 1) * GOLDEN) % WORD)


@lru_cache(maxsize=1 << 16)
def hash_sort(n, key):
    """The indices in the order of their hashes; ties of the upper 52 bits by index."""
    return sorted(range(n), key=lambda index: (slow_draw(key, index) >> 12, index))


class SlowFeistel:
    """Eight rounds on Z_a x Z_b: l += F(r) mod a, then r += F(l) mod b; beyond n again."""

    def __init__(self, n, key):
        self.n = n
        self.a = isqrt(n)
        if self.a * self.a < n:
            self.a += 1
        self.b = n // self.a + (n % self.a > 0)
        self.keys = [slow_draw(key, number) for number in range(8)]

    def hash(self, half, number, size):
        word = (half ^ self.keys[number]) * A % WORD
        word = (word ^ word >> 32) * B % WORD
        return (word >> 32) * size >> 32

    def forward(self, x):
        while True:
            left, right = divmod(x, self.b)
            for number in range(0, 8, 2):
                left = (left + self.hash(right, number, self.a)) % self.a
                right = (right + self.hash(left, number + 1, self.b)) % self.b
            x = left * self.b + right
            if x < self.n:
                return x

    def inverse(self, y):
        while True:
            left, right = divmod(y, self.b)
            for number in (6, 4, 2, 0):
                right = (right - self.hash(left, number + 1, self.b)) % self.b
                left = (left - self.hash(right, number, self.a)) % self.a
            y = left * self.b + right
            if y < self.n:
                return y


class SlowLinear:
    """a x + b mod n: a is the first draw in [1, n) without a common factor, b the next one."""

    def __init__(self, n, key):
        self.n, self.a, self.b = n, 1, 0
        number = 0
        while n > 1:
            self.a = 1 + slow_draw(key, number) * (n - 1) // WORD
            number += 1
            if gcd(self.a, n) == 1:
                self.b = slow_draw(key, number) * n // WORD
                break

    def forward(self, x):
        return (self.a * x + self.b) % self.n

    def inverse(self, y):
        return (y - self.b) * pow(self.a, -1, self.n) % self.n


def shuffled(items, key, perm_type="feistel"):
    """The list whose place p holds item perm(p)."""
    if not items:
        return []
    n = len(items)
    if perm_type == "linear":
        places = map(SlowLinear(n, key).forward, range(n))
    else:
        places = hash_sort(n, key) if n <= 4096 else map(SlowFeistel(n, key).forward, range(n))
    return [items[place] for place in places]


def order_key(seed, epoch=0, source="main"):
    return slow_key(seed, source, "order", epoch)


def slow_full(n, seed, epoch=0, source="main", perm_type="feistel"):
    key = slow_child(order_key(seed, epoch, source), "full")
    return shuffled(list(range(n)), key, perm_type)


def slow_era(n, length, seed, epoch=0, source="main", perm_type="feistel"):
    root = slow_child(order_key(seed, epoch, source), "era")
    rows = list(range(n))
    out = []
    for number, start in enumerate(range(0, n, length)):
        out += shuffled(rows[start : start + length], slow_child(root, number), perm_type)
    return out


def slow_block(
    blocks, window_blocks, lanes, seed, *, size=None, epoch=0, source="main", perm_type="feistel"
):
    """(row, fraction) at every index; `blocks` are lists of rows, in stored order.

    `size` is the rows of every block but the last, for blocks that are equal by rule.
    """
    root = order_key(seed, epoch, source)
    tail = []
    if size and blocks and len(blocks[-1]) < size:
        *blocks, tail = blocks
    blocks = shuffled(blocks, slow_child(root, "blocks"), perm_type)
    out = []
    for band, first in enumerate(range(0, len(blocks), lanes * window_blocks)):
        members = blocks[first : first + lanes * window_blocks]
        m = len(members)
        here = min(lanes, m)
        queues = []
        for lane in range(here):
            owned = members[lane * m // here : (lane + 1) * m // here]
            rows = [row for block in owned for row in block]
            number = band * lanes + lane
            queues.append(shuffled(rows, slow_child(root, "window", number), perm_type))
        turns = sorted(range(here), key=reversed_bits(here))
        for height in range(max(map(len, queues))):
            alive = [lane for lane in turns if height < len(queues[lane])]
            out += [(queues[lane][height], lane / here) for lane in alive]
    return out + [(row, 0.0) for row in shuffled(tail, slow_child(root, "tail"), perm_type)]


def reversed_bits(count):
    width = len(bin(max(1, count - 1))) - 2

    def backwards(lane):
        return sum(1 << (width - 1 - bit) for bit in range(width) if lane >> bit & 1)

    return backwards


def equal_blocks(n, size):
    return [list(range(start, min(start + size, n))) for start in range(0, n, size)]


def cut_blocks(starts):
    return [list(range(a, b)) for a, b in pairwise(starts)]
