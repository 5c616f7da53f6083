"""Learning rates chosen for each arm on seeds of their own, and whether the arm then ran at its best one."""

import math
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from tielab.record import Record
from tielab.report.arms import arm_of, in_order, scheme_of_run
from tielab.report.axes import Axis, Placed
from tielab.report.groups import Columns, Group, rank_of, values_at
from tielab.report.pairing import bits_per_byte, lookup
from tielab.report.settings import rate_was_tuned, seed_label, seeds_of
from tielab.report.wording import labelled, seed_range

BASIN_NATS = 0.01
"""Per token; rates so close to the best one are as good."""


@dataclass(frozen=True)
class RateCurve:
    """How good an arm is at each learning rate that was tried on the tuning seeds."""

    values: dict[str, Any]
    """Of the setting columns."""
    arm: str
    points: dict[float, dict[str, float]]
    """Rate, rising, to the label of each seed with its bits per byte."""
    best: float
    """The rate with the lowest mean, of those run on every seed of the curve."""
    interior: bool
    """Whether a lower and a higher rate were tried and are worse."""
    basin_low: float
    basin_high: float
    """The rates around the best one whose means are within ``BASIN_NATS`` per token."""

    @property
    def seeds(self) -> list[str]:
        return list(dict.fromkeys(seed for values in self.points.values() for seed in values))


def rate_curves(places: list[Placed], columns: Columns) -> list[RateCurve]:
    """A curve for each setting and arm, of the runs that served to choose a rate; the latest of repeats."""
    runs: dict[tuple[str, Axis, str], list[Placed]] = {}
    for place in sorted(places, key=lambda place: place.run.record.started_at or ""):
        runs.setdefault((place.setting, place.axis, arm_of(place.run)), []).append(place)
    order = in_order([scheme_of_run(place.run) for place in places])
    curves = [_curve(found, values_at(found[0], columns)) for found in runs.values()]
    return sorted(curves, key=lambda curve: [*rank_of(curve.values), order.index(curve.arm)])


def _curve(places: list[Placed], values: dict[str, Any]) -> RateCurve:
    records: dict[float, dict[str, Record]] = {}
    for place in places:
        record = place.run.record
        rate = float(lookup(record, "config.optimizer.learning_rate"))
        records.setdefault(rate, {})[seed_label(seeds_of(record))] = record
    rates = _complete(records)
    nats = {rate: fmean(nats_per_token(record) for record in records[rate].values()) for rate in rates}
    best = min(rates, key=nats.__getitem__)
    low, high = _basin(nats, best)
    points = {
        rate: {seed: bits_per_byte(record) for seed, record in records[rate].items()}
        for rate in sorted(records)
    }
    interior = min(rates) < best < max(rates)
    return RateCurve(values, arm_of(places[0].run), points, best, interior, low, high)


def _complete(records: dict[float, dict[str, Record]]) -> list[float]:
    """The rates, rising, that were run on as many seeds as any: others' means are over fewer draws."""
    most = max(len(seeds) for seeds in records.values())
    return sorted(rate for rate, seeds in records.items() if len(seeds) == most)


def _basin(nats: dict[float, float], best: float) -> tuple[float, float]:
    rates = list(nats)
    low = high = rates.index(best)
    while low > 0 and nats[rates[low - 1]] - nats[best] <= BASIN_NATS:
        low -= 1
    while high < len(rates) - 1 and nats[rates[high + 1]] - nats[best] <= BASIN_NATS:
        high += 1
    return rates[low], rates[high]


def nats_per_token(record: Record) -> float:
    """The validation loss."""
    return float(lookup(record, "validation.nats") / lookup(record, "validation.num_tokens"))


def tuned_rate_verdicts(groups: list[Group], curves: list[RateCurve]) -> list[str]:
    """A line for each setting with an arm whose learning rate was chosen: did each arm run at its best?"""
    return [
        labelled(group.values, _verdict(group, curves))
        for group in groups
        if any(_tuned(group, arm) for arm in group.arms)
    ]


def _tuned(group: Group, arm: str) -> bool:
    return any(rate_was_tuned(record) for record in group.records(arm))


def _verdict(group: Group, curves: list[RateCurve]) -> str:
    found = {curve.arm: curve for curve in curves if curve.values == group.values and curve.arm in group.arms}
    arms = "; ".join(
        f"{arm} {group.learning_rate(arm)} ({_standing(group, arm, found)})" for arm in group.arms
    )
    at_best = all(arm in found and _at_best(group, found[arm]) and found[arm].interior for arm in group.arms)
    start = (
        "each arm at its own best learning rate"
        if at_best
        else "not every arm is shown to be at its best learning rate"
    )
    if not found:
        return f"{start}: {arms}"
    return f"{start}, chosen on {_seeds(group, list(found.values()))}: {arms}"


def _seeds(group: Group, curves: list[RateCurve]) -> str:
    """``seeds 100, 101 and reported on fresh seeds 0-4``."""
    tuning = list(dict.fromkeys(seed for curve in curves for seed in curve.seeds))
    reported = list(dict.fromkeys(seed_label(seeds) for arm in group.arms.values() for seeds in arm))
    reused = [seed for seed in reported if seed in tuning]
    text = f"{seed_range(tuning)} and reported on {'' if reused else 'fresh '}{seed_range(reported)}"
    return f"{text} (not fresh: {', '.join(reused)} served for the choice)" if reused else text


def _at_best(group: Group, curve: RateCurve) -> bool:
    rate = group.learning_rate(curve.arm)
    return rate is not None and math.isclose(rate, curve.best)


def _standing(group: Group, arm: str, curves: dict[str, RateCurve]) -> str:
    """How the arm's rate stands among those tried."""
    if not _tuned(group, arm):
        return "not tuned"
    if arm not in curves:
        return "its tuning runs are not here"
    curve = curves[arm]
    if not _at_best(group, curve):
        return f"not its best: {curve.best}"
    basin = f"within {BASIN_NATS} nats from {curve.basin_low} to {curve.basin_high}"
    if curve.interior:
        return f"interior; {basin}"
    if len(curve.points) == 1:
        return "the only rate tried"
    edge = "lowest" if curve.best == min(curve.points) else "highest"
    return f"the {edge} rate tried, so its best may lie beyond; {basin}"


def unreported(groups: list[Group], curves: list[RateCurve]) -> list[str]:
    """A note for each curve whose arm has no run at a chosen rate yet."""
    reported = [(group.values, arm) for group in groups for arm in group.arms]
    return [
        labelled(
            curve.values,
            f"{curve.arm}: best learning rate {curve.best} of {len(curve.points)} tried on "
            f"{seed_range(curve.seeds)}; no run at it on fresh seeds yet",
        )
        for curve in curves
        if (curve.values, curve.arm) not in reported
    ]
