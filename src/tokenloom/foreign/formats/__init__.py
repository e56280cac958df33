"""Takes files of one format → gives a description of the documents in them."""
