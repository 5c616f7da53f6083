"""Each arm at its own best learning rate: the rate is a nuisance, and one rate may favour one arm."""

import json
from dataclasses import dataclass
from typing import Any

from tielab.report.divergence import with_divergence
from tielab.report.groups import ArmDifference, Group, match_seeds
from tielab.report.pairing import PairedDifference, paired_difference
from tielab.report.settings import TUNED
from tielab.report.wording import bracketed, difference_sentence, labelled

RATE = "learning_rate"


@dataclass(frozen=True)
class BestRates:
    """Two arms of a setting that were run at several learning rates, each at the best of them."""

    values: dict[str, Any]
    """Of the setting columns apart from the rate."""
    rates: dict[str, float]
    """The best one of each of the two arms."""
    at_edge: list[str]
    """The arms whose best rate is the lowest or highest one tried."""
    found: ArmDifference | None
    """None if no pair of runs may be compared."""

    @property
    def verdict(self) -> str:
        rates = ", ".join(f"{arm} {rate}" for arm, rate in self.rates.items())
        start = f"each arm at its own best learning rate ({rates}, chosen on these same runs)"
        if self.found is None:
            return labelled(self.values, f"{start}: no pair of runs may be compared")
        sentence = f"{start}: {difference_sentence(self.found.difference)}"
        if self.at_edge:
            sentence += f"; the best {' and '.join(self.at_edge)} rate is the lowest or highest one tried"
        return labelled(self.values, sentence)


def best_rates(groups: list[Group]) -> list[BestRates]:
    """Each two arms of a setting that were run at several learning rates.

    Each arm has the luckiest of its rates, so the more rates, the better it looks: with 8 rates against 1,
    equal arms are told apart in 10 % of studies instead of 5 % (5 seeds, simulated). A p value and a claim
    are therefore given only where both were run at the same rates. Arms with equal curves are then told
    apart in less than 5 %: 1 % of studies with 8 rates. It is no guard for arms with unequal curves: one that
    does not care about its rate has more draws than one with a single good rate, up to the 10 % above.
    Rates chosen on seeds of their own, ``study.tune=lr``, have no such bias.
    """
    families: dict[str, list[Group]] = {}
    for group in groups:
        if group.values.get(RATE) not in (None, TUNED):
            rest = {name: value for name, value in group.values.items() if name != RATE}
            families.setdefault(json.dumps(rest), []).append(group)
    return [
        _at_best(family, arm, reference)
        for family in families.values()
        if len(family) > 1
        for arm, reference in _compared(family)
    ]


def _compared(family: list[Group]) -> list[tuple[str, str]]:
    compared = {arm: reference for group in family for arm, reference in group.references.items()}
    return [(arm, reference) for arm, reference in compared.items() if _with_arm(family, reference)]


def _at_best(family: list[Group], arm: str, reference: str) -> BestRates:
    best = {name: _best(family, name) for name in (arm, reference)}
    pairs, _ = match_seeds(best[arm].arms[arm], best[reference].arms[reference], arm, reference)
    difference = paired_difference(pairs, arm, reference) if pairs else None
    tried = {name: _rates(family, name) for name in (arm, reference)}
    if difference is not None:
        difference = with_divergence(difference, best[arm], best[reference])
        if tried[arm] != tried[reference]:
            difference = _without_test(difference, tried)
    return BestRates(
        values={name: value for name, value in best[arm].values.items() if name != RATE},
        rates={name: group.values[RATE] for name, group in best.items()},
        at_edge=[name for name, group in best.items() if _at_edge(family, name, group)],
        found=ArmDifference(reference, difference, pairs) if difference is not None else None,
    )


def _best(family: list[Group], arm: str) -> Group:
    """At the lowest mean; a rate at which a run diverged only if there is no other."""
    return min(_with_arm(family, arm), key=lambda g: (arm in g.diverged, g.mean_bits_per_byte(arm)))


def _at_edge(family: list[Group], arm: str, best: Group) -> bool:
    rates = _rates(family, arm)
    return best.values[RATE] in (rates[0], rates[-1])


def _rates(family: list[Group], arm: str) -> list[float]:
    """Those the arm was run at, rising, with those at which all its runs diverged."""
    return sorted(group.values[RATE] for group in family if arm in group.arms or arm in group.diverged)


def _without_test(difference: PairedDifference, tried: dict[str, list[float]]) -> PairedDifference:
    """The mean alone: an arm that was run at more rates has more luck to choose from."""
    rates = ", ".join(f"{bracketed(arm)} at {', '.join(map(str, rates))}" for arm, rates in tried.items())
    return PairedDifference(
        num_pairs=difference.num_pairs,
        mean=difference.mean,
        low=None,
        high=None,
        perplexity_percent=difference.perplexity_percent,
        values=difference.values,
        arm=difference.arm,
        reference=difference.reference,
        diverged=difference.diverged,
        num_seeds=difference.num_seeds,
        unfair=f"not run at the same learning rates, {rates}",
    )


def _with_arm(family: list[Group], arm: str) -> list[Group]:
    return [group for group in family if arm in group.arms]
