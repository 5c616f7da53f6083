"""Whether what training reads and writes is there: checkout, cache, outputs, temporary folder."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tielab.doctor.findings import FAIL, OK, WARN, Finding
from tielab.overview.text import size_text
from tielab.slots import devices_folder, slots_folder, try_lock

LITTLE, TOO_LITTLE = 5e9, 2e8
"""Bytes free on a disk: a sweep's checkpoints may fill the first, a run's the second."""
CHECKOUT = Path(__file__).parents[3]


def check_checkout() -> Iterator[Finding]:
    """That train.py and conf/ are there: the package alone does not train."""
    missing = [name for name in ("train.py", "conf/config.yaml") if not (CHECKOUT / name).is_file()]
    if missing:
        yield Finding(
            "checkout", FAIL, f"{CHECKOUT} lacks {', '.join(missing)}: this is the package alone",
            "clone the repository and pip install -e . in it",
        )  # fmt: skip
    else:
        here = " (here)" if Path.cwd() == CHECKOUT else f": python {CHECKOUT / 'train.py'}"
        yield Finding("checkout", OK, f"train.py and conf/{here}")


def check_outputs() -> Iterator[Finding]:
    """That runs can be written below this folder."""
    yield _writable("outputs", Path("outputs"), "go to a folder of yours, or train with output_dir=FOLDER")


def check_cache() -> Iterator[Finding]:
    """That tokens can be cached, how much is there, and what crashed builds have left."""
    cache = cache_folder()
    yield _writable("cache", cache, "export TIELAB_CACHE=FOLDER, a folder you can write")
    entries = sorted(cache.glob("*/meta.json"))
    size = sum(file.stat().st_size for entry in entries for file in entry.parent.iterdir() if file.is_file())
    leftovers = [path for path in cache.glob(".*-*") if path.is_dir() and not _is_built(path)]
    found = f"{len(entries)} tokenized texts, {size_text(size)}"
    if leftovers:
        yield Finding(
            "cache entries", WARN, f"{found}; {len(leftovers)} left by builds that were killed",
            f"rm -r {' '.join(map(str, leftovers))}",
        )  # fmt: skip
    else:
        yield Finding("cache entries", OK, found)


def cache_folder() -> Path:
    """Where ``conf/`` keeps tokens unless a run says otherwise."""
    return Path(os.environ.get("TIELAB_CACHE") or Path.home() / ".cache" / "tielab").expanduser()


def _is_built(folder: Path) -> bool:
    """Whether some process is writing this half of an entry now."""
    lock = folder.with_name(folder.name.removeprefix(".").rpartition(".")[0] + ".lock")
    if not lock.is_file():
        return False
    descriptor = try_lock(lock)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None


def check_temporary() -> Iterator[Finding]:
    """That jobs can share this machine's GPUs by the files in the temporary folder."""
    folder = slots_folder()
    devices = [path for path in devices_folder().glob("*") if not path.name.startswith("line-")]
    held = [path.name for path in devices if _is_held(path)]
    used = f"; GPUs in use by runs of yours: {', '.join(held)}" if held else ""
    finding = _writable("temporary folder", folder, "export TMPDIR=FOLDER, a folder you can write")
    yield Finding(finding.name, finding.level, finding.found + used, finding.remedy)
    if Path(tempfile.gettempdir()) == Path.cwd():
        yield Finding("TMPDIR", WARN, "is this folder: no other was writable", "export TMPDIR=FOLDER")


def _is_held(path: Path) -> bool:
    descriptor = try_lock(path)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None


def _writable(name: str, folder: Path, remedy: str) -> Finding:
    """Whether a folder, or the one it would be made in, takes a file, and how much its disk has left."""
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        return Finding(name, FAIL, f"{folder} cannot be written ({error.strerror})", remedy)
    free = shutil.disk_usage(place).free
    found = f"{folder}{'' if folder.exists() else ' (not there yet)'}, {size_text(free)} free"
    if free < LITTLE:
        level = FAIL if free < TOO_LITTLE else WARN
        return Finding(name, level, found, f"free some space, or {remedy}")
    return Finding(name, OK, found)
