"""Listings as text: one line for each entry in a pipe, at most the terminal's width in a terminal."""

import shutil
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from tielab.errors import printable
from tielab.overview.entries import DAMAGED, Listing, RunEntry, SweepEntry, seconds_since_epoch
from tielab.report.wording import bits_text, count_text

COLOURS = {
    "finished": "green", "running": "cyan", "failed": "red", "killed": "red", "diverged": "yellow",
    "interrupted": "yellow", DAMAGED: "red",
}  # fmt: skip
ORDER = ("running", "finished", "diverged", "failed", "killed", "interrupted", DAMAGED, "waiting")


@dataclass(frozen=True)
class Row:
    """An entry: its folder, its other cells, and what is to be said below it."""

    folder: str
    cells: list[str]
    status: str
    """Gives the colour of the first cell."""
    remark: str = ""


def to_text(listing: Listing, *, width: int | None, now: float | None = None) -> str:
    """The sweeps, then the runs.

    Args:
        width: of the terminal; None: a pipe, where every entry is one line and nothing is coloured.
        now: seconds since the epoch.
    """
    now = time.time() if now is None else now
    parts = []
    if listing.sweeps:
        headings = ["folder", "jobs", "begun", "lowest bits/byte", "arms"]
        parts.append(_table(headings, [_sweep_row(sweep, now) for sweep in listing.sweeps], width))
    if listing.runs:
        headings = ["folder", "status", "begun", "took", "bits/byte", "tokens", "V x d", "seed", "arm"]
        rows = [_run_row(run, now) for run in listing.runs]
        if any(run.asked for run in listing.runs):
            headings.append("asked for")
            rows = [
                Row(row.folder, [*row.cells, run.asked], row.status, row.remark)
                for row, run in zip(rows, listing.runs, strict=True)
            ]
        parts.append(_table(headings, rows, width))
    return "\n".join(parts)


def terminal_width() -> int | None:
    """Columns of the terminal that standard output is, None if it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _sweep_row(sweep: SweepEntry, now: float) -> Row:
    counts = sweep.counts
    jobs = ", ".join(f"{counts[status]} {status}" for status in ORDER if status in counts)
    best = sweep.best
    lowest = "" if best is None or best.bits_per_byte is None else bits_text(best.bits_per_byte)
    if best is not None and len(sweep.arms) > 1:
        lowest += f" {best.arm}"
    status = DAMAGED if sweep.reason else next((s for s in counts if s != "finished"), "finished")
    cells = [
        f"{DAMAGED}: {jobs}" if sweep.reason else jobs or "none yet",
        ago(sweep.started_at, now),
        lowest,
        "; ".join(sweep.arms),
    ]
    return Row(_folder(sweep.folder), cells, status, sweep.reason)


def _run_row(run: RunEntry, now: float) -> Row:
    took = run.seconds
    begun = seconds_since_epoch(run.started_at)
    if run.status == "running" and begun is not None:
        took = now - begun
    cells = [
        run.status if run.phase != "tune" else f"{run.status} (tunes)",
        ago(run.started_at, now),
        "" if took is None else duration(took),
        "" if run.bits_per_byte is None else bits_text(run.bits_per_byte),
        tokens_text(run),
        f"{run.vocab_size or '?'} x {run.embed_dim or '?'}" if run.arm else "",
        run.seed or "",
        run.arm or "",
    ]
    return Row(_folder(run.folder), cells, run.status, run.reason)


def tokens_text(run: RunEntry) -> str:
    """``400,384``, or of a run under way ``12,800 of 400,000 (3 %)``."""
    if run.tokens is None:
        return ""
    if run.planned_tokens is None or run.tokens >= run.planned_tokens:
        return count_text(run.tokens)
    share = 100 * run.tokens / run.planned_tokens
    decimals = 0 if share >= 9.95 else 1
    return f"{count_text(run.tokens)} of {count_text(run.planned_tokens)} ({share:.{decimals}f} %)"


def ago(moment: str | None, now: float) -> str:
    """``5 min ago``; empty if nobody knows when."""
    begun = seconds_since_epoch(moment)
    return "" if begun is None else f"{duration(max(0.0, now - begun))} ago"


def duration(seconds: float) -> str:
    """In one unit: ``0.4 s``, ``12 s``, ``5 min``, ``3.5 h``, ``12 d``."""
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 9.5 else f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} d"


def size_text(num_bytes: float) -> str:
    """``12 kB``, ``3.4 MB``, ``1.2 GB``: decimal, as disks are sold."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes:.0f} B"


def _folder(folder: Path) -> str:
    return printable(str(folder))


NUMBERS = ("took", "bits/byte", "tokens", "lowest bits/byte", "begun")


def _table(headings: Sequence[str], rows: Sequence[Row], width: int | None) -> str:
    """Aligned columns; where they are wider than the terminal, the folders stand on lines of their own."""
    kept = [0, *(i for i in range(1, len(headings)) if any(row.cells[i - 1] for row in rows))]
    headings = [headings[i] for i in kept]
    lines = [[row.folder, *row.cells] for row in rows]
    lines = [[line[i] for i in kept] for line in lines]
    widths = [max(map(len, column)) for column in zip(headings, *lines, strict=True)]
    if width is None:
        reasons = [f"  {row.remark}" if row.remark else "" for row in rows]
        texts = [_aligned(line, widths, headings) for line in [headings, *lines]]
        return "".join(
            f"{text}{reason}".rstrip() + "\n" for text, reason in zip(texts, ["", *reasons], strict=True)
        )
    fits = sum(widths) + 2 * (len(widths) - 1) <= width
    said = []
    for cells, row in [(headings, None), *zip(lines, rows, strict=True)]:
        colour = COLOURS.get(row.status) if row is not None else None
        if fits:
            said.append(_aligned(cells, widths, headings, colour, bold=row is None))
        else:
            said += [click.style(cells[0], bold=True), *_narrow(cells, widths, headings, colour, width)]
        if row is not None and row.remark:
            folded = textwrap.wrap(row.remark, width, initial_indent="    ", subsequent_indent="    ")
            said += [click.style(line, dim=True) for line in folded]
    return "\n".join(said) + "\n"


def _narrow(
    cells: Sequence[str], widths: Sequence[int], headings: Sequence[str], colour: str | None, width: int
) -> list[str]:
    """The cells after the first, as many on a line as fit; a longer one is folded, never cut."""
    lines: list[list[int]] = [[]]
    for i in range(1, len(cells)):
        taken = sum(widths[j] + 2 for j in lines[-1])
        if lines[-1] and 2 + taken + widths[i] > width:
            lines.append([])
        lines[-1].append(i)
    said = []
    for places in lines:
        text = _aligned(
            [cells[i] for i in places], [widths[i] for i in places], [headings[i] for i in places]
        )
        folded = textwrap.wrap(text, width - 2, replace_whitespace=False) if len(text) > width - 2 else [text]
        said += [f"  {line}" for line in folded if line.strip()]
    if colour is not None and cells[1] and said:
        said[0] = said[0].replace(cells[1], click.style(cells[1], fg=colour), 1)
    return said


def _aligned(
    cells: Sequence[str],
    widths: Sequence[int],
    headings: Sequence[str],
    colour: str | None = None,
    bold: bool = False,
) -> str:
    padded = [
        cell.rjust(width) if heading in NUMBERS else cell.ljust(width)
        for cell, width, heading in zip(cells, widths, headings, strict=True)
    ]
    if colour is not None and len(padded) > 1:
        padded[1] = click.style(padded[1], fg=colour)
    text = "  ".join(padded).rstrip()
    return click.style(text, bold=True) if bold else text
