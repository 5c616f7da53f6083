"""From a composed config to finished runs: one fresh process per rank per job.

Hydra composes in this process, which imports neither torch nor lightning. Each job gets a folder
with ``run.yaml``; its ranks read that file and never see Hydra, so a crash, a leaked global or a
process group of one job cannot reach the next.
"""

import ctypes
import functools
import hashlib
import json
import logging
import math
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any

import hydra
import yaml
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from tielab.checks import check_config
from tielab.config import LAYOUT_NAME, SCHEMA_NAME, config_hash, follow_links, plain, register
from tielab.errors import FAILED, FINISHED, INTERRUPTED, REFUSED, RequestError
from tielab.explain import explain
from tielab.processes import start_and_wait
from tielab.record import (
    ERROR_FILES,
    LAST_CHECKPOINT,
    RECORD_NAME,
    RUN_CONFIG_NAME,
    Record,
    read_record,
    write_atomic,
    write_record,
)
from tielab.trust import check_arguments

RERUN_GROUPS = ("model", "data", "vocab", "optimizer", "schedule", "budget", "trainer", "tying", "width")
log = logging.getLogger("tielab")


@dataclass
class Progress:
    """What this command has come to so far; Hydra gives a task no way to say it."""

    num_jobs: int = 1
    num_failed: int = 0
    num_refused: int = 0
    folders: list[Path] = field(default_factory=list)
    """Of the jobs begun."""

    @property
    def exit_status(self) -> int:
        return FAILED if self.num_failed else REFUSED if self.num_refused else FINISHED


progress = Progress()


def resolve(cfg: DictConfig, hydra_config: Any, overrides: Sequence[str]) -> dict[str, Any]:
    """A composed config as plain values, complete.

    Args:
        hydra_config: Hydra's own part, which knows whether a run's folder is the primary config.
        overrides: of this job.

    Raises:
        RequestError: a value is missing.
    """
    try:
        config = plain(cfg)
    except OmegaConfBaseException as error:
        raise RequestError(explain(error)) from error
    repeated = _repeated_run(hydra_config)
    if repeated is not None:
        overridden = {override.partition("=")[0].lstrip("+") for override in overrides}
        follow_links(config, read_record(repeated).config, overridden)
    return config


def check_requests(configs: Sequence[dict[str, Any]]) -> None:
    """Raise RequestError unless each of these configs can be run here."""
    progress.num_jobs = len(configs)
    for config in configs:
        check_config(config)
        _check_machine(config["trainer"])
    for config in configs:
        num_processes = config["trainer"]["devices"] * config["trainer"]["num_nodes"]
        _prepare_data(json.dumps(config["data"], sort_keys=True), num_processes)


@functools.cache
def _prepare_data(data_config: str, num_processes: int) -> None:
    from tielab.data.prepare import check_fits, prepare

    data = json.loads(data_config)
    check_fits(prepare(data), data, num_processes)


def _check_machine(trainer: dict[str, Any]) -> None:
    found = num_gpus() if trainer["accelerator"] == "gpu" else None
    if found is not None and found < trainer["devices"]:
        raise RequestError(
            f"trainer.devices={trainer['devices']} GPUs were asked for, {found} found on this machine; "
            "use trainer=cpu or trainer=ddp_cpu"
        )
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK") if name not in os.environ]
    if trainer["num_nodes"] > 1 and missing:
        raise RequestError(
            f"trainer.num_nodes={trainer['num_nodes']} needs the environment variables "
            f"{', '.join(missing)} on every node"
        )


def num_gpus() -> int:
    """GPUs that a process started now could use, asked of the driver: importing torch would take seconds."""
    for library, init, count in (
        ("libcuda.so.1", "cuInit", "cuDeviceGetCount"),
        ("libamdhip64.so", "hipInit", "hipGetDeviceCount"),
    ):
        try:
            driver = ctypes.CDLL(library)
        except OSError:
            continue
        found = ctypes.c_int(0)
        if getattr(driver, init)(0) == 0 and getattr(driver, count)(ctypes.byref(found)) == 0:
            return found.value
    return 0


def run_job(cfg: DictConfig) -> float:
    """Hydra's task: run one job in its own processes and return its bits per byte (inf if it failed).

    A refused request is printed and counted here: Hydra would print an exception in its own words,
    and not run the jobs after it.

    Raises:
        KeyboardInterrupt: the job was stopped by a signal.
    """
    hydra_config = HydraConfig.get()
    folder = Path(hydra_config.runtime.output_dir)
    record = None
    try:
        record = _create_and_execute(cfg, hydra_config, folder)
    except (RequestError, OSError) as error:
        message = explain(error)
        if message is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        progress.num_refused += 1
    _remove_empty(folder)
    if record is None or record.validation is None or math.isnan(record.validation["bits_per_byte"]):
        return math.inf
    return float(record.validation["bits_per_byte"])


def _create_and_execute(cfg: DictConfig, hydra_config: Any, folder: Path) -> Record:
    is_sweep = hydra_config.mode.name == "MULTIRUN"
    config = resolve(cfg, hydra_config, hydra_config.overrides.task)
    if not is_sweep:  # which has checked all its jobs before the first one
        check_requests([config])
    create_run(config, folder, sweep=_sweep_name(hydra_config), rerun_of=_rerun_of(hydra_config))
    progress.folders.append(folder)
    _announce(hydra_config, folder)
    try:
        record = execute(config, folder)
    except KeyboardInterrupt:
        _say_how_to_go_on(folder)
        raise
    progress.num_failed += not record.finished
    if not is_sweep and (folder / RECORD_NAME).exists():
        print_comparison([folder])
    return record


def _say_how_to_go_on(folder: Path) -> None:
    checkpoint = folder / LAST_CHECKPOINT
    if checkpoint.is_file():
        run = _shown(folder)
        print(
            f"interrupted; to go on: python {shlex.quote(sys.argv[0])} --config-dir {run} --config-name run "
            f"resume_from={_shown(checkpoint)}",
            file=sys.stderr,
        )


def _sweep_name(hydra_config: Any) -> str | None:
    return Path(hydra_config.sweep.dir).name if hydra_config.mode.name == "MULTIRUN" else None


def _rerun_of(hydra_config: Any) -> str | None:
    repeated = _repeated_run(hydra_config)
    return None if repeated is None else read_record(repeated).run_id


def _repeated_run(hydra_config: Any) -> Path | None:
    """The run's folder that ``--config-dir RUN --config-name run`` named."""
    if hydra_config.job.config_name != Path(RUN_CONFIG_NAME).stem:
        return None
    sources = [Path(source.path) for source in hydra_config.runtime.config_sources if source.schema == "file"]
    return next((folder for folder in sources if (folder / RECORD_NAME).is_file()), None)


def _announce(hydra_config: Any, folder: Path) -> None:
    if hydra_config.mode.name == "MULTIRUN":
        overrides = " ".join(hydra_config.overrides.task) or "defaults"
        print(
            f"job {hydra_config.job.num + 1} of {progress.num_jobs}: {overrides} -> {_shown(folder)}",
            flush=True,
        )
    else:
        print(f"run: {_shown(folder)}", flush=True)


def _shown(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def create_run(
    config: dict[str, Any], folder: Path, sweep: str | None = None, rerun_of: str | None = None
) -> Record:
    """Write ``run.yaml`` and the first ``record.json`` into an empty folder.

    Raises:
        RequestError: the folder is not empty.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / RUN_CONFIG_NAME).exists():
        raise RequestError(f"{folder} holds a run already; choose another folder")
    if any(folder.iterdir()):
        raise RequestError(f"{folder} is not empty; choose another folder")
    commit, dirty = code_version()
    model = config["model"]
    arm = "tied" if model["tied"] else "untied"
    vocab_size = model["vocab_size"] or config["data"]["tokenizer"]["kind"]
    record = Record(
        run_id=f"{arm}-v{vocab_size}-d{model['embed_dim']}-s{config['seed']}-{token_hex(3)}",
        status="running",
        config=config,
        config_hash=config_hash(config),
        tied=model["tied"],
        seed=config["seed"],
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        process_id=os.getpid(),
        host=socket.gethostname(),
        commit=commit,
        dirty=dirty,
        code_hash=code_hash(),
        sweep=sweep,
        rerun_of=rerun_of,
    )
    try:
        write_record(folder, record)
        write_atomic(folder / RUN_CONFIG_NAME, run_yaml(config))
    except OSError:
        (folder / RECORD_NAME).unlink(missing_ok=True)
        raise
    return record


def run_yaml(config: dict[str, Any]) -> str:
    """The config as a primary Hydra config that refuses typos and takes overrides and sweeps."""
    defaults = [SCHEMA_NAME, LAYOUT_NAME, "_self_", *({group: None} for group in RERUN_GROUPS)]
    body = yaml.safe_dump({"defaults": defaults, **config}, sort_keys=False, allow_unicode=True)
    return f"# Repeat: python train.py --config-dir <this folder> --config-name run [key=value ...]\n{body}"


@functools.cache
def code_hash() -> str:
    """16 hex digits over the names and contents of this package's source files."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@functools.cache
def code_version() -> tuple[str | None, bool | None]:
    """Commit of the checkout of this package, and whether it has uncommitted changes; None outside git."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # else it is somebody else's repository
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain"))
    except (OSError, subprocess.CalledProcessError):
        return None, None


def execute(config: dict[str, Any], folder: Path) -> Record:
    """Run the processes of a created run to their end and return its record.

    Raises:
        RequestError: a process found that the config cannot be run; unless training had begun, the
            folder is removed.
        KeyboardInterrupt: the run was stopped by a signal; its record says interrupted.
    """
    status = start_and_wait(config, folder)
    record = read_record(folder)
    if os.environ.get("NODE_RANK", "0") != "0" and config["trainer"]["num_nodes"] > 1:
        # The first node's first process keeps the record of this run; a second one would count twice.
        (folder / RECORD_NAME).unlink()
        record.status = "finished" if status == FINISHED else "failed"
        return record
    if record.error is not None and record.error["type"] == RequestError.__name__:
        if record.num_steps is None:  # it had not begun, and all in the folder is ours
            shutil.rmtree(folder)
        raise RequestError(record.error["message"])
    if record.status == "running":  # its process was killed before it could write
        record.status = "interrupted" if status == INTERRUPTED else "failed"
        message = "stopped by a signal" if status == INTERRUPTED else describe_exit(status)
        record.error = {"type": "ProcessDied", "message": message, "traceback": ""}
        write_record(folder, record)
    if record.finished and status not in (FINISHED, INTERRUPTED):  # another process broke after the first
        record.status, record.validation = "failed", None
        record.error = {"type": "ProcessDied", "message": describe_exit(status), "traceback": ""}
        write_record(folder, record)
    first_error = _first_error_elsewhere(folder)
    if record.status == "failed" and first_error is not None:
        record.error = first_error
        write_record(folder, record)
    if record.status == "failed":
        assert record.error is not None
        what = "{type}: {message}\n{traceback}".format(**record.error)
        print(f"FAILED {_shown(folder)}: {what}", file=sys.stderr)
    if record.status == "interrupted" or status == INTERRUPTED:
        raise KeyboardInterrupt
    return record


def _first_error_elsewhere(folder: Path) -> dict[str, str] | None:
    """What another process failed with, if that was before the first one: the cause, not the consequence."""
    written = (folder / RECORD_NAME).stat().st_mtime
    files = sorted((path.stat().st_mtime, path) for path in folder.glob(ERROR_FILES))
    if not files or files[0][0] > written:
        return None
    error: dict[str, str] = json.loads(files[0][1].read_text(encoding="utf-8"))
    return error


def describe_exit(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"a process ended with status {status}"
    name = signal.Signals(-status).name
    hint = " (out of memory?)" if name == "SIGKILL" else ""
    return f"a process was killed by {name}{hint}"


def close_sweep(folder: Path) -> None:
    """Print the comparison of a sweep's finished jobs; remove the folder of a sweep that never began."""
    jobs = [path for path in folder.glob("*") if path.is_dir()] if folder.is_dir() else []
    if not jobs:
        (folder / "multirun.yaml").unlink(missing_ok=True)
        _remove_empty(folder)
        return
    if progress.num_refused and not progress.folders:
        return  # what lies there is of an earlier sweep
    print_comparison([folder])
    print(f"\nthis table again: tielab report {shlex.quote(_shown(folder))}")


def print_comparison(folders: list[Path]) -> None:
    """Print the table of these folders' runs."""
    from tielab.report.render import report

    print()
    print(report(folders, "auto") or "", end="")


def main(config_dir: Path | None, arguments: Sequence[str] | None = None, config_name: str = "config") -> int:
    """Run the command line of ``train.py`` and return its exit status.

    Args:
        config_dir: the folder of the primary config and the config groups.
        arguments: instead of the process's own.
        config_name: the primary config.
    """
    register(config_dir)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("hydra").setLevel(logging.WARNING)  # we announce the jobs ourselves
    if arguments is not None:
        sys.argv[1:] = arguments
    show_traceback = os.environ.get("HYDRA_FULL_ERROR") == "1"
    # Hydra then hands us the exception instead of printing its own page of text.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        check_arguments(sys.argv[1:])
        hydra.main(version_base="1.3", config_path=str(config_dir), config_name=config_name)(run_job)()
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        message = explain(error)
        if message is None or show_traceback:
            raise
        print(f"error: {message}", file=sys.stderr)
        return REFUSED
    return progress.exit_status
