"""How a run's own process lives: it is asked to stop by signals, and ends with the one that started it."""

import atexit
import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from multiprocessing.connection import wait
from typing import NoReturn

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)
"""The last one is SLURM's warning before a time limit or a preemption, as submitit asks for it."""


def die_with_parent() -> None:
    """End this process when the one that started it has gone, however it went."""
    # SLURM's warning goes to every process of a job; the one that started this one acts on it.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    launcher = multiprocessing.parent_process()
    parent = os.getppid()

    def watch() -> None:
        if launcher is not None:  # forked by the fork server, which outlives the one that asked for it
            wait([launcher.sentinel])
        while launcher is None and os.getppid() == parent:
            time.sleep(1)
        os._exit(70)

    threading.Thread(target=watch, daemon=True).start()


def leave(status: int) -> NoReturn:
    """End this process as a forked one ends: all but the tearing down of the interpreter.

    Where FSDP still refers to a group that was destroyed, its threads live on, and one that lets go of
    a tensor while the interpreter is torn down aborts the process after its work is done and recorded.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for the threads that are to be waited for
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # a closed pipe, or none at all
            stream.flush()
    os._exit(status)
