"""tokenloom at work on text that is already on this machine; nothing is downloaded.

`__main__` runs the steps of ``steps.py`` in order. The text comes from ``corpus.py``, the tokenizer
from ``tokenizer.py``.
"""
