"""Runs sorted into settings, arms and seeds, and paired; what could not be used becomes a note."""

import math
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from tielab.record import Record
from tielab.report.arms import TIED, UNTIED, Scheme, arm_of, in_order, scheme_of_run
from tielab.report.axes import AXIS_COLUMN, EQUAL_WIDTH, Axis, Placed, axis_rank, was_left_alone
from tielab.report.collect import CollectedRun
from tielab.report.pairing import (
    Pair,
    PairedDifference,
    bits_per_byte,
    lookup,
    paired_difference,
    refusals,
    warnings,
)
from tielab.report.settings import (
    Seeds,
    seed_label,
    seeds_of,
    setting_of,
    short_name,
    shown,
    sort_key,
)
from tielab.report.wording import label, labelled, two_arms

Columns = dict[str, list[str]]
"""The keys shown as setting columns, each with the keys it stands for."""

Arm = dict[Seeds, CollectedRun]


@dataclass(frozen=True)
class ArmDifference:
    """How an arm differs from the one it is compared with."""

    reference: str
    difference: PairedDifference
    pairs: dict[str, Pair]
    """By the label of their seed."""


@dataclass
class Group:
    """The runs of one setting."""

    values: dict[str, Any]
    """Of the setting columns."""
    arms: dict[str, Arm] = field(default_factory=dict)
    """By the arm's name: tied, untied, then the others; none is empty."""
    references: dict[str, str] = field(default_factory=dict)
    """Of each arm here the one it is compared with, which may be missing here."""
    differences: dict[str, ArmDifference] = field(default_factory=dict)
    """Of each arm that has pairs which may be compared."""
    axis: Axis = EQUAL_WIDTH
    """What the arms have in common."""
    diverged: dict[str, Arm] = field(default_factory=dict)
    """Of each arm the runs that came out as no number; none is among ``arms``."""
    reused: set[Seeds] = field(default_factory=set)
    """Seeds that served to choose a learning rate too: no pair has them."""

    def fresh(self, arm: str) -> Arm:
        """The runs of the arm that may be paired."""
        return {seeds: run for seeds, run in self.arms[arm].items() if seeds not in self.reused}

    def records(self, arm: str) -> list[Record]:
        return [run.record for run in self.arms[arm].values()]

    def mean_bits_per_byte(self, arm: str) -> float:
        return fmean([bits_per_byte(record) for record in self.records(arm)])

    def parameters(self, arm: str) -> int | None:
        """Total parameters of the arm, None if no record says."""
        totals = [record.parameters.get("total") for record in self.records(arm)]
        return next((total for total in totals if total is not None), None)

    def learning_rate(self, arm: str) -> float | None:
        """Of the arm's runs, None if they are not known to share one."""
        rates = {lookup(record, "config.optimizer.learning_rate") for record in self.records(arm)}
        return rates.pop() if len(rates) == 1 else None


def problem(record: Record) -> str | None:
    """Why a run gives no number; None if it does."""
    if not record.finished:
        if record.status == "running":
            return "running, or killed: tielab resume says which, and goes on with it"
        status = "diverged" if record.diverged else record.status
        message = str(lookup(record, "error.message") or "").strip()
        return f"{status}: {message.splitlines()[0]}" if message else status
    if record.tie_observed is not record.tied:
        configured = TIED if record.tied else UNTIED
        return (
            f"not compared: configured {configured}, but tie_observed is {record.tie_observed} "
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
    parts = [setting, arm_of(run), f"seed {seed_label(seeds_of(run.record))}"]
    return f"{run.folder} ({', '.join(part for part in parts if part)})"


def _values(run: CollectedRun, columns: Columns) -> dict[str, Any]:
    setting = setting_of(run.record)
    return {short_name(key): shown(setting.get(key)) for key in columns if key != AXIS_COLUMN}


def values_at(place: Placed, columns: Columns) -> dict[str, Any]:
    """Of the setting columns, the matching axis among them if there are several."""
    values = _values(place.run, columns)
    return values | {AXIS_COLUMN: place.axis.name} if AXIS_COLUMN in columns else values


def rank_of(values: dict[str, Any]) -> list[Any]:
    """Orders settings by their values."""
    return [
        axis_rank(value) if name == AXIS_COLUMN else sort_key([value])[0] for name, value in values.items()
    ]


def grouped(places: list[Placed], columns: Columns, notes: list[str]) -> list[Group]:
    """The settings in the order of their values; of runs that repeat each other the latest started."""
    groups: dict[tuple[str, Axis], Group] = {}
    remarks: dict[str, None] = {}
    for place in sorted(places, key=lambda place: place.run.record.started_at or ""):
        new = Group(values_at(place, columns), axis=place.axis)
        group = groups.setdefault((place.setting, place.axis), new)
        arm = group.arms.setdefault(arm_of(place.run), {})
        if remark := _add(arm, place.run, run_name(place.run, columns)):
            remarks[remark] = None
    for group in groups.values():
        order = in_order(schemes(group))
        group.arms = {name: group.arms[name] for name in order}
    notes += remarks
    return sorted(groups.values(), key=lambda group: rank_of(group.values))


def schemes(group: Group) -> list[Scheme]:
    """Of the arms that ran."""
    return [scheme_of_run(next(iter(runs.values()))) for runs in group.arms.values()]


def _add(arm: Arm, run: CollectedRun, name: str) -> str | None:
    """Give a run its place among the seeds; what is not counted for it is the remark returned."""
    seeds, record = seeds_of(run.record), run.record
    twin = next((r for s, r in arm.items() if s != seeds and _same_weights(r.record, record)), None)
    if twin is not None:
        return f"{name}: not counted, its weights equal those of another seed, {twin.folder}"
    remark = (
        f"{arm[seeds].folder}: not counted, {name} repeats it and started later" if seeds in arm else None
    )
    arm[seeds] = run
    return remark


def _same_weights(one: Record, other: Record) -> bool:
    return one.weights_hash is not None and one.weights_hash == other.weights_hash


def pair(group: Group, references: dict[str, str], notes: list[str]) -> None:
    """Fill in how each arm of the group differs from its reference, and note what stood in the way."""
    group.references = {
        arm: references[arm]
        for arm in group.arms
        if arm in references and not _compared_at_width(group, arm, references[arm])
    }
    for arm, reference in group.references.items():
        if reference not in group.arms:
            continue
        pairs, remarks = match_seeds(group.fresh(arm), group.fresh(reference), arm, reference)
        name = f"{two_arms(arm, reference)}: " if len(group.arms) > 2 else ""
        notes += [labelled(group.values, f"{name}{remark}") for remark in remarks]
        if pairs:
            difference = paired_difference(pairs, arm, reference)
            group.differences[arm] = ArmDifference(reference, difference, pairs)


def _compared_at_width(group: Group, arm: str, reference: str) -> bool:
    """Whether matching changed neither of two arms that are both tied or both untied.

    On an axis whose sizes were solved their comparison would be that of equal width again.
    """
    if not group.axis.is_solved or reference not in group.arms:
        return False
    records = [*group.records(arm), *group.records(reference)]
    return len({record.tied for record in records}) == 1 and all(map(was_left_alone, records))


def match_seeds(ones: Arm, others: Arm, arm: str, reference: str) -> tuple[dict[str, Pair], list[str]]:
    """The pairs of equal seeds that may be compared, and remarks on the other seeds and on doubtful pairs."""
    pairs: dict[str, Pair] = {}
    remarks: dict[str, list[Seeds]] = {}
    for seeds in sorted({*ones, *others}, key=lambda seeds: sort_key(list(seeds))):
        if seeds not in ones or seeds not in others:
            only = arm if seeds in ones else reference
            remarks.setdefault(f"{only} run only: part of the mean, not of the difference", []).append(seeds)
            continue
        one, other = ones[seeds].record, others[seeds].record
        refused = "; ".join(refusals(one, other, arm, reference))
        if not refused:
            pairs[seed_label(seeds)] = (one, other)
        for remark in [f"pair refused: {refused}"] if refused else warnings(one, other, arm, reference):
            remarks.setdefault(remark, []).append(seeds)
    return pairs, [f"{_seed_list(seeds)}: {remark}" for remark, seeds in remarks.items()]


def _seed_list(seeds: list[Seeds]) -> str:
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(seed_label(one) for one in seeds)}"
