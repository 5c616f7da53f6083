"""Find the runs below some folders and read their records."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tielab.errors import RequestError
from tielab.record import RECORD_NAME, STATUSES, Record, read_record


@dataclass(frozen=True)
class CollectedRun:
    """A run's folder, as it was reached, and what its record says."""

    folder: Path
    record: Record
    shared_keys: tuple[str, ...] = ()
    """Keys of its tying scheme that have one value in all runs it is compared with: they name no arm."""


@dataclass(frozen=True)
class UnreadableRun:
    """A folder that could not be read, and why."""

    folder: Path
    reason: str


class Collected(NamedTuple):
    runs: list[CollectedRun]
    """By start time, then folder."""
    unreadable: list[UnreadableRun]


def collect_runs(folders: list[Path]) -> Collected:
    """Read every run in or below the folders, each once, whatever links lead to it.

    Raises:
        RequestError: a folder does not exist, or there is no readable run in any of them.
    """
    runs: list[CollectedRun] = []
    unreadable: list[UnreadableRun] = []
    seen: set[Path] = set()
    for folder in folders:
        if not folder.is_dir():
            raise RequestError(f"{folder}: no such folder; give folders of runs or sweeps")
        for found in _walk(folder, seen, unreadable):
            try:
                runs.append(CollectedRun(found, read_checked(found)))
            except (RequestError, OSError) as error:
                unreadable.append(UnreadableRun(found, str(error)))
    if not runs:
        raise RequestError(_nothing_found(folders, unreadable))
    runs.sort(key=lambda run: (run.record.started_at or "", str(run.folder)))
    return Collected(runs, unreadable)


def _walk(folder: Path, seen: set[Path], unreadable: list[UnreadableRun]) -> Iterator[Path]:
    real = folder.resolve()
    if real in seen:
        return
    seen.add(real)
    try:
        # Real folders before links: a run is then called by its own name, not by a link's.
        children = sorted(folder.iterdir(), key=lambda path: (path.is_symlink(), path.name))
    except OSError as error:
        unreadable.append(UnreadableRun(folder, f"cannot be listed ({error.strerror})"))
        return
    if any(child.name == RECORD_NAME for child in children):
        yield folder
    for child in children:
        if child.is_dir():
            yield from _walk(child, seen, unreadable)


def read_checked(folder: Path) -> Record:
    """A run's record, if its fields are what a report reads.

    Raises:
        RequestError: as ``read_record``, or a field is of another kind.
    """
    record = read_record(folder)
    expected = {
        "config": dict, "data": dict, "parameters": dict, "tied": bool, "seed": int, "started_at": str | None,
    }  # fmt: skip
    for name, kind in expected.items():
        if not isinstance(getattr(record, name), kind):
            raise RequestError(f"{folder / RECORD_NAME} is not a record: {name}={getattr(record, name)!r}")
    if record.status not in STATUSES:
        raise RequestError(f"{folder / RECORD_NAME} is not a record: status={record.status!r}")
    return record


def _nothing_found(folders: list[Path], unreadable: list[UnreadableRun]) -> str:
    places = ", ".join(str(folder) for folder in folders) or "no folder"
    if unreadable:
        return f"{places}: {len(unreadable)} found, none readable; first: {unreadable[0].reason}"
    return f"{places}: no run there (no {RECORD_NAME} in or below); give folders of runs or sweeps"
