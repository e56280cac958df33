"""Takes iterators without a length → gives them packed, mixed or shuffled, with an exact state.

Where lengths are known, stores do the same at any index; these are for true streams.
"""
