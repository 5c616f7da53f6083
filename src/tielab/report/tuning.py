"""Each arm at its own best learning rate: the rate is a nuisance, and one rate may favour one arm."""

import json

from tielab.report.groups import Group, match_seeds
from tielab.report.pairing import paired_difference
from tielab.report.wording import difference_sentence, labelled

RATE = "learning_rate"


def best_rate_verdicts(groups: list[Group]) -> list[str]:
    """A line for each two arms of a setting that were run at several learning rates."""
    families: dict[str, list[Group]] = {}
    for group in groups:
        if group.values.get(RATE) is not None:
            rest = {name: value for name, value in group.values.items() if name != RATE}
            families.setdefault(json.dumps(rest), []).append(group)
    return [
        labelled(json.loads(rest), _verdict(family, arm, reference))
        for rest, family in families.items()
        if len(family) > 1
        for arm, reference in _compared(family)
    ]


def _compared(family: list[Group]) -> list[tuple[str, str]]:
    compared = {arm: reference for group in family for arm, reference in group.references.items()}
    return [(arm, reference) for arm, reference in compared.items() if _with_arm(family, reference)]


def _verdict(family: list[Group], arm: str, reference: str) -> str:
    best = {name: _best(family, name) for name in (arm, reference)}
    rates = ", ".join(f"{name} {group.values[RATE]}" for name, group in best.items())
    pairs, _ = match_seeds(best[arm].arms[arm], best[reference].arms[reference], arm, reference)
    start = f"each arm at its own best learning rate ({rates}, chosen on these same runs)"
    if not pairs:
        return f"{start}: no pair of runs may be compared"
    verdict = f"{start}: {difference_sentence(paired_difference(pairs, arm, reference))}"
    at_edge = [name for name, group in best.items() if _at_edge(family, name, group)]
    if at_edge:
        verdict += f"; the best {' and '.join(at_edge)} rate is the lowest or highest one tried"
    return verdict


def _best(family: list[Group], arm: str) -> Group:
    return min(_with_arm(family, arm), key=lambda group: group.mean_bits_per_byte(arm))


def _at_edge(family: list[Group], arm: str, best: Group) -> bool:
    rates = [group.values[RATE] for group in _with_arm(family, arm)]
    return best.values[RATE] in (min(rates), max(rates))


def _with_arm(family: list[Group], arm: str) -> list[Group]:
    return [group for group in family if arm in group.arms]
