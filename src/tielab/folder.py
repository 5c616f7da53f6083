"""A run's folder: what it holds, who runs it now, and how far its run has come. Imports no torch."""

import contextlib
import json
import os
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tielab.code_version import code_hash
from tielab.config import LAYOUT_NAME, SCHEMA_NAME, computed, with_later_keys, yaml_text
from tielab.errors import RequestError, printable
from tielab.record import (
    METRICS_NAME,
    NODE_RECORDS,
    RECORD_NAME,
    RUN_CONFIG_NAME,
    Record,
    read_record,
    write_atomic,
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


def give_back(folder: Path) -> None:
    """Undo ``reserve`` of a run that was refused before it began; one that has begun is left alone."""
    if not (folder / RECORD_NAME).exists():
        (folder / RUN_CONFIG_NAME).unlink()
        remove_empty(folder)


def run_yaml(config: dict[str, Any]) -> str:
    """The config as a primary Hydra config that refuses typos and takes overrides and sweeps."""
    defaults = [SCHEMA_NAME, LAYOUT_NAME, "_self_", *({group: None} for group in RERUN_GROUPS)]
    # Going on is asked of a command; the folder says what the run is.
    body = {"defaults": defaults, **config, "resume": False}
    text = yaml.safe_dump(body, sort_keys=False, allow_unicode=True)
    return f"# Repeat: python train.py --config-dir <this folder> --config-name run [key=value ...]\n{text}"


FAST_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The same values in a tenth of the time, where PyYAML was built with libyaml: a job reads it six times."""


def read_run_config(folder: Path) -> dict[str, Any]:
    """The resolved config of a run, as plain values and with every key; interpolations in it stay text.

    Raises:
        RequestError: no ``run.yaml``, or an incomplete one.
    """
    path = folder / RUN_CONFIG_NAME
    try:
        config = yaml.load(path.read_text(encoding="utf-8"), FAST_LOADER)
    except FileNotFoundError:
        raise RequestError(f"{folder}: no {RUN_CONFIG_NAME} there; give the folder of a run") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise RequestError(f"{path} is not YAML; the run must be started anew") from None
    if not isinstance(config, dict) or "defaults" not in config:
        raise RequestError(f"{path} is not the config of a run; give the folder of a run")
    del config["defaults"]
    try:
        return with_later_keys(config)
    except (KeyError, TypeError, AttributeError):
        raise RequestError(f"{path} is not the config of a run; give the folder of a run") from None


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
        told = self.refused or self.status in ("diverged", "interrupted")
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
    except (ValueError, RecursionError):
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


def differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """``key was A, is now B`` for every key that decides what is computed and differs."""
    old, new = computed(then), computed(now)
    return [
        f"{key} was {yaml_text(old.get(key))}, is now {yaml_text(new.get(key))}"
        for key in dict.fromkeys([*old, *new])
        if old.get(key) != new.get(key)
    ]


def renew_run_yaml(config: dict[str, Any], folder: Path) -> None:
    """Let an unfinished run go on with other run-only keys."""
    write_atomic(folder / RUN_CONFIG_NAME, run_yaml(config))


def shown(path: Path) -> str:
    """The path as a person here would type it."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def quoted(path: Path) -> str:
    """The path as it is typed into a shell here."""
    return shlex.quote(shown(path))


def remove_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
