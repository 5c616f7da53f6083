"""One run in the process that starts it: its folder, its attempts, its end. Imports no torch.

A run's folder holds ``run.yaml`` from the moment it is reserved and ``record.json`` from the moment it
begins. What is there says what to do with it, to this process or to any later one.
"""

import contextlib
import functools
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any

import yaml

from tielab.config import LAYOUT_NAME, SCHEMA_NAME, computed, config_hash, yaml_text
from tielab.errors import FINISHED, INTERRUPTED, RequestError, printable
from tielab.matching import matching_record
from tielab.processes import FORK_SERVER_DIED, start_and_wait
from tielab.record import (
    ERROR_FILES,
    LAST_CHECKPOINT,
    METRICS_NAME,
    NODE_RECORDS,
    RECORD_NAME,
    RUN_CONFIG_NAME,
    Attempt,
    Record,
    read_record,
    write_atomic,
    write_record,
)
from tielab.slots import try_lock

RERUN_GROUPS = (
    "model",
    "data",
    "vocab",
    "optimizer",
    "schedule",
    "budget",
    "trainer",
    "tying",
    "width",
    "matching",
)
LOCK_NAME = ".lock"
"""Held by the process that runs a folder; the kernel lets go however that process ends."""


def reserve(config: dict[str, Any], folder: Path) -> None:
    """Write ``run.yaml`` into a folder that is new or empty, so that it is nobody else's.

    Raises:
        RequestError: the folder is not empty.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / RUN_CONFIG_NAME).exists():
        raise RequestError(f"{folder} holds a run already; choose another folder")
    if any(folder.iterdir()):
        raise RequestError(f"{folder} is not empty; choose another folder")
    try:
        with (folder / RUN_CONFIG_NAME).open("x", encoding="utf-8") as file:
            file.write(run_yaml(config))
    except FileExistsError:
        raise RequestError(f"{folder} was just taken by another run; choose another folder") from None
    except OSError:
        (folder / RUN_CONFIG_NAME).unlink(missing_ok=True)
        raise


def run_yaml(config: dict[str, Any]) -> str:
    """The config as a primary Hydra config that refuses typos and takes overrides and sweeps."""
    defaults = [SCHEMA_NAME, LAYOUT_NAME, "_self_", *({group: None} for group in RERUN_GROUPS)]
    # Going on is asked of a command; the folder says what the run is.
    body = {"defaults": defaults, **config, "resume": False}
    text = yaml.safe_dump(body, sort_keys=False, allow_unicode=True)
    return f"# Repeat: python train.py --config-dir <this folder> --config-name run [key=value ...]\n{text}"


def read_run_config(folder: Path) -> dict[str, Any]:
    """The resolved config of a run, as plain values; interpolations in it stay text.

    Raises:
        RequestError: no ``run.yaml``, or an incomplete one.
    """
    path = folder / RUN_CONFIG_NAME
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RequestError(f"{folder}: no {RUN_CONFIG_NAME} there; give the folder of a run") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise RequestError(f"{path} is not YAML; the run must be started anew") from None
    if not isinstance(config, dict) or "defaults" not in config:
        raise RequestError(f"{path} is not the config of a run; give the folder of a run")
    del config["defaults"]
    return config


@dataclass(frozen=True)
class State:
    """How far a run has come, from what lies in its folder."""

    status: str
    """``finished``, ``diverged``, ``failed``, ``interrupted``, ``running``, ``killed``: its process has gone
    without a word or its record is lost, or ``waiting``: not begun."""
    record: Record | None = None

    @property
    def refused(self) -> bool:
        """Whether its own process found that it cannot be run as asked."""
        error = self.record.error if self.record is not None else None
        return error is not None and error["type"] == RequestError.__name__

    @property
    def settled(self) -> bool:
        """Whether running it again would change nothing; what diverged may not with other code."""
        if self.status == "diverged" and self.record is not None:
            return self.record.code_hash == code_hash()
        return self.status == "finished"

    @property
    def reason(self) -> str:
        """Why it is not finished, in a line; empty if there is nothing to say."""
        error = self.record.error if self.record is not None else None
        if error is None:
            return ""
        told = self.refused or self.status == "diverged"
        what = error["message"] if told else f"{error['type']}: {error['message']}"
        return printable(" ".join(what.split()))


def state_of(folder: Path) -> State:
    """The state of a run.

    Raises:
        RequestError: its record is of another version.
    """
    record = _record_in(folder)
    if record is not None and record.status == "running" and not is_held(folder):
        record = _record_in(folder)  # written once more since, if it has ended between the two looks
        if record is not None and record.status == "running":
            return State("killed", record)
    if record is None:
        return State("killed" if (folder / METRICS_NAME).exists() else "waiting")
    return State("diverged" if record.diverged else record.status, record)


def _record_in(folder: Path) -> Record | None:
    if (folder / RECORD_NAME).is_file():
        return read_record(folder) if _is_json(folder / RECORD_NAME) else None
    elsewhere = next(folder.glob(NODE_RECORDS), None)
    return None if elsewhere is None else read_record(folder, elsewhere.name)


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return True


def is_held(folder: Path) -> bool:
    """Whether some process runs this folder now."""
    if not (folder / LOCK_NAME).exists():
        return False
    lock = try_lock(folder / LOCK_NAME)
    if lock is not None:
        os.close(lock)
    return lock is None


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Keep every other process from running this folder meanwhile.

    Raises:
        RequestError: one does already.
    """
    lock = _lock(folder)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            (folder / LOCK_NAME).unlink()
        os.close(lock)


def _lock(folder: Path) -> int:
    deadline = time.monotonic() + 1  # a look at the lock holds it for a moment
    while time.monotonic() < deadline:
        lock = try_lock(folder / LOCK_NAME)
        if lock is not None and os.fstat(lock).st_nlink:
            return lock
        if lock is not None:  # its last holder has just removed the file
            os.close(lock)
        time.sleep(0.05)
    record = read_record(folder) if (folder / RECORD_NAME).exists() else None
    whose = f"process {record.process_id} on {record.host}" if record else "another process"
    raise RequestError(f"{shown(folder)} is being run by {whose}; wait for it or stop it")


def run_folder(folder: Path, sweep: str | None = None, rerun_of: str | None = None) -> Record:
    """Run what a folder's ``run.yaml`` asks for, and return its record.

    A run that was begun before goes on from its last checkpoint; one that is settled is left alone.

    Raises:
        RequestError: it is being run already, its config was changed, or a process found that it
            cannot be run; of a run that had not begun only ``run.yaml`` is left.
        KeyboardInterrupt: the run was stopped by a signal; its record says interrupted.
    """
    folder = folder.absolute()  # callbacks remember paths in it, from whatever folder it is resumed
    config = read_run_config(folder)
    with hold(folder):
        state = state_of(folder)
        if state.record is None:
            record = first_record(config, sweep, rerun_of)
            if state.status == "killed":  # it goes on from its last checkpoint all the same
                print(f"note: the record of {shown(folder)} is lost or cannot be read", file=sys.stderr)
                record.attempts = [asdict(Attempt(None, "killed", None, None, None, None, None))]
        elif state.settled:
            return state.record
        else:
            record = _next_attempt(state.record, config, folder)
        try:
            write_record(folder, record)
        except OSError:
            if not record.attempts:
                (folder / RECORD_NAME).unlink(missing_ok=True)
            raise
        return execute(config, folder)


def first_record(config: dict[str, Any], sweep: str | None = None, rerun_of: str | None = None) -> Record:
    """The record of a run that begins now, in this process."""
    model = config["model"]
    arm = "tied" if model["tied"] else "untied"
    vocab_size = model["vocab_size"] or config["data"]["tokenizer"]["kind"]
    return Record(
        run_id=f"{arm}-v{vocab_size}-d{model['embed_dim']}-s{config['seed']}-{token_hex(3)}",
        status="running",
        config=config,
        config_hash=config_hash(config),
        tied=model["tied"],
        seed=config["seed"],
        matching=matching_record(config),
        sweep=sweep,
        rerun_of=rerun_of,
        **_here_and_now(),
    )


def _next_attempt(record: Record, config: dict[str, Any], folder: Path) -> Record:
    """The record of a run that is taken up again; what was attempted before is kept in it."""
    changed = differences(record.config, config)
    if changed:
        raise RequestError(
            f"{folder / RUN_CONFIG_NAME} was changed since the run began: {'; '.join(changed)}; "
            "change it back or start a new run"
        )
    if config["trainer"]["num_nodes"] > 1:
        raise RequestError(
            f"{folder} is a run of {config['trainer']['num_nodes']} nodes, which share no folder; "
            f"start a new one on each with resume_from={folder / LAST_CHECKPOINT}"
        )
    if record.code_hash != code_hash():
        print(
            f"note: {shown(folder)} goes on with other code (was {record.code_hash}, is now {code_hash()})",
            file=sys.stderr,
        )
    # What other processes failed with, and what a kill left of a checkpoint that was being written.
    for path in [*folder.glob(ERROR_FILES), *(folder / LAST_CHECKPOINT).parent.glob(".*.ckpt.*")]:
        path.unlink()
    earlier = Attempt(
        started_at=record.started_at,
        status="killed" if record.status == "running" else record.status,
        error=record.error,
        commit=record.commit,
        dirty=record.dirty,
        code_hash=record.code_hash,
        host=record.host,
    )
    return replace(
        record,
        status="running",
        config=config,
        **_here_and_now(),
        attempts=[*record.attempts, asdict(earlier)],
        error=None,
        validation=None,
    )


def _here_and_now() -> dict[str, Any]:
    """The fields of a record that say when, where and of what code an attempt is."""
    commit, dirty = code_version()
    return {
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "process_id": os.getpid(),
        "host": socket.gethostname(),
        "commit": commit,
        "dirty": dirty,
        "code_hash": code_hash(),
    }


def differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """``key was A, is now B`` for every key that decides what is computed and differs."""
    old, new = computed(then), computed(now)
    return [
        f"{key} was {yaml_text(old.get(key))}, is now {yaml_text(new.get(key))}"
        for key in dict.fromkeys([*old, *new])
        if old.get(key) != new.get(key)
    ]


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
    """Run the processes of a run whose record is written to their end, and return its record.

    Raises:
        RequestError, KeyboardInterrupt: as ``run_folder``.
    """
    ending = start_and_wait(config, folder)
    record = read_record(folder)
    stopped = ending.stopped or ending.status == INTERRUPTED
    if os.environ.get("NODE_RANK", "0") != "0" and config["trainer"]["num_nodes"] > 1:
        # The first node's first process keeps the record of this run; a second one would count twice.
        record.status = "interrupted" if stopped else "finished" if ending.status == FINISHED else "failed"
        write_record(folder, record)
        (folder / RECORD_NAME).rename(folder / NODE_RECORDS.replace("*", os.environ["NODE_RANK"]))
        if ending.stopped:
            raise KeyboardInterrupt
        return record
    if record.error is not None and record.error["type"] == RequestError.__name__:
        if record.num_steps is None and record.sweep is None and not record.attempts:
            _clear(folder)  # it had not begun, and all in the folder is ours
        raise RequestError(record.error["message"])
    if record.status == "running":  # its process was killed before it could write
        record.status = "interrupted" if stopped else "failed"
        message = "stopped by a signal" if stopped else describe_exit(ending.status)
        record.error = {"type": "ProcessDied", "message": message, "traceback": ""}
        write_record(folder, record)
    if record.finished and not stopped and ending.status != FINISHED:  # another one broke after the first
        record.status, record.validation = "failed", None
        record.error = {"type": "ProcessDied", "message": describe_exit(ending.status), "traceback": ""}
        write_record(folder, record)
    first_error = _first_error_elsewhere(folder)
    if record.status == "failed" and first_error is not None:
        record.error = first_error
        write_record(folder, record)
    elif record.status == "failed" and ending.status < 0 and record.error is not None:
        # Another process was killed, and the first one can only say that it has lost its neighbour.
        record.error |= {"type": "ProcessDied", "message": describe_exit(ending.status)}
        write_record(folder, record)
    if record.status == "failed":
        assert record.error is not None
        if record.diverged:  # what came out, and no fault of the code
            print(f"DIVERGED {shown(folder)}: {record.error['message']}", file=sys.stderr)
        else:
            what = "{type}: {message}\n{traceback}".format(**record.error)
            print(f"FAILED {shown(folder)}: {what}", file=sys.stderr)
    if ending.stopped:  # and not one of its processes alone: then the next job may begin
        raise KeyboardInterrupt
    return record


def _clear(folder: Path) -> None:
    """Leave nothing but what was asked for."""
    for path in folder.iterdir():
        if path.name not in (RUN_CONFIG_NAME, LOCK_NAME):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


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
        hint = " (was its fork server killed?)" if status == FORK_SERVER_DIED else ""
        return f"a process ended with status {status}{hint}"
    name = signal.Signals(-status).name
    hint = " (out of memory?)" if name == "SIGKILL" else ""
    return f"a process was killed by {name}{hint}"


def renew_run_yaml(config: dict[str, Any], folder: Path) -> None:
    """Let an unfinished run go on with other run-only keys."""
    write_atomic(folder / RUN_CONFIG_NAME, run_yaml(config))


def shown(path: Path) -> str:
    """The path as a person here would type it."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
