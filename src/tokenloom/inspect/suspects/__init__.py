"""Takes a run and the losses of its steps → gives the documents that they blame."""
