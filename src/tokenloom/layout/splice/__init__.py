"""Takes lengths of documents → gives (document, t, s) schedules, and from them rows."""
