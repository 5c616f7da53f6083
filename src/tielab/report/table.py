"""The table of a comparison in full precision: a row for each setting and arm."""

import math
from collections import Counter
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, Any

from tielab.record import Record
from tielab.report.arms import scheme_of
from tielab.report.groups import Group
from tielab.report.pairing import bits_per_byte, lookup, perplexity
from tielab.report.settings import rate_was_tuned

if TYPE_CHECKING:
    import pandas as pd

QUANTITIES = (
    "arm", "tied", "n", "perplexity", "perplexity_sd", "bits_per_byte", "bits_per_byte_sd", "word_perplexity",
    "bytes_per_token", "unused_ids", "chosen_learning_rate", "parameters", "tokens_per_second",
    "peak_memory_bytes", "reference", "num_pairs", "difference_bits_per_byte", "difference_sd",
    "difference_low", "difference_high", "difference_perplexity_percent", "p_value", "holm_p", "num_cells",
    "sign_flip_p", "bootstrap_low", "bootstrap_high", "minimum_detectable", "equivalence_band", "verdict",
)  # fmt: skip
TEXTS = ("arm", "reference", "verdict")
WHOLE_NUMBERS = ("n", "unused_ids", "parameters", "peak_memory_bytes", "num_pairs", "num_cells")
MARKS = ("best_perplexity", "best_bits_per_byte")


def table_of(groups: list[Group], setting_columns: list[str]) -> "pd.DataFrame":
    """The setting columns, then ``QUANTITIES``, then ``MARKS``; what is not known is missing."""
    import pandas as pd

    rows = [_row(group, arm) for group in groups for arm in group.arms]
    records = [record for group in groups for arm in group.arms for record in group.records(arm)]
    text = "validation.content_hash" if several_texts(records) else "data.corpus_hash"
    _mark_lowest(rows, "perplexity", ("data.tokenizer_hash", "validation.content_hash"))
    _mark_lowest(rows, "bits_per_byte", (text,))
    names = [*setting_columns, *QUANTITIES, *MARKS]
    # As objects, 4096 beside a null stays 4096 and does not become 4096.0.
    table = pd.DataFrame({name: pd.Series([row.get(name) for row in rows], dtype=object) for name in names})
    numbers = [name for name in QUANTITIES if name not in TEXTS]
    kinds = {name: "Int64" if name in WHOLE_NUMBERS else "float64" for name in numbers}
    return table.astype(kinds | dict.fromkeys(("tied", *MARKS), "bool"))


def _row(group: Group, arm: str) -> dict[str, Any]:
    records = group.records(arm)
    row = group.values | {"arm": arm, "n": len(records), "parameters": group.parameters(arm)}
    row["tied"] = scheme_of(records[0].config)["model.tied"]
    row |= _with_sd("perplexity", [perplexity(record) for record in records])
    row |= _with_sd("bits_per_byte", [bits_per_byte(record) for record in records])
    row |= _across_vocabularies(records) | _cost(records)
    if all(rate_was_tuned(record) for record in records):
        row["chosen_learning_rate"] = group.learning_rate(arm)
    # Which text and tokenizer the numbers come from; not columns, but the marks need them.
    for name in ("data.tokenizer_hash", "data.corpus_hash", "validation.content_hash"):
        row[name] = lookup(records[0], name)
    return row | _difference(group, arm)


def _with_sd(name: str, values: list[float]) -> dict[str, Any]:
    return {name: fmean(values), f"{name}_sd": stdev(values) if len(values) > 1 else None}


def word_perplexity(record: Record) -> float | None:
    """exp of the nats per whitespace-separated word; None where the record does not count words."""
    num_words = lookup(record, "validation.num_words")
    # Text without spaces: a perplexity above the largest number says nothing.
    nats = lookup(record, "validation.nats") / num_words if num_words else math.inf
    return math.exp(nats) if nats < 700 else None


def _across_vocabularies(records: list[Record]) -> dict[str, Any]:
    """What can be compared where the tokenizers differ, and what each of them makes of the text."""
    words = [value for record in records if (value := word_perplexity(record)) is not None]
    first = records[0]
    return {
        "word_perplexity": fmean(words) if words else None,
        "bytes_per_token": lookup(first, "validation.num_bytes") / lookup(first, "validation.num_tokens"),
        "unused_ids": lookup(first, "data.train.unused_ids"),
    }


def _cost(records: list[Record]) -> dict[str, Any]:
    """Median throughput and highest peak memory of the runs that measured them."""
    speeds = [lookup(record, "throughput.median") for record in records]
    peaks = [record.peak_memory_bytes for record in records if record.peak_memory_bytes is not None]
    measured = [speed for speed in speeds if speed is not None]
    return {
        "tokens_per_second": median(measured) if measured else None,
        "peak_memory_bytes": max(peaks, default=None),
    }


def _difference(group: Group, arm: str) -> dict[str, Any]:
    if arm not in group.references:
        return {}
    compared = {"reference": group.references[arm], "num_pairs": 0}
    if arm not in group.differences:
        return compared
    difference = group.differences[arm].difference
    return compared | {
        "num_pairs": difference.num_pairs,
        "difference_bits_per_byte": difference.mean,
        "difference_sd": difference.sd,
        "difference_low": difference.low,
        "difference_high": difference.high,
        "difference_perplexity_percent": difference.perplexity_percent,
        "p_value": difference.p_value,
        "holm_p": difference.holm_p,
        "num_cells": difference.num_cells,
        "sign_flip_p": difference.sign_flip_p,
        "bootstrap_low": difference.bootstrap_low,
        "bootstrap_high": difference.bootstrap_high,
        "minimum_detectable": difference.minimum_detectable,
        "equivalence_band": difference.band,
        "verdict": difference.verdict,
    }


def _mark_lowest(rows: list[dict[str, Any]], quantity: str, within: tuple[str, ...]) -> None:
    """Mark the lowest value among rows that agree in the given keys, where there is a choice."""
    values: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        values.setdefault(tuple(row[key] for key in within), []).append(row[quantity])
    for row in rows:
        rivals = values[tuple(row[key] for key in within)]
        row[f"best_{quantity}"] = len(rivals) > 1 and row[quantity] == min(rivals)


def several_texts(records: list[Record]) -> bool:
    """Whether one tokenizer was validated on more than one content."""
    contents = {(lookup(r, "data.tokenizer_hash"), lookup(r, "validation.content_hash")) for r in records}
    return any(count > 1 for count in Counter(tokenizer for tokenizer, _ in contents).values())
