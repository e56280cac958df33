"""Takes documents of token ids → gives bytes on disk, and from there any range of them, checked.

One seam to write through (`files`), one to read through (`byte_source`).
"""
