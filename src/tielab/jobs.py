"""The jobs of a sweep: given folders, run as far as they are not finished, and told about."""

import contextlib
import math
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from tielab import processes
from tielab.errors import FAILED, FINISHED, RequestError, printable
from tielab.explain import explain
from tielab.folder import hold, quoted, read_run_config, remove_empty, shown, state_of
from tielab.matching import describe
from tielab.record import RECORD_NAME, Record, write_atomic
from tielab.request import is_named
from tielab.run import run_folder
from tielab.sweep import (
    MANIFEST_NAME,
    STOPPED_NAME,
    Job,
    Sweep,
    add_jobs,
    begin_sweep,
    code_drift,
    command_of,
    exit_status,
    find_jobs,
    find_sweep,
    is_sweep,
    may_run,
    read_sweep,
    refuse_another,
    renew,
    summary,
)

Launch = Callable[[Sequence[Job]], Any]
"""Runs jobs of a sweep and comes back when all have ended."""


def objective(record: Record | None) -> float:
    """Bits per byte of a finished run, inf of any other: what a search over runs minimises."""
    if record is None or record.validation is None or math.isnan(record.validation["bits_per_byte"]):
        return math.inf
    return float(record.validation["bits_per_byte"])


def explained(error: Exception) -> str:
    """What a person is told of an error; one that is nobody's fault but ours is raised again."""
    message = explain(error)
    if message is None:
        raise error
    return message


def say_what_was_solved(folder: Path) -> None:
    """Print the sizes that matching has solved for a run, if any."""
    solved = describe(read_run_config(folder))
    if solved:
        print(printable(f"  {solved}"), flush=True)


def run_sweep_job(folder: Path) -> Record | None:
    """Run one job of a sweep, whatever process this is; None if it was refused or not begun.

    Raises:
        KeyboardInterrupt: the job was stopped by a signal.
    """
    sweep = read_sweep(folder.parent)
    stopped = sweep.folder / STOPPED_NAME
    if stopped.exists():
        return None
    _announce_job(sweep, folder)
    record = None
    try:
        with processes.stopping_when(stopped.exists):
            record = run_folder(folder, sweep.folder.name, sweep.rerun_of)
    except (RequestError, OSError) as error:
        print(f"error: {explained(error)}", file=sys.stderr)
    crashed = state_of(folder).status not in ("finished", "diverged", "running")
    if crashed and read_run_config(folder)["on_failure"] == "stop":
        write_atomic(stopped, f"{folder.name}\n")
        print(f"the sweep stops: on_failure=stop, and {shown(folder)} did not finish", file=sys.stderr)
    return record


def _announce_job(sweep: Sweep, folder: Path) -> None:
    number, job = next((i, job) for i, job in enumerate(sweep.jobs, 1) if job.name == folder.name)
    given = {part.lower() for request in sweep.requests for part in request}  # Hydra writes false as False
    overrides = " ".join(o for o in job.overrides if o.lower() not in given) or "as given"
    status = state_of(folder).status
    goes_on = "" if status == "waiting" else f" (was {status}, goes on)"
    said = printable(f"job {number} of {len(sweep.jobs)}: {overrides} -> {shown(folder)}{goes_on}")
    print(said, flush=True)
    say_what_was_solved(folder)


@contextlib.contextmanager
def open_sweep(cfg: DictConfig, request: Sequence[str], config_hashes: Sequence[str] = ()) -> Iterator[Sweep]:
    """The sweep's folder for the time of this command: a new one, or the one to go on with.

    Args:
        cfg: the config without any job's own overrides, Hydra's part included.
        request: what was asked for.
        config_hashes: of the jobs, as far as they are known.

    Raises:
        RequestError: the folder is taken, or another process runs this sweep.
    """
    hydra_config = cfg.hydra
    folder = Path(hydra_config.sweep.dir)
    if cfg.resume and not is_named(hydra_config, "hydra.sweep.dir"):
        folder = find_sweep(folder.parent, request, config_hashes) or folder
    is_new = not (cfg.resume and is_sweep(folder))
    if is_new:
        begin_sweep(folder, request)
        if cfg.resume:
            print(f"no sweep of this request to go on with: a new one, {shown(folder)}", flush=True)
    try:
        with hold_sweep(folder) as sweep:
            try:
                yield sweep
            finally:
                if is_new and not sweep.jobs:  # it was refused before it began
                    (folder / MANIFEST_NAME).unlink()
    finally:
        remove_empty(folder)


@contextlib.contextmanager
def hold_sweep(folder: Path) -> Iterator[Sweep]:
    """The sweep of a folder, which no other command runs meanwhile."""
    with hold(folder):
        (folder / STOPPED_NAME).unlink(missing_ok=True)
        yield read_sweep(folder)


def assign_jobs(
    sweep: Sweep, requested: Sequence[tuple[list[str], dict[str, Any]]], *, growing: bool = False
) -> list[Job]:
    """The jobs of these overrides and configs: those the sweep has already, and new ones.

    Args:
        growing: the jobs of this sweep are not known beforehand, and all may be new.

    Raises:
        RequestError: the config of a job has changed, or none of the sweep's jobs is among them.
    """
    found = find_jobs(sweep, requested)
    if sweep.jobs and not growing and all(job is None for job, _ in found):
        refuse_another(sweep)
    for job, config in found:
        if job is not None and may_run(sweep.state(job)):
            renew(sweep, job, config)
    new = iter(add_jobs(sweep, [requested[i] for i, (job, _) in enumerate(found) if job is None]))
    return [next(new) if job is None else job for job, _ in found]


def run_jobs(sweep: Sweep, jobs: Sequence[Job], launch: Launch) -> int:
    """Run those of the jobs that are not finished; say what is found before, and what came out after.

    Returns the exit status of a command that asked for them.
    """
    say_what_is_there(sweep, jobs)
    broken = FINISHED
    try:
        broken = run_unfinished(sweep, jobs, launch)
    finally:
        close(sweep, jobs)
    return exit_status([sweep.state(job) for job in jobs]) or broken


def say_what_is_there(sweep: Sweep, jobs: Sequence[Job]) -> None:
    """How a sweep that is resumed stands, and whether the code is still the same."""
    if any(sweep.state(job).status != "waiting" for job in jobs):
        print(f"resuming {shown(sweep.folder)}: {summary(sweep, jobs)[0]}")
        num_others = len(sweep.jobs) - len(jobs)
        if num_others:
            print(f"note: {num_others} more of its jobs were not asked for and are left alone")
        drift = code_drift(sweep, jobs)
        if drift:
            print(drift, file=sys.stderr)


def run_unfinished(sweep: Sweep, jobs: Sequence[Job], launch: Launch) -> int:
    """Launch what is not finished; return the status of the launching: the folders say how the jobs ended."""
    to_run = [job for job in jobs if may_run(sweep.state(job))]
    if not to_run:
        return FINISHED
    try:
        for returned in launch(to_run) or ():
            _ = returned.return_value  # raises what the task raised
    except RequestError:
        raise
    except Exception as error:  # a launcher's worker may die of anything
        print("FAILED launcher: " + "".join(traceback.format_exception(error)), file=sys.stderr)
        return FAILED
    return FINISHED


def close(sweep: Sweep, jobs: Sequence[Job]) -> None:
    """Print the table of what there is, which jobs are not finished, and how to go on with them."""
    if any((sweep.path(job) / RECORD_NAME).exists() for job in jobs):
        try:
            print_comparison([sweep.folder])
            print(f"\nthis table again: tielab report {quoted(sweep.folder)}")
        except RequestError as error:  # no record can be read; the summary says more
            print(f"no table: {error}")
    lines = summary(sweep, jobs)
    if len(lines) > 1:
        print("\n".join(["", *lines]))
    if any(may_run(sweep.state(job)) for job in jobs):
        how = command_of(sweep) if sweep.grows else f"tielab resume {quoted(sweep.folder)}"
        print(f"to go on: {how}")


def print_comparison(folders: list[Path]) -> None:
    """Print the table of these folders' runs."""
    from tielab.report.render import report

    print()
    print(report(folders, "auto") or "", end="", flush=True)
