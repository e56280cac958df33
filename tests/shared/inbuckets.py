"""Folders of files, put into a bucket."""

import itertools
import os

_NUMBERS = itertools.count()


def uploaded(bucket, folder, path=None):
    """The URL of a path below a folder (default: the folder), all of which is in a bucket now."""
    url = bucket.upload(folder, f"folder-{next(_NUMBERS)}")
    inside = os.path.relpath(path or folder, folder)
    return url if inside == "." else f"{url}/{inside}"


def key_of(bucket, url):
    """The name of an object in the bucket."""
    return url.removeprefix(f"{bucket.url}/")
