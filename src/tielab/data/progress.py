"""How far reading is: nothing if it is short, a bar in a terminal, a line every few seconds elsewhere."""

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import TransferSpeedColumn as SpeedColumn

QUIET_SECONDS = 3.0
"""What is done by then says nothing."""
BAR_SECONDS = 0.25
LINE_SECONDS = 5.0

Item = TypeVar("Item")
log = logging.getLogger("tielab")


def followed(
    items: Iterable[Item], label: str, done: Callable[[], int], total: Callable[[], int | None]
) -> Iterator[Item]:
    """The items, while on standard error it is said how many bytes of how many have been read for them.

    Args:
        label: what is done with them.
        done: bytes read so far.
        total: bytes to be read; null where nobody knows.
    """
    started = time.monotonic()
    due = started + QUIET_SECONDS
    bar: Progress | None = None
    try:
        for item in items:
            yield item
            now = time.monotonic()
            if now < due:
                continue
            if sys.stderr.isatty():
                bar = bar or _started_bar(label)
                bar.update(TaskID(0), completed=done(), total=total(), refresh=True)
                due = now + BAR_SECONDS
            else:
                log.info(_line(label, done(), total(), now - started))
                due = now + LINE_SECONDS
    finally:
        if bar is not None:
            bar.stop()


def _started_bar(label: str) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), SpeedColumn())
    bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), auto_refresh=False)
    bar.add_task(label, total=None)
    bar.start()
    return bar


def _line(label: str, done: int, total: int | None, seconds: float) -> str:
    rate = done / seconds
    if total is None:
        return f"{label}: {done / 1e6:,.0f} MB, {rate / 1e6:.1f} MB/s"
    left = f"{timedelta(seconds=round((total - done) / rate))} left" if rate else "not begun"
    return f"{label}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB, {rate / 1e6:.1f} MB/s, {left}"
