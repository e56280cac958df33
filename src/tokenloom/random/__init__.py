"""Takes a seed and a path of names → gives keys, and permutations of range(n) with an inverse.

No state and no generator object: the same path gives the same key on every machine.
"""
