"""Hashes of large files, remembered on this machine until something touches the files. Imports no torch.

Hashing 5 GB takes seconds, and every process of every job asks. What is remembered lies in this user's
folder for temporary files, under the place, size, times and inode of the files. Any write changes the time
of change, which nobody can set. A byte that a failing disk changes is noticed once that folder is emptied,
which most machines do when they start.
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tielab.errors import RequestError
from tielab.record import write_atomic
from tielab.slots import slots_folder

REMEMBERED_FROM = 1 << 28
"""Bytes; smaller files are hashed each time, in a fraction of a second."""
SETTLED_SECONDS = 2.0
"""Since the last change: a later one in the same tick of the file system's clock would not show."""

Look = list[list[int | str]]


def remembered(files: Sequence[Path], rules: str, compute: Callable[[], str]) -> str:
    """What ``compute`` makes of the bytes of files, from memory if they are large and as they were.

    Args:
        rules: what else the result depends on.

    Raises:
        OSError: a file is not there, or may not be looked at.
    """
    seen = _look(files)
    if sum(path.stat().st_size for path in files) < REMEMBERED_FROM:
        return compute()
    key = hashlib.sha256(json.dumps([rules, seen]).encode()).hexdigest()
    place = _place_of(key)
    if place is not None:
        with contextlib.suppress(OSError):  # it is not there, or somebody empties the folder
            return place.read_text()
    result = compute()
    newest = max(path.stat().st_ctime for path in files)
    if place is not None and _look(files) == seen and time.time() - newest > SETTLED_SECONDS:
        with contextlib.suppress(OSError):
            write_atomic(place, result)
    return result


def hash_of_file(path: Path) -> str:
    """sha256 of the bytes of a file, remembered.

    Raises:
        OSError: it cannot be read.
    """

    def compute() -> str:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    return remembered([path], "sha256", compute)


def _place_of(key: str) -> Path | None:
    """Where a hash is remembered; null where nothing can be, which costs time and nothing else."""
    try:
        folder = slots_folder() / "hashes"
        folder.mkdir(exist_ok=True)
    except (OSError, RequestError):
        return None
    return folder / key


def _look(files: Sequence[Path]) -> Look:
    found = [(os.path.abspath(path), path.stat()) for path in files]  # noqa: PTH100
    return [[name, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino, s.st_dev] for name, s in found]
