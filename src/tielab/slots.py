"""Slots that jobs share, such as the GPUs of this machine: one holder at any time, or as many as all allow.

A slot is a file that its holder has locked. The kernel unlocks it however the holder ends, so a
killed job leaves no slot taken. Imports no torch.
"""

import contextlib
import ctypes
import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tielab.errors import RequestError

SECONDS_BETWEEN_TRIES = 0.1


def slots_folder() -> Path:
    """This user's folder for slots on this machine.

    Raises:
        RequestError: somebody else made it.
    """
    folder = Path(tempfile.gettempdir(), f"tielab-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise RequestError(f"{folder} belongs to somebody else; set TMPDIR to a folder of yours")
    return folder


@contextlib.contextmanager
def hold_slots(
    names: Sequence[str],
    count: int,
    folder: Path,
    give_up: Callable[[], bool] = lambda: False,
    say: Callable[[], None] = lambda: None,
    holders: int = 1,
) -> Iterator[list[str]]:
    """Hold ``count`` of these slots, all or none, and yield their names; none if it was given up.

    Args:
        holders: how many may hold one of them at a time; only those that say the same number share it.
        give_up: asked while waiting for others.
        say: called once if the wait is longer than a second.

    Raises:
        RequestError: there are fewer slots than that.
    """
    if count > len(names):
        raise RequestError(f"{count} of the slots {', '.join(names) or 'none'} were asked for")
    folder.mkdir(parents=True, exist_ok=True)
    # Else a job that needs several would starve while others take each free one.
    line = folder / f"line-{hashlib.sha256(repr(sorted(names)).encode()).hexdigest()[:16]}"
    first_in_line: int | None = None
    taken: dict[str, list[int]] = {}
    started, said = time.monotonic(), False
    try:
        while not taken and not give_up():
            if first_in_line is None:
                first_in_line = try_lock(line)
            if first_in_line is not None:
                taken = _take(names, count, folder, holders)
            if not taken:
                if not said and time.monotonic() - started > 1:
                    say()
                    said = True
                time.sleep(SECONDS_BETWEEN_TRIES)
        if first_in_line is not None:
            os.close(first_in_line)
            first_in_line = None
        yield list(taken)
    finally:
        _give_back(taken)
        if first_in_line is not None:
            os.close(first_in_line)


def _take(names: Sequence[str], count: int, folder: Path, holders: int) -> dict[str, list[int]]:
    """``count`` free slots with their open files, or none: a part held while waiting could deadlock."""
    taken: dict[str, list[int]] = {}
    for place in range(holders):  # the first place of every slot before the second of any
        for name in names:
            if name not in taken and len(taken) < count:
                descriptors = _try_place(folder / name.replace("/", "_"), place, holders)
                if descriptors:
                    taken[name] = descriptors
    if len(taken) == count:
        return taken
    _give_back(taken)
    return {}


def _give_back(taken: dict[str, list[int]]) -> None:
    for descriptors in taken.values():
        for descriptor in descriptors:
            os.close(descriptor)


def _try_place(path: Path, place: int, holders: int) -> list[int]:
    """The open files of one place of a slot; none if it is taken, or shared by another number of holders."""
    if holders == 1:
        whole = try_lock(path)
        return [] if whole is None else [whole]
    shared = _try_share(path, holders)
    own = None if shared is None else try_lock(path.with_name(f"{path.name}.{place}"))
    if own is None and shared is not None:
        os.close(shared)
    return [] if shared is None or own is None else [shared, own]


def _try_share(path: Path, holders: int) -> int | None:
    """A lock on a slot that others have too, if they said the same number of holders; else None."""
    alone = try_lock(path)
    if alone is not None:
        os.truncate(alone, 0)
        os.pwrite(alone, str(holders).encode(), 0)
        os.close(alone)  # to share a lock is to let go of it first; so what was written is read again
    shared = try_lock(path, fcntl.LOCK_SH)
    if shared is not None and os.pread(shared, 20, 0) != str(holders).encode():
        os.close(shared)
        return None
    return shared


def try_lock(path: Path, kind: int = fcntl.LOCK_EX) -> int | None:
    """Lock a file until the returned descriptor is closed; None if somebody else has it."""
    while True:
        # Not inheritable, as all of Python's: a child does not keep the slot of a parent that has gone.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if os.fstat(descriptor).st_nlink:
            # By age: systemd's cleaner leaves a locked file alone, older ones do not.
            os.utime(descriptor)
            return descriptor
        os.close(descriptor)  # deleted before it was locked: the next to come would lock a new one


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait until no other process holds this file, and hold it meanwhile."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def devices_folder() -> Path:
    """Where the GPUs' slots are; an allocation of SLURM numbers its own from 0."""
    return slots_folder() / f"devices{os.environ.get('SLURM_JOB_ID', '')}"


def device_names(num_gpus: int) -> list[str]:
    """The GPUs that a process started now could use, as ``CUDA_VISIBLE_DEVICES`` names them.

    Args:
        num_gpus: how many the driver shows.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(i) for i in range(num_gpus)] if visible is None else visible.split(",")
    return [name.strip() for name in names][:num_gpus]


def num_gpus() -> int:
    """GPUs that a process started now could use, asked of the driver: importing torch would take seconds."""
    for library, init, count in (
        ("libcuda.so.1", "cuInit", "cuDeviceGetCount"),
        ("libamdhip64.so", "hipInit", "hipGetDeviceCount"),
    ):
        try:
            driver = ctypes.CDLL(library)
        except OSError:
            continue
        found = ctypes.c_int(0)
        if getattr(driver, init)(0) == 0 and getattr(driver, count)(ctypes.byref(found)) == 0:
            return found.value
    return 0
