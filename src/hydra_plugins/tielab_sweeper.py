"""Hydra's basic sweeper, with every job checked before the first one runs and a table at the end."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from omegaconf import open_dict


class CheckedSweeper(BasicSweeper):
    """A grid sweep that refuses a wrong request as a whole, before anything is written."""

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        from tielab import launch

        assert self.hydra_context is not None
        assert self.config is not None
        loader = self.hydra_context.config_loader
        configs = []
        for overrides in batch:
            config = loader.load_sweep_config(self.config, list(overrides))
            with open_dict(config):
                config.pop("hydra")
            configs.append(launch.resolve(config, self.config.hydra, overrides))
        launch.check_requests(configs)

    def sweep(self, arguments: list[str]) -> Any:
        from tielab import launch

        assert self.config is not None
        folder = Path(self.config.hydra.sweep.dir)
        try:
            return super().sweep(arguments)
        finally:
            launch.close_sweep(folder)
