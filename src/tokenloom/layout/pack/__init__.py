"""Takes lengths of documents → gives bins, and from them rows of packed documents."""
