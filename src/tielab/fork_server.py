"""A process that has imported torch and Lightning once, and from which every job's process is forked.

Such a process is ready in a fraction of a second; nothing of one job reaches the next.
"""

import contextlib
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import signal
import sys
import types
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tielab.lifetime import STOP_SIGNALS, die_with_parent

WANDB = ("wandb", "wandb.sdk.launch")
"""What starting a W&B run imports, in nearly a second."""

FORK_SERVER_DIED = 255
"""What multiprocessing says of all its processes then."""

has_forked = False
"""Whether this process has started a job's process from its fork server."""


def start_fork_server(*, with_wandb: bool) -> bool:
    """Let a server import torch and Lightning once, from which every job's process starts.

    Returns whether it was started now; one that runs already stays as it is.
    """
    # Else Python would import what lies in the current folder, which may be a stranger's run.
    os.environ["PYTHONSAFEPATH"] = "1"
    started = _server_pid() is None
    wandb = WANDB if with_wandb else ()
    multiprocessing.forkserver.set_forkserver_preload([*wandb, "tielab.preloaded"])
    with _stops_blocked():
        multiprocessing.forkserver.ensure_running()
    return started


def kill_fork_server() -> None:
    """End a server that is of no use, in the middle of its imports if need be."""
    pid = _server_pid()
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _server_pid() -> int | None:
    server: Any = multiprocessing.forkserver._forkserver
    pid: int | None = server._forkserver_pid
    return pid


@contextlib.contextmanager
def _stops_blocked() -> Iterator[None]:
    """Start the fork server with the signals blocked that ask a run to stop.

    SLURM and `kill -- -GROUP` send to it as well, and with it all processes seem to have ended. It
    inherits what is blocked here; the tracker of resources would unblock it, so it starts first.
    """
    multiprocessing.resource_tracker.ensure_running()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def fork(folder: Path, environment: dict[str, str], *, with_wandb: bool) -> BaseProcess:
    """Start a process of a run from the server, which is started too if there is none.

    Raises:
        EOFError: the server has died.
    """
    context = multiprocessing.get_context("forkserver")
    if multiprocessing.get_start_method() not in multiprocessing.get_all_start_methods():
        # Joblib's worker has one of its own, which the new process would try to set and not know.
        multiprocessing.set_start_method("forkserver", force=True)
    start_fork_server(with_wandb=with_wandb)
    process = context.Process(target=run_forked, args=(folder, environment, Path.cwd()))
    with _stops_blocked(), _main_module_unseen():
        process.start()
    global has_forked
    has_forked = True
    return process


@contextlib.contextmanager
def _main_module_unseen() -> Iterator[None]:
    """Keep a new process from importing the program that starts it, which would begin anew there."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def run_forked(folder: Path, environment: dict[str, str], current: Path) -> None:
    """Be a process of a run: what a forked one does from its first moment on."""
    # A fork server's environment and current folder are those of its own start.
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(current)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    from tielab.experiment import run_process

    die_with_parent()
    sys.exit(run_process(folder))
