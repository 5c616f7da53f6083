"""Show a comparison: terminal, plain text, CSV, Markdown, JSON; the same numbers in all of them."""

import json
import math
import re
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tielab.errors import RequestError
from tielab.report.collect import collect_runs
from tielab.report.columns import Column, columns_of, legend, records
from tielab.report.compare import Comparison, compare
from tielab.report.groups import Group
from tielab.report.rates import RateCurve
from tielab.report.runs import runs_table
from tielab.report.strides import stride_check
from tielab.report.table import QUANTITIES

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

FORMATS = ("auto", "table", "plain", "csv", "markdown", "json")
LAYOUTS = (
    (("quality", "difference", "interval", "test", "cost", "vocabulary"),),
    (("quality", "difference", "interval", "test"), ("cost", "vocabulary")),
    (("quality", "difference", "interval"), ("test", "cost", "vocabulary")),
    (("quality",), ("difference", "interval", "test"), ("cost", "vocabulary")),
    (("quality",), ("difference", "interval"), ("test", "vocabulary"), ("cost",)),
    (("quality",), ("difference",), ("interval", "test"), ("vocabulary",), ("cost",)),
)
"""Which kinds of columns stand in one table, the widest layout first."""
NOTHING = "No finished run: nothing to compare."
ONLY_TUNING = "All runs served to choose a learning rate: nothing to compare yet."


def report(folders: list[Path], format: str) -> str | None:
    """The report over the runs in the folders, as ``show`` gives it.

    Raises:
        RequestError: an unknown format, a folder that does not exist, no readable run.
    """
    return show(compare(collect_runs(folders)), format)


def show(comparison: Comparison, format: str) -> str | None:
    """A comparison as text, or None once it has been printed to the terminal.

    Args:
        format: one of ``FORMATS``; ``auto`` is ``table`` on a terminal and ``plain`` in a pipe.

    Raises:
        RequestError: an unknown format.
    """
    if format not in FORMATS:
        raise RequestError(f"format {format} is unknown; choose one of {', '.join(FORMATS)}")
    if format == "auto":
        format = "table" if sys.stdout.isatty() else "plain"
    if format == "table":
        from rich.console import Console

        to_terminal(comparison, Console())
        return None
    writers = {"plain": to_plain, "csv": to_csv, "markdown": to_markdown, "json": to_json}
    return writers[format](comparison)


def to_terminal(comparison: Comparison, console: "Console") -> None:
    """Print verdicts, table and notes; on a narrow terminal several tables, never a cut number."""
    from rich.text import Text

    console.print(Text(comparison.headline, style="bold"))
    if comparison.table.empty:
        console.print(nothing(comparison))
    else:
        _print_list(comparison.verdicts, console)
        for table in _fitting_tables(_without_checks(comparison), console):
            # A table too wide even so runs over the edge: a cut number would be a wrong number.
            console.print(table, crop=False, no_wrap=True, overflow="ignore")
        for line in legend(comparison, "bold"):
            console.print(Text(line, style="dim"))
    if comparison.notes:
        console.print(Text("\nNotes", style="bold"))
        _print_list(comparison.notes, console)


def to_plain(comparison: Comparison) -> str:
    """Aligned text without colours or boxes, ending in a line break."""
    lines = [comparison.headline]
    if comparison.table.empty:
        lines.append(nothing(comparison))
    else:
        lines += [*comparison.verdicts, "", *_aligned(_without_checks(comparison)), ""]
        lines += legend(comparison, "*")
    lines += [f"note: {note}" for note in comparison.notes]
    return "\n".join(lines) + "\n"


def nothing(comparison: Comparison) -> str:
    """Why a comparison has no table."""
    return ONLY_TUNING if comparison.rate_curves else NOTHING


def to_csv(comparison: Comparison) -> str:
    """Full-precision numbers, a column per setting and quantity; unknown values are empty."""
    return comparison.table[[*comparison.setting_columns, *QUANTITIES]].to_csv(index=False)


def to_runs_csv(comparison: Comparison) -> str:
    """A row for each run, as ``runs_table`` says."""
    return runs_table(comparison).to_csv(index=False)


def to_markdown(comparison: Comparison) -> str:
    """A Markdown table between the verdicts and the notes, each of them a list."""
    parts = [comparison.headline]
    if comparison.table.empty:
        parts.append(nothing(comparison))
    else:
        parts.append("\n".join(f"- {_escaped(verdict)}" for verdict in comparison.verdicts))
        parts.append("\n".join(_markdown_rows(columns_of(comparison))))
        parts.append("\n".join(f"- {_escaped(line)}" for line in legend(comparison, "bold")))
    if comparison.notes:
        parts.append("Notes:\n\n" + "\n".join(f"- {_escaped(note)}" for note in comparison.notes))
    return "\n\n".join(parts) + "\n"


def to_json(comparison: Comparison) -> str:
    """An object with all of a comparison in full precision; a row is a setting and an arm."""
    content = {
        "headline": comparison.headline,
        "setting_columns": comparison.setting_columns,
        "rows": records(comparison),
        "differences": [_json_difference(*place) for place in _differences(comparison)],
        "rate_curves": [_json_curve(curve) for curve in comparison.rate_curves],
        "fixed": {key: _as_json(value) for key, value in comparison.fixed.items()},
        "verdicts": comparison.verdicts,
        "notes": comparison.notes,
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _as_json(value: Any) -> Any:
    """JSON has no infinity: its name."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _differences(comparison: Comparison) -> list[tuple[Group, str]]:
    return [(group, arm) for group in comparison.groups for arm in group.differences]


def _json_difference(group: Group, arm: str) -> dict[str, Any]:
    """A difference with its value for each seed, and its mean at each stride if there are several."""
    found = group.differences[arm]
    strides = stride_check(found.difference, found.pairs)
    return {
        "setting": group.values,
        **asdict(found.difference),
        "values": dict(found.difference.values),
        "verdict": found.difference.verdict,
        "strides": None if strides is None else asdict(strides) | {"stable": strides.stable},
    }


def _json_curve(curve: RateCurve) -> dict[str, Any]:
    """A curve; JSON has no infinity: a run that diverged is null."""
    points = {
        rate: {seed: bits if math.isfinite(bits) else None for seed, bits in values.items()}
        for rate, values in curve.points.items()
    }
    return asdict(curve) | {"points": points}


def _without_checks(comparison: Comparison) -> list[Column]:
    return [column for column in columns_of(comparison) if column.kind != "check"]


def _print_list(lines: list[str], console: "Console") -> None:
    from rich.text import Text

    for line in lines:
        # textwrap keeps a number and its percent sign together over a no-break space, Rich would not.
        kept = line.replace(" %", "\N{NO-BREAK SPACE}%")
        kept = re.sub(r"\bp ([=<]) ", "p\N{NO-BREAK SPACE}\\1\N{NO-BREAK SPACE}", kept)
        folded = textwrap.wrap(
            kept, console.width, initial_indent="• ", subsequent_indent="  ", break_on_hyphens=False
        )
        console.print(Text("\n".join(folded)))


def _fitting_tables(columns: list[Column], console: "Console") -> list["Table"]:
    """The first layout whose tables all fit the console; the narrowest if none does."""
    tables: list[Table] = []
    for parts in LAYOUTS:
        for broken in (False, True):
            tables = [_part(columns, part, broken) for part in parts]
            tables = [table for table in tables if table.row_count]
            for table in tables:
                table.width = console.measure(table, options=console.options.update(width=10_000)).maximum
            if all((table.width or 0) <= console.width for table in tables):
                return tables
    return tables


def _part(columns: list[Column], part: tuple[str, ...], broken: bool) -> "Table":
    """A table of the columns of a layout's part, with the rows that say something there."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    chosen = [column for column in columns if column.kind in ("setting", *part)]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, header_style="")
    for column in chosen:
        heading = re.sub(r"(?<=[._])| (?=\S+$)", "\n", column.heading) if broken else column.heading
        table.add_column(Text(heading), justify="right" if column.is_number else "left", no_wrap=True)
    for index in range(len(chosen[0].cells)):
        if any(column.cells[index] for column in chosen if column.kind != "setting"):
            styles = ["bold green" if column.is_marked(index) else "" for column in chosen]
            texts = [_broken(column, index) if broken else column.cells[index] for column in chosen]
            table.add_row(*(Text(text, style) for text, style in zip(texts, styles, strict=True)))
    return table


def _broken(column: Column, index: int) -> str:
    """The cell with the parts of an arm's name below each other; a number stays whole."""
    return column.cells[index] if column.is_number else column.cells[index].replace(", ", ",\n")


def _aligned(columns: list[Column]) -> list[str]:
    blocks = []
    for column in columns:
        cells = [column.heading, *column.cells]
        if any(column.marked):
            stars = [" ", *("*" if marked else " " for marked in column.marked)]
            cells = [cell + star for cell, star in zip(cells, stars, strict=True)]
        width = max(len(cell) for cell in cells)
        blocks.append([cell.rjust(width) if column.is_number else cell.ljust(width) for cell in cells])
    return ["  ".join(row).rstrip() for row in zip(*blocks, strict=True)]


def _markdown_rows(columns: list[Column]) -> list[str]:
    rows = [[_escaped(column.heading) for column in columns]]
    rows.append(["---:" if column.is_number else ":---" for column in columns])
    for index in range(len(columns[0].cells)):
        rows.append([_markdown_cell(column, index) for column in columns])
    return ["| " + " | ".join(row) + " |" for row in rows]


def _markdown_cell(column: Column, index: int) -> str:
    text = _escaped(column.cells[index])
    return f"**{text}**" if column.is_marked(index) else text


def _escaped(text: str) -> str:
    """The text so that Markdown shows it letter by letter; an underscore inside a word is safe."""
    return re.sub(r"[\\|*`<>\[\]]|(?<!\w)_|_(?!\w)", r"\\\g<0>", text)
