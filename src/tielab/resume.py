"""Go on with a run or a sweep from its folder alone."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from tielab import launch
from tielab.checks import check_requests
from tielab.errors import FAILED, FINISHED, RequestError
from tielab.record import RUN_CONFIG_NAME
from tielab.run import state_of
from tielab.sweep import STUDY_NAME, Job, is_sweep, may_run, read_sweep
from tielab.trust import check_places, read_run_yaml


def resume(folder: Path) -> int:
    """Run what is not finished of a run or a sweep, one job after the other; return the exit status.

    Raises:
        RequestError: neither a run nor a sweep is there, or it cannot be run here.
        KeyboardInterrupt: stopped by a signal.
    """
    if is_sweep(folder):
        return _resume_sweep(folder)
    if not (folder / RUN_CONFIG_NAME).is_file():
        raise RequestError(f"{folder}: neither a run nor a sweep is there; name the folder of one")
    _check_unfinished([folder])
    return FINISHED if launch.run_single(folder).finished else FAILED


def _resume_sweep(folder: Path) -> int:
    sweep = read_sweep(folder)
    if (folder / STUDY_NAME).exists():
        command = f"-m {shlex.join(sweep.requests[0])} hydra.sweep.dir={folder} resume=true"
        raise RequestError(f"{folder} is a search; go on with it with: python train.py {command}")

    def one_after_the_other(jobs: Sequence[Job]) -> None:
        for job in jobs:
            launch.run_sweep_job(sweep.path(job))

    with launch.hold_sweep(sweep):
        _check_unfinished([sweep.path(job) for job in sweep.jobs])
        launch.run_jobs(sweep, sweep.jobs, one_after_the_other)
    return launch.outcome.exit_status


def _check_unfinished(folders: Sequence[Path]) -> None:
    """Refuse as a whole, before anything runs."""
    unfinished = [folder for folder in folders if may_run(state_of(folder))]
    configs = [read_run_yaml(folder / RUN_CONFIG_NAME) for folder in unfinished]
    for folder, config in zip(unfinished, configs, strict=True):
        check_places(config, folder / RUN_CONFIG_NAME, set())
    check_requests(configs)
