"""Takes answers of evaluations → gives figures about what a model has learned."""
