"""Each arm at its own best learning rate: the rate is a nuisance, and one rate may favour one arm."""

import json

from tielab.report.groups import Group, matched
from tielab.report.pairing import paired_difference
from tielab.report.wording import arm_name, difference_sentence, labelled

RATE = "learning_rate"


def best_rate_verdicts(groups: list[Group]) -> list[str]:
    """A line for each setting with both arms that was run at several learning rates."""
    families: dict[str, list[Group]] = {}
    for group in groups:
        if group.values.get(RATE) is not None:
            rest = {name: value for name, value in group.values.items() if name != RATE}
            families.setdefault(json.dumps(rest), []).append(group)
    tuned = {rest: family for rest, family in families.items() if _tuned(family)}
    return [labelled(json.loads(rest), _verdict(family)) for rest, family in tuned.items()]


def _tuned(family: list[Group]) -> bool:
    return len(family) > 1 and all(any(group.arms[tied] for group in family) for tied in (True, False))


def _verdict(family: list[Group]) -> str:
    best = {tied: _best(family, tied) for tied in (True, False)}
    rates = ", ".join(f"{arm_name(tied)} {group.values[RATE]}" for tied, group in best.items())
    pairs, _ = matched(best[True].arms[True], best[False].arms[False])
    start = f"each arm at its own best learning rate ({rates}, chosen on these same runs)"
    if not pairs:
        return f"{start}: no pair of runs may be compared"
    verdict = f"{start}: {difference_sentence(paired_difference(pairs))}"
    at_edge = [arm_name(tied) for tied, group in best.items() if _at_edge(family, tied, group)]
    if at_edge:
        verdict += f"; the best {' and '.join(at_edge)} rate is the lowest or highest one tried"
    return verdict


def _best(family: list[Group], tied: bool) -> Group:
    return min(_with_arm(family, tied), key=lambda group: group.mean_bits_per_byte(tied))


def _at_edge(family: list[Group], tied: bool, best: Group) -> bool:
    rates = [group.values[RATE] for group in _with_arm(family, tied)]
    return best.values[RATE] in (min(rates), max(rates))


def _with_arm(family: list[Group], tied: bool) -> list[Group]:
    return [group for group in family if group.arms[tied]]
