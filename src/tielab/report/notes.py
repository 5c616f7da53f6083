"""What a reader must know beside the table: what rows may be read for, and where a claim stands on little."""

from typing import Any

from tielab.config import RATE_KEY
from tielab.record import Record
from tielab.report.arms import TIED
from tielab.report.axes import AXIS_COLUMN, Axis, asked_axis, was_left_alone
from tielab.report.groups import Columns, Group
from tielab.report.pairing import PairedDifference, lookup
from tielab.report.settings import rate_was_tuned, short_name
from tielab.report.statistics import LEVEL
from tielab.report.strides import stride_check
from tielab.report.table import several_texts
from tielab.report.wording import (
    bits_text,
    bracketed,
    difference_name,
    difference_text,
    label,
    labelled,
    p_text,
)

FEWEST_FLIPS = 6
"""Seeds from which on the exact sign-flip test can reach p 0.05: 2 / 2^6."""


def doubts(groups: list[Group]) -> list[str]:
    """Where another test or another stride does not bear out a difference, or cannot."""
    notes = []
    several = any(len(group.differences) > 1 for group in groups)
    all_found = [(group, found) for group in groups for found in group.differences.values()]
    for group, found in all_found:
        name = f"{difference_name(found.difference)}: " if several else ""
        lines = _checks(found.difference) if _is_claim(found.difference) else []
        if strides := stride_check(found.difference, found.pairs):
            lines.append(strides.sentence)
        notes += [labelled(group.values, f"{name}{line}") for line in lines]
    return notes + _few_seeds([found.difference for _, found in all_found])


def _is_claim(difference: PairedDifference) -> bool:
    return difference.verdict.endswith("better")


def _few_seeds(differences: list[PairedDifference]) -> list[str]:
    if not any(_is_claim(difference) and difference.num_pairs < FEWEST_FLIPS for difference in differences):
        return []
    return [
        f"a claim from fewer than {FEWEST_FLIPS} seeds rests on the t test alone: "
        "the exact sign-flip test of so few cannot reach p 0.05"
    ]


def _checks(difference: PairedDifference) -> list[str]:
    """What the exact test and the bootstrap say against a claimed difference."""
    lines = []
    sign_flip_p = difference.sign_flip_p
    if difference.num_pairs >= FEWEST_FLIPS and sign_flip_p is not None and sign_flip_p >= LEVEL:
        lines.append(f"the exact sign-flip test does not confirm it (p = {p_text(sign_flip_p)})")
    low, high = difference.bootstrap_low, difference.bootstrap_high
    if low is None or high is None:
        lines.append("no bootstrap interval as a check: the differences are equal")
    elif low <= 0 <= high:
        interval = f"{difference_text(low)} to {difference_text(high)}"
        lines.append(f"the BCa bootstrap interval holds zero ({interval})")
    return lines


def solved_sizes(groups: list[Group]) -> list[str]:
    """How each arm whose size was solved for differs from what was asked."""
    notes = []
    for group in groups:
        for arm in group.arms:
            solved = [matching for record in group.records(arm) if (matching := lookup(record, "matching"))]
            notes += [labelled(group.values, _solved(arm, matching)) for matching in solved]
    return notes


def _solved(arm: str, matching: dict[str, Any]) -> str:
    asked = matching.get("requested") or {}
    sizes = ", ".join(
        f"{short_name(key)} {value} (asked {asked.get(key)})"
        for key, value in (matching.get("solved") or {}).items()
    )
    text = f"{bracketed(arm)} has {sizes}"
    if matching.get("parameter_mismatch") is not None:
        text += f", parameters {100 * matching['parameter_mismatch']:+.2f} % off those matched"
    if matching.get("flops_ratio") is not None:
        text += f", {matching['flops_ratio']:.3f} times the FLOPs per token"
    return text


def nothing_solved(groups: list[Group]) -> list[str]:
    """Where an axis was asked for on which every arm meets the other as it is, so that it has no rows."""
    on_axis = {(id(record), group.axis) for group in groups for _, record in _all_records(group)}
    asked: dict[tuple[str, Axis], list[str]] = {}
    for group in groups:
        rest = {name: value for name, value in group.values.items() if name != AXIS_COLUMN}
        for arm, record in _all_records(group):
            axis = asked_axis(record)
            is_adjusted = record.tied is (axis.adjusted == TIED)
            if (
                axis.is_solved
                and is_adjusted
                and was_left_alone(record)
                and (id(record), axis) not in on_axis
            ):
                asked.setdefault((label(rest), axis), []).append(arm)
    return [
        f"{f'{setting}: ' if setting else ''}matching {axis.name}: no "
        f"{'size' if axis.meets_parameters else 'budget'} had to be solved, "
        f"{' and '.join(map(bracketed, dict.fromkeys(arms)))} meets it as asked"
        for (setting, axis), arms in asked.items()
    ]


def _all_records(group: Group) -> list[tuple[str, Record]]:
    return [(arm, record) for arm in group.arms for record in group.records(arm)]


def notes_on_scope(records: list[Record], columns: Columns, groups: list[Group]) -> list[str]:
    """What the numbers of different rows may and may not be read for."""
    notes = []
    several_corpora = len({lookup(record, "data.corpus_hash") for record in records}) > 1
    text_differs = several_corpora or several_texts(records)
    if len({lookup(record, "data.tokenizer_hash") for record in records}) > 1:
        ranking = "" if text_differs else f"; lowest bits per byte first: {_ranking(groups)}"
        notes.append(
            "several tokenizers: their perplexities cannot be compared with each other, "
            f"bits per byte of one text can{ranking}"
        )
    if text_differs:
        notes.append(
            "the validation text differs between settings: bits per byte come from different text "
            "and are ranked only within one text"
        )
    for key, others in columns.items():
        if others:
            names = ", ".join(short_name(other) for other in others)
            notes.append(f"{short_name(key)} stands for {names} too: they always change together")
    return notes + _single_rate(records, groups)


def _single_rate(records: list[Record], groups: list[Group]) -> list[str]:
    rates = {lookup(record, f"config.{RATE_KEY}") for record in records} - {None}
    tuned = any(rate_was_tuned(record) for record in records)
    if len(rates) != 1 or tuned or not any(group.differences for group in groups):
        return []
    several = len({arm for group in groups for arm in group.arms}) > 2
    arms = "every arm" if several else "either arm"
    return [f"every run had learning rate {rates.pop()}: not shown to be the best one of {arms}"]


def _ranking(groups: list[Group]) -> str:
    """The three lowest arms by mean bits per byte."""
    arms = [
        (group.mean_bits_per_byte(arm), index, f"{bracketed(arm)} {label(group.values)}")
        for group in groups
        for index, arm in enumerate(group.arms)
    ]
    named = [f"{name} ({bits_text(bits)})" for bits, _, name in sorted(arms)]
    return "; ".join(named[:3]) + ("; ..." if len(named) > 3 else "")
