"""Go on with a run or a sweep from its folder alone."""

from collections.abc import Sequence
from pathlib import Path

from tielab import jobs, launch
from tielab.checks import check_requests
from tielab.errors import RequestError
from tielab.folder import state_of
from tielab.record import RUN_CONFIG_NAME
from tielab.sweep import Job, command_of, is_sweep, may_run, read_sweep
from tielab.trust import check_places, read_run_yaml, refuse_links


def resume(folder: Path) -> int:
    """Run what is not finished of a run or a sweep, one job after the other; return the exit status.

    Raises:
        RequestError: neither a run nor a sweep is there, or it cannot be run here.
        KeyboardInterrupt: stopped by a signal.
    """
    refuse_links(folder)
    if is_sweep(folder):
        return _resume_sweep(folder)
    if not (folder / RUN_CONFIG_NAME).is_file():
        raise RequestError(f"{folder}: neither a run nor a sweep is there; name the folder of one")
    _check_unfinished([folder])
    home = folder.absolute().parent
    sweep = read_sweep(home) if is_sweep(home) else None
    launch.run_single(folder, *((sweep.rerun_of, home.name) if sweep else ()))
    return launch.outcome.exit_status


def _resume_sweep(folder: Path) -> int:
    found = read_sweep(folder)
    command = command_of(found)
    if found.grows:
        kind = "study with study.tune=lr" if found.is_tuned else "search"
        raise RequestError(f"{folder} is a {kind}; go on with it by its command: {command}")
    if not found.jobs:
        raise RequestError(f"{folder} has no jobs yet; begin them by its command: {command}")

    def one_after_the_other(unfinished: Sequence[Job]) -> None:
        for job in unfinished:
            jobs.run_sweep_job(sweep.path(job))

    with jobs.hold_sweep(folder) as sweep:
        _check_unfinished([sweep.path(job) for job in sweep.jobs])
        return jobs.run_jobs(sweep, sweep.jobs, one_after_the_other)


def _check_unfinished(folders: Sequence[Path]) -> None:
    """Refuse as a whole, before anything runs."""
    unfinished = [folder for folder in folders if may_run(state_of(folder))]
    missing = next((folder for folder in unfinished if not (folder / RUN_CONFIG_NAME).exists()), None)
    if missing is not None:
        raise RequestError(f"{missing} has no {RUN_CONFIG_NAME}; repeat its command with resume=true")
    configs = [read_run_yaml(folder / RUN_CONFIG_NAME) for folder in unfinished]
    for folder, config in zip(unfinished, configs, strict=True):
        check_places(config, folder / RUN_CONFIG_NAME, set())
    check_requests(configs)
