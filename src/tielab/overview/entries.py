"""What lies below a folder: sweeps and runs, each with how far it has come and what came out.

From records and lists of jobs alone, so that hundreds are listed at once; what cannot be read is an entry
that says so. Imports no torch.
"""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tielab.errors import RequestError, printable, reason_of
from tielab.folder import State, state_of
from tielab.overview.curves import tokens_so_far
from tielab.record import RECORD_NAME, RUN_CONFIG_NAME, Record
from tielab.report.arms import arm_name
from tielab.report.collect import read_checked
from tielab.report.pairing import lookup
from tielab.report.settings import seed_label, seeds_of, study_phase
from tielab.sweep import MANIFEST_NAME, Job, is_sweep, read_sweep

DAMAGED = "damaged"
"""The status of what is there and cannot be read, beside those of ``State``."""
NO_RUNS_BELOW = ("wandb", "checkpoints", "multirun")


@dataclass(frozen=True)
class RunEntry:
    """A run in a list."""

    folder: Path
    status: str
    """As in ``State``, or damaged."""
    reason: str = ""
    """Why it is not finished, in a line."""
    asked: str = ""
    """Of a job: its overrides that not all jobs of the sweep have."""
    arm: str | None = None
    seed: str | None = None
    phase: str | None = None
    """``tune`` or ``report`` in a study."""
    vocab_size: int | None = None
    embed_dim: int | None = None
    bits_per_byte: float | None = None
    perplexity: float | None = None
    tokens: int | None = None
    """Training tokens seen so far."""
    planned_tokens: int | None = None
    """None where the budget is in bytes."""
    seconds: float | None = None
    started_at: str | None = None
    """UTC, ISO 8601."""


@dataclass(frozen=True)
class SweepEntry:
    """A sweep in a list."""

    folder: Path
    jobs: list[RunEntry] = field(default_factory=list)
    reason: str = ""
    """Why its list of jobs cannot be read."""

    @property
    def counts(self) -> dict[str, int]:
        """How many jobs have which status."""
        found: dict[str, int] = {}
        for job in self.jobs:
            found[job.status] = found.get(job.status, 0) + 1
        return found

    @property
    def arms(self) -> list[str]:
        return list(dict.fromkeys(job.arm for job in self.jobs if job.arm is not None))

    @property
    def best(self) -> RunEntry | None:
        """The finished job with the fewest bits per byte."""
        finished = [job for job in self.jobs if job.bits_per_byte is not None]
        return min(finished, key=lambda job: job.bits_per_byte or 0.0, default=None)

    @property
    def started_at(self) -> str | None:
        return min((job.started_at for job in self.jobs if job.started_at), default=None)


@dataclass(frozen=True)
class Listing:
    """The sweeps and the single runs below a folder, each newest first."""

    sweeps: list[SweepEntry]
    runs: list[RunEntry]


def list_folders(folders: Sequence[Path]) -> Listing:
    """Everything in or below some folders; of a single sweep its jobs, in their order.

    Raises:
        RequestError: no such folder, or nothing is there.
    """
    missing = next((folder for folder in folders if not folder.is_dir()), None)
    if missing is not None:
        raise RequestError(f"{missing}: no such folder; name one, or train with python train.py")
    if len(folders) == 1 and is_sweep(folders[0]):
        sweep = sweep_entry(folders[0])
        if sweep.reason and not sweep.jobs:
            raise RequestError(sweep.reason)
        return Listing([], sweep.jobs)
    sweeps, runs = [], []
    seen: set[Path] = set()
    for path in (path for folder in folders for path in _walk(folder, seen)):
        if is_sweep(path):
            sweeps.append(sweep_entry(path))
        else:
            runs.append(run_entry(path))
    if not sweeps and not runs:
        names = ", ".join(map(str, folders))
        raise RequestError(f"no sweep or run in {names}; name another folder, or train with python train.py")
    return Listing(_newest_first(sweeps), _newest_first(runs))


def _newest_first(entries: list[Any]) -> list[Any]:
    return sorted(entries, key=lambda entry: (_begun(entry), str(entry.folder)), reverse=True)


def _begun(entry: RunEntry | SweepEntry) -> float:
    begun = seconds_since_epoch(entry.started_at)
    if begun is not None:
        return begun
    try:
        return entry.folder.stat().st_mtime
    except OSError:
        return 0.0


def seconds_since_epoch(moment: str | None) -> float | None:
    """Of a moment in a record, which may be a stranger's."""
    try:
        parsed = datetime.fromisoformat(moment or "")
    except ValueError:
        return None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def _walk(folder: Path, seen: set[Path]) -> Iterator[Path]:
    """The folders of sweeps and runs; nothing below them, and each once whatever links lead to it."""
    real = folder.resolve()
    if real in seen:
        return
    seen.add(real)
    try:
        with os.scandir(folder) as found:
            children = sorted(found, key=lambda child: (child.is_symlink(), child.name))
    except OSError:
        return
    if {child.name for child in children} & {MANIFEST_NAME, RECORD_NAME, RUN_CONFIG_NAME}:
        yield folder
        return
    for child in children:
        if not child.name.startswith(".") and child.name not in NO_RUNS_BELOW and _is_folder(child):
            yield from _walk(folder / child.name, seen)


def _is_folder(child: os.DirEntry[str]) -> bool:
    try:
        return child.is_dir()
    except OSError:  # a link to what this user may not look at
        return False


def sweep_entry(folder: Path) -> SweepEntry:
    """A sweep with its jobs; if its list is damaged with the runs that are there."""
    try:
        sweep = read_sweep(folder)
    except (RequestError, OSError) as error:
        runs = sorted(path.parent for path in folder.glob(f"*/{RECORD_NAME}"))
        return SweepEntry(folder, [run_entry(run) for run in runs], reason=str(error))
    shared = set.intersection(*(set(job.overrides) for job in sweep.jobs)) if sweep.jobs else set()
    return SweepEntry(folder, [run_entry(sweep.path(job), _asked(job, shared)) for job in sweep.jobs])


def _asked(job: Job, shared: set[str]) -> str:
    return printable(" ".join(part for part in job.overrides if part not in shared))


def run_entry(folder: Path, asked: str = "") -> RunEntry:
    """A run, from its record; never fails."""
    try:
        state = state_of(folder)
        if state.record is None:
            damaged = (folder / RECORD_NAME).exists()
            reason = f"{RECORD_NAME} cannot be read; tielab resume goes on or begins anew" if damaged else ""
            return RunEntry(folder, DAMAGED if damaged else state.status, reason, asked)
        return _entry(folder, state, read_checked(folder), asked)
    except (RequestError, OSError, TypeError, KeyError, AttributeError) as error:
        return RunEntry(folder, DAMAGED, printable(reason_of(error)), asked)


def _entry(folder: Path, state: State, record: Record, asked: str) -> RunEntry:
    done = record.finished
    return RunEntry(
        folder,
        state.status,
        state.reason,
        asked,
        arm=printable(arm_name(record.config)),
        seed=seed_label(seeds_of(record)),
        phase=study_phase(record),
        vocab_size=_whole(record.data.get("vocab_size")) or _whole(lookup(record, "config.model.vocab_size")),
        embed_dim=_whole(lookup(record, "config.model.embed_dim")),
        bits_per_byte=_number(lookup(record, "validation.bits_per_byte")) if done else None,
        perplexity=_number(lookup(record, "validation.perplexity")) if done else None,
        tokens=_whole(record.tokens_seen) or tokens_so_far(folder),
        planned_tokens=_whole(lookup(record, "config.budget.tokens")),
        seconds=_number(record.seconds),
        started_at=record.started_at,
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_json(listing: Listing) -> dict[str, Any]:
    """The listing as plain values: every field of the entries, folders as one would type them."""
    return {
        "sweeps": [
            {
                "folder": str(sweep.folder),
                "reason": sweep.reason,
                "started_at": sweep.started_at,
                "counts": sweep.counts,
                "arms": sweep.arms,
                "best_bits_per_byte": sweep.best.bits_per_byte if sweep.best else None,
                "best_arm": sweep.best.arm if sweep.best else None,
                "jobs": [_run_json(job) for job in sweep.jobs],
            }
            for sweep in listing.sweeps
        ],
        "runs": [_run_json(run) for run in listing.runs],
    }


def _run_json(run: RunEntry) -> dict[str, Any]:
    return asdict(run) | {"folder": str(run.folder)}
