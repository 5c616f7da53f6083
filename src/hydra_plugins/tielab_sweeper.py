"""Hydra's grid sweeper, with every job checked before the first one runs, and finished ones left alone."""

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, open_dict, read_write

from hydra_plugins.tielab_launcher import OneByOneLauncher, ParallelLauncher
from tielab import study
from tielab.config import config_hash, plain
from tielab.errors import FAILED, RequestError
from tielab.jobs import assign_jobs, close, objective, open_sweep, run_jobs, run_unfinished, say_what_is_there
from tielab.launch import outcome
from tielab.request import checked, refuse_phase, request_of, resolve, without_repeats
from tielab.study import Cell, is_to_be_tuned
from tielab.sweep import STOPPED_NAME, Job, Sweep, add_request, exit_status, identity_of, refuse_another


class CheckedSweeper(BasicSweeper):
    """A grid sweep that refuses a wrong request as a whole, before anything is written."""

    def __init__(self, **others: Any):
        super().__init__(**others)
        self.composed: dict[str, DictConfig] = {}

    def sweep(self, arguments: list[str]) -> Any:
        assert self.config is not None
        refuse_phase(self.config, self.config.hydra, self.parse(arguments))
        if is_to_be_tuned(self.config):
            return self._tune_and_report(arguments)
        request = request_of(self.config, arguments)
        requested = without_repeats(self.check(self.combinations(self.parse(arguments))))
        with open_sweep(self.config, request, [config_hash(c) for _, c in requested]) as sweep:
            jobs = assign_jobs(sweep, requested)
            add_request(sweep, request)
            status = run_jobs(sweep, jobs, lambda jobs: self.launch(sweep, jobs))
        outcome.exit_status = status

    def _tune_and_report(self, arguments: list[str]) -> None:
        """Choose the learning rate of every combination of the swept keys, then run the seeds at it."""
        assert self.config is not None
        cells, seeds, hashes = self._plan_study(arguments)
        request = request_of(self.config, arguments)
        with open_sweep(self.config, request, hashes) as sweep:
            if sweep.jobs and not {job.config_hash for job in sweep.jobs} & {*hashes}:
                refuse_another(sweep)
            add_request(sweep, request)
            say_what_is_there(sweep, sweep.jobs)
            try:
                broken = self._run_study(sweep, cells, seeds)
            finally:
                close(sweep, sweep.jobs)
            outcome.exit_status = _study_status(sweep, cells) or broken

    def _plan_study(self, arguments: list[str]) -> tuple[list[Cell], list[list[str]], list[str]]:
        """The cells of a study, the seeds to report, and the config hashes of the jobs that may come.

        Raises:
            RequestError: some job could not be run, or the request sets what the study does.
        """
        assert self.config is not None
        parsed = self.parse(arguments)
        swept = [o.get_key_element() for o in parsed if o.is_sweep_override()]
        study.check_keys(swept, [o.get_key_element() for o in parsed])
        seeds = self.combinations([o for o in parsed if o.get_key_element() == study.SEED_KEY])
        batch = self.combinations([o for o in parsed if o.get_key_element() != study.SEED_KEY])
        batch = [overrides for overrides, _ in without_repeats(self.check(batch))]
        plan = plain(self.config.study)
        cells = study.open_cells(batch, plan)
        some_rate = plan["rates"][0]  # the whole request is refused if a run of it would be
        tuning = self.check([job for cell in cells for job in cell.tune_jobs(some_rate)])
        reporting = self.check([job for cell in cells for job in cell.report_jobs(seeds, some_rate)])
        study.check_seeds([config for _, config in reporting])
        configs = [config for _, config in [*tuning, *reporting]]
        return cells, seeds, [*study.possible_hashes(cells, configs)]

    def _run_study(self, sweep: Sweep, cells: list[Cell], seeds: list[list[str]]) -> int:
        """Tune all cells, then report those that are settled; the status of the launching."""

        growing = Growing(self, sweep)
        stopped = (sweep.folder / STOPPED_NAME).exists
        study.tune(cells, growing.values, stopped)
        print("\n".join(cell.describe() for cell in cells), flush=True)
        if not stopped():
            growing.run([job for cell in cells if cell.is_settled for job in cell.report_jobs(seeds)])
        return growing.broken

    def combinations(self, parsed: list[Override]) -> list[list[str]]:
        """The overrides of every combination of the swept values."""
        (batch,) = self.split_arguments(parsed, None)
        return batch

    def parse(self, arguments: list[str]) -> list[Override]:
        assert self.hydra_context is not None
        given = [*self._parse_config(), *arguments]
        return OverridesParser.create(self.hydra_context.config_loader).parse_overrides(given)

    def check(self, batch: Sequence[Sequence[str]]) -> list[tuple[list[str], dict[str, Any]]]:
        """Each job's overrides with its whole resolved config, sizes solved; refused unless all can run."""
        assert self.config is not None
        requested = [(list(overrides), self.compose(overrides)) for overrides in batch]
        # A place that cannot be written is found before the data are prepared.
        Path(self.config.hydra.sweep.dir).parent.mkdir(parents=True, exist_ok=True)
        if len({o for overrides in batch for o in overrides if o.startswith("parallel_jobs=")}) > 1:
            raise RequestError("parallel_jobs cannot be swept: it says how many jobs run at once")
        if isinstance(self.launcher, ParallelLauncher):
            self.launcher.check(batch)
        remote = isinstance(self.launcher, ParallelLauncher) and self.launcher.REMOTE
        configs = checked([config for _, config in requested], remote=remote)
        return [(overrides, config) for (overrides, _), config in zip(requested, configs, strict=True)]

    def compose(self, overrides: Sequence[str]) -> dict[str, Any]:
        """A job's whole config, resolved: what Hydra makes of all its overrides at once."""
        assert self.config is not None
        assert self.hydra_context is not None
        loader = self.hydra_context.config_loader
        assert isinstance(loader, ConfigLoaderImpl)
        parsed = OverridesParser.create(loader).parse_overrides(list(overrides))
        # As Hydra tells them apart; it sets values after all groups have been put together.
        values = [
            o for o in parsed
            if isinstance(o.value(), dict) or not loader.repository.group_exists(o.key_or_group)
        ]  # fmt: skip
        config = copy.deepcopy(self._of_groups([o.input_line for o in parsed if o not in values]))
        loader._apply_overrides_to_config(values, config)
        return resolve(config, self.config.hydra, overrides)

    def _of_groups(self, overrides: Sequence[str | None]) -> DictConfig:
        """The config of a job that sets no values; composed once however many jobs choose the same groups."""
        assert self.config is not None
        assert self.hydra_context is not None
        chosen = [override for override in overrides if override is not None]
        key = json.dumps(chosen)
        if key not in self.composed:
            config = self.hydra_context.config_loader.load_sweep_config(self.config, chosen)
            assert isinstance(config, DictConfig)
            with open_dict(config):
                config.pop("hydra")
            self.composed[key] = config
        return self.composed[key]

    def launch(self, sweep: Sweep, jobs: Sequence[Job]) -> Any:
        """Let the chosen launcher run jobs, each in the folder that is its own."""
        assert self.launcher is not None
        assert self.config is not None
        with read_write(self.config), open_dict(self.config):
            self.config.hydra.sweep.dir = str(sweep.folder)  # launchers make this folder
        given = [job.overrides for job in jobs]
        if isinstance(self.launcher, OneByOneLauncher) and not self.launcher.must_compose(given):
            return self.launcher.launch_composed([sweep.path(job).absolute() for job in jobs])
        if isinstance(self.launcher, ParallelLauncher):
            self.launcher.move_to(sweep.folder)
        place = f"hydra.sweep.dir={_quoted(str(sweep.folder.absolute()))}"
        overrides = [[*job.overrides, place, f"hydra.sweep.subdir={_quoted(job.name)}"] for job in jobs]
        return self.launcher.launch(overrides, initial_job_idx=0)


@dataclass
class Growing:
    """Runs jobs of a sweep whose later jobs follow from the results of earlier ones."""

    sweeper: CheckedSweeper
    sweep: Sweep
    broken: int = 0
    """The first status of a launch that went wrong."""

    def run(self, overrides: list[list[str]]) -> list[Job]:
        """Run these jobs as far as they are not finished, and return them in the same order."""

        jobs = assign_jobs(self.sweep, self.sweeper.check(overrides), growing=True)
        status = run_unfinished(self.sweep, jobs, lambda some: self.sweeper.launch(self.sweep, some))
        self.broken = self.broken or status
        return jobs

    def values(self, overrides: list[list[str]]) -> list[float | None]:
        """Run these jobs; their bits per byte, inf of one that diverged, None of one that did not end."""

        states = [self.sweep.state(job) for job in self.run(overrides)]
        ended = ("finished", "diverged")
        return [objective(state.record) if state.status in ended else None for state in states]


class SearchSweeper(CheckedSweeper):
    """A sweep whose intervals are searched by Optuna, separately for every combination of the swept keys.

    Args:
        num_trials: for each combination.
        seed: of the sampler.
    """

    def __init__(self, num_trials: int, seed: int, **others: Any):
        super().__init__(**others)
        self.num_trials = num_trials
        self.seed = seed

    def sweep(self, arguments: list[str]) -> Any:
        from tielab import search

        assert self.config is not None
        search.check_optuna()
        parsed = self.parse(arguments)
        refuse_phase(self.config, self.config.hydra, parsed)
        continuous = [o for o in parsed if o.is_sweep_override() and not o.is_discrete_sweep()]
        intervals = [search.interval_of(o.get_key_element(), o.value()) for o in continuous]
        if not intervals:
            raise RequestError(
                "nothing to search: add KEY=interval(LOW,HIGH) or KEY=tag(log,interval(LOW,HIGH))"
            )
        if self.num_trials < 1:
            raise RequestError(f"hydra.sweeper.num_trials={self.num_trials} is out of range: at least 1")
        if is_to_be_tuned(self.config):
            raise RequestError("study.tune=lr and hydra/sweeper=optuna each choose values; drop one of them")
        batch = self.combinations([o for o in parsed if o not in continuous])
        request = request_of(self.config, arguments)
        for end in ("high", "low"):  # the whole request is refused if an end of an interval would be
            ends = [f"{interval.key}={getattr(interval, end)!r}" for interval in intervals]
            requested = self.check([[*overrides, *ends] for overrides in batch])
        kept = without_repeats(requested)
        batch = [overrides[: -len(intervals)] for overrides, _ in kept]
        with open_sweep(self.config, request) as sweep:
            if identity_of(request) not in map(identity_of, sweep.requests):
                refuse_another(sweep)
            add_request(sweep, request)
            say_what_is_there(sweep, sweep.jobs)
            growing = Growing(self, sweep)
            cells = search.open_cells(sweep, batch, intervals, self.seed)
            try:
                search.search(sweep, cells, self.num_trials, self.config.parallel_jobs, growing.run)
            finally:
                close(sweep, sweep.jobs)
                print("\n".join(cell.describe() for cell in cells))
            states = [sweep.state(job) for job in sweep.jobs]
            # A rate at which the training diverges is a result of the search.
            found = 0 if all(cell.has_value for cell in cells) else FAILED
            settled = exit_status([state for state in states if state.status != "diverged"])
            outcome.exit_status = settled or growing.broken or found


def _study_status(sweep: Sweep, cells: list[Cell]) -> int:
    """The exit status of a study: a rate at which the training diverges is a result of the tuning."""

    states = [(job, sweep.state(job)) for job in sweep.jobs]
    counted = [s for job, s in states if s.status != "diverged" or "study.phase=report" in job.overrides]
    chosen = 0 if all(cell.is_settled for cell in cells) else FAILED
    return exit_status(counted) or chosen


def _quoted(text: str) -> str:
    """A string as Hydra's override grammar reads it back."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
