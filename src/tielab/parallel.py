"""A sweep whose jobs are started by joblib or submitit: who trains when, and how all of it stops.

The sweep's own process holds a lock as long as its jobs may train. A job that finds it free, because
the sweep was interrupted or its process killed, stops as it does after Ctrl-C. Imports no torch.
"""

import contextlib
import functools
import math
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from types import FrameType
from typing import Any

from tielab import processes
from tielab.slots import hold_slots, slots_folder, try_lock

SECONDS_TO_STOP = processes.SECONDS_TO_STOP + 10


@dataclass(frozen=True)
class Turns:
    """What the process of a job must know to take its turn; travels with the job."""

    program: str
    parallel_jobs: int
    folder: Path | None
    """Of its locks; None if the jobs run on other machines."""
    visible_gpus: str | None
    """``CUDA_VISIBLE_DEVICES`` of the sweep's process: submitit's local jobs get another one."""

    @property
    def names(self) -> list[str]:
        return [f"turn{i}" for i in range(self.parallel_jobs)]

    def is_over(self) -> bool:
        """Whether the sweep's process has ended or wants its jobs to."""
        if self.folder is None:
            return False
        try:
            alive = try_lock(self.folder / "alive")
        except FileNotFoundError:
            return True
        if alive is not None:
            os.close(alive)
        return alive is not None


@contextlib.contextmanager
def open_turns(parallel_jobs: int) -> Iterator[Turns]:
    """Turns for the jobs of a sweep on this machine; Ctrl-C or SIGTERM lets them write their checkpoints.

    Raises:
        KeyboardInterrupt: the sweep was interrupted; none of its jobs is training any more.
    """
    _remove_killed_sweeps()
    folder = slots_folder() / f"sweep-{token_hex(8)}"
    folder.mkdir()
    turns = Turns(sys.argv[0], parallel_jobs, folder, os.environ.get("CUDA_VISIBLE_DEVICES"))
    alive = contextlib.ExitStack()

    def stop() -> None:
        print("interrupted; the jobs write their checkpoints", file=sys.stderr, flush=True)
        alive.close()
        deadline = time.monotonic() + SECONDS_TO_STOP
        with hold_slots(turns.names, len(turns.names), folder, give_up=lambda: time.monotonic() > deadline):
            pass

    descriptor = try_lock(folder / "alive")
    assert descriptor is not None
    alive.callback(os.close, descriptor)
    try:
        with alive, _on_signal(stop):
            yield turns
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_killed_sweeps() -> None:
    for folder in slots_folder().glob("sweep-*"):
        with contextlib.suppress(OSError):
            old = time.time() - folder.stat().st_mtime > 60  # else it may be about to get its lock
            alive = try_lock(folder / "alive") if old else None
            if alive is not None:
                os.close(alive)
                shutil.rmtree(folder)


@contextlib.contextmanager
def _on_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` at the first Ctrl-C or SIGTERM and raise KeyboardInterrupt then, or at the second."""
    received: list[int] = []
    ended = threading.Event()
    main_thread = threading.get_ident()

    def receive(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            stop()
        raise KeyboardInterrupt

    def pass_on() -> None:
        while not ended.is_set():
            if signal.sigtimedwait({signal.SIGINT}, 0.5) is not None:
                # To that thread: a sleep in it would not end for a signal that another one received.
                signal.pthread_kill(main_thread, signal.SIGTERM)

    # A terminal sends Ctrl-C to all processes of the sweep. Those that submitit puts between this one and
    # a job would kill the job a second later; they inherit what is blocked here.
    previous = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    listener = threading.Thread(target=pass_on, daemon=True)
    listener.start()
    try:
        yield
    finally:
        ended.set()
        listener.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, handler in previous.items():
            signal.signal(number, handler)


def run_in_turn(task_function: Callable[[Any], float], turns: Turns, cfg: Any) -> float:
    """Hydra's task in the process of a job: run it when fewer than ``parallel_jobs`` others do.

    Returns what the task does, or inf if a signal stopped this job alone.

    Raises:
        KeyboardInterrupt: the sweep is over.
    """
    sys.argv[0] = turns.program
    with contextlib.ExitStack() as held:
        if turns.folder is not None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the sweep's process has got it as well
            held.enter_context(_at_work)
            _leave_with_parent(os.getppid())
            _restore_visible_gpus(turns.visible_gpus)
            processes.stop_asked = turns.is_over
            turn = hold_slots(turns.names, 1, turns.folder, turns.is_over)
            if turns.is_over() or not held.enter_context(turn):
                raise KeyboardInterrupt
        result = math.inf
        with contextlib.suppress(KeyboardInterrupt, SystemExit):
            result = task_function(cfg)
        deadline = time.monotonic() + 1  # a signal to all may have reached this job first
        while math.isinf(result) and time.monotonic() < deadline:
            if turns.is_over():
                raise KeyboardInterrupt
            time.sleep(0.1)
        return result


def _restore_visible_gpus(visible: str | None) -> None:
    if visible is None:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible


_at_work = threading.Lock()
"""Held while this process runs a job."""


@functools.cache
def _leave_with_parent(parent: int) -> None:
    """End this process when its parent has gone and its job has stopped: joblib's would stay for minutes."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        with _at_work:
            os._exit(70)

    threading.Thread(target=watch, daemon=True).start()
