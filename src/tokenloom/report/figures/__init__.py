"""Takes the subject of a report → gives its figures, each from a pure function."""
