"""One run in the process that starts it: its folder, its attempts, its end. Imports no torch.

A run's folder holds ``run.yaml`` from the moment it is reserved and ``record.json`` from the moment it
begins. What is there says what to do with it, to this process or to any later one.
"""

import json
import os
import shutil
import signal
import socket
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any

from tielab.code_version import code_hash, code_version
from tielab.config import config_hash
from tielab.errors import FINISHED, INTERRUPTED, RequestError
from tielab.folder import LOCK_NAME, differences, hold, read_run_config, shown, state_of
from tielab.fork_server import FORK_SERVER_DIED
from tielab.matching import matching_record
from tielab.processes import start_and_wait
from tielab.record import (
    ERROR_FILES,
    LAST_CHECKPOINT,
    NODE_RECORDS,
    RECORD_NAME,
    RUN_CONFIG_NAME,
    Attempt,
    Record,
    read_record,
    write_record,
)


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
