"""Takes a run → gives pages about it to a browser: `tokenloom explore`."""
