"""Hydra's grid sweeper, with every job checked before the first one runs, and finished ones left alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, open_dict, read_write

from hydra_plugins.tielab_launcher import ParallelLauncher
from tielab.sweep import Job, Sweep


class CheckedSweeper(BasicSweeper):
    """A grid sweep that refuses a wrong request as a whole, before anything is written."""

    def sweep(self, arguments: list[str]) -> Any:
        from tielab import launch
        from tielab.config import config_hash
        from tielab.sweep import add_request

        assert self.config is not None
        request = launch.request_of(self.config, arguments)
        (batch,) = self.split_arguments(self.parse(arguments), None)
        requested = self.check(batch)
        with launch.open_sweep(self.config, request, [config_hash(c) for _, c in requested]) as sweep:
            jobs = launch.assign_jobs(sweep, requested)
            add_request(sweep, request)
            launch.run_jobs(sweep, jobs, lambda jobs: self.launch(sweep, jobs))

    def parse(self, arguments: list[str]) -> list[Override]:
        assert self.hydra_context is not None
        given = [*self._parse_config(), *arguments]
        return OverridesParser.create(self.hydra_context.config_loader).parse_overrides(given)

    def check(self, batch: Sequence[Sequence[str]]) -> list[tuple[list[str], dict[str, Any]]]:
        """Each job's overrides with its whole resolved config; refused unless all can be run here."""
        from tielab.checks import check_requests
        from tielab.errors import RequestError

        assert self.config is not None
        requested = [(list(overrides), self._compose(overrides)) for overrides in batch]
        # A place that cannot be written is found before the data are prepared.
        Path(self.config.hydra.sweep.dir).parent.mkdir(parents=True, exist_ok=True)
        if len({o for overrides in batch for o in overrides if o.startswith("parallel_jobs=")}) > 1:
            raise RequestError("parallel_jobs cannot be swept: it says how many jobs run at once")
        if isinstance(self.launcher, ParallelLauncher):
            self.launcher.check(batch)
        remote = isinstance(self.launcher, ParallelLauncher) and self.launcher.REMOTE
        check_requests([config for _, config in requested], remote=remote)
        return requested

    def _compose(self, overrides: Sequence[str]) -> dict[str, Any]:
        from tielab import launch

        assert self.config is not None
        assert self.hydra_context is not None
        config = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
        assert isinstance(config, DictConfig)
        with open_dict(config):
            config.pop("hydra")
        return launch.resolve(config, self.config.hydra, overrides)

    def launch(self, sweep: Sweep, jobs: Sequence[Job]) -> Any:
        """Let the chosen launcher run jobs, each in the folder that is its own."""
        assert self.launcher is not None
        assert self.config is not None
        with read_write(self.config), open_dict(self.config):
            self.config.hydra.sweep.dir = str(sweep.folder)  # launchers make this folder
        if isinstance(self.launcher, ParallelLauncher):
            self.launcher.move_to(sweep.folder)
        place = f"hydra.sweep.dir={_quoted(str(sweep.folder.absolute()))}"
        overrides = [[*job.overrides, place, f"hydra.sweep.subdir={_quoted(job.name)}"] for job in jobs]
        return self.launcher.launch(overrides, initial_job_idx=0)


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
        from tielab import launch, search
        from tielab.errors import FAILED, RequestError
        from tielab.sweep import add_request, exit_status, identity_of, refuse_another

        assert self.config is not None
        search.check_optuna()
        parsed = self.parse(arguments)
        continuous = [o for o in parsed if o.is_sweep_override() and not o.is_discrete_sweep()]
        intervals = [search.interval_of(o.get_key_element(), o.value()) for o in continuous]
        if not intervals:
            raise RequestError(
                "nothing to search: add KEY=interval(LOW,HIGH) or KEY=tag(log,interval(LOW,HIGH))"
            )
        if self.num_trials < 1:
            raise RequestError(f"hydra.sweeper.num_trials={self.num_trials} is out of range: at least 1")
        (batch,) = self.split_arguments([o for o in parsed if o not in continuous], None)
        request = launch.request_of(self.config, arguments)
        for end in ("low", "high"):  # the whole request is refused if an end of an interval would be
            self.check([[*o, *(f"{i.key}={getattr(i, end)!r}" for i in intervals)] for o in batch])
        with launch.open_sweep(self.config, request) as sweep:
            if identity_of(request) not in map(identity_of, sweep.requests):
                refuse_another(sweep)
            add_request(sweep, request)
            launch.say_what_is_there(sweep, sweep.jobs)
            broken = 0

            def run(overrides: list[list[str]]) -> list[Job]:
                nonlocal broken
                jobs = launch.assign_jobs(sweep, self.check(overrides), growing=True)
                broken = broken or launch.run_unfinished(sweep, jobs, lambda some: self.launch(sweep, some))
                return jobs

            cells = search.open_cells(sweep, batch, intervals, self.seed)
            try:
                search.search(sweep, cells, self.num_trials, self.config.parallel_jobs, run)
            finally:
                launch.close(sweep, sweep.jobs)
                print("\n".join(cell.describe() for cell in cells))
            states = [sweep.state(job) for job in sweep.jobs]
            # A rate at which the training diverges is a result of the search.
            found = 0 if all(cell.has_value for cell in cells) else FAILED
            settled = exit_status([state for state in states if state.status != "diverged"])
            launch.outcome.exit_status = settled or broken or found


def _quoted(text: str) -> str:
    """A string as Hydra's override grammar reads it back."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
