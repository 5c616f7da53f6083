"""Show what ``tielab align`` found: terminal, plain text, CSV, JSON; the same numbers in all of them."""

import json
import sys
from typing import TYPE_CHECKING, Any

from tielab.alignment.measures import HEADLINE
from tielab.alignment.results import LEAST_RANGE, Name, Results, Row
from tielab.errors import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MEASURE_NAMES = {
    "identity": "identity",
    "procrustes": "Procrustes",
    "linear_in_sample": "linear, in-sample",
    "linear_held_out": "linear, held-out",
    "pairwise_spearman": "pairwise cosines, Spearman",
    "neighbor_overlap": "10 nearest neighbours",
}
LEGEND = (
    "chance: what unrelated matrices of the same spectra score; ceiling: the same matrix of two "
    "seeds, the mean over both",
    "of ceiling: (value \N{MINUS SIGN} chance) / (ceiling \N{MINUS SIGN} chance)",
    "linear: the first matrix mapped onto the second, scored on the rows of the fit or on others (held-out)",
)
SD_LEGEND = (
    "\N{PLUS-MINUS SIGN}: standard deviation over pairs; they share runs, so it gives no standard error"
)


def show(results: Results, format: str) -> str | None:
    """The study as text, or None once it has been printed to the terminal.

    Args:
        format: ``auto`` (a table on a terminal, plain text in a pipe), ``csv`` or ``json``.
    """
    if format == "csv":
        return to_csv(results)
    if format == "json":
        return to_json(results)
    if not sys.stdout.isatty():
        return to_plain(results)
    from rich.console import Console

    to_terminal(results, Console())
    return None


def to_terminal(results: Results, console: "Console") -> None:
    """Print the table with what it means; a table too wide runs over the edge, never a cut number."""
    from rich.text import Text

    for line in introduction(results):
        console.print(Text(line))
    for line in _warnings(results):
        console.print(Text(line, style="yellow"))
    console.print(_table(results, boxed=True), crop=False, no_wrap=True, overflow="ignore")
    for line in sentences(results):
        console.print(Text(line, style="bold"))
    for line in [*_legend(results), *_notes(results)]:
        console.print(Text(line, style="dim"))


def to_plain(results: Results) -> str:
    """Aligned text without colours or boxes, ending in a line break."""
    from rich.console import Console

    console = Console(width=10_000, color_system=None)
    with console.capture() as captured:
        console.print(_table(results, boxed=False))
    table = [line.rstrip() for line in captured.get().splitlines()]
    parts = [*introduction(results), *_warnings(results), "", *table, ""]
    parts += [*sentences(results), *_legend(results), *_notes(results)]
    return "\n".join(parts) + "\n"


def to_csv(results: Results) -> str:
    """A row for each measure of each pair of matrices in full precision; unknown values are empty."""
    import pandas as pd

    return pd.DataFrame(records(results)).drop(columns="values").to_csv(index=False)


def to_json(results: Results) -> str:
    """An object with runs, rows in full precision, sentences and notes."""
    content = {
        "runs": results.runs,
        "checkpoint": results.checkpoint,
        "min_count": results.min_count,
        "num_rows": results.num_rows,
        "vocab_size": results.vocab_size,
        "rows": records(results),
        "sentences": sentences(results),
        "warnings": results.warnings,
        "notes": results.notes,
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def records(results: Results) -> list[dict[str, Any]]:
    """The rows as plain values."""
    return [
        {
            "first": str(row.kind.first),
            "second": str(row.kind.second),
            "same_run": row.kind.same_run,
            "measure": row.measure,
            "num_pairs": len(row.values),
            "num_rows": results.num_rows,
            "value": row.value,
            "sd": row.sd,
            "chance": row.chance,
            "gaussian_chance": row.gaussian_chance,
            "ceiling": row.ceiling,
            "first_ceiling": row.first_ceiling,
            "second_ceiling": row.second_ceiling,
            "normalized": row.normalized,
            "values": row.values,
        }
        for row in results.rows
    ]


def introduction(results: Results) -> list[str]:
    """What was compared, and on how many rows."""
    runs = [printable(run) for run in results.runs]
    rows = f"{results.num_rows:,} of {results.vocab_size:,} rows"
    kept = f", tokens that occur {results.min_count:,} times or more in the training text"
    return [*runs, f"{results.checkpoint} checkpoints; {rows}{kept if results.min_count else ''}"]


def sentences(results: Results) -> list[str]:
    """What the held-out linear map says, in words: which end a matrix resembles, or how alike a pair is."""
    rows = [row for row in results.rows if row.measure == HEADLINE]
    told = []
    while rows:
        row = rows.pop(0)
        other = next((other for other in rows if _common(row, other) is not None), None)
        if other is None:
            told.append(_likeness(row))
        else:
            rows.remove(other)
            told.append(_resemblance(row, other))
    return [printable(sentence) for sentence in told]


def _common(one: Row, other: Row) -> Name | None:
    """The matrix that two rows compare with the two ends of another arm or run, if they do."""
    for common in one.kind.first, one.kind.second:
        if common in (other.kind.first, other.kind.second):
            end, other_end = _partner(one, common), _partner(other, common)
            of_one_run = end._replace(end=other_end.end) == other_end
            if of_one_run and end != other_end and end._replace(end=common.end) != common:
                return common
    return None


def _partner(row: Row, common: Name) -> Name:
    return row.kind.first if row.kind.second == common else row.kind.second


def _resemblance(one: Row, other: Row) -> str:
    """Which of two ends a matrix resembles, if it does, and in how many of the pairs of runs."""
    common = _common(one, other)
    assert common is not None, "two rows without a common matrix"
    nearer, farther = sorted((one, other), key=lambda row: -row.value)
    near, far = _partner(nearer, common), _partner(farther, common)
    if nearer.value - nearer.chance < LEAST_RANGE:
        numbers = f"{_of_ceiling(nearer)} and {_of_ceiling(farther)}"
        return f"{common} resembles neither {near} nor {far}: held-out linear {numbers}"
    count = len(nearer.values)
    agreeing = sum(a > b for a, b in zip(nearer.values, farther.values, strict=True))
    return (
        f"{common} resembles {near}: held-out linear {_of_ceiling(nearer)}, {far} {_of_ceiling(farther)}"
        + (f" (the nearer one in {agreeing} of {count} pairs of runs)" if count > 1 else "")
    )


def _likeness(row: Row) -> str:
    same = " of the same run" if row.kind.same_run else ""
    return (
        f"{row.kind.first} and {row.kind.second}{same}: held-out linear {_of_ceiling(row)}, "
        f"chance {_short(row.chance)}"
    )


def _of_ceiling(row: Row) -> str:
    return _short(row.value) + ("" if row.ceiling is None else f" of ceiling {_short(row.ceiling)}")


def _short(value: float) -> str:
    return f"{value:.2f}".replace("-0.00", "0.00")


def _legend(results: Results) -> list[str]:
    return [*LEGEND, *([SD_LEGEND] if any(row.sd is not None for row in results.rows) else [])]


def _warnings(results: Results) -> list[str]:
    return [printable(f"warning: {warning}") for warning in results.warnings]


def _notes(results: Results) -> list[str]:
    return [printable(f"note: {note}") for note in results.notes]


def _table(results: Results, boxed: bool) -> "Table":
    """A row for each measure; the names of a pair stand in its first row."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    look = box.SIMPLE_HEAD if boxed else None
    table = Table(box=look, padding=(0, 2, 0, 0), pad_edge=False, header_style="")
    for heading in ("first", "second", "pairs", "measure", "value", "chance", "ceiling", "of ceiling"):
        is_text = heading in ("first", "second", "measure")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=True)
    before = None
    for row in results.rows:
        cells = [*(_heading(row) if row.kind != before else ("", "", "")), *_numbers(row)]
        table.add_row(
            *[Text(printable(cell)) for cell in cells], style="bold" if row.measure == HEADLINE else ""
        )
        before = row.kind
    return table


def _heading(row: Row) -> tuple[str, str, str]:
    same = ", same run" if row.kind.same_run else ""
    return str(row.kind.first), f"{row.kind.second}{same}", str(len(row.values))


def _numbers(row: Row) -> list[str]:
    value = f"{row.value:.3f}" + ("" if row.sd is None else f" \N{PLUS-MINUS SIGN} {row.sd:.3f}")
    ceiling = "" if row.ceiling is None else f"{row.ceiling:.3f}"
    share = "" if row.normalized is None else f"{row.normalized:.2f}"
    return [MEASURE_NAMES[row.measure], value, f"{row.chance:.3f}", ceiling, share]
