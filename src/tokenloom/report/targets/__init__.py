"""Takes a store, a certificate or answers of an evaluation → gives a report on it."""
