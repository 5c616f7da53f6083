"""One run as a page: what it is, what came out, what it cost and of what it was made. Imports no torch."""

import math
import shlex
import textwrap
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from tielab.errors import RequestError, printable
from tielab.folder import State, state_of
from tielab.overview import sections as filled
from tielab.overview.curves import read_curve
from tielab.overview.entries import run_entry
from tielab.overview.sections import Line
from tielab.overview.text import ago, size_text, tokens_text
from tielab.record import LAST_CHECKPOINT, RECORD_NAME, RUN_CONFIG_NAME, TOKENIZER_NAME, Record
from tielab.report.collect import read_checked
from tielab.report.groups import problem
from tielab.sweep import is_sweep

TRACEBACK_LINES = 12
LABEL_WIDTH = 20
BEST_CHECKPOINT = LAST_CHECKPOINT.with_name("best.ckpt")


@dataclass(frozen=True)
class Section:
    """A heading with its lines; one without lines is not shown."""

    heading: str
    lines: list[Line]


def read_run(folder: Path) -> State:
    """The state of a run that has begun.

    Raises:
        RequestError: a sweep is there, or no run, or one that has not begun or cannot be read.
    """
    if is_sweep(folder):
        raise RequestError(
            f"{folder} is a sweep; its jobs: tielab ls {folder}; its table: tielab report {folder}"
        )
    if not folder.is_dir():
        raise RequestError(f"{folder}: no such folder; tielab ls lists the runs there are")
    if (folder / RUN_CONFIG_NAME).is_file() and not (folder / RECORD_NAME).is_file():
        raise RequestError(f"{folder} has not begun; begin it with tielab resume {folder}")
    return State(state_of(folder).status, read_checked(folder))


def page(folder: Path, state: State, curve_width: int) -> list[Section]:
    """The sections of a run's page."""
    record = state.record
    assert record is not None
    return [
        Section("", _standing(folder, state, record)),
        Section("What it is", filled.identity(record)),
        Section("Parameters", filled.parameters(record)),
        Section("Validation", filled.validation(record)),
        Section("Curves", filled.curves(folder, curve_width)),
        Section("Cost", filled.cost(record)),
        Section("Data", filled.data(record)),
        Section("Made with", filled.circumstances(record)),
        Section("Files", _files(folder)),
        Section("Next", commands(folder, state)),
    ]


def _standing(folder: Path, state: State, record: Record) -> list[Line]:
    entry = run_entry(folder)
    now = time.time()
    begun = f", begun {ago(entry.started_at, now)}" if entry.started_at else ""
    lines = [("run", str(folder)), ("status", f"{entry.status}{begun}")]
    if entry.reason:
        lines.append(("why", entry.reason))
    if record.tokens_seen is None and entry.tokens is not None:
        lines.append(("progress", f"{tokens_text(entry)} training tokens"))
    untold = problem(record) if record.finished else None
    if untold:
        lines.append(("in a report", f"gives no number: {untold}"))
    if record.attempts:
        earlier = ", ".join(str(attempt.get("status")) for attempt in record.attempts)
        step = f"; went on after step {record.resumed_at_step}" if record.resumed_at_step else ""
        lines.append(("earlier attempts", f"{earlier}{step}"))
    if state.status == "failed" and not state.refused:
        lines += _traceback(record)
    return lines


def _traceback(record: Record) -> list[Line]:
    told = str((record.error or {}).get("traceback") or "").rstrip().splitlines()
    cut = [f"... (all {len(told)} lines: --json, or run.log)"] if len(told) > TRACEBACK_LINES else []
    return [("traceback" if i == 0 else "", line) for i, line in enumerate(cut + told[-TRACEBACK_LINES:])]


def _files(folder: Path) -> list[Line]:
    found = [*sorted(folder.glob("*")), *sorted(folder.glob("checkpoints/*.ckpt"))]
    sizes = [
        (str(path.relative_to(folder)), path.stat().st_size)
        for path in found
        if path.is_file() and path.name[0] != "."
    ]
    listed = ", ".join(f"{name} ({size_text(size)})" for name, size in sizes)
    return filled.known([("", listed)])


def commands(folder: Path, state: State) -> list[Line]:
    """What one might do with a run next: label and command line."""
    name = shlex.quote(str(folder))
    lines = []
    if not state.settled and state.status != "running":
        lines.append(("go on", f"tielab resume {name}"))
    if (folder / BEST_CHECKPOINT).is_file() and (folder / TOKENIZER_NAME).is_file():
        lines.append(("sample", f'tielab sample {name} --prompt "The city"'))
        lines.append(("to transformers", f"tielab export {name}"))
    if (folder / RUN_CONFIG_NAME).is_file():
        lines.append(("repeat", f"tielab rerun {name}"))
    if is_sweep(folder.absolute().parent):
        lines.append(("its sweep", f"tielab report {shlex.quote(str(folder.parent))}"))
    return lines


def to_text(sections: list[Section], width: int | None) -> str:
    """The page, labels in a column; a line longer than the terminal is folded, never cut.

    Args:
        width: of the terminal; None: a pipe, where nothing is folded or coloured.
    """
    parts = []
    for section in (section for section in sections if section.lines):
        said = [section.heading if width is None else click.style(section.heading, bold=True)]
        for label, text in section.lines:
            said += _folded(f"  {label:<{LABEL_WIDTH}}", printable(text), width)
        parts.append("\n".join(said if section.heading else said[1:]))
    return "\n\n".join(parts) + "\n"


def _folded(label: str, text: str, width: int | None) -> list[str]:
    if width is None or len(label) + len(text) <= width:
        return [f"{label}{text}".rstrip()]
    kept = text.replace(" %", "\N{NO-BREAK SPACE}%")
    lines = textwrap.wrap(kept, max(width - len(label), 20), break_long_words=False, break_on_hyphens=False)
    return [f"{label if i == 0 else ' ' * len(label)}{line}".rstrip() for i, line in enumerate(lines)]


def as_json(folder: Path, state: State) -> dict[str, Any]:
    """All of a page as plain values; a number that JSON does not have is its name."""
    record = state.record
    assert record is not None
    entry = run_entry(folder)
    content = {
        "folder": str(folder),
        "status": entry.status,
        "reason": entry.reason,
        "arm": entry.arm,
        "tokens": entry.tokens,
        "curves": {name: read_curve(folder, name) for name in ("train/loss", "val/bits_per_byte")},
        "next": dict(commands(folder, state)),
        "record": asdict(record),
    }
    plain = finite(content)
    assert isinstance(plain, dict)
    return plain


def finite(value: Any) -> Any:
    """The value with the names of numbers that JSON does not have."""
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
