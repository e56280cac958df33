"""Documents of token ids as bytes on disk, and any range of them from there, checked.

One seam to write through (`files`), one to read through (`byte_source`).
"""
