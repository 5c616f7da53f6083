"""Whole processes that take turns: started, stopped by SIGSTOP, and let run one at a time.

A process says itself when its steps end. Those that lie wholly inside a turn are counted, so that neither
a pause nor a start is.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

MIN_STEPS = 3
"""Whole ones in a turn."""
MIN_SECONDS = 2.0
POLL_SECONDS = 0.1
START_SECONDS = 240.0


class DiedError(RuntimeError):
    """A process ended that should have gone on; says its last lines."""


class Turns:
    """One process tree that trains whenever it has its turn.

    Args:
        read_seconds: seconds of each of its steps, read from its folder; called while it may be writing.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        read_seconds: Callable[[Path], list[float]],
    ):
        self._folder = folder
        self._read = read_seconds
        self._output = folder / "output.txt"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.send(signal.SIGKILL)
        self._process.wait()

    def num_steps(self) -> int:
        """Steps that have ended.

        Raises:
            DiedError: the process is no more.
        """
        if self._process.poll() is not None:
            lines = self._output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise DiedError(f"exit status {self._process.returncode}: " + " / ".join(lines[-3:]))
        return len(self._read(self._folder))

    def send(self, number: int) -> None:
        """Send a signal to the whole tree, also to those who left its group, as wandb's service does."""
        for pid in tree(self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def warm_up(self, num_steps: int) -> None:
        """Wait for the first steps, then stop.

        Raises:
            DiedError: it ended, or did not get there in ``START_SECONDS``.
        """
        deadline = time.monotonic() + START_SECONDS
        while self.num_steps() < num_steps:
            if time.monotonic() > deadline:
                raise DiedError(f"no {num_steps} steps in {START_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)
        self.send(signal.SIGSTOP)

    def turn(self, seconds: float) -> list[float]:
        """Seconds of each whole step of a turn, which lasts so long and at least ``MIN_STEPS`` of them."""
        before = self.num_steps()
        self.send(signal.SIGCONT)
        time.sleep(seconds)
        while self.num_steps() < before + MIN_STEPS + 1:
            time.sleep(POLL_SECONDS)
        self.send(signal.SIGSTOP)
        return without_pause(self._read(self._folder)[before:])


def without_pause(seconds: Sequence[float]) -> list[float]:
    """The steps that ended in a turn but for the one that began before it.

    That is the first, or the second where the pause fell between the clock and the line of the first.
    """
    first, second, *others = seconds
    return [min(first, second), *others]


def tree(root: int) -> list[int]:
    """A process and all that descend from it, parents first."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found
