"""Takes orders, stores and loaders → gives reproducible measurements of them: `tokenloom bench`."""
