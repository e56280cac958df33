"""Takes files that other projects wrote → gives readers over them, as if they were a store."""
