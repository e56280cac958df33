"""Takes a session and a query → gives one page of the explorer, from a pure function."""
