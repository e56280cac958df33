"""Settings of other trainers, recognised by their keys and read as runs; `tokenloom.load` asks."""
