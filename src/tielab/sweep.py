"""A sweep: a folder with one run per job, and the list of its jobs.

``sweep.jsonl`` has a line for every request and every job. It only grows: a job keeps its folder whatever
is asked for later. What a job is, is the hash of its config; where it stands, its own folder says.
"""

import contextlib
import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tielab.code_version import code_hash
from tielab.config import RUN_ONLY_KEYS, config_hash
from tielab.errors import FAILED, FINISHED, INTERRUPTED, REFUSED, RequestError
from tielab.folder import State, differences, read_run_config, renew_run_yaml, reserve, shown, state_of
from tielab.record import RECORD_NAME, RUN_CONFIG_NAME

MANIFEST_NAME = "sweep.jsonl"
STUDY_NAME = "study.jsonl"
"""Optuna's journal, if the sweep is a search."""
RERUN_OF = "rerun_of="
"""Begins the part of a request that names the run whose config it changes."""
STOPPED_NAME = "stopped"
"""Names the job whose failure stopped the sweep (``on_failure=stop``); gone when it is resumed."""


@dataclass(frozen=True)
class Job:
    """One run of a sweep, by the name of its folder."""

    name: str
    overrides: list[str]
    config_hash: str


@dataclass
class Sweep:
    """What was asked of a sweep's folder so far."""

    folder: Path
    requests: list[list[str]] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)

    @property
    def rerun_of(self) -> str | None:
        """The run_id of the run whose config the jobs change."""
        parts = (part for request in self.requests for part in request if part.startswith(RERUN_OF))
        found = next(parts, None)
        return None if found is None else found.removeprefix(RERUN_OF)

    @property
    def grows(self) -> bool:
        """Whether its jobs follow from the results of others, so that only its command can go on with it."""
        return self.is_tuned or (self.folder / STUDY_NAME).exists()

    @property
    def is_tuned(self) -> bool:
        """Whether it chooses the learning rates that it then compares at."""
        return any(o.startswith("study.phase=") for job in self.jobs for o in job.overrides)

    def path(self, job: Job) -> Path:
        return self.folder / job.name

    def state(self, job: Job) -> State:
        return state_of(self.path(job))


def may_run(state: State) -> bool:
    """Whether there is anything left to run, and nobody else at it."""
    return not state.settled and state.status != "running"


def is_sweep(folder: Path) -> bool:
    return (folder / MANIFEST_NAME).is_file()


def read_sweep(folder: Path) -> Sweep:
    """The sweep of a folder.

    Raises:
        RequestError: there is none, or its list is not one.
    """
    sweep = Sweep(folder)
    path = folder / MANIFEST_NAME
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except OSError:
        raise RequestError(f"{folder}: no {MANIFEST_NAME} there; give the folder of a sweep") from None
    except UnicodeDecodeError:
        raise RequestError(f"{path} is not the list of a sweep; start a new one") from None
    for line in lines:
        if not line.endswith("\n"):  # torn by a kill: what it announces was not begun
            continue
        try:
            entry = json.loads(line)
            if "request" in entry:
                sweep.requests.append([str(part) for part in entry["request"]])
            else:
                sweep.jobs.append(_job(**entry))
        except (ValueError, TypeError, RecursionError):
            raise RequestError(f"{path} is not the list of a sweep; start a new one") from None
    if not sweep.requests:
        raise RequestError(f"{path} names no request; start a new sweep")
    listed = {job.name for job in sweep.jobs}
    lost = next(
        (p.parent for p in sorted(folder.glob(f"*/{RECORD_NAME}")) if p.parent.name not in listed), None
    )
    if lost is not None:
        raise RequestError(
            f"{path} is damaged: it does not list {lost}; go on with the runs in there one by one"
        )
    return sweep


def _job(name: str, overrides: list[str], config_hash: str) -> Job:
    if not isinstance(name, str) or not name.isdecimal():  # it would lead out of the sweep
        raise ValueError(name)
    if not isinstance(overrides, list):
        raise TypeError(overrides)
    return Job(name, [str(override) for override in overrides], str(config_hash))


def begin_sweep(folder: Path, request: Sequence[str]) -> Sweep:
    """Make the folder of a new sweep.

    Raises:
        RequestError: something is there already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if is_sweep(folder):
        raise RequestError(
            f"{shown(folder)} holds a sweep already; go on with it with resume=true, or choose another folder"
        )
    if any(folder.iterdir()):
        raise RequestError(f"{shown(folder)} is not empty; choose another folder")
    try:
        (folder / MANIFEST_NAME).open("x").close()
    except FileExistsError:
        raise RequestError(f"{shown(folder)} was just taken by another sweep; choose another") from None
    sweep = Sweep(folder)
    add_request(sweep, request)
    return sweep


def find_sweep(sweeps: Path, request: Sequence[str], config_hashes: Sequence[str] = ()) -> Path | None:
    """The newest sweep that was asked for the same, or that this request only adds jobs to.

    Args:
        request: whatever its run-only keys are.
        config_hashes: of the jobs asked for.
    """
    asked = identity_of(request)
    found = []
    for folder in sorted(sweeps.glob("*"), reverse=True):  # the names begin with the time of the start
        with contextlib.suppress(RequestError):
            if is_sweep(folder):
                found.append(read_sweep(folder))
    same = (sweep.folder for sweep in found if asked in map(identity_of, sweep.requests))
    smaller = (s.folder for s in found if s.jobs and {job.config_hash for job in s.jobs} <= {*config_hashes})
    return next(same, None) or next(smaller, None)


def command_of(sweep: Sweep) -> str:
    """The command line that goes on with a sweep."""
    request = [part for part in sweep.requests[-1] if not part.startswith(RERUN_OF)]
    return "python train.py -m " + shlex.join(
        [*request, f"hydra.sweep.dir={shown(sweep.folder)}", "resume=true"]
    )


def identity_of(overrides: Iterable[str]) -> list[str]:
    """The overrides that can change what is computed, in a fixed order."""

    def is_run_only(override: str) -> bool:
        key = override.partition("=")[0].lstrip("+~").replace("/", ".")
        return any(key == name or key.startswith(f"{name}.") for name in (*RUN_ONLY_KEYS, "hydra"))

    return sorted(override for override in overrides if not is_run_only(override))


def find_jobs(
    sweep: Sweep, requested: Sequence[tuple[list[str], dict[str, Any]]]
) -> list[tuple[Job | None, dict[str, Any]]]:
    """The job of the sweep that each requested config is, or None for a new one.

    Raises:
        RequestError: a job of the same overrides had another config.
    """
    unused = list(sweep.jobs)
    found: list[tuple[Job | None, dict[str, Any]]] = []
    for overrides, config in requested:
        same = [job for job in unused if job.config_hash == config_hash(config)]
        # Several jobs may compute the same and say of different requests that they were solved for them.
        asked = (job for job in same if identity_of(job.overrides) == identity_of(overrides))
        job = next(asked, None) or next(iter(same), None)
        if job is not None:
            unused.remove(job)
        found.append((job, config))
    for (overrides, config), (job, _) in zip(requested, found, strict=True):
        drifted = next((j for j in unused if identity_of(j.overrides) == identity_of(overrides)), None)
        if job is None and drifted is not None and (sweep.path(drifted) / RUN_CONFIG_NAME).is_file():
            changed = differences(read_run_config(sweep.path(drifted)), config)
            raise RequestError(
                f"the config has changed since {shown(sweep.path(drifted))} was begun: {'; '.join(changed)}; "
                f"go on as it was with: tielab resume {shown(sweep.folder)}; or start a new sweep"
            )
    return found


def refuse_another(sweep: Sweep) -> None:
    """Raise RequestError: the folder holds a sweep, and not the one asked for."""
    asked = " ".join(sweep.requests[0])
    raise RequestError(f"{shown(sweep.folder)} holds another sweep ({asked}); choose another folder")


def add_request(sweep: Sweep, request: Sequence[str]) -> None:
    """Remember what was asked for, so that the same command finds this sweep again."""
    if identity_of(request) not in map(identity_of, sweep.requests):
        _append(sweep, [{"request": list(request)}])
        sweep.requests.append(list(request))


def add_jobs(sweep: Sweep, new: Sequence[tuple[list[str], dict[str, Any]]]) -> list[Job]:
    """Give new jobs, by overrides and config, the next folders.

    All are listed at once, after their folders are made: a kill in between leaves folders that nobody
    knows, which the next call takes.
    """
    if not new:
        return []
    first = max((int(job.name) for job in sweep.jobs), default=-1) + 1
    jobs = []
    for number, (overrides, config) in enumerate(new, first):
        job = Job(str(number), overrides, config_hash(config))
        if sorted(path.name for path in sweep.path(job).glob("*")) == [RUN_CONFIG_NAME]:
            (sweep.path(job) / RUN_CONFIG_NAME).unlink()
        reserve(config, sweep.path(job))
        jobs.append(job)
    _append(sweep, map(vars, jobs))
    sweep.jobs += jobs
    return jobs


def _append(sweep: Sweep, entries: Iterable[dict[str, Any]]) -> None:
    text = "".join(json.dumps(entry) + "\n" for entry in entries)
    with (sweep.folder / MANIFEST_NAME).open("r+b") as file:
        whole = file.read()
        # One write call after what is whole: a reader never sees half a line, a torn one is replaced.
        file.seek(whole.rfind(b"\n") + 1)
        file.truncate()
        file.write(text.encode())


def renew(sweep: Sweep, job: Job, config: dict[str, Any]) -> None:
    """Let an unfinished job go on with the run-only keys of a later request."""
    sweep.path(job).mkdir(exist_ok=True)
    renew_run_yaml(config, sweep.path(job))


def code_drift(sweep: Sweep, jobs: Sequence[Job]) -> str | None:
    """A line on finished jobs of other code than this, if there are any."""
    now = code_hash()
    records = [(job.name, state.record) for job in jobs if (state := sweep.state(job)).status == "finished"]
    other = [name for name, record in records if record is not None and record.code_hash not in (None, now)]
    if not other:
        return None
    return f"note: the code has changed since job {', '.join(other)} finished (now {now}); kept as it is"


def summary(sweep: Sweep, jobs: Sequence[Job]) -> list[str]:
    """How many of the jobs have come how far, and a line for each one that is not finished."""
    states = [(job, sweep.state(job)) for job in jobs]
    counts: dict[str, int] = {}
    for _, state in states:
        counts[state.status] = counts.get(state.status, 0) + 1
    parts = [f"{counts[status]} {word}" for status, word in WORDS.items() if status in counts]
    lines = [f"{len(jobs)} {'job' if len(jobs) == 1 else 'jobs'}: {', '.join(parts)}"]
    for job, state in states:
        if state.status != "finished":
            reason = f": {state.reason}" if state.reason else ""
            lines.append(f"  {WORDS[state.status]} {shown(sweep.path(job))}{reason}")
    return lines


WORDS = {
    "finished": "finished", "diverged": "diverged", "failed": "failed", "killed": "killed",
    "interrupted": "interrupted",
    "running": "running elsewhere", "waiting": "not begun",
}  # fmt: skip
EXIT_STATUSES = {
    "finished": FINISHED, "diverged": FAILED, "failed": FAILED, "killed": FAILED, "interrupted": INTERRUPTED,
    "running": REFUSED, "waiting": REFUSED,
}  # fmt: skip


def exit_status(states: Sequence[State]) -> int:
    """Of a command that was to finish the jobs that stand so."""
    found = {EXIT_STATUSES[state.status] for state in states}
    return next((status for status in (FAILED, INTERRUPTED, REFUSED) if status in found), FINISHED)
