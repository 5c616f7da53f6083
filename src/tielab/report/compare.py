"""Records in, one table out: a row per setting and arm, the paired difference on the tied row.

Only finished runs whose tie was observed as configured give numbers. Everything that was left out,
refused or doubtful is a note; nothing is dropped in silence.
"""

from collections import Counter
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, Any

from tielab.record import Record
from tielab.report.collect import Collected
from tielab.report.groups import Columns, Group, changed_code, grouped, pair, problem, run_name
from tielab.report.pairing import bits_per_byte, lookup, perplexity
from tielab.report.settings import setting_of, short_name, varying_columns
from tielab.report.tuning import best_rate_verdicts
from tielab.report.wording import (
    arm_name,
    bits_text,
    difference_sentence,
    label,
    labelled,
    one_line,
    savings_sentence,
)

if TYPE_CHECKING:
    import pandas as pd

QUANTITIES = (
    "tied", "n", "perplexity", "perplexity_sd", "bits_per_byte", "bits_per_byte_sd", "parameters",
    "tokens_per_second", "peak_memory_bytes", "num_pairs", "difference_bits_per_byte", "difference_low",
    "difference_high", "difference_perplexity_percent",
)  # fmt: skip
WHOLE_NUMBERS = ("n", "parameters", "peak_memory_bytes", "num_pairs")
MARKS = ("best_perplexity", "best_bits_per_byte")


@dataclass(frozen=True)
class Comparison:
    """The table in full precision, and what a reader must know beside it."""

    table: "pd.DataFrame"
    """The setting columns, then ``QUANTITIES``, then ``MARKS``."""
    setting_columns: list[str]
    headline: str
    """How many of the runs give numbers."""
    verdicts: list[str]
    """One line for each setting, then one for each setting whose learning rate was varied."""
    notes: list[str]


def compare(collected: Collected) -> Comparison:
    """Compare the tied and untied runs of every setting, paired by seed."""
    columns = varying_columns([setting_of(run.record) for run in collected.runs])
    usable = [run for run in collected.runs if problem(run.record) is None]
    notes = [
        f"{run_name(run, columns)}: {reason}" for run in collected.runs if (reason := problem(run.record))
    ]
    notes += [f"{run.folder}: cannot be read: {run.reason}" for run in collected.unreadable]
    notes += [f"{run_name(run, columns)}: {change}" for run in usable if (change := changed_code(run.record))]
    groups = grouped(usable, columns, notes)
    for group in groups:
        pair(group, notes)
    notes += _notes_on_scope([run.record for run in usable], columns, groups)
    names = [short_name(key) for key in columns]
    verdicts = [labelled(group.values, _verdict(group)) for group in groups]
    verdicts += best_rate_verdicts(groups)
    headline = _headline(groups, len(collected.runs) + len(collected.unreadable))
    return Comparison(_table(groups, names), names, headline, verdicts, [one_line(note) for note in notes])


def _headline(groups: list[Group], num_found: int) -> str:
    num_used = sum(len(arm) for group in groups for arm in group.arms.values())
    if num_used == num_found:
        return f"{num_found} {'run' if num_found == 1 else 'runs'}, all finished"
    return f"{num_used} of {num_found} runs give numbers, the notes say why the others do not"


def _verdict(group: Group) -> str:
    for tied in (True, False):
        if not group.arms[tied]:
            return f"no finished {arm_name(tied)} run, so no comparison"
    if group.difference is None:
        return "no pair of runs may be compared, the notes say why"
    tied_total, untied_total = group.parameters(True), group.parameters(False)
    sentence = difference_sentence(group.difference)
    if tied_total is None or not untied_total:
        return sentence
    return f"{sentence}; {savings_sentence(tied_total, untied_total)}"


def _row(group: Group, tied: bool) -> dict[str, Any]:
    records = group.records(tied)
    row = group.values | {"tied": tied, "n": len(records), "parameters": group.parameters(tied)}
    row |= _spread("perplexity", [perplexity(record) for record in records])
    row |= _spread("bits_per_byte", [bits_per_byte(record) for record in records])
    row |= _cost(records)
    # Which text and tokenizer the numbers come from; not columns, but the marks need them.
    for name in ("data.tokenizer_hash", "data.corpus_hash", "validation.content_hash"):
        row[name] = lookup(records[0], name)
    return row | _difference(group) if tied else row


def _spread(name: str, values: list[float]) -> dict[str, Any]:
    return {name: fmean(values), f"{name}_sd": stdev(values) if len(values) > 1 else None}


def _cost(records: list[Record]) -> dict[str, Any]:
    """Median throughput and highest peak memory of the runs that measured them."""
    speeds = [lookup(record, "throughput.median") for record in records]
    peaks = [record.peak_memory_bytes for record in records if record.peak_memory_bytes is not None]
    measured = [speed for speed in speeds if speed is not None]
    return {
        "tokens_per_second": median(measured) if measured else None,
        "peak_memory_bytes": max(peaks, default=None),
    }


def _difference(group: Group) -> dict[str, Any]:
    if group.difference is None:
        return {"num_pairs": 0}
    return {
        "num_pairs": group.difference.num_pairs,
        "difference_bits_per_byte": group.difference.mean,
        "difference_low": group.difference.low,
        "difference_high": group.difference.high,
        "difference_perplexity_percent": group.difference.perplexity_percent,
    }


def _mark_lowest(rows: list[dict[str, Any]], quantity: str, within: tuple[str, ...]) -> None:
    """Mark the lowest value among rows that agree in the given keys, where there is a choice."""
    values: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        values.setdefault(tuple(row[key] for key in within), []).append(row[quantity])
    for row in rows:
        rivals = values[tuple(row[key] for key in within)]
        row[f"best_{quantity}"] = len(rivals) > 1 and row[quantity] == min(rivals)


def _several_texts(records: list[Record]) -> bool:
    """Whether one tokenizer was validated on more than one content."""
    contents = {(lookup(r, "data.tokenizer_hash"), lookup(r, "validation.content_hash")) for r in records}
    return any(count > 1 for count in Counter(tokenizer for tokenizer, _ in contents).values())


def _table(groups: list[Group], setting_columns: list[str]) -> "pd.DataFrame":
    import pandas as pd

    rows = [_row(group, tied) for group in groups for tied in group.arms_with_runs()]
    records = [record for group in groups for tied in group.arms for record in group.records(tied)]
    text = "validation.content_hash" if _several_texts(records) else "data.corpus_hash"
    _mark_lowest(rows, "perplexity", ("data.tokenizer_hash", "validation.content_hash"))
    _mark_lowest(rows, "bits_per_byte", (text,))
    names = [*setting_columns, *QUANTITIES, *MARKS]
    # As objects, 4096 beside a null stays 4096 and does not become 4096.0.
    table = pd.DataFrame({name: pd.Series([row.get(name) for row in rows], dtype=object) for name in names})
    kinds = {name: "Int64" if name in WHOLE_NUMBERS else "float64" for name in QUANTITIES}
    return table.astype(kinds | dict.fromkeys(("tied", *MARKS), "bool"))


def _notes_on_scope(records: list[Record], columns: Columns, groups: list[Group]) -> list[str]:
    """What the numbers of different rows may and may not be read for."""
    notes = []
    several_corpora = len({lookup(record, "data.corpus_hash") for record in records}) > 1
    several_texts = several_corpora or _several_texts(records)
    if len({lookup(record, "data.tokenizer_hash") for record in records}) > 1:
        ranking = "" if several_texts else f"; lowest bits per byte first: {_ranking(groups)}"
        notes.append(
            "several tokenizers: their perplexities cannot be compared with each other, "
            f"bits per byte of one text can{ranking}"
        )
    if several_texts:
        notes.append(
            "the validation text differs between settings: bits per byte come from different text "
            "and are ranked only within one text"
        )
    for key, others in columns.items():
        if others:
            names = ", ".join(short_name(other) for other in others)
            notes.append(f"{short_name(key)} stands for {names} too: they always change together")
    rates = {lookup(record, "config.optimizer.learning_rate") for record in records} - {None}
    if len(rates) == 1 and any(group.difference for group in groups):
        notes.append(f"every run had learning rate {rates.pop()}: not shown to be the best one of either arm")
    return notes


def _ranking(groups: list[Group]) -> str:
    """The three lowest arms by mean bits per byte."""
    arms = [
        (group.mean_bits_per_byte(tied), tied, label(group.values))
        for group in groups
        for tied in group.arms_with_runs()
    ]
    named = [f"{arm_name(tied)} {name} ({bits_text(bits)})" for bits, tied, name in sorted(arms)]
    return "; ".join(named[:3]) + ("; ..." if len(named) > 3 else "")
