"""From a composed config to finished runs: one fresh process per rank per job.

Hydra composes in this process, which imports neither torch nor lightning. Each job gets a folder
with ``run.yaml``; its ranks read that file and never see Hydra, so a crash, a leaked global or a
process group of one job cannot reach the next.
"""

import contextlib
import json
import logging
import math
import os
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from tielab import processes
from tielab.checks import check_requests
from tielab.config import config_hash, follow_links, plain, register
from tielab.errors import FAILED, FINISHED, INTERRUPTED, REFUSED, RequestError, printable
from tielab.explain import explain
from tielab.matching import check_still_matched, describe, is_to_be_solved, matched, matching_record
from tielab.record import RECORD_NAME, RUN_CONFIG_NAME, Record, read_record, write_atomic
from tielab.run import (
    differences,
    hold,
    read_run_config,
    renew_run_yaml,
    reserve,
    run_folder,
    shown,
    state_of,
)
from tielab.study import PHASE_KEY, check_phase, is_to_be_tuned, leave_study
from tielab.sweep import (
    MANIFEST_NAME,
    RERUN_OF,
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
from tielab.trust import check_arguments

Launch = Callable[[Sequence[Job]], Any]
"""Runs jobs of a sweep and comes back when all have ended."""


@dataclass
class Outcome:
    """What this command has come to; Hydra gives a task no way to say it."""

    exit_status: int = FINISHED
    folders: list[Path] = field(default_factory=list)
    """Of the single runs."""


outcome = Outcome()


def resolve(cfg: DictConfig, hydra_config: Any, overrides: Sequence[str]) -> dict[str, Any]:
    """A composed config as plain values, complete.

    Args:
        hydra_config: Hydra's own part, which knows whether a run's folder is the primary config.
        overrides: of this job.

    Raises:
        RequestError: a value is missing, or a size was solved for another config.
    """
    try:
        config = plain(cfg)
    except OmegaConfBaseException as error:
        raise RequestError(explain(error)) from error
    repeated = _repeated_run(hydra_config)
    if repeated is not None:
        overridden = {override.partition("=")[0].lstrip("+") for override in overrides}
        follow_links(config, read_record(repeated).config, overridden)
    original = _original_config(hydra_config)
    check_still_matched(config, original)
    if original is not None:
        leave_study(config, original)
    return config


def refuse_phase(cfg: Any, hydra_config: Any, given: Sequence[Override] = ()) -> None:
    """Raise RequestError if a request says itself what its runs are for.

    Args:
        cfg: the config of the request.
        given: its overrides, as far as they are not in ``cfg``.
    """
    original = _original_config(hydra_config)
    phase = cfg.study.phase
    asked = [phase if phase is None else phase.name]
    asked += [override.value() for override in given if override.get_key_element() == PHASE_KEY]
    check_phase(asked, None if original is None else original["study"]["phase"])


def checked(configs: Sequence[dict[str, Any]], *, remote: bool = False) -> list[dict[str, Any]]:
    """These configs with the sizes that matching solves; refused unless each can be run, before and after.

    Args:
        remote: on other machines, where nothing can be measured now.
    """
    check_requests(configs, remote=remote)
    timed = next((c for c in configs if is_to_be_solved(c) and c["matching"]["axis"] == "time"), None)
    if remote and timed is not None:
        raise RequestError(
            "matching=time measures this machine, and the jobs run on others; use matching=flops"
        )
    solved = [matched(config) for config in configs]
    changed = [new for new, old in zip(solved, configs, strict=True) if new is not old]
    check_requests(changed, remote=remote)
    return solved


def run_job(cfg: DictConfig) -> float:
    """Hydra's task: run one job in its own processes and return its bits per byte (inf if it has none).

    A refused request is printed here: Hydra would print an exception in its own words, and not run the
    jobs after it. A sweep reads how its jobs ended from their folders, wherever they ran.

    Raises:
        KeyboardInterrupt: the job was stopped by a signal.
    """
    hydra_config = HydraConfig.get()
    folder = Path(hydra_config.runtime.output_dir)
    if hydra_config.mode == RunMode.MULTIRUN:
        return objective(run_sweep_job(folder))
    record = None
    try:
        record = _run_single(cfg, hydra_config, folder)
    except (RequestError, OSError) as error:
        print(f"error: {_explained(error)}", file=sys.stderr)
        outcome.exit_status = REFUSED
    finally:
        _remove_empty(folder)
    return objective(record)


def objective(record: Record | None) -> float:
    """Bits per byte of a finished run, inf of any other: what a search over runs minimises."""
    if record is None or record.validation is None or math.isnan(record.validation["bits_per_byte"]):
        return math.inf
    return float(record.validation["bits_per_byte"])


def _explained(error: Exception) -> str:
    message = explain(error)
    if message is None:
        raise error
    return message


def _run_single(cfg: DictConfig, hydra_config: Any, folder: Path) -> Record:
    refuse_phase(cfg, hydra_config)
    config = resolve(cfg, hydra_config, hydra_config.overrides.task)
    if is_to_be_tuned(config):
        raise RequestError("study.tune=lr trains many runs to choose a rate: add -m")
    (config,) = checked([config])
    found = _run_to_resume(config, folder, hydra_config) if config["resume"] else None
    if found is None:
        reserve(config, folder)
    elif may_run(state_of(found)):
        renew_run_yaml(config, found)
    folder = found or folder
    try:
        return run_single(folder, _rerun_of(hydra_config))
    except RequestError:
        if found is None and not (folder / RECORD_NAME).exists():  # it was refused before it began
            (folder / RUN_CONFIG_NAME).unlink()
            _remove_empty(folder)
        raise


def run_single(folder: Path, rerun_of: str | None = None, sweep: str | None = None) -> Record:
    """Run, or go on with, the run of a folder, print its table, and set this command's exit status.

    Raises:
        RequestError, KeyboardInterrupt: as ``run_folder``.
    """
    outcome.folders.append(folder)
    if state_of(folder).status != "running":
        _announce_single(folder)
    try:
        record = run_folder(folder, sweep, rerun_of)
    except KeyboardInterrupt:
        print(f"interrupted; to go on: tielab resume {quoted(folder)}", file=sys.stderr)
        raise
    outcome.exit_status = exit_status([state_of(folder)])
    if (folder / RECORD_NAME).exists():
        print_comparison([folder])
    return record


def _announce_single(folder: Path) -> None:
    state = state_of(folder)
    words = {"waiting": "", "finished": " (finished already)", "diverged": " (diverged, as it would again)"}
    print(f"run: {shown(folder)}{words.get(state.status, f' (was {state.status}, goes on)')}", flush=True)
    _say_what_was_solved(folder)


def _say_what_was_solved(folder: Path) -> None:
    solved = describe(read_run_config(folder))
    if solved:
        print(printable(f"  {solved}"), flush=True)


def _run_to_resume(config: dict[str, Any], folder: Path, hydra_config: Any) -> Path | None:
    """The run that ``resume=true`` goes on with: in the folder named, else the newest of the config."""
    if (folder / RUN_CONFIG_NAME).is_file():
        changed = differences(read_run_config(folder), config)
        if changed:
            raise RequestError(f"{shown(folder)} holds another run: {'; '.join(changed)}; choose another")
        return folder
    if _is_named(hydra_config, "hydra.run.dir"):
        return None
    digest = config_hash(config)
    for path in sorted(folder.parent.glob("*"), reverse=True):  # the names begin with the time of the start
        with contextlib.suppress(RequestError):
            if (path / RUN_CONFIG_NAME).is_file() and config_hash(read_run_config(path)) == digest:
                return path
    return None


def _is_named(hydra_config: Any, key: str) -> bool:
    """Whether the command itself says where to write."""
    return any(override.startswith(f"{key}=") for override in hydra_config.overrides.hydra)


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
        print(f"error: {_explained(error)}", file=sys.stderr)
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
    _say_what_was_solved(folder)


def request_of(cfg: DictConfig, arguments: Sequence[str]) -> list[str]:
    """What a command asks for: how to sweep, its overrides, and the run whose config they change.

    Raises:
        RequestError: it asks for folders of its own for the jobs, or for batches of them.
    """
    if _is_named(cfg.hydra, "hydra.sweep.subdir"):
        raise RequestError("hydra.sweep.subdir is not taken: a job keeps the folder that the sweep gives it")
    if cfg.hydra.sweeper.max_batch_size is not None:
        raise RequestError("hydra.sweeper.max_batch_size is not taken: parallel_jobs does that")
    how = [o for o in cfg.hydra.overrides.hydra if not o.startswith(("hydra.mode=", "hydra.sweep."))]
    repeated = _rerun_of(cfg.hydra)
    return [*how, *arguments, *([f"{RERUN_OF}{repeated}"] if repeated else [])]


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
    if cfg.resume and not _is_named(hydra_config, "hydra.sweep.dir"):
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
        _remove_empty(folder)


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


def run_jobs(sweep: Sweep, jobs: Sequence[Job], launch: Launch) -> None:
    """Run those of the jobs that are not finished; say what is found before, and what came out after."""
    say_what_is_there(sweep, jobs)
    broken = FINISHED
    try:
        broken = run_unfinished(sweep, jobs, launch)
    finally:
        close(sweep, jobs)
    outcome.exit_status = exit_status([sweep.state(job) for job in jobs]) or broken


def without_repeats(
    requested: Sequence[tuple[list[str], dict[str, Any]]],
) -> list[tuple[list[str], dict[str, Any]]]:
    """These jobs but those that differ from an earlier one in how they are matched alone; says how many.

    An arm that matching does not change computes the same along every axis.
    """
    kept: dict[str, tuple[list[str], dict[str, Any]]] = {}
    num_dropped = 0
    for overrides, config in requested:
        key = json.dumps({**config, "matching": matching_record(config)}, sort_keys=True)
        if key in kept and kept[key][1]["matching"] != config["matching"]:
            num_dropped += 1
        else:
            kept[key if key not in kept else f"{key} {len(kept)}"] = (overrides, config)
    if num_dropped:
        print(
            f"{num_dropped} of {len(requested)} jobs are runs that another axis of matching asks for as "
            "well: each is run once",
            flush=True,
        )
    return list(kept.values())


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


def _rerun_of(hydra_config: Any) -> str | None:
    repeated = _repeated_run(hydra_config)
    return None if repeated is None else read_record(repeated).run_id


def _repeated_run(hydra_config: Any) -> Path | None:
    """The run's folder that ``--config-dir RUN --config-name run`` named."""
    if hydra_config.job.config_name != Path(RUN_CONFIG_NAME).stem:
        return None
    sources = [Path(source.path) for source in hydra_config.runtime.config_sources if source.schema == "file"]
    return next((folder for folder in sources if (folder / RECORD_NAME).is_file()), None)


def _original_config(hydra_config: Any) -> dict[str, Any] | None:
    """What stands in the ``run.yaml`` that is the primary config, whether that run has begun or not."""
    if hydra_config.job.config_name != Path(RUN_CONFIG_NAME).stem:
        return None
    sources = [Path(source.path) for source in hydra_config.runtime.config_sources if source.schema == "file"]
    folder = next((folder for folder in sources if (folder / RUN_CONFIG_NAME).is_file()), None)
    return None if folder is None else read_run_config(folder)


def quoted(path: Path) -> str:
    """The path as it is typed into a shell here."""
    return shlex.quote(shown(path))


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


@contextlib.contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does, also while no run has it."""
    previous = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, previous)


def main(config_dir: Path | None, arguments: Sequence[str] | None = None, config_name: str = "config") -> int:
    """Run the command line of ``train.py`` and return its exit status.

    Args:
        config_dir: the folder of the primary config and the config groups.
        arguments: instead of the process's own.
        config_name: the primary config.
    """
    register(config_dir)
    outcome.exit_status, outcome.folders = FINISHED, []
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("hydra").setLevel(logging.WARNING)  # we announce the jobs ourselves
    if arguments is not None:
        sys.argv[1:] = arguments
    show_traceback = os.environ.get("HYDRA_FULL_ERROR") == "1"
    # Hydra then hands us the exception instead of printing its own page of text.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        check_arguments(sys.argv[1:])
        with interrupted_by_sigterm():
            hydra.main(version_base="1.3", config_path=str(config_dir), config_name=config_name)(run_job)()
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        message = explain(error)
        if message is None or show_traceback:
            raise
        print(f"error: {message}", file=sys.stderr)
        return REFUSED
    finally:
        if not show_traceback:  # for the next call in this process
            del os.environ["HYDRA_FULL_ERROR"]
    return outcome.exit_status
