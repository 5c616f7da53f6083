"""From a composed config to finished runs: one fresh process per rank per job.

Hydra composes in this process, which imports neither torch nor lightning. Each job gets a folder
with ``run.yaml``; its ranks read that file and never see Hydra, so a crash, a leaked global or a
process group of one job cannot reach the next.
"""

import contextlib
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.hydra import Hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from tielab.config import config_hash, register
from tielab.errors import FINISHED, INTERRUPTED, REFUSED, RequestError
from tielab.explain import explain
from tielab.folder import (
    differences,
    give_back,
    quoted,
    read_run_config,
    remove_empty,
    renew_run_yaml,
    reserve,
    shown,
    state_of,
)
from tielab.jobs import explained, objective, print_comparison, run_sweep_job, say_what_was_solved
from tielab.record import RECORD_NAME, RUN_CONFIG_NAME, Record
from tielab.request import checked, is_named, refuse_phase, rerun_of, resolve
from tielab.run import run_folder
from tielab.study import is_to_be_tuned
from tielab.sweep import exit_status, may_run
from tielab.trust import check_arguments


@dataclass
class Outcome:
    """What this command has come to; Hydra gives a task no way to say it."""

    exit_status: int = FINISHED
    folders: list[Path] = field(default_factory=list)
    """Of the single runs."""


outcome = Outcome()


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
        print(f"error: {explained(error)}", file=sys.stderr)
        outcome.exit_status = REFUSED
    finally:
        remove_empty(folder)
    return objective(record)


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
        return run_single(folder, rerun_of(hydra_config))
    except RequestError:
        if found is None:
            give_back(folder)
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
    say_what_was_solved(folder)


def _run_to_resume(config: dict[str, Any], folder: Path, hydra_config: Any) -> Path | None:
    """The run that ``resume=true`` goes on with: in the folder named, else the newest of the config."""
    if (folder / RUN_CONFIG_NAME).is_file():
        changed = differences(read_run_config(folder), config)
        if changed:
            raise RequestError(f"{shown(folder)} holds another run: {'; '.join(changed)}; choose another")
        return folder
    if is_named(hydra_config, "hydra.run.dir"):
        return None
    digest = config_hash(config)
    for path in sorted(folder.parent.glob("*"), reverse=True):  # the names begin with the time of the start
        with contextlib.suppress(RequestError):
            if (path / RUN_CONFIG_NAME).is_file() and config_hash(read_run_config(path)) == digest:
                return path
    return None


@contextlib.contextmanager
def _composed_once(config_dir: Path | None, arguments: Sequence[str]) -> Iterator[None]:
    """Keep Hydra from composing the whole config beforehand to see whether it says what ``-m`` says."""
    whole = Hydra.get_mode
    if config_dir is not None and not may_set_mode(config_dir, arguments):
        Hydra.get_mode = lambda *_, **__: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Hydra.get_mode = whole  # type: ignore[method-assign]


def may_set_mode(config_dir: Path, arguments: Sequence[str]) -> bool:
    """Whether a command or a file of its configs could set ``hydra.mode``."""
    if any("hydra" in argument or argument.startswith(("-cd", "--config-dir")) for argument in arguments):
        return True
    return any(MODE.search(path.read_bytes()) for path in config_dir.rglob("*.yaml"))


MODE = re.compile(rb"mode[\"']?\s*:\s*[\"']?(RUN|MULTIRUN)", re.IGNORECASE)


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
    register()
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
        with interrupted_by_sigterm(), _composed_once(config_dir, sys.argv[1:]):
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
