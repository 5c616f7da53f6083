"""Which runs to compare, and which of the others repeat them with another seed. Imports no torch."""

from pathlib import Path

from tielab.errors import RequestError
from tielab.record import RECORD_NAME, Record, read_record
from tielab.report.arms import arm_name, arm_of
from tielab.report.collect import CollectedRun
from tielab.report.settings import (
    Setting,
    identity,
    seed_label,
    seeds_of,
    setting_of,
    short_name,
    varying_columns,
)

CHECKPOINTS = "checkpoints/*.ckpt"


def initial_seed(record: Record) -> int:
    """The seed of a run's initial weights."""
    seed: int = seeds_of(record)[1]
    return seed


def finished_run(folder: Path) -> CollectedRun:
    """The finished run in a folder.

    Raises:
        RequestError: no run is there, or it did not finish.
    """
    record = read_record(folder)
    if not record.finished:
        message = str((record.error or {}).get("message") or "").strip().splitlines()
        reason = f": {message[0]}" if message else ""
        raise RequestError(f"{folder} is {record.status}{reason}; finish it with tielab resume {folder}")
    return CollectedRun(folder, record)


def repeats(one: Record, other: Record) -> bool:
    """Whether two runs were asked for the same, but for seeds: of the initial weights for sure."""
    same = arm_name(one.config) == arm_name(other.config) and identity(setting_of(one)) == identity(
        setting_of(other)
    )
    return same and initial_seed(one) != initial_seed(other)


def repetitions_beside(run: CollectedRun) -> list[CollectedRun]:
    """The finished runs in the same folder of runs that repeat one with another seed, by folder name."""
    found = []
    for path in sorted(run.folder.resolve().parent.glob(f"*/{RECORD_NAME}")):
        try:
            beside = finished_run(path.parent)
        except (RequestError, OSError):
            continue  # nobody asked for it
        if repeats(run.record, beside.record) and any(path.parent.glob(CHECKPOINTS)):
            found.append(beside)
    return found


def differing_keys(runs: list[CollectedRun]) -> list[str]:
    """The settings in which runs differ, tying scheme and seeds left out."""
    settings: list[Setting] = [setting_of(run.record) for run in runs]
    return [short_name(key) for key in varying_columns(settings)]


def differences(runs: list[CollectedRun]) -> list[str]:
    """A note on what differs between runs beside arm and seed, if anything does."""
    keys = differing_keys(runs)
    return [f"the runs also differ in {', '.join(keys)}"] if keys else []


def description(run: CollectedRun) -> str:
    """A run's folder, arm and seed."""
    return f"{run.folder} ({arm_of(run)}, seed {seed_label(seeds_of(run.record))})"
