"""Which local files a request names. Imports no torch."""

import glob
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from tielab.errors import RequestError


def find_files(paths: Iterable[str]) -> list[Path]:
    """Every regular file that files, folders and globs name, once, sorted by its absolute path.

    Reads none of them.

    Raises:
        RequestError: a path is missing, empty, matches nothing or may not be read.
    """
    found: set[Path] = set()
    for path in paths:
        try:
            found.update(Path(os.path.abspath(file)) for file in _expand(path))  # noqa: PTH100
        except OSError as error:
            refuse_file(Path(error.filename or path), error)
    return sorted(found)


def _expand(path: str) -> list[Path]:
    named = Path(path).expanduser()
    if named.is_file():
        if not named.stat().st_size:
            raise RequestError(f"data.paths: {path} is an empty file; name a file with text")
        return [named]
    # Path.glob refuses absolute patterns.
    globbed = [named] if named.is_dir() else glob.glob(str(named), recursive=True)  # noqa: PTH207
    matches = [Path(match) for match in globbed]
    if not matches:
        raise RequestError(f"data.paths: {path}: nothing there; name a file, a folder or a glob that matches")
    files = [file for match in matches for file in ([match] if match.is_file() else _files_below(match))]
    # An empty file in a folder (an __init__.py, say) holds no text to lose.
    files = [file for file in files if file.stat().st_size]
    if not files:
        raise RequestError(f"data.paths: {path} holds no file with text; name another")
    return files


def _files_below(folder: Path) -> list[Path]:
    """All regular files in a folder and its subfolders, hidden ones left out."""
    found: list[Path] = []
    for root, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(root, name) for name in names if not name.startswith(".")]
    return [file for file in found if file.is_file()]


def _raise(error: OSError) -> NoReturn:
    # os.walk skips a folder it may not enter: the corpus would silently be smaller.
    raise error


def refuse_file(path: Path, error: OSError) -> NoReturn:
    raise RequestError(
        f"{path} cannot be read ({error.strerror}); check its permissions or name another"
    ) from None
