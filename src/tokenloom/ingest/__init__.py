"""Takes files of text, or records → gives a published store; the room of `tokenloom.build`.

Killed at any instant and run again, it writes the same bytes.
"""
