"""Takes a run file → gives its run, every problem in it by line, and the file of any run.

The file is what `tokenloom.load` reads and `tokenloom.save` writes; docs/run-files.md shows its
shape. Nothing here is a second description of a setting: the keys, types and defaults of a file are
those of the functions and records that take them.

>>> import tokenloom as tl
>>> sorted(tl.runfiles.json_schema()["properties"])[:4]
['$schema', 'build', 'edits', 'evaluate']
"""

from __future__ import annotations

from tokenloom.runfiles.schema import json_schema
from tokenloom.runfiles.starter import starter
from tokenloom.runfiles.written import run_mapping

__all__ = ["json_schema", "run_mapping", "starter"]
