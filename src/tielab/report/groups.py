"""Runs sorted into settings, arms and seeds, and paired; what could not be used becomes a note."""

import math
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from tielab.record import Record
from tielab.report.collect import CollectedRun
from tielab.report.pairing import (
    PairedDifference,
    bits_per_byte,
    lookup,
    paired_difference,
    refusals,
    warnings,
)
from tielab.report.settings import (
    Seeds,
    identity,
    seed_label,
    seeds_of,
    setting_of,
    short_name,
    shown,
    sort_key,
)
from tielab.report.wording import arm_name, label, labelled

Columns = dict[str, list[str]]
"""The keys shown as setting columns, each with the keys it stands for."""

Arm = dict[Seeds, CollectedRun]


@dataclass
class Group:
    """The runs of one setting."""

    values: dict[str, Any]
    """Of the setting columns."""
    arms: dict[bool, Arm] = field(default_factory=lambda: {True: {}, False: {}})
    difference: PairedDifference | None = None

    def records(self, tied: bool) -> list[Record]:
        return [run.record for run in self.arms[tied].values()]

    def arms_with_runs(self) -> list[bool]:
        """Tied first."""
        return [tied for tied in (True, False) if self.arms[tied]]

    def mean_bits_per_byte(self, tied: bool) -> float:
        return fmean([bits_per_byte(record) for record in self.records(tied)])

    def parameters(self, tied: bool) -> int | None:
        """Total parameters of the arm, None if no record says."""
        totals = [record.parameters.get("total") for record in self.records(tied)]
        return next((total for total in totals if total is not None), None)


def problem(record: Record) -> str | None:
    """Why a run gives no number; None if it does."""
    if not record.finished:
        if record.status == "running":
            return "running, or killed: tielab resume says which, and goes on with it"
        message = str(lookup(record, "error.message") or "").strip()
        return f"{record.status}: {message.splitlines()[0]}" if message else record.status
    if record.tie_observed is not record.tied:
        return (
            f"not compared: configured {arm_name(record.tied)}, but tie_observed is {record.tie_observed} "
            f"where {record.tied} was expected"
        )
    for name in ("nats", "num_tokens", "num_bytes", "perplexity", "bits_per_byte"):
        value = lookup(record, f"validation.{name}")
        if not isinstance(value, int | float) or not math.isfinite(value):
            return f"finished without a valid validation: {name} is {value}"
    return None


def changed_code(record: Record) -> str | None:
    """Whether a run went on from a checkpoint of other code than it ended with; None if it did not."""
    earlier = record.attempts[-1].get("code_hash") if record.attempts else None
    if record.resumed_at_step is None or earlier in (None, record.code_hash):
        return None
    return (
        f"went on at step {record.resumed_at_step} with other code (code_hash {earlier}, {record.code_hash})"
    )


def run_name(run: CollectedRun, columns: Columns) -> str:
    """The run's folder, setting, arm and seed."""
    setting = label(_values(run, columns))
    parts = [setting, arm_name(run.record.tied), f"seed {seed_label(seeds_of(run.record))}"]
    return f"{run.folder} ({', '.join(part for part in parts if part)})"


def _values(run: CollectedRun, columns: Columns) -> dict[str, Any]:
    setting = setting_of(run.record)
    return {short_name(key): shown(setting.get(key)) for key in columns}


def grouped(usable: list[CollectedRun], columns: Columns, notes: list[str]) -> list[Group]:
    """The settings in the order of their values; of runs that repeat each other the latest started."""
    groups: dict[str, Group] = {}
    for run in sorted(usable, key=lambda run: run.record.started_at or ""):
        group = groups.setdefault(identity(setting_of(run.record)), Group(_values(run, columns)))
        arm, seeds = group.arms[run.record.tied], seeds_of(run.record)
        twin = next((r for s, r in arm.items() if s != seeds and _same_weights(r.record, run.record)), None)
        if twin is not None:
            notes.append(
                f"{run_name(run, columns)}: not counted, its weights equal those of another seed, "
                f"{twin.folder}"
            )
            continue
        if seeds in arm:
            notes.append(
                f"{arm[seeds].folder}: not counted, {run_name(run, columns)} repeats it and started later"
            )
        arm[seeds] = run
    return sorted(groups.values(), key=lambda group: sort_key(list(group.values.values())))


def _same_weights(one: Record, other: Record) -> bool:
    return one.weights_hash is not None and one.weights_hash == other.weights_hash


def pair(group: Group, notes: list[str]) -> None:
    """Fill in the group's paired difference, and note what stood in the way of a pair."""
    if not group.arms[True] or not group.arms[False]:
        return
    pairs, remarks = matched(group.arms[True], group.arms[False])
    notes += [labelled(group.values, remark) for remark in remarks]
    group.difference = paired_difference(pairs) if pairs else None


def matched(tied: Arm, untied: Arm) -> tuple[list[tuple[Record, Record]], list[str]]:
    """The pairs of equal seeds that may be compared, and remarks on the other seeds and on doubtful pairs."""
    pairs: list[tuple[Record, Record]] = []
    remarks: dict[str, list[Seeds]] = {}
    for seeds in sorted({*tied, *untied}, key=lambda seeds: sort_key(list(seeds))):
        if seeds not in tied or seeds not in untied:
            arm = arm_name(seeds in tied)
            remarks.setdefault(f"{arm} run only: part of the mean, not of the difference", []).append(seeds)
            continue
        candidate = (tied[seeds].record, untied[seeds].record)
        refused = "; ".join(refusals(*candidate))
        if not refused:
            pairs.append(candidate)
        for remark in [f"pair refused: {refused}"] if refused else warnings(*candidate):
            remarks.setdefault(remark, []).append(seeds)
    return pairs, [f"{_seed_list(seeds)}: {remark}" for remark, seeds in remarks.items()]


def _seed_list(seeds: list[Seeds]) -> str:
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(seed_label(one) for one in seeds)}"
