"""Takes a model and documents → gives P(z) of every window, and what follows from it."""
