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
    """Rate, rising, to the label of each seed with its bits per byte: infinity if it diverged."""
    best: float
    """The rate with the lowest mean, the lowest such rate, of those run on every seed of the curve."""
    interior: bool
    """Whether a lower and a higher rate were tried and are worse."""
    basin_low: float
    basin_high: float
    """The rates around the best one whose means are within ``BASIN_NATS`` per token."""

    @property
    def diverged(self) -> list[float]:
        """The rates at which a run diverged: as bad as can be, whatever the other seeds gave."""
        return [rate for rate, values in self.points.items() if math.inf in values.values()]

    @property
    def is_known(self) -> bool:
        """Whether there is a best rate: not every one diverged."""
        return self.best not in self.diverged

    @property
    def seeds(self) -> list[str]:
        return list(dict.fromkeys(seed for values in self.points.values() for seed in values))


def rate_curves(places: list[Placed], columns: Columns) -> list[RateCurve]:
    """A curve for each setting and arm, of the runs that served to choose a rate; the latest of repeats.

    A run that diverged counts as infinity, as it did when the rate was chosen.
    """
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
        rate = _rate(record)
        records.setdefault(rate, {})[seed_label(seeds_of(record))] = record
    rates = _complete(records)
    nats = {rate: fmean(nats_per_token(record) for record in records[rate].values()) for rate in rates}
    best = min(rates, key=nats.__getitem__)
    low, high = _basin(nats, best)
    points = {
        rate: {seed: _bits(record) for seed, record in records[rate].items()} for rate in sorted(records)
    }
    interior = min(rates) < best < max(rates)
    return RateCurve(values, arm_of(places[0].run), points, best, interior, low, high)


def _complete(records: dict[float, dict[str, Record]]) -> list[float]:
    """The rates, rising, that were run on as many seeds as any: others' means are over fewer draws.

    A rate at which a run diverged needs no other seed.
    """
    most = max(len(seeds) for seeds in records.values())
    return sorted(
        rate
        for rate, seeds in records.items()
        if len(seeds) == most or any(record.diverged for record in seeds.values())
    )


def _basin(nats: dict[float, float], best: float) -> tuple[float, float]:
    rates = list(nats)
    low = high = rates.index(best)
    while low > 0 and nats[rates[low - 1]] - nats[best] <= BASIN_NATS:
        low -= 1
    while high < len(rates) - 1 and nats[rates[high + 1]] - nats[best] <= BASIN_NATS:
        high += 1
    return rates[low], rates[high]


def nats_per_token(record: Record) -> float:
    """The validation loss; infinity if the run diverged."""
    if record.diverged:
        return math.inf
    return float(lookup(record, "validation.nats") / lookup(record, "validation.num_tokens"))


def _bits(record: Record) -> float:
    return math.inf if record.diverged else bits_per_byte(record)


def _rate(record: Record) -> float:
    return float(lookup(record, "config.optimizer.learning_rate"))


def at_one_rate(
    places: list[Placed], curves: list[RateCurve], columns: Columns, notes: list[str]
) -> list[Placed]:
    """The places without the runs of an arm at another rate than the one chosen for it; these are noted.

    The rate of an arm is the best one of its curve, if any of its runs has it; else the one at which most
    seeds finished, of several such rates that of the run that started last.
    """
    arms: dict[tuple[str, Axis, str], list[Placed]] = {}
    for place in places:
        arms.setdefault((place.setting, place.axis, arm_of(place.run)), []).append(place)
    kept = []
    for (_, _, arm), own in arms.items():
        if rate_was_tuned(own[0].run.record):
            values = values_at(own[0], columns)
            known = [curve for curve in curves if curve.is_known]
            best = next((curve.best for curve in known if (curve.values, curve.arm) == (values, arm)), None)
            chosen = _chosen(own, best)
            others = [place for place in own if _rate(place.run.record) != chosen]
            own = [place for place in own if _rate(place.run.record) == chosen]
            notes += [labelled(values, _not_counted(arm, others, chosen, best))] if others else []
        kept += own
    return kept


def _chosen(places: list[Placed], best: float | None) -> float:
    """As ``at_one_rate`` says, of the places of one arm."""
    rates: dict[float, list[Record]] = {}
    for place in places:
        rates.setdefault(_rate(place.run.record), []).append(place.run.record)

    def rank(rate: float) -> tuple[bool, int, str]:
        finished = {seeds_of(record) for record in rates[rate] if record.finished}
        last = max(record.started_at or "" for record in rates[rate])
        return best is not None and math.isclose(rate, best), len(finished), last

    return max(rates, key=rank)


def _not_counted(arm: str, places: list[Placed], chosen: float, best: float | None) -> str:
    seeds = list(dict.fromkeys(seed_label(seeds_of(place.run.record)) for place in places))
    rates = ", ".join(str(rate) for rate in sorted({_rate(place.run.record) for place in places}))
    is_best = best is not None and math.isclose(chosen, best)
    why = "the best of its curve" if is_best else "the one with the most seeds"
    return f"{arm}, {seed_range(seeds)} at learning rate {rates}: not counted, the arm's is {chosen}, {why}"


def note_reuse(groups: list[Group], curves: list[RateCurve], notes: list[str]) -> None:
    """Keep seeds that served to choose a rate out of the pairs: there an arm's luck is part of the choice."""
    for group in groups:
        served = {seed for curve in _of_group(group, curves).values() for seed in curve.seeds}
        group.reused = {seeds for arm in group.arms.values() for seeds in arm if seed_label(seeds) in served}
        if labels := sorted(seed_label(seeds) for seeds in group.reused):
            text = "served to choose a learning rate: part of the mean, not of the difference"
            notes.append(labelled(group.values, f"{seed_range(labels)}: {text}"))


def _of_group(group: Group, curves: list[RateCurve]) -> dict[str, RateCurve]:
    """By arm."""
    return {curve.arm: curve for curve in curves if curve.values == group.values and curve.arm in group.arms}


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
    found = _of_group(group, curves)
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
    if not curve.is_known:
        return "every rate tried diverged"
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
        labelled(curve.values, f"{curve.arm}: {_found(curve)}")
        for curve in curves
        if (curve.values, curve.arm) not in reported
    ]


def _found(curve: RateCurve) -> str:
    if not curve.is_known:
        return f"each of {len(curve.points)} learning rates tried on {seed_range(curve.seeds)} diverged"
    return (
        f"best learning rate {curve.best} of {len(curve.points)} tried on {seed_range(curve.seeds)}; "
        "no run at it on fresh seeds yet"
    )
