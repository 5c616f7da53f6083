"""Each arm at its own best learning rate: the rate is a nuisance, and one rate may favour one arm."""

import json
from dataclasses import dataclass
from typing import Any

from tielab.report.groups import ArmDifference, Group, match_seeds
from tielab.report.pairing import paired_difference
from tielab.report.wording import difference_sentence, labelled

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

    The choice on the same runs claims no more than it should: of equal arms each has the luckiest of its
    rates, so their difference is smaller and no more often significant.
    """
    families: dict[str, list[Group]] = {}
    for group in groups:
        if group.values.get(RATE) is not None:
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
    return BestRates(
        values={name: value for name, value in best[arm].values.items() if name != RATE},
        rates={name: group.values[RATE] for name, group in best.items()},
        at_edge=[name for name, group in best.items() if _at_edge(family, name, group)],
        found=ArmDifference(reference, paired_difference(pairs, arm, reference), pairs) if pairs else None,
    )


def _best(family: list[Group], arm: str) -> Group:
    return min(_with_arm(family, arm), key=lambda group: group.mean_bits_per_byte(arm))


def _at_edge(family: list[Group], arm: str, best: Group) -> bool:
    rates = [group.values[RATE] for group in _with_arm(family, arm)]
    return best.values[RATE] in (min(rates), max(rates))


def _with_arm(family: list[Group], arm: str) -> list[Group]:
    return [group for group in family if arm in group.arms]
