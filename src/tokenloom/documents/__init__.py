"""Takes a store → gives the documents of a run, end to end on one line."""
