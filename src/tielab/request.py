"""From what a command asks for to the configs of its runs: composed, complete, checked, and sizes solved."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from tielab.checks import check_requests
from tielab.config import follow_links, plain
from tielab.errors import RequestError
from tielab.explain import explain
from tielab.folder import read_run_config
from tielab.matching import check_still_matched, is_to_be_solved, matched, matching_record
from tielab.record import RECORD_NAME, RUN_CONFIG_NAME, read_record
from tielab.study import PHASE_KEY, check_phase, check_study_is_asked_for, leave_study
from tielab.sweep import RERUN_OF


def resolve(cfg: DictConfig, hydra_config: Any, overrides: Sequence[str]) -> dict[str, Any]:
    """A composed config as plain values, complete.

    Args:
        hydra_config: Hydra's own part, which knows whether a run's folder is the primary config.
        overrides: of this job.

    Raises:
        RequestError: a value is missing, does nothing, or was solved for another config.
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
    check_study_is_asked_for(config, overrides)
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


def is_named(hydra_config: Any, key: str) -> bool:
    """Whether the command itself says where to write."""
    return any(override.startswith(f"{key}=") for override in hydra_config.overrides.hydra)


def request_of(cfg: DictConfig, arguments: Sequence[str]) -> list[str]:
    """What a command asks for: how to sweep, its overrides, and the run whose config they change.

    Raises:
        RequestError: it asks for folders of its own for the jobs, or for batches of them.
    """
    if is_named(cfg.hydra, "hydra.sweep.subdir"):
        raise RequestError("hydra.sweep.subdir is not taken: a job keeps the folder that the sweep gives it")
    if cfg.hydra.sweeper.max_batch_size is not None:
        raise RequestError("hydra.sweeper.max_batch_size is not taken: parallel_jobs does that")
    how = [o for o in cfg.hydra.overrides.hydra if not o.startswith(("hydra.mode=", "hydra.sweep."))]
    repeated = rerun_of(cfg.hydra)
    return [*how, *arguments, *([f"{RERUN_OF}{repeated}"] if repeated else [])]


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


def rerun_of(hydra_config: Any) -> str | None:
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
