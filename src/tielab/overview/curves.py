"""Curves of a run from its ``metrics.csv``, also while it is being written. Imports no torch."""

import csv
import math
import os
from pathlib import Path

from tielab.record import METRICS_NAME

BARS = "▁▂▃▄▅▆▇█"
TAIL_BYTES = 8192
"""More than the longest row."""

Curve = list[tuple[float, float]]
"""Training tokens and the value there."""


def read_curve(folder: Path, column: str) -> Curve:
    """The numbers of a column against tokens, in file order; a cell that is no number is left out."""
    try:
        text = (folder / METRICS_NAME).read_text(encoding="utf-8", errors="replace")
        whole = text.rpartition("\n")[0].splitlines()  # the last may be half a row
        rows = [(_number(row.get("tokens")), _number(row.get(column))) for row in csv.DictReader(whole)]
    except (OSError, csv.Error):
        return []
    return [(tokens, value) for tokens, value in rows if tokens is not None and value is not None]


def tokens_so_far(folder: Path) -> int | None:
    """Training tokens at the last row of a run's metrics, without reading all of them."""
    try:
        with (folder / METRICS_NAME).open("rb") as file:
            names = file.readline().decode(errors="replace").strip().split(",")
            file.seek(max(file.tell(), os.fstat(file.fileno()).st_size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").split("\n")[:-1]  # the last may be half a row
    except OSError:
        return None
    for line in reversed(lines):
        cells = line.split(",")
        if len(cells) == len(names) and "tokens" in names:
            tokens = _number(cells[names.index("tokens")])
            return None if tokens is None else int(tokens)
    return None


def _number(cell: str | None) -> float | None:
    try:
        value = float(cell or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def sparkline(curve: Curve, width: int) -> str:
    """The curve as a line of bars, lowest value to highest, at most ``width`` letters long.

    A letter stands for an equal share of the tokens and shows the mean there; one without a value is blank.
    """
    if not curve:
        return ""
    last = curve[-1][0]
    size = min(width, len(curve))
    values: list[list[float]] = [[] for _ in range(size)]
    for tokens, value in curve:
        place = math.ceil(tokens / last * size) - 1 if last > 0 else 0
        values[min(max(place, 0), size - 1)].append(value)
    means = [sum(part) / len(part) if part else None for part in values]
    known = [mean for mean in means if mean is not None]
    low, span = min(known), max(known) - min(known)
    return "".join(
        " " if mean is None else BARS[round((mean - low) / span * (len(BARS) - 1)) if span else 0]
        for mean in means
    )
