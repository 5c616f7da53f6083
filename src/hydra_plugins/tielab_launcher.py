"""Hydra's launchers with the rules of ``parallel_jobs``, the same for all of them."""

import functools
import importlib
import logging
import math
import os
import secrets
import shutil
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf


class OneByOneLauncher(BasicLauncher):
    """Hydra's own launcher, which refuses to be asked for parallel jobs."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        from tielab.errors import RequestError

        if config.parallel_jobs != 1:
            raise RequestError(
                f"parallel_jobs={config.parallel_jobs} needs hydra/launcher=joblib, submitit_local or "
                "submitit_slurm; the default launcher runs one job after the other"
            )
        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)

    def launch_composed(self, folders: Sequence[Path]) -> Sequence[JobReturn]:
        """Run the jobs whose configs lie in these folders; Hydra would compose each a second time."""
        from tielab.jobs import objective, run_sweep_job

        results = []
        for folder in folders:
            result = JobReturn()
            try:
                result.return_value = objective(run_sweep_job(folder))
                result.status = JobStatus.COMPLETED
            except Exception as error:  # as Hydra has it: the next job runs all the same
                result.return_value, result.status = error, JobStatus.FAILED
            results.append(result)
        return results

    def must_compose(self, job_overrides: Sequence[Sequence[str]]) -> bool:
        """Whether Hydra was asked to do something around the jobs, for which it needs their configs."""
        assert self.config is not None
        asked = self.config.hydra
        around = (
            asked.callbacks,
            asked.job.chdir,
            asked.job.env_set,
            asked.job.env_copy,
            asked.output_subdir,
        )
        overrides = (override for job in job_overrides for override in job)
        return any(around) or any(o.lstrip("+~").startswith("hydra") for o in overrides)


SAME_FOR_ALL_JOBS = ("trainer", "trainer.accelerator", "trainer.devices", "trainer.num_threads")
"""Decide the resources of a job array, which are asked for once."""


class ParallelLauncher(Launcher):
    """Runs the jobs through another plugin, at most ``parallel_jobs`` at a time."""

    PLUGIN: str
    EXTRA: str
    """Of this package; installs the plugin."""
    REMOTE = False
    """Whether the jobs run on other machines."""

    def __init__(self, **params: Any):
        self.params = params
        self.launcher: Any = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        from tielab.errors import RequestError

        name = config.hydra.runtime.choices["hydra/launcher"]
        module, _, plugin = self.PLUGIN.rpartition(".")
        try:
            factory = getattr(importlib.import_module(module), plugin)
        except ImportError as error:
            raise RequestError(
                f"hydra/launcher={name} needs the extra: pip install 'tielab[{self.EXTRA}]'"
            ) from error
        for key in ("n_jobs", "array_parallelism"):
            if self.params.get(key, config.parallel_jobs) != config.parallel_jobs:
                raise RequestError(
                    f"hydra.launcher.{key}={self.params[key]} differs from "
                    f"parallel_jobs={config.parallel_jobs}; set parallel_jobs only, the launcher follows it"
                )
        if config.launch.name == "inline":
            raise RequestError(
                f"launch=inline runs a job in the process that starts it, which hydra/launcher={name} must "
                "watch; drop one of them"
            )
        if not config.parallel_jobs > 0:
            raise RequestError(
                f"parallel_jobs={config.parallel_jobs} is out of range: it must be greater than 0"
            )
        if self.REMOTE and OmegaConf.is_interpolation(config.trainer, "num_threads"):
            raise RequestError(
                f"hydra/launcher={name} needs trainer.num_threads=N: the cores of the machines that will run "
                "the jobs are not known here"
            )
        if self.REMOTE and config.trainer.num_nodes > 1:
            raise RequestError(
                f"hydra/launcher={name} runs each job on one node, found "
                f"trainer.num_nodes={config.trainer.num_nodes}; start a run on several nodes with srun"
            )
        self.name, self.parallel_jobs, self.task_function = name, config.parallel_jobs, task_function
        logging.getLogger("hydra_plugins").setLevel(logging.WARNING)  # we announce the jobs ourselves
        self.launcher = factory(**self.params)
        self.launcher.setup(hydra_context=hydra_context, task_function=task_function, config=config)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        from tielab.parallel import Turns, open_turns

        print(f"{len(job_overrides)} jobs, at most {self.parallel_jobs} at a time{self._where()}", flush=True)
        if self.REMOTE:
            turns = Turns(sys.argv[0], self.parallel_jobs, folder=None, visible_gpus=None)
            return self._launch(turns, job_overrides, initial_job_idx)
        with open_turns(self.parallel_jobs) as turns:
            return self._launch(turns, job_overrides, initial_job_idx)

    def move_to(self, sweep: Path) -> None:
        """Let the launcher keep its own files in a sweep's folder that was not known at the set-up."""
        if "submitit_folder" in self.params:
            self.params["submitit_folder"] = str(sweep / ".submitit" / "%j")
            self.launcher.params["submitit_folder"] = self.params["submitit_folder"]

    def _where(self) -> str:
        folder = self.params.get("submitit_folder")
        return f"; what they print: {str(folder).removesuffix('/%j')}" if folder else ""

    def check(self, job_overrides: Sequence[Sequence[str]]) -> None:
        """Raise RequestError if the jobs ask for different resources of one launch."""
        from tielab.errors import RequestError

        for key in SAME_FOR_ALL_JOBS if self.REMOTE else ():
            found = {item for job in job_overrides for item in job if item.startswith(f"{key}=")}
            if len(found) > 1:
                raise RequestError(
                    f"hydra/launcher={self.name} gives all jobs of a sweep the same resources: {key} cannot "
                    f"be swept, found {', '.join(sorted(found))}; start a sweep for each"
                )

    def _launch(self, turns: Any, overrides: Sequence[Sequence[str]], first: int) -> Sequence[JobReturn]:
        from tielab.parallel import run_in_turn

        self.launcher.task_function = functools.partial(run_in_turn, self.task_function, turns)
        try:
            results: Sequence[JobReturn] = self.launcher.launch(overrides, first)
        except Exception as error:
            if type(error).__name__ not in ("UncompletedJobError", "WorkerCrashedError"):
                raise
            results = [_result(job) for job in _submitted(error)]
        return results


class JoblibLauncher(ParallelLauncher):
    PLUGIN = "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher"
    EXTRA = "joblib"

    def _launch(self, turns: Any, overrides: Sequence[Sequence[str]], first: int) -> Sequence[JobReturn]:
        self.launcher.joblib["n_jobs"] = min(self.parallel_jobs, len(overrides))  # it starts them all
        return super()._launch(turns, overrides, first)


class RayLauncher(ParallelLauncher):
    PLUGIN = "hydra_plugins.hydra_ray_launcher.ray_launcher.RayLauncher"
    EXTRA = "ray"

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        from tielab.errors import RequestError

        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)
        fixed = {"remote.max_retries": 0, "init.address": "local", "init.num_cpus": config.parallel_jobs}
        for key, value in fixed.items():
            found = OmegaConf.select(self.params["ray"], key)
            if found != value:
                raise RequestError(
                    f"hydra.launcher.ray.{key}={found} cannot be asked for, it must stay {value}: else ray "
                    "begins killed jobs again, on other machines, or more than parallel_jobs at a time"
                )

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        os.environ["RAY_DEDUP_LOGS"] = "0"
        # Ray listens on all interfaces; its own token would be a file that other users may read.
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        import ray

        options: Any = OmegaConf.to_container(self.params["ray"]["init"], resolve=True)
        before = signal.getsignal(signal.SIGTERM)
        ray.init(**options)  # begun by the plugin, it would replace the handler that stops our jobs
        try:
            return super().launch(job_overrides, initial_job_idx)
        finally:
            ray.shutdown()
            signal.signal(signal.SIGTERM, before)


class SubmititLocalLauncher(ParallelLauncher):
    PLUGIN = "hydra_plugins.hydra_submitit_launcher.submitit_launcher.LocalLauncher"
    EXTRA = "slurm"


class SubmititSlurmLauncher(ParallelLauncher):
    PLUGIN = "hydra_plugins.hydra_submitit_launcher.submitit_launcher.SlurmLauncher"
    EXTRA = "slurm"
    REMOTE = True

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        from tielab.errors import RequestError

        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)
        if shutil.which("sbatch") is None or shutil.which("srun") is None:
            raise RequestError(
                "hydra/launcher=submitit_slurm needs SLURM, found no sbatch and srun on this machine; "
                "hydra/launcher=submitit_local runs the same jobs here"
            )


def _submitted(error: Exception) -> list[Any]:
    """The jobs of the launch that this error left: these plugins forget those after a killed one."""
    places = (frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__))
    return next(list(place[name]) for place in places for name in ("jobs", "runs") if name in place)


def _result(job: Any) -> JobReturn:
    """What a job of submitit or ray returned, when it has ended; inf if it was killed before it could."""
    try:
        if not hasattr(job, "results"):
            import ray

            result: JobReturn = ray.get(job)
        else:
            job.wait()
            result = job.results()[0]
    except Exception:  # of several types, all of which say that there is no result
        result = JobReturn(status=JobStatus.COMPLETED, _return_value=math.inf)
    return result
