"""A study of memorization on any machine: `python -m examples.memorization`."""
