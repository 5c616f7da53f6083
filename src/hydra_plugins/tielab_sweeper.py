"""Hydra's grid sweeper, with every job checked before the first one runs, and finished ones left alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, open_dict, read_write

from tielab.sweep import Job, Sweep


class CheckedSweeper(BasicSweeper):
    """A grid sweep that refuses a wrong request as a whole, before anything is written."""

    def sweep(self, arguments: list[str]) -> Any:
        from tielab import launch

        assert self.config is not None
        assert self.hydra_context is not None
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        (batch,) = self.split_arguments(parser.parse_overrides(arguments), None)
        configs = [self.compose(overrides) for overrides in batch]
        # A place that cannot be written is found before the data are prepared.
        Path(self.config.hydra.sweep.dir).parent.mkdir(parents=True, exist_ok=True)
        launch.check_requests(configs)
        with launch.open_sweep(self.config, arguments) as sweep:
            jobs = launch.assign_jobs(sweep, list(zip(batch, configs, strict=True)))
            launch.run_jobs(sweep, jobs, lambda jobs: self.launch(sweep, jobs))

    def compose(self, overrides: Sequence[str]) -> dict[str, Any]:
        """The whole resolved config of a job."""
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
        place = f"hydra.sweep.dir={_quoted(str(sweep.folder.absolute()))}"
        overrides = [[*job.overrides, place, f"hydra.sweep.subdir={_quoted(job.name)}"] for job in jobs]
        return self.launcher.launch(overrides, initial_job_idx=0)


def _quoted(text: str) -> str:
    """A string as Hydra's override grammar reads it back."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
