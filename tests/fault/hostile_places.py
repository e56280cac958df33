"""Hostile places: names and links that lead out of the store, or to what is no file."""

from __future__ import annotations

import os
import shutil

from attacks import ATTACKS, OUTSIDE, attack, change_manifest, change_shard
from forge import reseal

BEFORE = set(ATTACKS)

for place in ("../../x", "/etc", "/etc/passwd", "shard-00000/../..", "..", "", "shard-0", "\x00"):
    change_manifest(f"a shard named {place!r}", (["shards", 0, "name"], place))
for place in ("../../secret.txt", "/etc/passwd", "inputs-000001.json/../x", "", "\x00", ".lock"):
    about = {"bytes": 6, "sha256": "0" * 64}
    change_manifest(f"a file named {place!r}", (["files", place], about))
    change_manifest(f"a shard file named {place!r}", (["shards", 0, "files", place], 6))
    change_manifest(f"a tokenizer in {place!r}", (["tokenizer", "file"], place), benign=not place)
    change_shard(f"a file named {place!r}", (["files", place], about))
    change_shard(f"a column named {place!r}", (["columns", place], {"dtype": "uint8"}))


def outside(root):
    """A directory beside the store, with a whole copy of its first shard and a secret."""
    other = root.parent / f"{root.name}.outside"
    other.mkdir()
    (other / "secret.txt").write_text("secret")
    shutil.copytree(root / "shard-00000", other / "shard-00000")
    return other


@attack("a shard that is a link out of the store")
def _(root):
    other = outside(root)
    shutil.rmtree(root / "shard-00000")
    os.symlink(other / "shard-00000", root / "shard-00000")


@attack("a column that is a link out of the store")
def _(root):
    other = outside(root)
    shutil.rmtree(root / "shard-00000/input_ids")
    os.symlink(other / "shard-00000/input_ids", root / "shard-00000/input_ids")


def linked(name, target):
    """A file that is a link, its size declared as what `lstat` says of it."""

    def function(root):
        place = root / name
        place.unlink()
        os.symlink(target(root), place)
        size = os.lstat(place).st_size
        _, _, rest = name.partition("/")

        def manifest(record):
            if rest:
                record["shards"][0]["files"][rest] = size
            else:
                record["files"][name]["bytes"] = size

        if name.startswith("manifest"):
            return
        reseal(root, manifest=manifest)

    return function


for name in (
    "shard-00000/input_ids/c/0",
    "shard-00000/shard.json",
    "shard-00000/docs.parquet",
    "inputs-000001.json",
):
    attack(f"{name} is a link out of the store")(
        linked(name, lambda root, n=name: outside(root) / "secret.txt")
    )
    attack(f"{name} is a link inside the store")(
        linked(name, lambda root: root / "shard-00001/shard.json")
    )


@attack("the manifest is a link out of the store")
def _(root):
    other = outside(root)
    shutil.move(root / "manifest-000001.json", other / "manifest-000001.json")
    os.symlink(other / "manifest-000001.json", root / "manifest-000001.json")


@attack("the manifest is a directory")
def _(root):
    (root / "manifest-000001.json").unlink()
    (root / "manifest-000001.json").mkdir()


@attack("the manifest is a pipe")
def _(root):
    (root / "manifest-000001.json").unlink()
    os.mkfifo(root / "manifest-000001.json")


def special(name, make):
    """A file of a shard that is no file, its size declared as what `lstat` says of it."""

    def function(root):
        place = root / "shard-00000" / name
        place.unlink()
        make(place)
        size = os.lstat(place).st_size

        def manifest(record):
            record["shards"][0]["files"][name] = size

        reseal(root, manifest=manifest)

    return function


for name in ("shard.json", "input_ids/c/0", "docs.parquet"):
    attack(f"{name} is a pipe")(special(name, os.mkfifo))
    attack(f"{name} is a directory")(special(name, os.mkdir))


OUTSIDE |= set(ATTACKS) - BEFORE
