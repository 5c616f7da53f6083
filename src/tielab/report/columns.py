"""The comparison as a person reads it: columns of short texts, and what their signs mean."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tielab.report.compare import MARKS, Comparison
from tielab.report.wording import (
    DIFFERENCE,
    arm_name,
    bits_text,
    count_text,
    difference_text,
    mebibytes_text,
    perplexity_text,
)


@dataclass(frozen=True)
class Column:
    """A column as a person reads it."""

    heading: str
    cells: list[str]
    kind: str
    """setting, quality, difference or cost; a setting says which row it is, so every table has it."""
    marked: list[bool] = field(default_factory=list)

    @property
    def is_number(self) -> bool:
        return all(cell[:1] in "+-0123456789" for cell in self.cells if cell != "none")

    def is_marked(self, index: int) -> bool:
        return bool(self.marked) and self.marked[index]


def legend(comparison: Comparison, mark: str) -> list[str]:
    """What the signs in the table mean, as far as the table has them."""
    table = comparison.table
    lines = []
    if table[list(MARKS)].to_numpy().any():
        lines.append(
            f"{mark}: lowest mean (perplexity within one tokenizer, bits per byte within one text); "
            "not a test of significance"
        )
    if (table["n"] > 1).any():
        lines.append(
            "\N{PLUS-MINUS SIGN}: standard deviation over n seeds; tokens/s: median; memory: highest peak"
        )
    if table["difference_bits_per_byte"].notna().any():
        lines.append(f"{DIFFERENCE}: bits per byte, paired by seed; below zero the tied arm predicts better")
    return lines


def records(comparison: Comparison) -> list[dict[str, Any]]:
    """The table's rows with None where nothing is known."""
    table = comparison.table.astype(object)
    rows = table.where(table.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def columns_of(comparison: Comparison) -> list[Column]:
    """The columns a person sees; one that would be empty in every row is left out."""
    rows = records(comparison)
    settings = [
        Column(name, ["none" if row[name] is None else str(row[name]) for row in rows], "setting")
        for name in comparison.setting_columns
    ]
    arm = Column("arm", [arm_name(row["tied"]) for row in rows], "setting")
    columns = [*settings, arm, *_quality_columns(rows), *_difference_columns(rows), *_cost_columns(rows)]
    return [column for column in columns if any(column.cells)]


def _quality_columns(rows: list[dict[str, Any]]) -> list[Column]:
    perplexities = [perplexity_text(row["perplexity"], row["perplexity_sd"]) for row in rows]
    bits = [bits_text(row["bits_per_byte"], row["bits_per_byte_sd"]) for row in rows]
    return [
        Column("n", [count_text(row["n"]) for row in rows], "quality"),
        Column("perplexity", perplexities, "quality", [row["best_perplexity"] for row in rows]),
        Column("bits per byte", bits, "quality", [row["best_bits_per_byte"] for row in rows]),
    ]


def _difference_columns(rows: list[dict[str, Any]]) -> list[Column]:
    """The pairs are counted only where they are not simply the n seeds."""
    count_pairs = any(row["num_pairs"] not in (None, row["n"]) for row in rows)
    pairs = [_optional(count_text, row["num_pairs"] if count_pairs else None) for row in rows]
    means = [_optional(difference_text, row["difference_bits_per_byte"]) for row in rows]
    return [
        Column("pairs", pairs, "difference"),
        Column(DIFFERENCE, means, "difference"),
        Column("95 % interval", [_interval(row) for row in rows], "difference"),
    ]


def _cost_columns(rows: list[dict[str, Any]]) -> list[Column]:
    return [
        Column("parameters", [_optional(count_text, row["parameters"]) for row in rows], "cost"),
        Column("tokens/s", [_optional(count_text, row["tokens_per_second"]) for row in rows], "cost"),
        Column("memory MiB", [_optional(mebibytes_text, row["peak_memory_bytes"]) for row in rows], "cost"),
    ]


def _optional(text: Callable[[Any], str], value: Any) -> str:
    return "" if value is None else text(value)


def _interval(row: dict[str, Any]) -> str:
    if row["difference_low"] is None:
        return ""
    return f"{difference_text(row['difference_low'])} to {difference_text(row['difference_high'])}"
