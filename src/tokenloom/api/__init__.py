"""Takes what users write → gives what they hold: `Store`, `Documents`, `Dataset`. Thin on purpose.

The work is done in the rooms below; here arguments are read, checked and described.
"""
