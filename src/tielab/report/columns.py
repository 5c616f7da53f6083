"""The comparison as a person reads it: columns of short texts, and what their signs mean."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tielab.report.compare import Comparison
from tielab.report.table import MARKS
from tielab.report.wording import (
    bits_text,
    count_text,
    difference_text,
    first_step,
    magnitude_text,
    mebibytes_text,
    p_text,
    perplexity_text,
    two_arms,
)

if TYPE_CHECKING:
    import pandas as pd

SEVERAL = "difference"
"""Heading where rows compare different arms."""


@dataclass(frozen=True)
class Column:
    """A column as a person reads it."""

    heading: str
    cells: list[str]
    kind: str
    """setting, quality, difference, interval, test, cost, vocabulary or check; a setting says which row it
    is, so every table has it; only Markdown has the checks."""
    marked: list[bool] = field(default_factory=list)

    @property
    def is_number(self) -> bool:
        return all(cell[:1] in "+-<0123456789" for cell in self.cells if cell != "none")

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
        lines.append(_difference_legend(table))
    return lines


def _difference_legend(table: "pd.DataFrame") -> str:
    name = _difference_heading(table["arm"], table["reference"])
    arm = "the arm" if name == SEVERAL else table["arm"][table["reference"].notna()].iloc[0]
    text = f"{name}: bits per byte, paired by seed; below zero {arm} predicts better"
    if table["minimum_detectable"].notna().any():
        text += "; p: paired t test"
        num_cells = int(table["num_cells"].max())
        if num_cells > 1:
            text += f", Holm-adjusted for {num_cells} comparisons"
        text += f"; detectable: shown with 80 % power{first_step(num_cells)}"
    return text


def _difference_heading(arms: Iterable[Any], references: Iterable[Any]) -> str:
    """The two arms by name where all rows compare the same two."""
    compared = {
        (arm, reference) for arm, reference in zip(arms, references, strict=True) if _known(reference)
    }
    return two_arms(*compared.pop()) if len(compared) == 1 else SEVERAL


def _known(value: Any) -> bool:
    return isinstance(value, str)


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
    columns = [
        *settings,
        Column("arm", [row["arm"] for row in rows], "setting"),
        *_quality_columns(rows),
        *_difference_columns(rows),
        *_cost_columns(rows),
        *_vocabulary_columns(rows),
        *_check_columns(rows),
    ]
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
    heading = _difference_heading([row["arm"] for row in rows], [row["reference"] for row in rows])
    references = [row["reference"] or "" if heading == SEVERAL else "" for row in rows]
    return [
        Column("minus", references, "difference"),
        Column("pairs", pairs, "difference"),
        Column(heading, [_difference(row) for row in rows], "difference"),
        Column("95 % interval", [_interval(row, "difference") for row in rows], "interval"),
        Column("p (Holm)" if _adjusted(rows) else "p", _texts(rows, "holm_p", p_text), "test"),
        Column("detectable", _texts(rows, "minimum_detectable", magnitude_text), "test"),
    ]


def _adjusted(rows: list[dict[str, Any]]) -> bool:
    return any((row["num_cells"] or 0) > 1 for row in rows)


def _vocabulary_columns(rows: list[dict[str, Any]]) -> list[Column]:
    """What is comparable across tokenizers, where there are several."""
    if len({row["bytes_per_token"] for row in rows}) < 2:
        return []
    return [
        Column("word perplexity", _texts(rows, "word_perplexity", perplexity_text), "vocabulary"),
        Column("bytes/token", _texts(rows, "bytes_per_token", "{:.3f}".format), "vocabulary"),
        Column("unused ids", _texts(rows, "unused_ids", count_text), "vocabulary"),
    ]


def _check_columns(rows: list[dict[str, Any]]) -> list[Column]:
    return [
        Column("perplexity %", _texts(rows, "difference_perplexity_percent", "{:+.2f}".format), "check"),
        Column("p unadjusted", _texts(rows, "p_value", p_text) if _adjusted(rows) else [], "check"),
        Column("sign-flip p", _texts(rows, "sign_flip_p", p_text), "check"),
        Column("BCa bootstrap interval", [_interval(row, "bootstrap") for row in rows], "check"),
        Column("equivalence band", _texts(rows, "equivalence_band", magnitude_text), "check"),
        Column("verdict", [row["verdict"] or "" for row in rows], "check"),
    ]


def _texts(rows: list[dict[str, Any]], name: str, text: Callable[[Any], str]) -> list[str]:
    return [_optional(text, row[name]) for row in rows]


def _cost_columns(rows: list[dict[str, Any]]) -> list[Column]:
    return [
        Column("parameters", [_optional(count_text, row["parameters"]) for row in rows], "cost"),
        Column("tokens/s", [_optional(count_text, row["tokens_per_second"]) for row in rows], "cost"),
        Column("memory MiB", [_optional(mebibytes_text, row["peak_memory_bytes"]) for row in rows], "cost"),
    ]


def _optional(text: Callable[[Any], str], value: Any) -> str:
    return "" if value is None else text(value)


def _difference(row: dict[str, Any]) -> str:
    """With the standard deviation over the pairs, if there are several."""
    if row["difference_bits_per_byte"] is None:
        return ""
    mean = difference_text(row["difference_bits_per_byte"])
    return mean if row["difference_sd"] is None else f"{mean} ± {magnitude_text(row['difference_sd'])}"


def _interval(row: dict[str, Any], name: str) -> str:
    if row[f"{name}_low"] is None:
        return ""
    return f"{difference_text(row[f'{name}_low'])} to {difference_text(row[f'{name}_high'])}"
