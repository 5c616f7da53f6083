"""Writes the tables of the README from the results: ``python -m benchmarks.tables``.

A table stands between ``<!-- NAME -->`` and ``<!-- end NAME -->``. Nothing but the results decides it.
"""

import argparse
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import RESULTS, describe_quiet

README = Path(__file__).with_name("README.md")
Row = dict[str, Any]
Column = tuple[str, Callable[[Row], str]]


def spread(row: Row, name: str, digits: int = 2) -> str:
    """A figure's median with its quartiles, or only the figure where it was not repeated."""
    value = row.get(name)
    if value is None:
        return ""
    if not isinstance(value, dict):
        return f"{value:,.{digits}f}"
    low, high = f"{value['low']:,.{digits}f}", f"{value['high']:,.{digits}f}"
    return f"{value['median']:,.{digits}f} ({low} to {high})"


def text(name: str) -> Callable[[Row], str]:
    return lambda row: str(row.get(name, ""))


def number(name: str, digits: int = 2) -> Callable[[Row], str]:
    return lambda row: spread(row, name, digits)


def mebibytes(name: str) -> Callable[[Row], str]:
    return lambda row: "" if row.get(name) is None else f"{_median(row[name]) / 2**20:,.0f}"


def percent(name: str) -> Callable[[Row], str]:
    return lambda row: "" if row.get(name) is None else f"{_median(row[name]):.1%}"


def _median(value: Any) -> float:
    return float(value["median"] if isinstance(value, dict) else value)


TABLES: dict[str, Sequence[Column]] = {}
"""Title and cell of every column, by benchmark."""


def table(result: dict[str, Any], columns: Sequence[Column]) -> str:
    """A result as a Markdown table, with the line that says what it holds for."""
    lines = [
        "| " + " | ".join(title for title, _ in columns) + " |",
        "|" + "---|" * len(columns),
        *("| " + " | ".join(cell(row) for _, cell in columns) + " |" for row in result["rows"]),
    ]
    return "\n".join([*lines, "", conditions(result)])


def conditions(result: dict[str, Any]) -> str:
    """Machine, versions, date, commit and command of a result, and whether the machine was quiet."""
    machine, versions = result["machine"], {**result["versions"], **result["conditions"].get("versions", {})}
    quiet = describe_quiet(result) + ("" if result["quiet"] else ": not quiet, trust the ratios only")
    return (
        f"`{result['command']}`, {result['date']}, commit {result['commit']}, "
        f"{result['seconds']:.0f} s, {machine['cores']} cores of {machine['processor']}, "
        f"{machine['memory_gib']} GiB; {', '.join(f'{name} {v}' for name, v in versions.items())}; {quiet}."
    )


def renew(page: str, name: str, content: str) -> str:
    """The page with what stands between a benchmark's markers replaced; refuses a page without them."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"no <!-- {name} --> … <!-- end {name} --> in the page")
    return pattern.sub(lambda found: f"{found[1]}{content}\n{found[2]}", page)


def renewed(page: str, results: Path = RESULTS) -> str:
    """The page with a table for every result there is."""
    for name, columns in TABLES.items():
        path = results / f"{name}.json"
        if path.is_file():
            page = renew(page, name, table(json.loads(path.read_text(encoding="utf-8")), columns))
    return page


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    README.write_text(renewed(README.read_text(encoding="utf-8")), encoding="utf-8")
