"""Takes a run, and an index or a document → gives what is trained there, or where it is trained."""
