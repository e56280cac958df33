"""The documents of a run, end to end on one line."""
