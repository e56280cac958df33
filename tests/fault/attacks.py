"""The register of attacks, and what most of them are made with.

An attack is a function that turns a copy of one good store into a hostile one. The attacks
themselves stand in `hostile_records`, `hostile_content` and `hostile_places`.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

from forge import reseal

Attack = Callable[[Path], None]
ATTACKS: dict[str, Attack] = {}
BENIGN: set[str] = set()  # strange, but nothing that must be refused
ENDLESS: set[str] = set()  # not to be verified: every byte that is declared would be read
OUTSIDE: set[str] = set()  # these lead out of the store, or to what is no file
MARKER = "tokenloom-was-here"  # a file in the working directory that no attack may bring about


class Payload:
    """Unpickling this runs a command."""

    def __reduce__(self):
        return os.system, (f"touch {MARKER}",)


PICKLE = pickle.dumps(Payload())


def attack(name: str, *, benign: bool = False) -> Callable[[Attack], Attack]:
    def register(function: Attack) -> Attack:
        assert name not in ATTACKS, name
        ATTACKS[name] = function
        if benign:
            BENIGN.add(name)
        return function

    return register


def put(record, path, value):
    """Set a value deep inside plain JSON; a missing one is made, `GONE` removes it."""
    *way, last = path
    for step in way:
        record = record[step]
    if value is GONE:
        del record[last]
    else:
        record[last] = value


GONE = object()


def change_manifest(name, *changes, benign=False):
    def function(root):
        def change(record):
            for path, value in changes:
                put(record, path, value)

        reseal(root, manifest=change)

    attack(f"manifest {name}", benign=benign)(function)


def change_shard(name, *changes, benign=False):
    def function(root):
        def change(record):
            for path, value in changes:
                put(record, path, value)

        reseal(root, shard=change)

    attack(f"shard.json {name}", benign=benign)(function)


def write_manifest(root, raw):
    (root / "manifest-000001.json").write_bytes(raw)
